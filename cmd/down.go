package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"orrery.dev/cluster"
	"orrery.dev/nodeagent/proxy"
	"orrery.dev/nodeagent/runtime"
)

func newDownCommand() *cobra.Command {
	var dataDir string
	var purge bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster on this machine, and leave nothing running or mounted",
		Long: `Stop the cluster on this machine: all pods, the node agent, the container
runtime, and the network rules. What it keeps stays; orrery up goes on with it.
With --purge that goes as well, and the next orrery up makes a new cluster.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runDown(c.Context(), c.OutOrStdout(), dataDir, purge)
		},
	}
	dataDirFlag(c, &dataDir)
	c.Flags().BoolVar(&purge, "purge", false, "remove all data of the cluster too")
	return c
}

// runDown finds the cluster on this machine and takes it down.
func runDown(ctx context.Context, out io.Writer, dataDir string, purge bool) error {
	if os.Geteuid() != 0 {
		return errors.New("stopping a cluster needs root: run it with sudo")
	}
	n, err := existing(dataDir)
	if err != nil {
		if !purge {
			return err
		}
		n = &node{upOptions: upOptions{dataDir: dataDir, nodes: 1, nodeCIDR: anyRange}, layout: cluster.Layout{Dir: dataDir}}
	}
	return n.takeDown(ctx, out, purge)
}

// takeDown undoes bringUp, last things first. Each step does what is left to do,
// so that a second run finishes what a killed one began.
func (n *node) takeDown(ctx context.Context, out io.Writer, purge bool) error {
	say := newProgress(out)
	steps := []step{
		{"further nodes", n.stopMachines},
		{"node agent", func(context.Context) error { return n.agent().stop(20 * time.Second) }},
		{"pods", n.stopPods},
		{"container runtime", n.stopRuntime},
		{"network", n.removeNetwork},
		{"mounts", func(context.Context) error { return n.unmount() }},
		{"runtime state", func(context.Context) error { return n.removeVolatile() }},
		{"cgroups", func(context.Context) error { removeCgroups("/sys/fs/cgroup"); return nil }},
	}
	if purge {
		steps = append(steps, step{"data", func(context.Context) error { return n.removeData() }})
	}
	for _, s := range steps {
		if err := say.step(s.what, func() error { return s.do(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

// stopPods stops every sandbox, the pods of users first, so that they can still
// say goodbye to a cluster that works. It starts the runtime if that is down: its
// containers may be running.
func (n *node) stopPods(ctx context.Context) error {
	if n.runtimeEndpoint == "" && !exists(n.layout.Containerd()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := n.startRuntime(ctx); err != nil {
		return err
	}
	services, _, err := runtime.Connect(ctx, n.endpoint())
	if err != nil {
		return err
	}
	sandboxes, err := services.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	slices.SortStableFunc(sandboxes, func(a, b *runtimeapi.PodSandbox) int { return systemLast(a) - systemLast(b) })
	for _, group := range groupBy(sandboxes, systemLast) {
		done := make(chan error, len(group))
		for _, sandbox := range group {
			go func() {
				done <- stopPod(ctx, services, sandbox.Id)
			}()
		}
		var failed error
		for range group {
			failed = errors.Join(failed, <-done)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// stopPod lets a pod's containers end by themselves for a while, then takes the
// pod away.
func stopPod(ctx context.Context, services internalapi.RuntimeService, sandbox string) error {
	const grace = 10 // seconds
	containers, err := services.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: sandbox})
	if err != nil {
		return err
	}
	var stopping sync.WaitGroup
	for _, c := range containers {
		stopping.Go(func() {
			// What does not stop is killed with its sandbox.
			_ = services.StopContainer(ctx, c.Id, grace)
		})
	}
	stopping.Wait()
	return errors.Join(services.StopPodSandbox(ctx, sandbox), services.RemovePodSandbox(ctx, sandbox))
}

func systemLast(s *runtimeapi.PodSandbox) int {
	switch {
	case s.Labels["component"] == "etcd":
		return 2
	case s.Metadata.Namespace == "kube-system":
		return 1
	}
	return 0
}

func groupBy[T any](all []T, key func(T) int) [][]T {
	var groups [][]T
	for i, item := range all {
		if i == 0 || key(all[i-1]) != key(item) {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], item)
	}
	return groups
}

func (n *node) stopRuntime(context.Context) error {
	if n.runtimeEndpoint != "" {
		return nil
	}
	return errors.Join(n.runtime().stop(20*time.Second), killShims(n.layout.Bin()))
}

func (n *node) removeNetwork(ctx context.Context) error {
	if err := proxy.Cleanup(ctx); err != nil {
		return err
	}
	return runtime.RemoveCNI(n.podRange())
}

// podRange is this node's share of the pod network, from its configuration.
func (n *node) podRange() string {
	data, err := os.ReadFile(filepath.Join(n.layout.Kubelet(), podRangeFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// unmount detaches whatever is mounted below our directories, deepest first.
func (n *node) unmount() error {
	mounts, err := mountsBelow(n.layout.Dir, n.layout.Volatile(""))
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(mounts) {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}

// removeCgroups takes away the pods' control groups, in every hierarchy, deepest
// first. One in which something still runs cannot be removed, and stays.
func removeCgroups(root string) {
	var tops []string
	for _, name := range []string{"kubepods", machineCgroups} {
		below, _ := filepath.Glob(filepath.Join(root, "*", name)) // version 1
		tops = append(append(tops, below...), filepath.Join(root, name))
	}
	for _, top := range tops {
		var groups []string
		_ = filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for _, group := range slices.Backward(groups) {
			_ = os.Remove(group) // rmdir
		}
	}
}

// mountsBelow lists mount points (proc_pid_mountinfo(5), field 5) in the order in
// which they were made.
func mountsBelow(dirs ...string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		path := unescape.Replace(fields[4])
		for _, dir := range dirs {
			if strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
				found = append(found, path)
			}
		}
	}
	return found, lines.Err()
}

// removeVolatile removes what a reboot would.
func (n *node) removeVolatile() error {
	mounts, err := mountsBelow(n.layout.Volatile(""))
	if err != nil || len(mounts) > 0 {
		return err // detached mounts may linger a moment; the next start copes
	}
	return os.RemoveAll(n.layout.Volatile(""))
}

// removeData removes the data directory. It refuses while something is mounted
// in it: what is mounted may be a user's.
func (n *node) removeData() error {
	mounts, err := mountsBelow(n.layout.Dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is still mounted: unmount it, then run this again", mounts[0])
	}
	for _, dir := range []string{n.layout.Dir, n.layout.Volatile("")} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
