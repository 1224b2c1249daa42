package nodeagent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// serveSummary serves what pods and node use now.
func (a *Agent) serveSummary(w http.ResponseWriter, r *http.Request) {
	s, err := a.summary(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, s)
}

func (a *Agent) summary(ctx context.Context) (*stats.Summary, error) {
	out := &stats.Summary{Pods: []stats.PodStats{}}
	sandboxes, err := a.cfg.Runtime.ListPodSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{})
	if err != nil {
		return nil, fmt.Errorf("statistics of pods: %w", err)
	}
	for _, s := range sandboxes {
		at := s.GetAttributes()
		pod := stats.PodStats{
			PodRef:    stats.PodReference{Name: at.GetMetadata().GetName(), Namespace: at.GetMetadata().GetNamespace(), UID: at.GetMetadata().GetUid()},
			StartTime: metav1.NewTime(a.started),
			CPU:       cpuStats(s.GetLinux().GetCpu()),
			Memory:    memoryStats(s.GetLinux().GetMemory()),
			Network:   networkStats(s.GetLinux().GetNetwork()),
		}
		if worker := a.pods.get(typesUID(pod.PodRef.UID)); worker != nil {
			if st := a.statuses.latest(worker.uid); st != nil && st.StartTime != nil {
				pod.StartTime = *st.StartTime
			}
		}
		if n := s.GetLinux().GetProcess().GetProcessCount(); n != nil {
			pod.ProcessStats = &stats.ProcessStats{ProcessCount: ptr.To(n.GetValue())}
		}
		for _, c := range s.GetLinux().GetContainers() {
			if c.GetCpu().GetUsageCoreNanoSeconds() == nil {
				continue // ended
			}
			cs := stats.ContainerStats{
				Name: c.GetAttributes().GetLabels()["io.kubernetes.container.name"], StartTime: pod.StartTime,
				CPU: cpuStats(c.GetCpu()), Memory: memoryStats(c.GetMemory()),
			}
			if l := c.GetWritableLayer(); l != nil {
				cs.Rootfs = &stats.FsStats{Time: metav1.NewTime(time.Unix(0, l.Timestamp)), UsedBytes: value(l.UsedBytes), InodesUsed: value(l.InodesUsed)}
			}
			pod.Containers = append(pod.Containers, cs)
		}
		out.Pods = append(out.Pods, pod)
	}
	out.Node = a.nodeStats(out.Pods)
	return out, nil
}

func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return ptr.To(v.Value)
}

func cpuStats(c *runtimeapi.CpuUsage) *stats.CPUStats {
	if c == nil {
		return nil
	}
	return &stats.CPUStats{Time: metav1.NewTime(time.Unix(0, c.Timestamp)), UsageNanoCores: value(c.UsageNanoCores), UsageCoreNanoSeconds: value(c.UsageCoreNanoSeconds)}
}

func memoryStats(m *runtimeapi.MemoryUsage) *stats.MemoryStats {
	if m == nil {
		return nil
	}
	return &stats.MemoryStats{
		Time: metav1.NewTime(time.Unix(0, m.Timestamp)), AvailableBytes: value(m.AvailableBytes), UsageBytes: value(m.UsageBytes),
		WorkingSetBytes: value(m.WorkingSetBytes), RSSBytes: value(m.RssBytes), PageFaults: value(m.PageFaults), MajorPageFaults: value(m.MajorPageFaults),
	}
}

func networkStats(n *runtimeapi.NetworkUsage) *stats.NetworkStats {
	if n == nil {
		return nil
	}
	out := &stats.NetworkStats{Time: metav1.NewTime(time.Unix(0, n.Timestamp))}
	one := func(i *runtimeapi.NetworkInterfaceUsage) stats.InterfaceStats {
		return stats.InterfaceStats{Name: i.GetName(), RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()), TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors())}
	}
	if n.DefaultInterface != nil {
		out.InterfaceStats = one(n.DefaultInterface)
		out.Interfaces = append(out.Interfaces, out.InterfaceStats)
	}
	for _, i := range n.Interfaces {
		out.Interfaces = append(out.Interfaces, one(i))
	}
	return out
}

