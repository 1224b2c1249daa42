package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"

	"orrery.dev/scheduler/plugins"
)

// candidate is a node on which the pod would fit without the victims.
type candidate struct {
	node       *plugins.Node
	victims    []*corev1.Pod // highest priority first
	violations int           // of disruption budgets
}

// preempt makes room for a pod that fits nowhere by evicting pods of lower
// priority from one node. It returns that node, or a note why it could not.
func (s *scheduler) preempt(ctx context.Context, snapshot *plugins.Snapshot, pod *corev1.Pod, r result) (node, note string, err error) {
	if r.total == 0 {
		return "", "", nil
	}
	s.metrics.preemptions.Inc()
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever {
		return "", "preemption: not eligible due to preemptionPolicy=Never.", nil
	}
	if s.roomIsBeingMade(snapshot, pod) {
		return "", "preemption: not eligible due to a terminating pod on the nominated node.", nil
	}
	budgets, err := s.facts.budgets.List(labels.Everything())
	if err != nil {
		return "", "", err
	}
	var best *candidate
	counts := map[string]int{}
	for _, n := range snapshot.Nodes {
		if ref, refused := r.refusals[n.Name()]; refused && ref.reason.Final {
			counts["Preemption is not helpful for scheduling"]++
			continue
		}
		c := s.makeRoom(snapshot, pod, n, budgets)
		if c == nil {
			counts["No preemption victims found for incoming pod"]++
			continue
		}
		if best == nil || better(c, best) {
			best = c
		}
	}
	if best == nil {
		return "", fmt.Sprintf("preemption: 0/%d nodes are available: %s.", r.total, countedReasons(counts)), nil
	}
	for _, victim := range best.victims {
		if err := s.evict(ctx, pod, victim, best.node.Name()); err != nil {
			return "", "", fmt.Errorf("evict %s: %w", key(victim), err)
		}
	}
	s.metrics.victims.Observe(float64(len(best.victims)))
	s.Log.Info("preempted", "pod", key(pod), "node", best.node.Name(), "victims", len(best.victims))
	return best.node.Name(), "", nil
}

// roomIsBeingMade reports whether victims of an earlier preemption for this pod
// are still ending.
func (s *scheduler) roomIsBeingMade(snapshot *plugins.Snapshot, pod *corev1.Pod) bool {
	n := snapshot.Node(pod.Status.NominatedNodeName)
	if n == nil {
		return false
	}
	return slices.ContainsFunc(n.Pods, func(p *plugins.Pod) bool {
		return p.DeletionTimestamp != nil && schedulinghelper.PodPriority(p.Pod) < schedulinghelper.PodPriority(pod)
	})
}

// makeRoom finds the fewest pods of lower priority that must leave a node: first
// all leave, then one after the other comes back, dearest first, as long as the
// pod still fits. Pods whose budget would be broken are spared first.
func (s *scheduler) makeRoom(snapshot *plugins.Snapshot, pod *corev1.Pod, n *plugins.Node, budgets []*policyv1.PodDisruptionBudget) *candidate {
	priority := schedulinghelper.PodPriority(pod)
	room := n.Clone()
	var lower []*corev1.Pod
	for _, p := range n.Pods {
		if schedulinghelper.PodPriority(p.Pod) < priority {
			lower = append(lower, p.Pod)
			room.Remove(p.Pod)
		}
	}
	fitsNow := func() bool {
		changed := snapshot.With(room)
		return s.judge(filtersFor(s.plugins, changed, pod), changed, pod, room) == nil
	}
	if len(lower) == 0 || !fitsNow() {
		return nil
	}
	slices.SortFunc(lower, func(a, b *corev1.Pod) int {
		if pa, pb := schedulinghelper.PodPriority(a), schedulinghelper.PodPriority(b); pa != pb {
			return int(pb - pa)
		}
		return earliest(a).Compare(earliest(b))
	})
	protected, free := splitByBudget(lower, budgets)
	c := &candidate{node: n}
	for i, group := range [][]*corev1.Pod{protected, free} {
		for _, p := range group {
			room.Add(plugins.NewPod(p))
			if fitsNow() {
				continue
			}
			room.Remove(p)
			c.victims = append(c.victims, p)
			if i == 0 {
				c.violations++
			}
		}
	}
	if len(c.victims) == 0 {
		return nil
	}
	return c
}

// splitByBudget separates the pods whose eviction a disruption budget forbids.
func splitByBudget(pods []*corev1.Pod, budgets []*policyv1.PodDisruptionBudget) (protected, free []*corev1.Pod) {
	left := make([]int32, len(budgets))
	for i, b := range budgets {
		left[i] = b.Status.DisruptionsAllowed
	}
	for _, pod := range pods {
		violates := false
		for i, b := range budgets {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil || b.Namespace != pod.Namespace || len(pod.Labels) == 0 || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			if _, counted := b.Status.DisruptedPods[pod.Name]; counted {
				continue
			}
			if left[i]--; left[i] < 0 {
				violates = true
			}
		}
		if violates {
			protected = append(protected, pod)
		} else {
			free = append(free, pod)
		}
	}
	return protected, free
}

// better prefers the candidate that hurts less: fewer broken budgets, lower
// highest priority, lower sum, fewer victims, victims that started later.
func better(a, b *candidate) bool {
	for _, measure := range []func(*candidate) int64{
		func(c *candidate) int64 { return int64(c.violations) },
		func(c *candidate) int64 { return int64(highest(c.victims)) },
		func(c *candidate) int64 { return prioritySum(c.victims) },
		func(c *candidate) int64 { return int64(len(c.victims)) },
		func(c *candidate) int64 { return -firstStart(c.victims).UnixNano() },
	} {
		if x, y := measure(a), measure(b); x != y {
			return x < y
		}
	}
	return false
}

func highest(pods []*corev1.Pod) int32 {
	top := schedulinghelper.PodPriority(pods[0])
	for _, p := range pods {
		top = max(top, schedulinghelper.PodPriority(p))
	}
	return top
}

// prioritySum shifts priorities to be positive, so that more victims never count
// less.
func prioritySum(pods []*corev1.Pod) int64 {
	var sum int64
	for _, p := range pods {
		sum += int64(schedulinghelper.PodPriority(p)) + 1<<31
	}
	return sum
}

func firstStart(pods []*corev1.Pod) time.Time {
	first := earliest(pods[0])
	for _, p := range pods {
		if schedulinghelper.PodPriority(p) == highest(pods) && earliest(p).Before(first) {
			first = earliest(p)
		}
	}
	return first
}

// evict deletes a victim, which first learns why.
func (s *scheduler) evict(ctx context.Context, pod, victim *corev1.Pod, node string) error {
	if victim.DeletionTimestamp != nil {
		return nil
	}
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: victim.Generation,
		Reason:             corev1.PodReasonPreemptionByScheduler,
		Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority pod", pod.Spec.SchedulerName),
		LastTransitionTime: metav1.Now(),
	}
	if err := s.patchStatus(ctx, victim, map[string]any{"conditions": []corev1.PodCondition{condition}}); err != nil {
		return err
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(victim.UID))}
	if err := s.Clients.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, options); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.events.Eventf(victim, corev1.EventTypeNormal, "Preempted", "Preempted by pod %s on node %s", pod.UID, node)
	return nil
}
