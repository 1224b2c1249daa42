package controllers

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"orrery.dev/api"
)

// replicaBurst bounds how many pods one sync creates or deletes.
const replicaBurst = 500

// replicaSetController keeps as many pods as a ReplicaSet asks for. A
// ReplicationController is the same with another name, so it is read and written
// as a ReplicaSet (see replicationcontroller.go).
type replicaSetController struct {
	podMaker
	kind     schema.GroupVersionKind
	informer cache.SharedIndexInformer
	// get returns the cached set and the object that events are about.
	get         func(key string) (*appsv1.ReplicaSet, runtime.Object)
	live        func(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error)
	writeStatus func(ctx context.Context, rs *appsv1.ReplicaSet) error
}

func newReplicaSet(e *env) Controller {
	informer := e.replicaSets()
	c := &replicaSetController{
		podMaker: podMaker{env: e, events: e.recorders("replicaset-controller"), own: &writes{}},
		kind:     appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		informer: informer,
		get: func(key string) (*appsv1.ReplicaSet, runtime.Object) {
			rs := cached[appsv1.ReplicaSet](informer, key)
			return rs, rs
		},
		live: func(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
			return e.clients.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		writeStatus: func(ctx context.Context, rs *appsv1.ReplicaSet) error {
			_, err := e.clients.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, rs, metav1.UpdateOptions{})
			return err
		},
	}
	return c.controller("replicaset-controller", "apps/replicasets")
}

func (c *replicaSetController) controller(name, writes string) Controller {
	return Controller{
		Name: name,
		Reads: []Source{
			wakesSelf(c.informer),
			wakes(c.pods(), adopterKeys(c.informer, c.kind.Kind, func(o metav1.Object) *metav1.LabelSelector {
				rs, _ := c.get(keyOf(o))
				if rs == nil {
					return nil
				}
				return rs.Spec.Selector
			})),
		},
		Writes:  []string{"pods", writes},
		Workers: 5,
		Sync:    c.sync,
	}
}

func (c *replicaSetController) sync(ctx context.Context, key string) (time.Duration, error) {
	rs, object := c.get(key)
	if rs == nil {
		c.own.forget(key)
		return 0, nil
	}
	selector, err := selectorOf(rs.Spec.Selector)
	if err != nil {
		return 0, nil // the API server does not let such a set in
	}
	fresh := c.own.seen(key)
	mine, err := c.claimPods(ctx, rs, selector)
	if err != nil {
		return 0, err
	}
	var active, terminating []*corev1.Pod
	for _, pod := range mine {
		switch {
		case api.IsPodActive(pod):
			active = append(active, pod)
		case podTerminating(pod):
			terminating = append(terminating, pod)
		}
	}
	now := time.Now()
	var acted error
	if fresh && rs.DeletionTimestamp == nil {
		acted = c.scale(ctx, key, rs, object, active, now)
	}
	status, again := replicaSetStatus(rs, active, len(terminating), acted, now)
	if err := c.updateStatus(ctx, rs, status); err != nil {
		return 0, err
	}
	if !fresh {
		again = pause
	}
	return again, acted
}

func (c *replicaSetController) claimPods(ctx context.Context, rs *appsv1.ReplicaSet, selector labels.Selector) ([]*corev1.Pod, error) {
	pods := claim[*corev1.Pod]{
		owner: rs, kind: c.kind, selector: selector,
		live:  func(ctx context.Context) (metav1.Object, error) { return c.live(ctx, rs.Namespace, rs.Name) },
		patch: c.patchPod,
	}
	var open []*corev1.Pod
	for _, pod := range candidates[*corev1.Pod](c.pods(), rs) {
		if !api.IsPodTerminal(pod) {
			open = append(open, pod)
		}
	}
	return pods.from(ctx, open)
}

// scale creates or deletes pods until there are as many as asked for.
func (c *replicaSetController) scale(ctx context.Context, key string, rs *appsv1.ReplicaSet, object runtime.Object, active []*corev1.Pod, now time.Time) error {
	diff := len(active) - int(*rs.Spec.Replicas)
	if diff < 0 {
		owner := *metav1.NewControllerRef(rs, c.kind)
		_, err := slowStart(min(-diff, replicaBurst), func(int) error {
			_, err := c.create(ctx, object, key, podFrom(&rs.Spec.Template, rs.Namespace, rs.Name+"-", owner))
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil // everything here is about to go
			}
			return err
		})
		return err
	}
	if diff == 0 {
		return nil
	}
	deletionOrder(active, c.podsPerNode(rs, active), now)
	doomed := active[:min(diff, replicaBurst)]
	for _, err := range parallel(len(doomed), func(i int) error { return c.delete(ctx, object, key, doomed[i]) }) {
		if err != nil {
			return err
		}
	}
	return nil
}

// podsPerNode counts the active pods on each node of this set and its siblings
// (the other sets of one Deployment), so that doubled-up pods go first.
func (c *replicaSetController) podsPerNode(rs *appsv1.ReplicaSet, active []*corev1.Pod) map[string]int {
	count := map[string]int{}
	add := func(pods []*corev1.Pod) {
		for _, pod := range pods {
			if api.IsPodActive(pod) && pod.Spec.NodeName != "" {
				count[pod.Spec.NodeName]++
			}
		}
	}
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		add(active)
		return count
	}
	for _, sibling := range indexed[metav1.Object](c.informer, byController, string(owner.UID)) {
		add(indexed[*corev1.Pod](c.pods(), byController, string(sibling.GetUID())))
	}
	return count
}

// replicaSetStatus is the status that the pods of a set add up to, and the time
// until it changes by itself.
func replicaSetStatus(rs *appsv1.ReplicaSet, active []*corev1.Pod, terminating int, acted error, now time.Time) (appsv1.ReplicaSetStatus, time.Duration) {
	status := *rs.Status.DeepCopy()
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = int32(len(active)), 0, 0, 0
	gone := int32(terminating)
	status.TerminatingReplicas = &gone
	wanted := labels.Set(rs.Spec.Template.Labels).AsSelectorPreValidated()
	var again time.Duration
	for _, pod := range active {
		if wanted.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if !api.IsPodReady(pod) {
			continue
		}
		status.ReadyReplicas++
		available, left := podAvailable(pod, rs.Spec.MinReadySeconds, now)
		if available {
			status.AvailableReplicas++
		}
		again = sooner(again, left)
	}
	failed := -1
	for i := range status.Conditions {
		if status.Conditions[i].Type == appsv1.ReplicaSetReplicaFailure {
			failed = i
		}
	}
	switch {
	case acted != nil && failed < 0:
		reason := "FailedDelete"
		if len(active) < int(*rs.Spec.Replicas) {
			reason = "FailedCreate"
		}
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now), Reason: reason, Message: acted.Error(),
		})
	case acted == nil && failed >= 0:
		status.Conditions = append(status.Conditions[:failed], status.Conditions[failed+1:]...)
	}
	status.ObservedGeneration = rs.Generation
	return status, again
}

// sooner is the smaller of two delays, of which 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (c *replicaSetController) updateStatus(ctx context.Context, rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) error {
	if equality.Semantic.DeepEqual(rs.Status, status) {
		return nil
	}
	changed := rs.DeepCopy()
	changed.Status = status
	if err := c.writeStatus(ctx, changed); err != nil {
		return fmt.Errorf("status of %s: %w", keyOf(rs), err)
	}
	return nil
}