// simulatedStats is the sum of the pods' figures: nothing else happens on a
// simulated node.
func (a *Agent) simulatedStats(pods []stats.PodStats) stats.NodeStats {
	now := metav1.Now()
	var cpu, busy, memory uint64
	for _, p := range pods {
		if p.CPU != nil && p.Memory != nil {
			cpu += ptr.Deref(p.CPU.UsageNanoCores, 0)
			busy += ptr.Deref(p.CPU.UsageCoreNanoSeconds, 0)
			memory += ptr.Deref(p.Memory.WorkingSetBytes, 0)
		}
	}
	size := a.cfg.Capacity[corev1.ResourceMemory]
	return stats.NodeStats{
		NodeName: a.cfg.NodeName, StartTime: metav1.NewTime(a.started),
		CPU:    &stats.CPUStats{Time: now, UsageNanoCores: &cpu, UsageCoreNanoSeconds: &busy},
		Memory: &stats.MemoryStats{Time: now, UsageBytes: &memory, WorkingSetBytes: &memory, RSSBytes: &memory, AvailableBytes: ptr.To(uint64(size.Value()) - memory)},
	}
}

// nodeStats reads the machine's own counters.
func (a *Agent) nodeStats(pods []stats.PodStats) stats.NodeStats {
	if a.cfg.Simulated {
		return a.simulatedStats(pods)
	}
	now := metav1.Now()
	out := stats.NodeStats{NodeName: a.cfg.NodeName, StartTime: metav1.NewTime(bootTime())}
	if busy, ok := cpuBusy(); ok {
		out.CPU = &stats.CPUStats{Time: now, UsageCoreNanoSeconds: ptr.To(busy), UsageNanoCores: ptr.To(a.cpuRate.rate(busy, now.Time))}
	}
	total, available := memoryOf()
	used := uint64(total - available)
	out.Memory = &stats.MemoryStats{Time: now, AvailableBytes: ptr.To(uint64(available)), UsageBytes: ptr.To(used), WorkingSetBytes: ptr.To(used), RSSBytes: ptr.To(used), PageFaults: ptr.To(uint64(0)), MajorPageFaults: ptr.To(uint64(0))}
	out.Fs = fsStats(a.cfg.RootDir, now)
	out.Runtime = &stats.RuntimeStats{ImageFs: fsStats(a.imageRoot(), now)}
	out.Network = hostNetwork(now)
	return out
}

func fsStats(path string, now metav1.Time) *stats.FsStats {
	d, ok := diskOf(path)
	if !ok {
		return nil
	}
	return &stats.FsStats{
		Time: now, AvailableBytes: ptr.To(uint64(d.free)), CapacityBytes: ptr.To(uint64(d.size)), UsedBytes: ptr.To(uint64(d.size - d.free)),
		InodesFree: ptr.To(uint64(d.inodesFree)), Inodes: ptr.To(uint64(d.inodes)), InodesUsed: ptr.To(uint64(d.inodes - d.inodesFree)),
	}
}

// cpuBusy is the time that all cores have worked since boot, in nanoseconds.
func cpuBusy() (uint64, bool) {
	const tick = 10_000_000 // USER_HZ is 100 on every Linux that Go runs on
	first, _, _ := strings.Cut(line("/proc/stat"), "\n")
	words := strings.Fields(first)
	if len(words) < 9 || words[0] != "cpu" {
		return 0, false
	}
	var busy uint64
	for i, w := range words[1:9] {
		if i == 3 || i == 4 { // idle, waiting for disks
			continue
		}
		n, _ := strconv.ParseUint(w, 10, 64)
		busy += n * tick
	}
	return busy, true
}

func bootTime() time.Time {
	for _, l := range strings.Split(line("/proc/stat"), "\n") {
		if v, ok := strings.CutPrefix(l, "btime "); ok {
			n, _ := strconv.ParseInt(v, 10, 64)
			return time.Unix(n, 0)
		}
	}
	return time.Time{}
}

func hostNetwork(now metav1.Time) *stats.NetworkStats {
	data, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil
	}
	out := &stats.NetworkStats{Time: now}
	for _, l := range strings.Split(string(data), "\n") {
		name, rest, ok := strings.Cut(l, ":")
		words := strings.Fields(rest)
		name = strings.TrimSpace(name)
		if !ok || len(words) < 16 || name == "lo" || strings.HasPrefix(name, "veth") || strings.HasPrefix(name, "ifb") {
			continue
		}
		n := func(i int) *uint64 { v, _ := strconv.ParseUint(words[i], 10, 64); return &v }
		s := stats.InterfaceStats{Name: name, RxBytes: n(0), RxErrors: n(2), TxBytes: n(8), TxErrors: n(10)}
		if out.Name == "" {
			out.InterfaceStats = s
		}
		out.Interfaces = append(out.Interfaces, s)
	}
	return out
}
