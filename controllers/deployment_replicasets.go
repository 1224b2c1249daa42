package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestHistory bounds the revision-history annotation, in characters.
const longestHistory = 2000

// splitSets tells the set that has the Deployment's template from the others.
// When several have it, the oldest counts as the newest: it is what a rollback
// to an earlier template goes on with.
func splitSets(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) *rollout {
	r := &rollout{d: d}
	for _, rs := range oldestFirst(sets) {
		if r.newest == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			r.newest = rs
			continue
		}
		r.old = append(r.old, rs)
	}
	return r
}

// nextRevision is the number for the newest set.
func nextRevision(old []*appsv1.ReplicaSet) int64 {
	last := int64(0)
	for _, rs := range old {
		last = max(last, revisionOf(rs.Annotations))
	}
	return last + 1
}

// copied says whether a Deployment's annotation also goes onto its sets.
func copied(annotation string) bool {
	switch annotation {
	case corev1.LastAppliedConfigAnnotation, annotationRevision, annotationHistory, annotationDesired, annotationMax, appsv1.DeprecatedRollbackTo:
		return false
	}
	return true
}

// annotateSet brings a set's annotations in line with the Deployment and gives
// it a revision; it says whether that changed anything.
func annotateSet(d *appsv1.Deployment, rs *appsv1.ReplicaSet, revision int64) bool {
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	before := maps.Clone(rs.Annotations)
	for k, v := range d.Annotations {
		if copied(k) {
			rs.Annotations[k] = v
		}
	}
	had := rs.Annotations[annotationRevision]
	if revisionOf(rs.Annotations) < revision {
		rs.Annotations[annotationRevision] = strconv.FormatInt(revision, 10)
		if had != "" { // it was current before: kubectl shows that it is back
			rs.Annotations[annotationHistory] = appendHistory(rs.Annotations[annotationHistory], had)
		}
	}
	return !maps.Equal(before, rs.Annotations)
}

func appendHistory(history, revision string) string {
	if history == "" {
		return revision
	}
	past := strings.Split(history, ",")
	for len(past) > 0 && len(strings.Join(past, ","))+len(revision)+1 > longestHistory {
		past = past[1:]
	}
	return strings.Join(append(past, revision), ",")
}

// updateNewest keeps the newest set's annotations and minReadySeconds, and the
// Deployment's revision, up to date; without a newest set it does nothing.
func (c *deploymentController) updateNewest(ctx context.Context, r *rollout) error {
	rs := r.newest
	if rs == nil {
		return nil
	}
	changed := annotateSet(r.d, rs, nextRevision(r.old))
	if rs.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		changed = true
	}
	if changed {
		updated, err := c.clients.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update %s: %w", keyOf(rs), err)
		}
		c.own.made(keyOf(r.d), c.sets.GetIndexer(), updated)
		*rs = *updated
	}
	if err := c.setRevision(ctx, r.d, rs.Annotations[annotationRevision]); err != nil {
		return err
	}
	if !hasDeadline(r.d) || conditionOf(r.d.Status.Conditions, appsv1.DeploymentProgressing) != nil {
		return nil
	}
	setCondition(&r.d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "FoundNewReplicaSet",
		fmt.Sprintf("Found new replica set %q", rs.Name), time.Now()))
	return c.writeStatus(ctx, r.d)
}

// setRevision notes the current revision on the Deployment.
func (c *deploymentController) setRevision(ctx context.Context, d *appsv1.Deployment, revision string) error {
	if d.Annotations[annotationRevision] == revision {
		return nil
	}
	changed := d.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[annotationRevision] = revision
	updated, err := c.clients.AppsV1().Deployments(d.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("revision of %s: %w", keyOf(d), err)
	}
	c.own.made(keyOf(d), c.informer.GetIndexer(), updated)
	*d = *updated
	return nil
}

// ensureNewest is updateNewest, and makes the newest set if there is none.
func (c *deploymentController) ensureNewest(ctx context.Context, r *rollout) error {
	if r.newest != nil {
		return c.updateNewest(ctx, r)
	}
	rs := newSet(r)
	created, err := c.clients.AppsV1().ReplicaSets(rs.Namespace).Create(ctx, rs, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		if created, err = c.afterCollision(ctx, r, rs); err != nil {
			return err
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case err != nil:
		return c.setFailed(ctx, r.d, rs, err)
	default:
		c.own.made(keyOf(r.d), c.sets.GetIndexer(), created)
		if n := *created.Spec.Replicas; n > 0 {
			c.events.Eventf(r.d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", created.Name, n)
		}
		if hasDeadline(r.d) {
			setCondition(&r.d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated",
				fmt.Sprintf("Created new replica set %q", created.Name), time.Now()))
		}
	}
	r.newest = created
	conditions := r.d.Status.Conditions
	if err := c.setRevision(ctx, r.d, created.Annotations[annotationRevision]); err != nil {
		return err
	}
	r.d.Status.Conditions = conditions
	return nil // report writes the conditions, at the end of this sync
}

// newSet is the ReplicaSet for the Deployment's present template.
func newSet(r *rollout) *appsv1.ReplicaSet {
	d := r.d
	template := *d.Spec.Template.DeepCopy()
	hash := templateHash(&template, d.Status.CollisionCount)
	template.Labels = withLabel(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withLabel(selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	size := newestSize(d, r.old, 0)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + hash, Namespace: d.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
			Labels:          maps.Clone(template.Labels),
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &size, MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: template},
	}
	annotateSet(d, rs, nextRevision(r.old))
	setSizes(rs, *d.Spec.Replicas, *d.Spec.Replicas+maxSurge(d))
	return rs
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}

// afterCollision finds that the new set's name is taken: by the very set, which
// the cache did not show yet, or by another with the same hash. Then the
// collision count changes the hash of the next try.
func (c *deploymentController) afterCollision(ctx context.Context, r *rollout, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	found, err := c.clients.AppsV1().ReplicaSets(rs.Namespace).Get(ctx, rs.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", keyOf(rs), err)
	}
	if metav1.IsControlledBy(found, r.d) && sameTemplate(&found.Spec.Template, &r.d.Spec.Template) {
		return found, nil
	}
	count := int32(1)
	if r.d.Status.CollisionCount != nil {
		count += *r.d.Status.CollisionCount
	}
	r.d.Status.CollisionCount = &count
	if err := c.writeStatus(ctx, r.d); err != nil {
		return nil, err
	}
	return nil, apierrors.NewAlreadyExists(appsv1.Resource("replicasets"), rs.Name)
}

func (c *deploymentController) setFailed(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet, cause error) error {
	message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, cause)
	c.events.Event(d, corev1.EventTypeWarning, "ReplicaSetCreateError", message)
	if hasDeadline(d) && setCondition(&d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", message, time.Now())) {
		if err := c.writeStatus(ctx, d); err != nil {
			return err
		}
	}
	return fmt.Errorf("create %s: %w", keyOf(rs), cause)
}

func conditionOf(all []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	i := slices.IndexFunc(all, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &all[i]
}
