package nodeagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"orrery.dev/api"
)

const (
	cgroupMount   = "/sys/fs/cgroup"
	minShares     = 2
	maxShares     = 262144
	minQuota      = 1000 // microseconds
	quotaPeriod   = 100000
	sharesPerCore = 1024
)

// cgroups makes the cgroup of each pod, below that of its QoS class:
// kubepods/pod…, kubepods/burstable/pod…, kubepods/besteffort/pod…. On a
// machine where that is not permitted, pods do without.
type cgroups struct {
	root    string // of all pods, "/kubepods"
	v2      bool
	off     bool
	pids    int64
	a       *Agent
	hierach []string // v1: the controllers' mount points

	mu sync.Mutex // serialises changes to the tiers
}

func newCgroups(a *Agent) *cgroups {
	k := a.cfg.Kubelet
	c := &cgroups{a: a, pids: *k.PodPidsLimit, root: filepath.Join("/", k.CgroupRoot, "kubepods"), off: !*k.CgroupsPerQOS}
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		c.v2 = true
		c.hierach = []string{cgroupMount}
	} else {
		for _, name := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "blkio", "devices", "freezer", "net_cls", "net_prio", "perf_event", "systemd"} {
			dir, err := filepath.EvalSymlinks(filepath.Join(cgroupMount, name))
			if err == nil && !slices.Contains(c.hierach, dir) {
				c.hierach = append(c.hierach, dir)
			}
		}
	}
	if c.off {
		return c
	}
	for _, tier := range []string{c.root, c.root + "/burstable", c.root + "/besteffort"} {
		if err := c.make(tier); err != nil {
			a.log.Warn("cgroups can't be made, pods run without", "err", err)
			c.off = true
			return c
		}
	}
	c.setTiers()
	return c
}

// make makes a cgroup in every hierarchy. A cpuset of v1 has to be filled
// before a process can enter.
func (c *cgroups) make(name string) error {
	for _, h := range c.hierach {
		dir := filepath.Join(h, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if filepath.Base(h) == "cpuset" && !c.v2 {
			if err := inheritCpuset(h, name); err != nil {
				return err
			}
		}
	}
	if c.v2 {
		return c.delegate(name)
	}
	return nil
}

func inheritCpuset(hierarchy, name string) error {
	dir := hierarchy
	for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
		parent := dir
		dir = filepath.Join(dir, part)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			have, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return err
			}
			if strings.TrimSpace(string(have)) != "" {
				continue
			}
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate turns on the controllers for a cgroup of v2, from the root down.
func (c *cgroups) delegate(name string) error {
	dir := cgroupMount
	for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
		have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, controller := range strings.Fields(string(have)) {
			// One that can't be delegated is one we do without.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
		dir = filepath.Join(dir, part)
	}
	return nil
}

// parent is the cgroup that a pod's containers go below; empty leaves the
// choice to the runtime.
func (c *cgroups) parent(pod *corev1.Pod) string {
	if c.off {
		return ""
	}
	switch api.PodQOS(pod) {
	case corev1.PodQOSGuaranteed:
		return c.root + "/pod" + string(pod.UID)
	case corev1.PodQOSBurstable:
		return c.root + "/burstable/pod" + string(pod.UID)
	}
	return c.root + "/besteffort/pod" + string(pod.UID)
}

// ensure makes a pod's cgroup and sets its limits.
func (c *cgroups) ensure(pod *corev1.Pod) error {
	if c.off {
		return nil
	}
	name := c.parent(pod)
	if err := c.make(name); err != nil {
		return err
	}
	if err := c.limit(name, c.a.podResources(pod)); err != nil {
		return err
	}
	if c.pids > 0 {
		c.write("pids", name, "pids.max", strconv.FormatInt(c.pids, 10))
	}
	c.setTiers()
	return nil
}

// widen lets a pod's cgroup have what it has or what the pod was promised,
// whichever is more, so that its containers can be changed in any order.
func (c *cgroups) widen(pod *corev1.Pod, has *runtimeapi.LinuxContainerResources) error {
	if c.off {
		return nil
	}
	r := c.a.podResources(pod)
	widest := func(a, b int64) int64 {
		if a <= 0 || b <= 0 {
			return 0 // no limit
		}
		return max(a, b)
	}
	r.CpuShares = max(r.CpuShares, has.CpuShares)
	r.CpuQuota = widest(r.CpuQuota, has.CpuQuota)
	r.MemoryLimitInBytes = widest(r.MemoryLimitInBytes, has.MemoryLimitInBytes)
	return c.limit(c.parent(pod), r)
}

// limit sets a cgroup's shares, quota and memory limit.
func (c *cgroups) limit(name string, r *runtimeapi.LinuxContainerResources) error {
	if r == nil {
		return nil
	}
	if c.v2 {
		quota := "max"
		if r.CpuQuota > 0 {
			quota = strconv.FormatInt(r.CpuQuota, 10)
		}
		memory := "max"
		if r.MemoryLimitInBytes > 0 {
			memory = strconv.FormatInt(r.MemoryLimitInBytes, 10)
		}
		return errors.Join(
			c.write("", name, "cpu.weight", strconv.FormatInt(weight(r.CpuShares), 10)),
			c.write("", name, "cpu.max", fmt.Sprintf("%s %d", quota, max(r.CpuPeriod, quotaPeriod))),
			c.write("", name, "memory.max", memory),
		)
	}
	quota := int64(-1)
	if r.CpuQuota > 0 {
		quota = r.CpuQuota
	}
	memory := int64(-1)
	if r.MemoryLimitInBytes > 0 {
		memory = r.MemoryLimitInBytes
	}
	return errors.Join(
		c.write("cpu", name, "cpu.shares", strconv.FormatInt(max(r.CpuShares, minShares), 10)),
		c.write("cpu", name, "cpu.cfs_period_us", strconv.FormatInt(max(r.CpuPeriod, quotaPeriod), 10)),
		c.write("cpu", name, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)),
		c.write("memory", name, "memory.limit_in_bytes", strconv.FormatInt(memory, 10)),
	)
}

