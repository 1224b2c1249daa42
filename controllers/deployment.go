package controllers

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"orrery.dev/api"
)

// deploymentController moves pods from old ReplicaSets to the one that has the
// Deployment's template. Its files: this one (the order of the steps),
// deployment_rollout.go (how many replicas each set gets, pure),
// deployment_replicasets.go (finding and making the new set, revisions) and
// deployment_status.go (conditions).
type deploymentController struct {
	*env
	informer, sets cache.SharedIndexInformer
	events         record.EventRecorder
	own            writes
}

func newDeployment(e *env) Controller {
	c := &deploymentController{env: e, events: e.recorders("deployment-controller"),
		informer: e.factory.Apps().V1().Deployments().Informer(), sets: e.replicaSets()}
	return Controller{
		Name: "deployment-controller",
		Reads: []Source{
			wakesSelf(c.informer),
			wakes(c.sets, c.keysOfSet),
			wakes(e.pods(), c.keysOfPod),
		},
		Writes:  []string{"apps/replicasets", "apps/deployments"},
		Workers: 5,
		Sync:    c.sync,
	}
}

func (c *deploymentController) keysOfSet(rs *appsv1.ReplicaSet) []string {
	if metav1.GetControllerOfNoCopy(rs) != nil {
		return ownerKeys[*appsv1.ReplicaSet]("Deployment")(rs)
	}
	var keys []string
	for _, d := range inNamespace[*appsv1.Deployment](c.informer, rs.Namespace) {
		if sel, err := selectorOf(d.Spec.Selector); err == nil && !sel.Empty() && sel.Matches(labels.Set(rs.Labels)) {
			keys = append(keys, keyOf(d))
		}
	}
	return keys
}

// keysOfPod wakes Deployments that recreate: they wait until their old pods are
// gone, and a ReplicaSet of no replicas does not report that.
func (c *deploymentController) keysOfPod(pod *corev1.Pod) []string {
	for _, key := range ownerKeys[*corev1.Pod]("ReplicaSet")(pod) {
		rs := cached[appsv1.ReplicaSet](c.sets, key)
		if rs == nil {
			continue
		}
		for _, key := range ownerKeys[*appsv1.ReplicaSet]("Deployment")(rs) {
			if d := cached[appsv1.Deployment](c.informer, key); d != nil && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
				return []string{key}
			}
		}
	}
	return nil
}

// rollout is what one sync of a Deployment works on. The sets are copies.
type rollout struct {
	d      *appsv1.Deployment
	newest *appsv1.ReplicaSet // has the Deployment's template; nil if there is none
	old    []*appsv1.ReplicaSet
}

func (r *rollout) all() []*appsv1.ReplicaSet {
	if r.newest == nil {
		return r.old
	}
	return append(slices.Clone(r.old), r.newest)
}

