package api

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestStateOf(t *testing.T) {
	yes, now, three := true, metav1.Now(), int32(3)
	pod := func(phase corev1.PodPhase, states ...corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: phase, ContainerStatuses: states}}
	}
	running := corev1.ContainerStatus{Ready: true, Started: &yes, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	unready := running
	unready.Ready = false
	waits := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	deleted := pod(corev1.PodRunning, running)
	deleted.DeletionTimestamp = &now
	unscheduled := pod(corev1.PodPending)
	unscheduled.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	node := func(ready corev1.ConditionStatus, cordoned bool) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: cordoned},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	deployment := func(updated, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &three},
			Status: appsv1.DeploymentStatus{Replicas: updated, UpdatedReplicas: updated, AvailableReplicas: available}}
	}
	custom := func(status string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"conditions": []any{map[string]any{"type": "Ready", "status": status}}}}}
	}
	for name, test := range map[string]struct {
		obj  runtime.Object
		want State
	}{
		"pod running":               {pod(corev1.PodRunning, running), StateOK},
		"pod not ready":             {pod(corev1.PodRunning, running, unready), StateWarning},
		"pod crash looping":         {pod(corev1.PodRunning, running, waits("CrashLoopBackOff")), StateError},
		"pod creating":              {pod(corev1.PodPending, waits("ContainerCreating")), StateProgressing},
		"pod without a node":        {unscheduled, StateWarning},
		"pod finished":              {pod(corev1.PodSucceeded), StateDone},
		"pod failed":                {pod(corev1.PodFailed), StateError},
		"pod deleted":               {deleted, StateTerminating},
		"node ready":                {node(corev1.ConditionTrue, false), StateOK},
		"node cordoned":             {node(corev1.ConditionTrue, true), StateWarning},
		"node not ready":            {node(corev1.ConditionFalse, false), StateError},
		"node unheard of":           {node(corev1.ConditionUnknown, false), StateUnknown},
		"deployment available":      {deployment(3, 3), StateOK},
		"deployment rolling":        {deployment(2, 3), StateProgressing},
		"deployment surging":        {&appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}}, StateProgressing},
		"deployment surging, short": {&appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1}}, StateWarning},
		"deployment short":          {deployment(3, 1), StateWarning},
		"config map":                {&corev1.ConfigMap{}, StateOK},
		"custom resource ready":     {custom("True"), StateOK},
		"custom resource unready":   {custom("False"), StateWarning},
	} {
		if got := StateOf(test.obj); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
