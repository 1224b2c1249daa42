package controllers

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newCondition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) appsv1.DeploymentCondition {
	at := metav1.NewTime(now)
	return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
}

// setCondition puts c in place of the condition of its type, unless that already
// says the same, and says whether it did.
func setCondition(status *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) bool {
	if now := conditionOf(status.Conditions, c.Type); now != nil {
		if now.Status == c.Status && now.Reason == c.Reason {
			return false
		}
		if now.Status == c.Status {
			c.LastTransitionTime = now.LastTransitionTime
		}
	}
	dropCondition(status, c.Type)
	status.Conditions = append(status.Conditions, c)
	return true
}

func dropCondition(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}

func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

// notePause stops and restarts the clock of the progress deadline.
func (c *deploymentController) notePause(ctx context.Context, d *appsv1.Deployment) error {
	if !hasDeadline(d) {
		return nil
	}
	now := conditionOf(d.Status.Conditions, appsv1.DeploymentProgressing)
	if now != nil && now.Reason == "ProgressDeadlineExceeded" {
		return nil
	}
	noted := now != nil && now.Reason == "DeploymentPaused"
	switch {
	case d.Spec.Paused && !noted:
		setCondition(&d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused", time.Now()))
	case !d.Spec.Paused && noted:
		setCondition(&d.Status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed", time.Now()))
	default:
		return nil
	}
	return c.writeStatus(ctx, d)
}

// observe stores the numbers, without judging progress.
func (c *deploymentController) observe(ctx context.Context, r *rollout) (time.Duration, error) {
	return 0, c.storeStatus(ctx, r.d, deploymentStatus(r, time.Now()))
}

// report stores numbers and progress; it returns the time of the next look at
// the deadline.
func (c *deploymentController) report(ctx context.Context, r *rollout) (time.Duration, error) {
	now := time.Now()
	status := rolloutStatus(r, now)
	if err := c.storeStatus(ctx, r.d, status); err != nil {
		return 0, err
	}
	return untilDeadline(r.d, &status, now), nil
}

func (c *deploymentController) storeStatus(ctx context.Context, d *appsv1.Deployment, status appsv1.DeploymentStatus) error {
	stored := cached[appsv1.Deployment](c.informer, keyOf(d))
	if stored != nil && equality.Semantic.DeepEqual(stored.Status, status) {
		return nil
	}
	d.Status = status
	return c.writeStatus(ctx, d)
}

// deploymentStatus adds up the sets.
func deploymentStatus(r *rollout, now time.Time) appsv1.DeploymentStatus {
	all := r.all()
	status := appsv1.DeploymentStatus{
		ObservedGeneration: r.d.Generation,
		Replicas:           livingPods(all),
		AvailableReplicas:  availablePods(all),
		CollisionCount:     r.d.Status.CollisionCount,
		Conditions:         slices.Clone(r.d.Status.Conditions),
	}
	var terminating int32
	for _, rs := range all {
		status.ReadyReplicas += rs.Status.ReadyReplicas
		if rs.Status.TerminatingReplicas != nil {
			terminating += *rs.Status.TerminatingReplicas
		}
	}
	status.TerminatingReplicas = &terminating
	if r.newest != nil {
		status.UpdatedReplicas = r.newest.Status.Replicas
	}
	status.UnavailableReplicas = max(wantedPods(all)-status.AvailableReplicas, 0)
	if status.AvailableReplicas >= *r.d.Spec.Replicas-maxUnavailable(r.d) {
		setCondition(&status, newCondition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.", now))
	} else {
		setCondition(&status, newCondition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", now))
	}
	return status
}

// rolloutStatus is deploymentStatus with the verdict on the rollout.
func rolloutStatus(r *rollout, now time.Time) appsv1.DeploymentStatus {
	status := deploymentStatus(r, now)
	if !hasDeadline(r.d) {
		dropCondition(&status, appsv1.DeploymentProgressing)
	}
	current := conditionOf(r.d.Status.Conditions, appsv1.DeploymentProgressing)
	over := status.Replicas == status.UpdatedReplicas && current != nil && current.Reason == "NewReplicaSetAvailable"
	if hasDeadline(r.d) && !over {
		judge(r, &status, current, now)
	}
	dropCondition(&status, appsv1.DeploymentReplicaFailure)
	if failure := setFailure(r); failure != nil {
		setCondition(&status, *failure)
	}
	if before := conditionOf(r.d.Status.Conditions, appsv1.DeploymentReplicaFailure); before != nil {
		if after := conditionOf(status.Conditions, appsv1.DeploymentReplicaFailure); after != nil && after.Reason == before.Reason && after.Message == before.Message {
			*after = *before
		}
	}
	return status
}

// judge says whether the rollout is complete, moving, or stuck.
func judge(r *rollout, status *appsv1.DeploymentStatus, current *appsv1.DeploymentCondition, now time.Time) {
	subject := fmt.Sprintf("Deployment %q", r.d.Name)
	if r.newest != nil {
		subject = fmt.Sprintf("ReplicaSet %q", r.newest.Name)
	}
	switch {
	case complete(r.d, status):
		setCondition(status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable", subject+" has successfully progressed.", now))
	case progressed(&r.d.Status, status):
		c := newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", subject+" is progressing.", now)
		if current != nil {
			if current.Status == corev1.ConditionTrue {
				c.LastTransitionTime = current.LastTransitionTime
			}
			dropCondition(status, appsv1.DeploymentProgressing) // each step restarts the clock
		}
		setCondition(status, c)
	case timedOut(r.d, current, now):
		setCondition(status, newCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", subject+" has timed out progressing.", now))
	}
}

// complete says whether all wanted pods, and only those, are of the newest set
// and available.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	want := *d.Spec.Replicas
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want && s.ObservedGeneration >= d.Generation
}

func progressed(before, after *appsv1.DeploymentStatus) bool {
	return after.UpdatedReplicas > before.UpdatedReplicas ||
		after.Replicas-after.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		after.ReadyReplicas > before.ReadyReplicas || after.AvailableReplicas > before.AvailableReplicas
}

func timedOut(d *appsv1.Deployment, progressing *appsv1.DeploymentCondition, now time.Time) bool {
	if progressing == nil || progressing.Reason == "NewReplicaSetAvailable" {
		return false
	}
	if progressing.Reason == "ProgressDeadlineExceeded" {
		return true
	}
	return progressing.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second).Before(now)
}

func untilDeadline(d *appsv1.Deployment, status *appsv1.DeploymentStatus, now time.Time) time.Duration {
	progressing := conditionOf(status.Conditions, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || progressing == nil || complete(d, status) || progressing.Reason == "ProgressDeadlineExceeded" || progressing.Reason == "NewReplicaSetAvailable" {
		return 0
	}
	left := progressing.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second).Sub(now)
	return max(left, 0) + time.Second
}

// setFailure carries a set's failure to make pods up to the Deployment; the
// newest set's counts first.
func setFailure(r *rollout) *appsv1.DeploymentCondition {
	for _, rs := range append([]*appsv1.ReplicaSet{r.newest}, r.old...) {
		if rs == nil {
			continue
		}
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
				}
			}
		}
	}
	return nil
}
