package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"orrery.dev/api"
)

const (
	nodeLook         = 5 * time.Second
	nodeStartupGrace = time.Minute
	// evictionPace is the time between two nodes that are given up, so that a
	// fault of the network does not empty a cluster at once.
	evictionPace = 10 * time.Second
)

// nodeLifecycle watches the nodes' heartbeats: a silent node's conditions become
// Unknown, its pods not ready, and taints keep pods away and, by and by, evict
// those that are there (taint-eviction-controller does that).
type nodeLifecycle struct {
	*env
	leases cache.SharedIndexInformer
	events record.EventRecorder
	// cutOff is set while no node at all is ready: then it is rather we who
	// cannot see them, and nobody is evicted.
	cutOff atomic.Bool

	mu        sync.Mutex // protects the fields below
	heard     map[string]heartbeat
	lastGiven time.Time // when the last node got its NoExecute taint
}

// heartbeat is the last sign of life of a node, by our own clock: clocks of
// nodes may be wrong.
type heartbeat struct {
	at    time.Time
	renew metav1.MicroTime
	ready corev1.NodeCondition
}

func newNodeLifecycle(e *env) Controller {
	c := &nodeLifecycle{
		env: e, events: e.recorders("node-controller"), heard: map[string]heartbeat{},
		leases: e.factory.Coordination().V1().Leases().Informer(),
	}
	return Controller{
		Name: "node-lifecycle-controller",
		Reads: []Source{
			when(wakesSelf(e.nodes()), func(before, after *corev1.Node) bool {
				return before.Spec.Unschedulable != after.Spec.Unschedulable ||
					!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
					!sameStatuses(before.Status.Conditions, after.Status.Conditions)
			}),
			reads(e.pods()), reads(c.leases),
		},
		Writes:  []string{"nodes", "pods"},
		Workers: 4,
		Every:   nodeLook,
		Sync:    c.sync,
	}
}

func sameStatuses(a, b []corev1.NodeCondition) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.NodeCondition) bool { return x.Type == y.Type && x.Status == y.Status })
}

func (c *nodeLifecycle) sync(ctx context.Context, key string) (time.Duration, error) {
	if key == "" {
		nodes := everything[corev1.Node](c.nodes())
		c.cutOff.Store(!slices.ContainsFunc(nodes, api.IsNodeReady))
		return 0, nil
	}
	node := cached[corev1.Node](c.nodes(), key)
	if node == nil {
		c.mu.Lock()
		delete(c.heard, key)
		c.mu.Unlock()
		return 0, nil
	}
	now := time.Now()
	silent := c.listen(node, now)
	if silent {
		updated, err := c.declareUnknown(ctx, node, now)
		if err != nil {
			return 0, err
		}
		node = updated
	}
	if err := c.taint(ctx, node, now); err != nil {
		return 0, err
	}
	if !api.IsNodeReady(node) && api.NodeCondition(node, corev1.NodeReady) != nil {
		if err := c.markPods(ctx, node, now); err != nil {
			return 0, err
		}
	}
	return nodeLook, nil
}

// listen notes signs of life and says whether the node has been silent too long.
func (c *nodeLifecycle) listen(node *corev1.Node, now time.Time) bool {
	var renew metav1.MicroTime
	if lease := cached[coordinationv1.Lease](c.leases, corev1.NamespaceNodeLease+"/"+node.Name); lease != nil && lease.Spec.RenewTime != nil {
		renew = *lease.Spec.RenewTime
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.heard[node.Name]
	ready := api.NodeCondition(node, corev1.NodeReady)
	var state corev1.NodeCondition
	grace := c.cfg.NodeMonitorGracePeriod
	if ready == nil { // it has registered and not reported yet
		grace = max(grace, nodeStartupGrace)
	} else {
		state = *ready
	}
	if !known {
		c.events.Eventf(nodeRef(node), corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", node.Name, node.Name)
	}
	// Our own verdict changes the condition's status but not its heartbeat.
	if !known || renew.After(last.renew.Time) || state.LastHeartbeatTime.After(last.ready.LastHeartbeatTime.Time) {
		last.at = now
	}
	last.renew, last.ready = renew, state
	c.heard[node.Name] = last
	return now.Sub(last.at) > grace
}

// nodeRef is what events about a node refer to; kubectl describe looks for the
// name as UID.
func nodeRef(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: node.UID}
}

func (c *nodeLifecycle) declareUnknown(ctx context.Context, node *corev1.Node, now time.Time) (*corev1.Node, error) {
	was := api.IsNodeReady(node)
	changed := node.DeepCopy()
	if !silence(changed, now) {
		return node, nil
	}
	updated, err := c.clients.CoreV1().Nodes().UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	if was {
		c.events.Eventf(nodeRef(node), corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	return updated, nil
}

// silence sets a silent node's conditions to Unknown, and says whether that
// changed any.
func silence(node *corev1.Node, now time.Time) bool {
	changed := false
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		c := api.NodeCondition(node, kind)
		if c == nil {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now),
			})
			changed = true
			continue
		}
		if c.Status == corev1.ConditionUnknown {
			continue
		}
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
		c.LastTransitionTime = metav1.NewTime(now)
		changed = true
	}
	return changed
}