func (c *deploymentController) sync(ctx context.Context, key string) (time.Duration, error) {
	shared := cached[appsv1.Deployment](c.informer, key)
	if shared == nil {
		c.own.forget(key)
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	d := shared.DeepCopy()
	if reflect.DeepEqual(d.Spec.Selector, &metav1.LabelSelector{}) {
		return 0, c.refuse(ctx, d)
	}
	owned, err := c.claimSets(ctx, d)
	if err != nil {
		return 0, err
	}
	sets := make([]*appsv1.ReplicaSet, len(owned))
	for i := range owned {
		sets[i] = owned[i].DeepCopy()
	}
	if d.DeletionTimestamp != nil {
		return c.observe(ctx, splitSets(d, sets))
	}
	if err := c.notePause(ctx, d); err != nil {
		return 0, err
	}
	r := splitSets(d, sets)
	if d.Spec.Paused || wasScaled(d, sets) {
		return c.syncScale(ctx, r)
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return c.recreate(ctx, r)
	}
	return c.rollingUpdate(ctx, r)
}

// refuse marks a Deployment that would select every pod of its namespace.
func (c *deploymentController) refuse(ctx context.Context, d *appsv1.Deployment) error {
	c.events.Event(d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
	if d.Status.ObservedGeneration >= d.Generation {
		return nil
	}
	d.Status.ObservedGeneration = d.Generation
	return c.writeStatus(ctx, d)
}

func (c *deploymentController) claimSets(ctx context.Context, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	selector, err := selectorOf(d.Spec.Selector)
	if err != nil {
		return nil, err
	}
	sets := claim[*appsv1.ReplicaSet]{
		owner: d, kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), selector: selector,
		live: func(ctx context.Context) (metav1.Object, error) {
			return c.clients.AppsV1().Deployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
		},
		patch: func(ctx context.Context, rs *appsv1.ReplicaSet, data []byte) error {
			_, err := c.clients.AppsV1().ReplicaSets(rs.Namespace).Patch(ctx, rs.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
			return err
		},
	}
	return sets.from(ctx, candidates[*appsv1.ReplicaSet](c.sets, d))
}

// wasScaled says whether the Deployment's size changed since its sets were last
// sized: then that is settled before a rollout goes on.
func wasScaled(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) bool {
	for _, rs := range sets {
		if *rs.Spec.Replicas == 0 {
			continue
		}
		if desired, ok := numberIn(rs, annotationDesired); ok && desired != *d.Spec.Replicas {
			return true
		}
	}
	return false
}

// syncScale resizes the sets in proportion, without a rollout.
func (c *deploymentController) syncScale(ctx context.Context, r *rollout) (time.Duration, error) {
	if err := c.updateNewest(ctx, r); err != nil {
		return 0, err
	}
	for _, size := range scaleSets(r) {
		if err := c.resize(ctx, r.d, size.set, size.replicas); err != nil {
			return 0, err
		}
	}
	if r.d.Spec.Paused {
		if err := c.cleanUp(ctx, r); err != nil {
			return 0, err
		}
	}
	return c.observe(ctx, r)
}

func (c *deploymentController) rollingUpdate(ctx context.Context, r *rollout) (time.Duration, error) {
	if err := c.ensureNewest(ctx, r); err != nil {
		return 0, err
	}
	if n := rollUp(r); n != *r.newest.Spec.Replicas {
		if err := c.resize(ctx, r.d, r.newest, n); err != nil {
			return 0, err
		}
		return c.report(ctx, r)
	}
	if sizes := rollDown(r); len(sizes) > 0 {
		for _, size := range sizes {
			if err := c.resize(ctx, r.d, size.set, size.replicas); err != nil {
				return 0, err
			}
		}
		return c.report(ctx, r)
	}
	return c.finish(ctx, r)
}

// recreate stops all old pods before the first new one starts.
func (c *deploymentController) recreate(ctx context.Context, r *rollout) (time.Duration, error) {
	if r.newest != nil {
		if err := c.updateNewest(ctx, r); err != nil {
			return 0, err
		}
	}
	scaled := false
	for _, rs := range active(r.old) {
		if err := c.resize(ctx, r.d, rs, 0); err != nil {
			return 0, err
		}
		scaled = true
	}
	if scaled || c.oldPodsRun(r) {
		return c.report(ctx, r)
	}
	if err := c.ensureNewest(ctx, r); err != nil {
		return 0, err
	}
	if err := c.resize(ctx, r.d, r.newest, *r.d.Spec.Replicas); err != nil {
		return 0, err
	}
	return c.finish(ctx, r)
}

func (c *deploymentController) oldPodsRun(r *rollout) bool {
	for _, rs := range r.old {
		if rs.Status.Replicas > 0 {
			return true
		}
		for _, pod := range indexed[*corev1.Pod](c.pods(), byController, string(rs.UID)) {
			if !api.IsPodTerminal(pod) {
				return true
			}
		}
	}
	return false
}

// finish drops old revisions when the rollout is complete, and reports.
func (c *deploymentController) finish(ctx context.Context, r *rollout) (time.Duration, error) {
	if complete(r.d, &r.d.Status) {
		if err := c.cleanUp(ctx, r); err != nil {
			return 0, err
		}
	}
	return c.report(ctx, r)
}

// resize gives a set its size and the annotations that proportional scaling
// needs later.
func (c *deploymentController) resize(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet, replicas int32) error {
	before := *rs.Spec.Replicas
	annotated := setSizes(rs, *d.Spec.Replicas, *d.Spec.Replicas+maxSurge(d))
	if before == replicas && !annotated {
		return nil
	}
	*rs.Spec.Replicas = replicas
	updated, err := c.clients.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("scale %s: %w", keyOf(rs), err)
	}
	c.own.made(keyOf(d), c.sets.GetIndexer(), updated)
	*rs = *updated
	if before != replicas {
		direction := "up"
		if replicas < before {
			direction = "down"
		}
		c.events.Eventf(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, rs.Name, before, replicas)
	}
	return nil
}

// cleanUp deletes the oldest empty sets beyond the history limit.
func (c *deploymentController) cleanUp(ctx context.Context, r *rollout) error {
	limit := r.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	for _, rs := range expendable(r.old, int(*limit)) {
		err := c.clients.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{Preconditions: sameObject(rs)})
		if ignoreGone(err) != nil {
			return fmt.Errorf("delete old replica set %s: %w", keyOf(rs), err)
		}
	}
	return nil
}

// writeStatus stores d's status and notes the write.
func (c *deploymentController) writeStatus(ctx context.Context, d *appsv1.Deployment) error {
	updated, err := c.clients.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status of %s: %w", keyOf(d), err)
	}
	c.own.made(keyOf(d), c.informer.GetIndexer(), updated)
	*d = *updated
	return nil
}

// maxSurge and maxUnavailable are the bounds of a rolling update, in pods.
func maxSurge(d *appsv1.Deployment) int32 {
	surge, _ := bounds(d)
	return surge
}

func maxUnavailable(d *appsv1.Deployment) int32 {
	_, unavailable := bounds(d)
	return min(unavailable, *d.Spec.Replicas)
}

func bounds(d *appsv1.Deployment) (surge, unavailable int32) {
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	zero := intstr.FromInt32(0)
	u := d.Spec.Strategy.RollingUpdate
	s, err1 := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(u.MaxSurge, zero), int(*d.Spec.Replicas), true)
	n, err2 := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(u.MaxUnavailable, zero), int(*d.Spec.Replicas), false)
	if err1 != nil || err2 != nil {
		return 0, 1
	}
	if s == 0 && n == 0 { // both rounded to nothing: a rollout has to move
		n = 1
	}
	return int32(s), int32(n)
}

// sameTemplate compares pod templates without the label that we add.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	delete(x.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(x, y)
}