func (c *cgroups) write(controller, name, file, value string) error {
	path := filepath.Join(cgroupMount, controller, name, file)
	if _, err := os.Stat(path); err != nil {
		return nil // a controller that is not there limits nothing
	}
	return os.WriteFile(path, []byte(value), 0o644)
}

// weight turns shares of v1 into a weight of v2.
func weight(shares int64) int64 {
	shares = min(max(shares, minShares), maxShares)
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// setTiers gives the burstable tier the sum of its pods' shares, and the
// best-effort tier the least there is.
func (c *cgroups) setTiers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var burstable int64
	for _, w := range c.a.pods.all() {
		pod := w.counted()
		if api.PodQOS(pod) == corev1.PodQOSBurstable && !w.isFinished() {
			req := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
			burstable += req.Cpu().MilliValue()
		}
	}
	set := func(name string, shares int64) {
		if c.v2 {
			c.write("", name, "cpu.weight", strconv.FormatInt(weight(shares), 10))
			return
		}
		c.write("cpu", name, "cpu.shares", strconv.FormatInt(shares, 10))
	}
	set(c.root, sharesOf(c.a.host.cores*1000))
	set(c.root+"/burstable", sharesOf(burstable))
	set(c.root+"/besteffort", minShares)
}

// remove removes a pod's cgroup, whatever its class was.
func (c *cgroups) remove(uid types.UID) error {
	if c.off {
		return nil
	}
	for _, tier := range []string{"", "/burstable", "/besteffort"} {
		for _, h := range c.hierach {
			dir := filepath.Join(h, c.root+tier, "pod"+string(uid))
			if _, err := os.Stat(dir); err != nil {
				continue
			}
			if err := removeTree(dir); err != nil {
				return fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}

// removeTree removes a cgroup and those below it. The kernel needs a moment
// after the last process.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for try := 0; ; try++ {
		err = os.Remove(dir)
		if err == nil || os.IsNotExist(err) {
			return nil
		}
		if try == 5 {
			return err
		}
		time.Sleep(10 * time.Millisecond << try)
	}
}

// podResources are the limits of a whole pod: a limit holds only if every
// container has one, or the pod itself.
func (a *Agent) podResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	req := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	limits := podresources.PodLimits(pod, podresources.PodResourcesOptions{})
	cpuBound, memoryBound := true, true
	for _, c := range containersOf(pod) {
		if isEphemeral(pod, c.Name) {
			continue
		}
		cpuBound = cpuBound && !c.Resources.Limits.Cpu().IsZero()
		memoryBound = memoryBound && !c.Resources.Limits.Memory().IsZero()
	}
	if pod.Spec.Resources != nil {
		cpuBound = cpuBound || !pod.Spec.Resources.Limits.Cpu().IsZero()
		memoryBound = memoryBound || !pod.Spec.Resources.Limits.Memory().IsZero()
	}
	if !cpuBound || !*a.cfg.Kubelet.CPUCFSQuota {
		delete(limits, corev1.ResourceCPU)
	}
	if !memoryBound {
		delete(limits, corev1.ResourceMemory)
	}
	return linuxResources(req, limits, true)
}

