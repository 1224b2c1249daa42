package controllers

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	pdbhelper "k8s.io/component-helpers/apps/poddisruptionbudget"

	"orrery.dev/api"
)

// evictionGrace is how long an eviction that was granted may take to show as a
// deletion before its allowance is given back.
const evictionGrace = 2 * time.Minute

// disruptionController keeps the status of PodDisruptionBudgets, from which the
// API server grants evictions.
type disruptionController struct {
	*env
	informer cache.SharedIndexInformer
	events   record.EventRecorder
	scales   *scaler
	own      writes
}

func newDisruption(e *env) Controller {
	c := &disruptionController{env: e, informer: e.factory.Policy().V1().PodDisruptionBudgets().Informer(), events: e.recorders("controllermanager"), scales: newScaler(e)}
	return Controller{
		Name: "disruption-controller",
		Reads: []Source{
			wakesSelf(c.informer), wakes(e.pods(), c.keysOfPod),
			reads(e.replicaSets()), reads(e.factory.Apps().V1().Deployments().Informer()),
			reads(e.factory.Apps().V1().StatefulSets().Informer()), reads(e.factory.Core().V1().ReplicationControllers().Informer()),
		},
		Writes: []string{"policy/poddisruptionbudgets"},
		Sync:   c.sync,
	}
}

func (c *disruptionController) keysOfPod(pod *corev1.Pod) []string {
	var keys []string
	for _, pdb := range inNamespace[*policyv1.PodDisruptionBudget](c.informer, pod.Namespace) {
		if sel, err := selectorOf(pdb.Spec.Selector); err == nil && sel.Matches(labels.Set(pod.Labels)) {
			keys = append(keys, keyOf(pdb))
		}
	}
	return keys
}

func (c *disruptionController) sync(ctx context.Context, key string) (time.Duration, error) {
	pdb := cached[policyv1.PodDisruptionBudget](c.informer, key)
	if pdb == nil {
		c.own.forget(key)
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	pods, err := c.selected(pdb)
	if err != nil {
		return 0, c.failSafe(ctx, key, pdb, err)
	}
	if len(pods) == 0 {
		c.events.Event(pdb, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected, desired, err := c.expected(ctx, pdb, pods)
	if err != nil {
		c.events.Eventf(pdb, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return 0, c.failSafe(ctx, key, pdb, err)
	}
	now := time.Now()
	changed := pdb.DeepCopy()
	disrupted, again := stillDisrupted(pdb, pods, now)
	healthy := healthyPods(pods, disrupted)
	s := &changed.Status
	s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods = healthy, desired, expected
	s.DisruptionsAllowed = 0
	if expected > 0 {
		s.DisruptionsAllowed = max(healthy-desired, 0)
	}
	s.DisruptedPods, s.ObservedGeneration = disrupted, pdb.Generation
	pdbhelper.UpdateDisruptionAllowedCondition(changed)
	return again, c.store(ctx, key, pdb, changed)
}

func (c *disruptionController) selected(pdb *policyv1.PodDisruptionBudget) ([]*corev1.Pod, error) {
	selector, err := selectorOf(pdb.Spec.Selector)
	if err != nil {
		return nil, err
	}
	var out []*corev1.Pod
	for _, pod := range inNamespace[*corev1.Pod](c.pods(), pdb.Namespace) {
		if selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, pod)
		}
	}
	return out, nil
}

func (c *disruptionController) store(ctx context.Context, key string, before, after *policyv1.PodDisruptionBudget) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	updated, err := c.clients.PolicyV1().PodDisruptionBudgets(after.Namespace).UpdateStatus(ctx, after, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status of budget %s: %w", key, err)
	}
	c.own.made(key, c.informer.GetIndexer(), updated)
	return nil
}

// failSafe allows no disruption while the numbers cannot be told.
func (c *disruptionController) failSafe(ctx context.Context, key string, pdb *policyv1.PodDisruptionBudget, cause error) error {
	changed := pdb.DeepCopy()
	changed.Status.DisruptionsAllowed = 0
	changed.Status.ObservedGeneration = pdb.Generation
	meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: cause.Error(), ObservedGeneration: pdb.Generation,
	})
	if err := c.store(ctx, key, pdb, changed); err != nil {
		return err
	}
	return cause
}

