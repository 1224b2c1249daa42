package simulate

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a simulated container is said to use.
const (
	cpuPerSecond = 5_000_000 // nanoseconds: half a hundredth of a core
	memoryInUse  = 20 << 20  // bytes
)

// ContainerStats invents steady use.
func (r *Runtime) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(id)
	if err != nil {
		return nil, err
	}
	return c.stats(), nil
}

func (c *container) stats() *runtimeapi.ContainerStats {
	now := time.Now()
	var ran time.Duration
	if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		ran = now.Sub(c.started)
	}
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations},
		Cpu: &runtimeapi.CpuUsage{Timestamp: now.UnixNano(), UsageNanoCores: &runtimeapi.UInt64Value{Value: cpuPerSecond},
			UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: uint64(ran.Seconds() * cpuPerSecond)}},
		Memory: &runtimeapi.MemoryUsage{Timestamp: now.UnixNano(), WorkingSetBytes: &runtimeapi.UInt64Value{Value: memoryInUse},
			UsageBytes: &runtimeapi.UInt64Value{Value: memoryInUse}},
	}
}

// ListContainerStats lists those of the containers that run.
func (r *Runtime) ListContainerStats(_ context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtimeapi.ContainerStats
	for _, c := range r.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING && (filter.GetId() == "" || filter.Id == c.id) &&
			(filter.GetPodSandboxId() == "" || filter.PodSandboxId == c.sandbox.id) && selects(filter.GetLabelSelector(), c.config.Labels) {
			list = append(list, c.stats())
		}
	}
	return list, nil
}

// PodSandboxStats adds up the containers of one pod.
func (r *Runtime) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	list, err := r.ListPodSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{Id: id})
	if err != nil || len(list) == 0 {
		_, err := r.PodSandboxStatus(ctx, id, false)
		return nil, err
	}
	return list[0], nil
}

// ListPodSandboxStats lists all pods' use.
func (r *Runtime) ListPodSandboxStats(_ context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtimeapi.PodSandboxStats
	for _, s := range r.sandboxes {
		if filter.GetId() != "" && filter.Id != s.id || !selects(filter.GetLabelSelector(), s.config.Labels) {
			continue
		}
		stats := &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: s.id, Metadata: s.config.Metadata, Labels: s.config.Labels, Annotations: s.config.Annotations},
			Linux:      &runtimeapi.LinuxPodSandboxStats{},
		}
		stats.Linux.Cpu, stats.Linux.Memory = r.sum(s, stats.Linux)
		list = append(list, stats)
	}
	return list, nil
}

// ListMetricDescriptors has none.
func (r *Runtime) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, nil
}

// ListPodSandboxMetrics has none.
func (r *Runtime) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, nil
}

// sum lists the stats of a pod's containers in into, and adds them up. Callers
// hold mu.
func (r *Runtime) sum(s *sandbox, into *runtimeapi.LinuxPodSandboxStats) (*runtimeapi.CpuUsage, *runtimeapi.MemoryUsage) {
	now := time.Now().UnixNano()
	var rate, busy, memory uint64
	for _, c := range r.containers {
		if c.sandbox != s {
			continue
		}
		one := c.stats()
		into.Containers = append(into.Containers, one)
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			rate += one.Cpu.UsageNanoCores.Value
			busy += one.Cpu.UsageCoreNanoSeconds.Value
			memory += one.Memory.WorkingSetBytes.Value
		}
	}
	value := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	return &runtimeapi.CpuUsage{Timestamp: now, UsageNanoCores: value(rate), UsageCoreNanoSeconds: value(busy)},
		&runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: value(memory), UsageBytes: value(memory)}
}
