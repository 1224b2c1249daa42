package controllers

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// newReplicationController runs the ReplicaSet's loop over
// ReplicationControllers.
func newReplicationController(e *env) Controller {
	informer := e.factory.Core().V1().ReplicationControllers().Informer()
	if err := informer.AddIndexers(cache.Indexers{byController: controllerIndex}); err != nil {
		panic(err) // added once, before the informers start
	}
	c := &replicaSetController{
		podMaker: podMaker{env: e, events: e.recorders("replication-controller"), own: &writes{}},
		kind:     corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		informer: informer,
		get: func(key string) (*appsv1.ReplicaSet, runtime.Object) {
			rc := cached[corev1.ReplicationController](informer, key)
			if rc == nil {
				return nil, nil
			}
			return asReplicaSet(rc), rc
		},
		live: func(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
			rc, err := e.clients.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return asReplicaSet(rc), nil
		},
		writeStatus: func(ctx context.Context, rs *appsv1.ReplicaSet) error {
			_, err := e.clients.CoreV1().ReplicationControllers(rs.Namespace).UpdateStatus(ctx, asReplicationController(rs), metav1.UpdateOptions{})
			return err
		},
	}
	return c.controller("replicationcontroller-controller", "replicationcontrollers")
}

func asReplicaSet(rc *corev1.ReplicationController) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: rc.ObjectMeta}
	rs.Spec = appsv1.ReplicaSetSpec{
		Replicas:        rc.Spec.Replicas,
		MinReadySeconds: rc.Spec.MinReadySeconds,
		Selector:        &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
	}
	if rs.Spec.Replicas == nil {
		one := int32(1)
		rs.Spec.Replicas = &one
	}
	if rc.Spec.Template != nil {
		rs.Spec.Template = *rc.Spec.Template
	}
	rs.Status = appsv1.ReplicaSetStatus{
		Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
		ReadyReplicas: rc.Status.ReadyReplicas, AvailableReplicas: rc.Status.AvailableReplicas,
		ObservedGeneration: rc.Status.ObservedGeneration,
	}
	for _, c := range rc.Status.Conditions {
		rs.Status.Conditions = append(rs.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return rs
}

// asReplicationController carries the status back; the API server takes nothing
// else from an update of the status, but the rest has to be valid.
func asReplicationController(rs *appsv1.ReplicaSet) *corev1.ReplicationController {
	rc := &corev1.ReplicationController{ObjectMeta: rs.ObjectMeta}
	rc.Spec = corev1.ReplicationControllerSpec{
		Replicas: rs.Spec.Replicas, MinReadySeconds: rs.Spec.MinReadySeconds,
		Selector: rs.Spec.Selector.MatchLabels, Template: &rs.Spec.Template,
	}
	rc.Status = corev1.ReplicationControllerStatus{
		Replicas: rs.Status.Replicas, FullyLabeledReplicas: rs.Status.FullyLabeledReplicas,
		ReadyReplicas: rs.Status.ReadyReplicas, AvailableReplicas: rs.Status.AvailableReplicas,
		ObservedGeneration: rs.Status.ObservedGeneration,
	}
	for _, c := range rs.Status.Conditions {
		rc.Status.Conditions = append(rc.Status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return rc
}