// expected is how many pods there should be, and how many have to be healthy.
func (c *disruptionController) expected(ctx context.Context, pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (expected, desired int32, err error) {
	switch {
	case pdb.Spec.MaxUnavailable != nil:
		if expected, err = c.wantedByOwners(ctx, pods); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MaxUnavailable, int(expected), true)
		return expected, max(expected-int32(n), 0), err
	case pdb.Spec.MinAvailable != nil && pdb.Spec.MinAvailable.Type == intstr.String:
		if expected, err = c.wantedByOwners(ctx, pods); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MinAvailable, int(expected), true)
		return expected, int32(n), err
	case pdb.Spec.MinAvailable != nil:
		return int32(len(pods)), pdb.Spec.MinAvailable.IntVal, nil
	}
	return int32(len(pods)), 0, nil
}

// wantedByOwners adds up the sizes of the workloads that the pods belong to;
// pods of no workload do not count.
func (c *disruptionController) wantedByOwners(ctx context.Context, pods []*corev1.Pod) (int32, error) {
	sizes := map[string]int32{}
	for _, pod := range pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			continue
		}
		owner := *ref
		if rs := cached[appsv1.ReplicaSet](c.replicaSets(), pod.Namespace+"/"+ref.Name); ref.Kind == "ReplicaSet" && rs != nil && rs.UID == ref.UID {
			if d := metav1.GetControllerOfNoCopy(rs); d != nil && d.Kind == "Deployment" {
				owner = *d
			}
		}
		if _, known := sizes[string(owner.UID)]; known {
			continue
		}
		n, err := c.sizeOf(ctx, pod.Namespace, owner)
		if err != nil {
			return 0, err
		}
		sizes[string(owner.UID)] = n
	}
	total := int32(0)
	for _, n := range sizes {
		total += n
	}
	return total, nil
}

func (c *disruptionController) sizeOf(ctx context.Context, namespace string, owner metav1.OwnerReference) (int32, error) {
	key := namespace + "/" + owner.Name
	var size *int32
	switch owner.Kind {
	case "ReplicaSet":
		if rs := cached[appsv1.ReplicaSet](c.replicaSets(), key); rs != nil {
			size = rs.Spec.Replicas
		}
	case "Deployment":
		if d := cached[appsv1.Deployment](c.factory.Apps().V1().Deployments().Informer(), key); d != nil {
			size = d.Spec.Replicas
		}
	case "StatefulSet":
		if s := cached[appsv1.StatefulSet](c.factory.Apps().V1().StatefulSets().Informer(), key); s != nil {
			size = s.Spec.Replicas
		}
	case "ReplicationController":
		if rc := cached[corev1.ReplicationController](c.factory.Core().V1().ReplicationControllers().Informer(), key); rc != nil {
			size = rc.Spec.Replicas
		}
	}
	if size != nil {
		return *size, nil
	}
	scale, _, err := c.scales.get(ctx, namespace, owner.APIVersion, owner.Kind, owner.Name)
	if err != nil { // a workload that is gone wants no pods
		return 0, ignoreNotFound(err)
	}
	return scale.Spec.Replicas, nil
}

// stillDisrupted drops the evictions that have happened, or never did.
func stillDisrupted(pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) (map[string]metav1.Time, time.Duration) {
	var out map[string]metav1.Time
	var again time.Duration
	for _, pod := range pods {
		at, noted := pdb.Status.DisruptedPods[pod.Name]
		if !noted || pod.DeletionTimestamp != nil {
			continue
		}
		left := at.Add(evictionGrace).Sub(now)
		if left <= 0 {
			continue
		}
		if out == nil {
			out = map[string]metav1.Time{}
		}
		out[pod.Name] = at
		again = sooner(again, left)
	}
	return out, again
}

func healthyPods(pods []*corev1.Pod, disrupted map[string]metav1.Time) int32 {
	n := int32(0)
	for _, pod := range pods {
		_, leaving := disrupted[pod.Name]
		if !leaving && pod.DeletionTimestamp == nil && api.IsPodReady(pod) {
			n++
		}
	}
	return n
}
