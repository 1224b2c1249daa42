package nodeagent

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"orrery.dev/api"
)

// pressure watches memory, disk and process ids, and evicts pods before the
// kernel has to.
type pressure struct {
	a *Agent

	mu    sync.Mutex           // protects since
	since map[string]time.Time // when a kind of pressure was last seen
}

const pressureEvery = 10 * time.Second

func newPressure(a *Agent) *pressure { return &pressure{a: a, since: map[string]time.Time{}} }

// state says which kinds of pressure the node is under. A kind stays for a
// while after it was last seen, so that it does not flap.
func (p *pressure) state() (memory, disk, pids bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := func(kind string) bool {
		at, ok := p.since[kind]
		return ok && time.Since(at) < p.a.cfg.Kubelet.EvictionPressureTransitionPeriod.Duration
	}
	return is("memory"), is("disk"), is("pid")
}

// refuses says why a new pod may not begin, or nothing.
func (p *pressure) refuses(pod *corev1.Pod) string {
	memory, disk, pids := p.state()
	if !memory && !disk && !pids || isCritical(pod) {
		return ""
	}
	if memory && !disk && !pids {
		taint := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		if api.PodQOS(pod) != corev1.PodQOSBestEffort || corev1helpers.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &taint, false) {
			return ""
		}
	}
	var kinds []string
	for kind, is := range map[string]bool{"MemoryPressure": memory, "DiskPressure": disk, "PIDPressure": pids} {
		if is {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return fmt.Sprintf("The node had condition: %v. ", kinds)
}

// run looks at the node's resources until ctx ends.
func (p *pressure) run(ctx context.Context) error {
	for {
		sleep(ctx, pressureEvery)
		if ctx.Err() != nil {
			return nil
		}
		p.look(ctx)
		p.evictOversized(ctx)
	}
}

// shortage is a resource below its threshold.
type shortage struct {
	kind, signal         string
	resource             corev1.ResourceName
	threshold, available int64
}

func (p *pressure) look(ctx context.Context) {
	short := p.shortages()
	p.mu.Lock()
	changed := false
	for _, s := range short {
		_, was := p.since[s.kind]
		changed = changed || !was
		p.since[s.kind] = time.Now()
	}
	for kind, at := range p.since {
		if time.Since(at) >= p.a.cfg.Kubelet.EvictionPressureTransitionPeriod.Duration {
			delete(p.since, kind)
			changed = true
		}
	}
	p.mu.Unlock()
	if changed {
		p.a.touchNode()
	}
	if len(short) == 0 {
		return
	}
	s := short[0]
	p.a.log.Warn("node is short of a resource", "signal", s.signal, "available", s.available, "threshold", s.threshold)
	if s.kind == "disk" && p.a.freeImages(ctx, s.threshold-s.available) {
		return
	}
	p.evictOne(ctx, s)
}

// shortages compares the eviction thresholds with what there is.
func (p *pressure) shortages() []shortage {
	var out []shortage
	check := func(kind, signal string, name corev1.ResourceName, available, total int64) {
		limit := thresholdOf(p.a.cfg.Kubelet.EvictionHard[signal], total)
		if total > 0 && limit > 0 && available < limit {
			out = append(out, shortage{kind, signal, name, limit, available})
		}
	}
	total, available := memoryOf()
	check("memory", "memory.available", corev1.ResourceMemory, available, total)
	for fs, path := range map[string]string{"nodefs": p.a.cfg.RootDir, "imagefs": p.a.imageRoot()} {
		if d, ok := diskOf(path); ok {
			check("disk", fs+".available", corev1.ResourceEphemeralStorage, d.free, d.size)
			check("disk", fs+".inodesFree", "inodes", d.inodesFree, d.inodes)
		}
	}
	return out
}

// thresholdOf reads "10%" or "100Mi".
func thresholdOf(text string, total int64) int64 {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			return 0
		}
		return int64(n / 100 * float64(total))
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0
	}
	return q.Value()
}

// memoryOf reads how much memory there is and how much could be used.
func memoryOf() (total, available int64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		words := strings.Fields(sc.Text())
		if len(words) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(words[1], 10, 64)
		switch words[0] {
		case "MemTotal:":
			total = n << 10
		case "MemAvailable:":
			available = n << 10
		}
	}
	return total, available
}

// evictOne evicts the pod that exceeds its request by most, of those of lowest
// priority.
func (p *pressure) evictOne(ctx context.Context, s shortage) {
	usage := p.a.usage(ctx, s.resource)
	var candidates []*worker
	for _, w := range p.a.pods.all() {
		if !isCritical(w.wanted()) && !w.isFinished() && w.wanted().DeletionTimestamp == nil {
			candidates = append(candidates, w)
		}
	}
	over := func(w *worker) int64 {
		req := podresources.PodRequests(w.wanted(), podresources.PodResourcesOptions{})
		q := req[s.resource]
		return usage[string(w.uid)] - q.Value()
	}
	slices.SortFunc(candidates, func(x, y *worker) int {
		xo, yo := over(x), over(y)
		if (xo > 0) != (yo > 0) {
			if xo > 0 {
				return -1
			}
			return 1
		}
		if a, b := corev1helpers.PodPriority(x.wanted()), corev1helpers.PodPriority(y.wanted()); a != b {
			return int(a) - int(b)
		}
		return int(min(max(yo-xo, -1), 1))
	})
	if len(candidates) == 0 {
		return
	}
	w := candidates[0]
	message := fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ", s.resource,
		resource.NewQuantity(s.threshold, resource.BinarySI), resource.NewQuantity(s.available, resource.BinarySI))
	p.evict(w, message, true)
}

func (p *pressure) evict(w *worker, message string, disrupts bool) {
	w.event(w.wanted(), corev1.EventTypeWarning, "Evicted", message)
	w.end(stop{phase: corev1.PodFailed, reason: "Evicted", message: message, disrupts: disrupts})
}

// evictOversized evicts pods whose emptyDir volumes outgrew their limits.
func (p *pressure) evictOversized(ctx context.Context) {
	for _, w := range p.a.pods.all() {
		pod := w.wanted()
		if w.isFinished() || ctx.Err() != nil {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.IsZero() || v.EmptyDir.Medium == corev1.StorageMediumMemory {
				continue
			}
			if p.a.volumes.Usage(pod.UID, "kubernetes.io~empty-dir", v.Name) > v.EmptyDir.SizeLimit.Value() {
				p.evict(w, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String()), false)
				break
			}
		}
	}
}

// usage is how much of a resource each pod uses, by UID.
func (a *Agent) usage(ctx context.Context, name corev1.ResourceName) map[string]int64 {
	out := map[string]int64{}
	stats, err := a.cfg.Runtime.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{})
	if err != nil {
		return out
	}
	for _, s := range stats {
		uid := s.GetAttributes().GetLabels()["io.kubernetes.pod.uid"]
		if name == corev1.ResourceMemory {
			out[uid] += int64(s.GetMemory().GetWorkingSetBytes().GetValue())
			continue
		}
		out[uid] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return out
}