// containerResources are a container's cgroup values and its OOM score.
func (a *Agent) containerResources(pod *corev1.Pod, c *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits := sizeOf(pod, c).Limits
	out := linuxResources(c.Resources.Requests, limits, *a.cfg.Kubelet.CPUCFSQuota)
	out.OomScoreAdj = a.oomScore(pod, c)
	for name, q := range limits {
		if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
			out.HugepageLimits = append(out.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: strings.TrimSuffix(size, "i") + "B", Limit: uint64(q.Value())})
		}
	}
	return out
}

func linuxResources(requests, limits corev1.ResourceList, quota bool) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{CpuPeriod: quotaPeriod}
	milli := requests.Cpu().MilliValue()
	if _, ok := requests[corev1.ResourceCPU]; !ok {
		milli = limits.Cpu().MilliValue()
	}
	r.CpuShares = sharesOf(milli)
	if q := limits.Cpu().MilliValue(); q > 0 && quota {
		r.CpuQuota = max(q*quotaPeriod/1000, minQuota)
	}
	if m := limits.Memory().Value(); m > 0 {
		r.MemoryLimitInBytes = m
	}
	return r
}

func sharesOf(milli int64) int64 {
	return min(max(milli*sharesPerCore/1000, minShares), maxShares)
}

// oomScore ranks a container for the kernel's OOM killer. Lowering a score
// below one's own needs CAP_SYS_RESOURCE; without, ours is the lowest.
func (a *Agent) oomScore(pod *corev1.Pod, c *corev1.Container) int64 {
	score := a.wantedOOMScore(pod, c)
	if !a.host.mayLowerOOM {
		score = max(score, a.host.oomScore)
	}
	return score
}

func (a *Agent) wantedOOMScore(pod *corev1.Pod, c *corev1.Container) int64 {
	const protected, bestEffort = -997, 1000
	if isCritical(pod) && (pod.Spec.Priority == nil || *pod.Spec.Priority >= systemNodeCritical) {
		return protected
	}
	switch api.PodQOS(pod) {
	case corev1.PodQOSGuaranteed:
		return protected
	case corev1.PodQOSBestEffort:
		return bestEffort
	}
	if a.host.memory == 0 {
		return bestEffort - 1
	}
	score := bestEffort - bestEffort*c.Resources.Requests.Memory().Value()/a.host.memory
	// Guaranteed pods come last, best-effort ones first.
	return min(max(score, bestEffort+protected), bestEffort-1)
}

const (
	systemClusterCritical = 2000000000
	systemNodeCritical    = 2000001000
)

// isCritical says whether a pod is part of what makes the node work.
func isCritical(pod *corev1.Pod) bool {
	return isStatic(pod) || api.IsMirror(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemClusterCritical
}
