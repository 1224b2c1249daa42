package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// statefulSetController keeps numbered pods, each with a name and volumes of its
// own. statefulset_pods.go says what each pod is, statefulset_plan.go which one
// is next; this file does it.
type statefulSetController struct {
	podMaker
	informer, claims cache.SharedIndexInformer
}

func newStatefulSet(e *env) Controller {
	c := &statefulSetController{
		podMaker: podMaker{env: e, events: e.recorders("statefulset-controller"), own: &writes{}},
		informer: e.factory.Apps().V1().StatefulSets().Informer(),
		claims:   e.factory.Core().V1().PersistentVolumeClaims().Informer(),
	}
	return Controller{
		Name: "statefulset-controller",
		Reads: []Source{
			wakesSelf(c.informer),
			wakes(e.pods(), adopterKeys(c.informer, "StatefulSet", func(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector })),
			reads(c.claims), reads(e.revisionInformer()),
		},
		Writes:  []string{"pods", "persistentvolumeclaims", "apps/controllerrevisions", "apps/statefulsets"},
		Workers: 5,
		Sync:    c.sync,
	}
}

func (c *statefulSetController) sync(ctx context.Context, key string) (time.Duration, error) {
	shared := cached[appsv1.StatefulSet](c.informer, key)
	if shared == nil {
		c.own.forget(key)
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	set := shared.DeepCopy()
	selector, err := selectorOf(set.Spec.Selector)
	if err != nil {
		return 0, nil // the API server does not let such a set in
	}
	h := &history{
		env: c.env, owner: set, kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), selector: selector,
		live: func(ctx context.Context) (metav1.Object, error) {
			return c.clients.AppsV1().StatefulSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		},
	}
	pods, err := c.claimPods(ctx, set, h)
	if err != nil {
		return 0, err
	}
	revisions, err := h.list(ctx)
	if err != nil {
		return 0, err
	}
	p, err := c.plan(ctx, h, set, pods, revisions)
	if err != nil {
		return 0, err
	}
	var acted error
	if set.DeletionTimestamp == nil {
		acted = c.act(ctx, key, p)
	}
	status, again := p.status()
	if err := c.updateStatus(ctx, key, set, status); err != nil {
		return 0, err
	}
	if acted != nil {
		return 0, acted
	}
	limit := 10
	if set.Spec.RevisionHistoryLimit != nil {
		limit = int(*set.Spec.RevisionHistoryLimit)
	}
	return again, h.truncate(ctx, revisions, limit, func(r *appsv1.ControllerRevision) bool {
		return r.Name == p.current.name || r.Name == p.update.name || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return revisionLabel(pod) == r.Name })
	})
}

func (c *statefulSetController) claimPods(ctx context.Context, set *appsv1.StatefulSet, h *history) ([]*corev1.Pod, error) {
	pods := claim[*corev1.Pod]{
		owner: set, kind: h.kind, selector: h.selector, live: h.live,
		patch: c.patchPod,
	}
	var named []*corev1.Pod
	for _, pod := range candidates[*corev1.Pod](c.pods(), set) {
		if _, ok := ordinalOf(set, pod.Name); ok { // others are nobody's place in the row
			named = append(named, pod)
		}
	}
	return pods.from(ctx, named)
}

// plan gathers what the decision needs: pods by number, and the two templates
// between which the set is moving.
func (c *statefulSetController) plan(ctx context.Context, h *history, set *appsv1.StatefulSet, pods []*corev1.Pod, all []*appsv1.ControllerRevision) (*statefulPlan, error) {
	update, err := c.updateRevision(ctx, h, set, all)
	if err != nil {
		return nil, err
	}
	current := update
	for _, r := range all {
		if r.Name == set.Status.CurrentRevision {
			current = r
		}
	}
	currentTemplate, err := templateOf(current)
	if err != nil {
		return nil, err
	}
	p := &statefulPlan{set: set, now: time.Now(), collisions: set.Status.CollisionCount}
	p.current = statefulVersion{current.Name, currentTemplate}
	p.update = statefulVersion{update.Name, &set.Spec.Template}
	p.sortPods(pods)
	return p, nil
}

func (c *statefulSetController) updateRevision(ctx context.Context, h *history, set *appsv1.StatefulSet, all []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	data := templatePatch(&set.Spec.Template)
	number := int64(1)
	if len(all) > 0 {
		number = all[len(all)-1].Revision + 1
	}
	for i := len(all) - 1; i >= 0; i-- {
		if sameData(all[i].Data.Raw, data) {
			if i == len(all)-1 {
				return all[i], nil
			}
			return h.renumber(ctx, all[i], number)
		}
	}
	if set.Status.CollisionCount == nil {
		set.Status.CollisionCount = new(int32)
	}
	for {
		hash := hashData(data, set.Status.CollisionCount)
		prefix := set.Name[:min(len(set.Name), longestRevisionPrefix)]
		r := h.revision(prefix+"-"+hash, number, data, withLabel(set.Spec.Template.Labels, "controller.kubernetes.io/hash", hash), set.Annotations)
		stored, err := h.store(ctx, r)
		if !errors.As(err, new(collision)) {
			return stored, err
		}
		*set.Status.CollisionCount++
	}
}