// taint brings the taints that follow from a node's conditions up to date.
func (c *nodeLifecycle) taint(ctx context.Context, node *corev1.Node, now time.Time) error {
	want := wantedTaints(node, now)
	if c.cutOff.Load() || !c.mayGiveUp(node, want, now) {
		want = slices.DeleteFunc(want, func(t corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoExecute && (c.cutOff.Load() || !hasTaint(node.Spec.Taints, t))
		})
	}
	taints, changed := mergeTaints(node.Spec.Taints, want)
	if !changed {
		return nil
	}
	tainted := node.DeepCopy()
	tainted.Spec.Taints = taints
	if _, err := c.clients.CoreV1().Nodes().Update(ctx, tainted, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	return nil
}

// mayGiveUp paces the NoExecute taints over the cluster.
func (c *nodeLifecycle) mayGiveUp(node *corev1.Node, want []corev1.Taint, now time.Time) bool {
	adds := slices.ContainsFunc(want, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.Effect == t.Effect && ours(have) })
	})
	if !adds {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.lastGiven) < evictionPace {
		return false
	}
	c.lastGiven = now
	return true
}

// conditionTaints are the taints of a condition, by its status.
func conditionTaints(kind corev1.NodeConditionType, status corev1.ConditionStatus) []corev1.Taint {
	noSchedule := func(key string) corev1.Taint {
		return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
	}
	both := func(key string) []corev1.Taint {
		return []corev1.Taint{noSchedule(key), {Key: key, Effect: corev1.TaintEffectNoExecute}}
	}
	switch {
	case kind == corev1.NodeReady && status == corev1.ConditionFalse:
		return both(corev1.TaintNodeNotReady)
	case kind == corev1.NodeReady && status == corev1.ConditionUnknown:
		return both(corev1.TaintNodeUnreachable)
	case status != corev1.ConditionTrue:
		return nil
	case kind == corev1.NodeMemoryPressure:
		return []corev1.Taint{noSchedule(corev1.TaintNodeMemoryPressure)}
	case kind == corev1.NodeDiskPressure:
		return []corev1.Taint{noSchedule(corev1.TaintNodeDiskPressure)}
	case kind == corev1.NodePIDPressure:
		return []corev1.Taint{noSchedule(corev1.TaintNodePIDPressure)}
	case kind == corev1.NodeNetworkUnavailable:
		return []corev1.Taint{noSchedule(corev1.TaintNodeNetworkUnavailable)}
	}
	return nil
}

func wantedTaints(node *corev1.Node, now time.Time) []corev1.Taint {
	var out []corev1.Taint
	for _, c := range node.Status.Conditions {
		out = append(out, conditionTaints(c.Type, c.Status)...)
	}
	if node.Spec.Unschedulable {
		out = append(out, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	at := metav1.NewTime(now)
	for i := range out {
		out[i].TimeAdded = &at
	}
	return out
}

// ours says whether this controller owns a taint.
func ours(t corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	case corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeUnschedulable:
		return t.Effect == corev1.TaintEffectNoSchedule
	}
	return false
}

func hasTaint(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) })
}

// mergeTaints replaces our taints among those of a node.
func mergeTaints(have, want []corev1.Taint) (taints []corev1.Taint, changed bool) {
	for _, t := range have {
		if ours(t) && !hasTaint(want, t) {
			changed = true
			continue
		}
		taints = append(taints, t)
	}
	for _, t := range want {
		if !hasTaint(taints, t) {
			taints = append(taints, t)
			changed = true
		}
	}
	return taints, changed
}

// markPods takes the pods of a node that is not ready out of their Services.
func (c *nodeLifecycle) markPods(ctx context.Context, node *corev1.Node, now time.Time) error {
	var errs []error
	for _, pod := range indexed[*corev1.Pod](c.pods(), byNode, node.Name) {
		if !api.IsPodReady(pod) {
			continue
		}
		changed := pod.DeepCopy()
		ready := api.PodCondition(changed, corev1.PodReady)
		ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now)
		_, err := c.clients.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		if err == nil {
			c.events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		}
		errs = append(errs, ignoreGone(err))
	}
	return errors.Join(errs...)
}
