package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"orrery.dev/test/conformance/images"
	"orrery.dev/test/conformance/registry"
)

// dataDir is where the cluster that a run starts keeps everything. The nodes are
// told in hostsDir where to pull; it is not below /tmp, which every node has for
// itself.
const (
	dataDir  = "/var/lib/orrery-conformance"
	hostsDir = "/var/lib/orrery-conformance-registry"
)

// lockFile is held by the run that has a cluster in dataDir. It outlives no
// process, whatever ends it.
const lockFile = "/run/orrery-conformance.lock"

func lock() (*os.File, error) {
	file, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of the run: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, errors.New("another run is going on on this machine")
	}
	return file, nil
}

// startCluster starts a fresh cluster whose nodes pull from the registry at
// address, and returns its kubeconfig and what takes it away.
func (o Options) startCluster(ctx context.Context) (string, func() error, error) {
	if os.Geteuid() != 0 {
		return "", nil, errors.New("a cluster with containers needs root; another cluster can be named with -kubeconfig (make: CLUSTER=FILE)")
	}
	orrery, err := filepath.Abs(o.Orrery)
	if err != nil {
		return "", nil, err
	}
	held, err := lock()
	if err != nil {
		return "", nil, err
	}
	kubeconfig, down, err := o.startClusterAlone(ctx, orrery)
	return kubeconfig, func() error { return errors.Join(down(), held.Close()) }, err
}

// startClusterAlone always returns what takes away what it has done.
func (o Options) startClusterAlone(ctx context.Context, orrery string) (string, func() error, error) {
	nothing := func() error { return nil }
	down := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		return o.command(ctx, orrery, "down", "--purge", "--data-dir", dataDir)
	}
	if _, err := os.Stat(dataDir); err == nil {
		fmt.Fprintln(o.Out, "cluster: take away what an earlier run left")
		if err := down(); err != nil {
			return "", nothing, err
		}
	}
	if err := noOtherCluster(); err != nil {
		return "", nothing, err
	}
	clean := func() error { return errors.Join(down(), os.RemoveAll(hostsDir)) }
	if err := registry.WriteHosts(hostsDir, o.Registry); err != nil {
		return "", clean, err
	}
	args := []string{"up", "--nodes", fmt.Sprint(o.Nodes), "--data-dir", dataDir, "--registry-config", hostsDir}
	fmt.Fprintf(o.Out, "cluster: orrery %s\n", strings.Join(args, " "))
	return filepath.Join(dataDir, "kubeconfig", "admin.conf"), clean, o.command(ctx, orrery, args...)
}

// noOtherCluster must be known before anything is done: taking ours away would
// take the other one's network rules along.
func noOtherCluster() error {
	l, err := net.Listen("tcp", ":6443")
	if err != nil {
		return fmt.Errorf("a cluster runs on this machine already (%w): orrery down stops it; make conformance CLUSTER=FILE measures it", err)
	}
	return l.Close()
}

// command runs a program in a process group of its own, so that a Ctrl-C for the
// run does not hit the program that takes the cluster away.
func (o Options) command(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	ownGroup(command)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 20 * time.Second
	command.Stdout, command.Stderr = o.Out, o.Out
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return nil
}

// serveImages answers for registry.k8s.io at an address that the nodes reach.
func (o Options) serveImages() (io.Closer, error) {
	handler, err := registry.New(images.Dir(o.Cache))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Registry)
	if err != nil {
		return nil, fmt.Errorf("registry of the images: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends by Close
	return server, nil
}

// kubectl runs the suite's kubectl on the cluster.
func (o Options) kubectl(ctx context.Context, input string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, o.Cache.Program("kubectl"), append([]string{"--kubeconfig", o.Kubeconfig}, args...)...)
	ownGroup(command)
	command.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out, nil
}

func (o Options) serverVersion(ctx context.Context) (string, error) {
	out, err := o.kubectl(ctx, "", "get", "--raw", "/version")
	if err != nil {
		return "", err
	}
	var version struct{ GitVersion string }
	if err := json.Unmarshal(out, &version); err != nil {
		return "", fmt.Errorf("the server's version: %w", err)
	}
	return version.GitVersion, nil
}

// pulled are the images that nearly all tests need, and those that are large.
// The first tests would else time out on a machine that pulls for all at once.
var pulled = []string{images.Agnhost, images.Busybox, "e2e-test-images/agnhost:2.55", "e2e-test-images/nginx:1.27.0-2"}

const pullPatience = 3 * time.Minute

// pullImages brings them to every node where tests may run, by a DaemonSet, as
// on any cluster.
func (o Options) pullImages(ctx context.Context) error {
	deadline := time.After(pullPatience)
	if _, err := o.kubectl(ctx, pullManifest(), "apply", "-f", "-"); err != nil {
		return err
	}
	defer func() {
		// The suite waits for no pod of ours: the namespace goes away in its own time.
		_, _ = o.kubectl(context.WithoutCancel(ctx), "", "delete", "namespace", "conformance-images", "--timeout=60s")
	}()
	last := ""
	for {
		out, err := o.kubectl(ctx, "", "get", "daemonset", "pull", "-n", "conformance-images", "-o", "jsonpath={.status.observedGeneration} {.status.numberReady} {.status.desiredNumberScheduled}")
		if err != nil {
			return err
		}
		var seen, ready, wanted int
		if _, err := fmt.Sscan(string(out), &seen, &ready, &wanted); err == nil && seen > 0 {
			if line := fmt.Sprintf("images: on %d of %d nodes\n", ready, wanted); line != last {
				last = line
				fmt.Fprint(o.Out, line)
			}
			if ready == wanted && wanted > 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return o.whyNotPulled(ctx)
		case <-time.After(time.Second):
		}
	}
}

// whyNotPulled is what the nodes say about it, in the last event of that kind.
func (o Options) whyNotPulled(ctx context.Context) error {
	out, err := o.kubectl(ctx, "", "get", "events", "-n", "conformance-images", "--field-selector", "reason=Failed", "-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "pull") {
			return fmt.Errorf("not on all nodes after %s: %s", pullPatience, strings.TrimSpace(line))
		}
	}
	return fmt.Errorf("not on all nodes after %s", pullPatience)
}

func pullManifest() string {
	var b strings.Builder
	b.WriteString(`apiVersion: v1
kind: Namespace
metadata: {name: conformance-images}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: pull, namespace: conformance-images}
spec:
  selector: {matchLabels: {app: pull}}
  template:
    metadata: {labels: {app: pull}}
    spec:
      terminationGracePeriodSeconds: 0
      initContainers:
`)
	for i, name := range pulled {
		fmt.Fprintf(&b, "      - {name: pull-%d, image: %q, command: [/bin/sh, -c, exit 0]}\n", i, "registry.k8s.io/"+name)
	}
	fmt.Fprintf(&b, "      containers:\n      - {name: pause, image: %q}\n", "registry.k8s.io/"+images.Pause)
	return b.String()
}