// act does the next steps of the plan.
func (c *statefulSetController) act(ctx context.Context, key string, p *statefulPlan) error {
	for _, step := range p.steps() {
		if err := c.do(ctx, key, p, step); err != nil {
			return err
		}
	}
	return nil
}

func (c *statefulSetController) do(ctx context.Context, key string, p *statefulPlan, step statefulStep) error {
	set, pod := p.set, step.pod
	switch step.do {
	case statefulCreate:
		if err := c.ensureClaims(ctx, set, pod); err != nil {
			c.events.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
			return err
		}
		created, err := c.clients.CoreV1().Pods(set.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return err
		}
		if err != nil {
			c.events.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
			return fmt.Errorf("create pod %s: %w", keyOf(pod), err)
		}
		c.own.made(key, c.pods().GetIndexer(), created)
		c.events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Pod %s in StatefulSet %s successful", pod.Name, set.Name)
		p.made(created)
	case statefulDelete:
		if step.reason != "" {
			c.events.Eventf(set, corev1.EventTypeWarning, step.reason, "StatefulSet %s is recreating failed Pod %s", keyOf(set), pod.Name)
		}
		err := c.clients.CoreV1().Pods(set.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: sameObject(pod)})
		if ignoreGone(err) != nil {
			c.events.Eventf(set, corev1.EventTypeWarning, "FailedDelete", "delete Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
			return fmt.Errorf("delete pod %s: %w", keyOf(pod), err)
		}
		c.own.deleted(key, c.pods().GetIndexer(), pod)
		c.events.Eventf(set, corev1.EventTypeNormal, "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful", pod.Name, set.Name)
	case statefulRepair:
		if err := c.ensureClaims(ctx, set, pod); err != nil {
			return err
		}
		updated, err := c.clients.CoreV1().Pods(set.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("repair pod %s: %w", keyOf(pod), err)
		}
		c.own.made(key, c.pods().GetIndexer(), updated)
	case statefulClaims:
		return c.ownClaims(ctx, set, pod)
	}
	return nil
}

// ensureClaims creates the volume claims that a pod lacks.
func (c *statefulSetController) ensureClaims(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	ordinal, _ := ordinalOf(set, pod.Name)
	for _, want := range claimsFor(set, ordinal) {
		have := cached[corev1.PersistentVolumeClaim](c.claims, keyOf(want))
		if have != nil {
			if have.DeletionTimestamp != nil {
				return fmt.Errorf("pvc %s is being deleted", want.Name)
			}
			continue
		}
		setClaimOwners(set, nil, ordinal, want)
		_, err := c.clients.CoreV1().PersistentVolumeClaims(want.Namespace).Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			c.events.Eventf(set, corev1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s in StatefulSet %s failed error: %v", want.Name, pod.Name, set.Name, err)
			return fmt.Errorf("create claim %s: %w", keyOf(want), err)
		}
		c.events.Eventf(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", want.Name, pod.Name, set.Name)
	}
	return nil
}

// ownClaims makes the owners of a pod's claims follow the retention policy, so
// that the garbage collector deletes the claims at the right time.
func (c *statefulSetController) ownClaims(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	ordinal, _ := ordinalOf(set, pod.Name)
	for _, want := range claimsFor(set, ordinal) {
		have := cached[corev1.PersistentVolumeClaim](c.claims, keyOf(want))
		if have == nil {
			continue
		}
		changed := have.DeepCopy()
		if !setClaimOwners(set, pod, ordinal, changed) {
			continue
		}
		if _, err := c.clients.CoreV1().PersistentVolumeClaims(changed.Namespace).Update(ctx, changed, metav1.UpdateOptions{}); ignoreGone(err) != nil {
			return fmt.Errorf("owners of claim %s: %w", keyOf(changed), err)
		}
	}
	return nil
}

func (c *statefulSetController) updateStatus(ctx context.Context, key string, set *appsv1.StatefulSet, status appsv1.StatefulSetStatus) error {
	stored := cached[appsv1.StatefulSet](c.informer, key)
	if stored != nil && equality.Semantic.DeepEqual(stored.Status, status) {
		return nil
	}
	set.Status = status
	updated, err := c.clients.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status of %s: %w", key, err)
	}
	c.own.made(key, c.informer.GetIndexer(), updated)
	return nil
}
