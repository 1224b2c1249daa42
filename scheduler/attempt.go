package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"

	"orrery.dev/scheduler/plugins"
	"orrery.dev/trace"
)

// result is the outcome of one attempt. It keeps everything that was judged, so
// that it can be explained.
type result struct {
	node     *plugins.Node // nil: fits nowhere
	total    int           // nodes in the cluster
	refusals map[string]refusal
	scores   map[string]map[string]int64 // node, plugin: normalised and weighted
}

// refusal is why one node does not take the pod: the first plugin that objects.
type refusal struct {
	plugin string
	reason plugins.Reason
}

// filter is a plugin's judgement for one pod.
type filter struct {
	plugin string
	judge  func(*plugins.Node) plugins.Reason
}

// attempt filters and scores the nodes of a snapshot for a pod.
func (s *scheduler) attempt(ctx context.Context, snapshot *plugins.Snapshot, pod *corev1.Pod) result {
	r := result{total: len(snapshot.Nodes), refusals: map[string]refusal{}}
	_, step := trace.Step(ctx, "filter", attribute.Int("nodes", r.total))
	feasible := s.feasible(snapshot, pod, &r)
	step.Set(attribute.Int("feasible", len(feasible)))
	step.End(nil)
	switch len(feasible) {
	case 0:
	case 1:
		r.node = feasible[0]
	default:
		_, step := trace.Step(ctx, "score")
		r.node = s.best(snapshot, pod, feasible, &r)
		step.End(nil)
	}
	return r
}

// enough is how many feasible nodes are looked for: all in a small cluster, a
// shrinking share (50% down to 5%) in a large one, where the best of many is good
// enough. The numbers are upstream's.
func enough(nodes int) int {
	const atLeast = 100
	if nodes <= atLeast {
		return nodes
	}
	percent := max(50-nodes/125, 5)
	return max(nodes*percent/100, atLeast)
}

// feasible returns the nodes that can take the pod, starting where the last
// search ended. A nominated node comes first and alone if it fits.
func (s *scheduler) feasible(snapshot *plugins.Snapshot, pod *corev1.Pod, r *result) []*plugins.Node {
	filters := filtersFor(s.plugins, snapshot, pod)
	if n := snapshot.Node(pod.Status.NominatedNodeName); n != nil {
		if ref := s.judge(filters, snapshot, pod, n); ref == nil {
			return []*plugins.Node{n}
		}
	}
	nodes, want := snapshot.Nodes, enough(len(snapshot.Nodes))
	verdicts := make([]*refusal, len(nodes))
	judged := make([]bool, len(nodes))
	var found atomic.Int64
	start := 0
	if len(nodes) > 0 {
		start = s.turn % len(nodes)
	}
	inParallel(len(nodes), func(i int) bool {
		if int(found.Load()) >= want {
			return false
		}
		at := (start + i) % len(nodes)
		verdicts[at] = s.judge(filters, snapshot, pod, nodes[at])
		judged[at] = true
		if verdicts[at] == nil {
			found.Add(1)
		}
		return true
	})
	var feasible []*plugins.Node
	for i := range nodes {
		at := (start + i) % len(nodes)
		switch {
		case !judged[at]:
		case verdicts[at] == nil:
			feasible = append(feasible, nodes[at])
			s.turn = at + 1
		default:
			r.refusals[nodes[at].Name()] = *verdicts[at]
		}
	}
	return feasible
}

func filtersFor(all []plugins.Plugin, snapshot *plugins.Snapshot, pod *corev1.Pod) []filter {
	var filters []filter
	for _, p := range all {
		if p.Filter == nil {
			continue
		}
		if judge := p.Filter(snapshot, pod); judge != nil {
			filters = append(filters, filter{p.Name, judge})
		}
	}
	return filters
}

// judge asks the filters in order and returns the first objection, or nil. Where
// a pod of at least this priority is nominated, the node must do with it and
// without it: it may come, or go elsewhere.
func (s *scheduler) judge(filters []filter, snapshot *plugins.Snapshot, pod *corev1.Pod, n *plugins.Node) *refusal {
	if ref := firstObjection(filters, n); ref != nil {
		return ref
	}
	rivals := s.queue.nominated(n.Name(), schedulinghelper.PodPriority(pod), pod.UID)
	if len(rivals) == 0 {
		return nil
	}
	crowded := n.Clone()
	for _, rival := range rivals {
		crowded.Add(plugins.NewPod(rival))
	}
	return firstObjection(filtersFor(s.plugins, snapshot.With(crowded), pod), crowded)
}

func firstObjection(filters []filter, n *plugins.Node) *refusal {
	for _, f := range filters {
		if reason := f.judge(n); !reason.Fits() {
			return &refusal{f.plugin, reason}
		}
	}
	return nil
}

// best scores the feasible nodes and takes the highest; among equals, any.
func (s *scheduler) best(snapshot *plugins.Snapshot, pod *corev1.Pod, nodes []*plugins.Node, r *result) *plugins.Node {
	r.scores = make(map[string]map[string]int64, len(nodes))
	totals := make([]int64, len(nodes))
	for _, n := range nodes {
		r.scores[n.Name()] = map[string]int64{}
	}
	for _, p := range s.plugins {
		if p.Score == nil {
			continue
		}
		rate := p.Score(snapshot, pod)
		if rate == nil {
			continue
		}
		scores := make([]int64, len(nodes))
		inParallel(len(nodes), func(i int) bool { scores[i] = rate(nodes[i]); return true })
		if p.Normalize != nil {
			p.Normalize(scores)
		}
		for i, n := range nodes {
			totals[i] += scores[i] * p.Weight
			r.scores[n.Name()][p.Name] = scores[i] * p.Weight
		}
	}
	top := slices.Max(totals)
	var equals []*plugins.Node
	for i, n := range nodes {
		if totals[i] == top {
			equals = append(equals, n)
		}
	}
	return equals[rand.IntN(len(equals))]
}

// inParallel calls do(0..n-1) on all cores until one returns false; few calls
// are not worth it.
func inParallel(n int, do func(int) bool) {
	const batch = 64
	if n <= batch {
		for i := 0; i < n && do(i); i++ {
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n/batch) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || !do(i) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// refusers are the plugins that objected anywhere: what they wake on, wakes the
// pod.
func (r *result) refusers() []string {
	var names []string
	for _, ref := range r.refusals {
		if !slices.Contains(names, ref.plugin) {
			names = append(names, ref.plugin)
		}
	}
	return names
}

// explain is the message that users know: how many nodes, and each reason with
// the number of nodes that gave it.
func (r *result) explain() string {
	if r.total == 0 {
		return "no nodes available to schedule pods"
	}
	counts := map[string]int{}
	for _, ref := range r.refusals {
		for text := range strings.SplitSeq(ref.reason.Text, plugins.Separator) {
			counts[text]++
		}
	}
	return fmt.Sprintf("0/%d nodes are available: %s.", r.total, countedReasons(counts))
}

// countedReasons lists "2 Insufficient cpu, 3 node(s) were unschedulable".
func countedReasons(counts map[string]int) string {
	texts := make([]string, 0, len(counts))
	for text, n := range counts {
		texts = append(texts, fmt.Sprintf("%d %s", n, text))
	}
	sort.Strings(texts)
	return strings.Join(texts, ", ")
}
