package cmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// lookAfter is how often the daemons are looked at.
	lookAfter = 5 * time.Second
	// restartPatience bounds how long a restarted runtime may take to answer.
	restartPatience = time.Minute
	// stopPatience bounds the taking down of everything.
	stopPatience = 3 * time.Minute
)

// stay keeps the daemons of a cluster running until ctx ends, then takes the
// cluster down as `orrery down` does. It is what a container's first process, or
// a unit of the host's service manager, has to do.
func (n *node) stay(ctx context.Context, out io.Writer) error {
	n.keep(ctx, out)
	fmt.Fprintln(out)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	return n.takeDown(ending, out, false)
}

// keep starts daemons that have ended again, until ctx ends.
func (n *node) keep(ctx context.Context, out io.Writer) {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			reapOrphans()
			n.mend(ctx, out)
		}
	}
}

// mend starts a daemon again that has ended. Its pods were not touched by that.
func (n *node) mend(ctx context.Context, out io.Writer) {
	again := func(what string, start func(context.Context) error) {
		trying, cancel := context.WithTimeout(ctx, restartPatience)
		defer cancel()
		err := start(trying)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			fmt.Fprintf(out, "%s ended and cannot be started: %v\n", what, err)
			return
		}
		fmt.Fprintf(out, "%s ended and was started again\n", what)
	}
	if n.runtimeEndpoint == "" && !n.runtime().running() {
		again("the container runtime", n.startRuntime)
	}
	if !n.agent().running() {
		again("the node agent", n.startAgent)
	}
	if !n.worker {
		n.mendMachines(out)
	}
}

// reapOrphans takes note of the ends of processes that the kernel gave to us:
// process 1 inherits the shims of all pods, and must not leave zombies. It is
// only called while this process runs no program that it waits for itself.
func reapOrphans() {
	if os.Getpid() != 1 {
		return
	}
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			return
		}
	}
}

const cgroupRoot = "/sys/fs/cgroup"

// leaveRootCgroup moves the processes of this container into a cgroup of their
// own. In cgroup v2 the root of a container is an ordinary cgroup, and such a one
// cannot have both processes and children with limits: pods would have none.
func leaveRootCgroup() error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	// The host's own root has no type.
	if strings.TrimSpace(string(own)) != "0::/" || !exists(filepath.Join(cgroupRoot, "cgroup.type")) {
		return nil
	}
	dir := filepath.Join(cgroupRoot, "orrery")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cgroup of this container: %w", err)
	}
	processes, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("cgroup of this container: %w", err)
	}
	for _, pid := range bytes.Fields(processes) {
		// One that has ended meanwhile is as good as moved.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), pid, 0o644)
	}
	return nil
}
