package controllers

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"orrery.dev/api"
)

// taintEviction deletes pods from nodes with NoExecute taints that they do not
// tolerate, or no longer.
type taintEviction struct {
	*env
	events record.EventRecorder

	mu    sync.Mutex
	since map[types.UID]time.Time // when a pod was first seen under a NoExecute taint; guarded by mu
}

func newTaintEviction(e *env) Controller {
	c := &taintEviction{env: e, events: e.recorders("taint-eviction-controller"), since: map[types.UID]time.Time{}}
	return Controller{
		Name: "taint-eviction-controller",
		Reads: []Source{
			when(wakesSelf(e.pods()), func(before, after *corev1.Pod) bool {
				return before.Spec.NodeName != after.Spec.NodeName || len(before.Spec.Tolerations) != len(after.Spec.Tolerations)
			}),
			when(wakes(e.nodes(), func(node *corev1.Node) []string {
				var keys []string
				for _, pod := range indexed[*corev1.Pod](e.pods(), byNode, node.Name) {
					keys = append(keys, keyOf(pod))
				}
				return keys
			}), func(before, after *corev1.Node) bool {
				return len(noExecute(before)) > 0 || len(noExecute(after)) > 0
			}),
		},
		Writes:  []string{"pods"},
		Workers: 8,
		Sync:    c.sync,
	}
}

func noExecute(node *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}

// forever is the answer of toleratedFor for pods that may stay.
const forever = time.Duration(math.MaxInt64)

// toleratedFor is how long a pod may stay under taints.
func toleratedFor(taints []corev1.Taint, tolerations []corev1.Toleration) time.Duration {
	least := forever
	for i := range taints {
		tolerated := false
		for j := range tolerations {
			t := &tolerations[j]
			if !t.ToleratesTaint(klog.Background(), &taints[i], true) {
				continue
			}
			tolerated = true
			if t.TolerationSeconds != nil {
				least = min(least, time.Duration(max(*t.TolerationSeconds, 0))*time.Second)
			}
		}
		if !tolerated {
			return 0
		}
	}
	return least
}

func (c *taintEviction) sync(ctx context.Context, key string) (time.Duration, error) {
	pod := cached[corev1.Pod](c.pods(), key)
	if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return 0, nil
	}
	node := cached[corev1.Node](c.nodes(), pod.Spec.NodeName)
	if node == nil {
		return 0, nil
	}
	taints := noExecute(node)
	allowed := toleratedFor(taints, pod.Spec.Tolerations)
	if allowed == forever {
		if c.relieve(pod.UID) {
			c.events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
		}
		return 0, nil
	}
	if left := allowed - time.Since(c.burden(pod.UID)); left > 0 {
		return left, nil
	}
	c.events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s", key)
	if err := c.markDisrupted(ctx, pod); err != nil {
		return 0, err
	}
	if err := c.clients.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: sameObject(pod)}); ignoreGone(err) != nil {
		return 0, fmt.Errorf("evict: %w", err)
	}
	c.relieve(pod.UID)
	return 0, nil
}

func (c *taintEviction) burden(uid types.UID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.since[uid]; !ok {
		c.since[uid] = time.Now()
	}
	return c.since[uid]
}

func (c *taintEviction) relieve(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.since[uid]
	delete(c.since, uid)
	return was
}

// markDisrupted notes on a pod why it is about to be deleted, for Jobs that
// treat disruptions unlike failures.
func (e *env) markDisrupted(ctx context.Context, pod *corev1.Pod) error {
	changed := pod.DeepCopy()
	if !setPodCondition(changed, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
		LastTransitionTime: metav1.Now(), ObservedGeneration: pod.Generation,
	}) {
		return nil
	}
	_, err := e.clients.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// setPodCondition puts c in place of the condition of its type and says whether
// that changed anything.
func setPodCondition(pod *corev1.Pod, c corev1.PodCondition) bool {
	have := api.PodCondition(pod, c.Type)
	if have == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
		return true
	}
	if have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message {
		return false
	}
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	*have = c
	return true
}
