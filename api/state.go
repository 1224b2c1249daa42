package api

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// StateOf is the state in which a face shows an object, whatever its kind.
func StateOf(obj runtime.Object) State {
	if m, err := meta.Accessor(obj); err == nil && m.GetDeletionTimestamp() != nil {
		if pod, ok := obj.(*corev1.Pod); ok && IsPodTerminal(pod) {
			return podState(pod)
		}
		return StateTerminating
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return podState(o)
	case *corev1.Node:
		return nodeState(o)
	case *corev1.Namespace:
		return phaseState(string(o.Status.Phase))
	case *corev1.PersistentVolume:
		return phaseState(string(o.Status.Phase))
	case *corev1.PersistentVolumeClaim:
		return phaseState(string(o.Status.Phase))
	case *corev1.Event:
		if o.Type == corev1.EventTypeWarning {
			return StateWarning
		}
		return StateOK
	case *corev1.ComponentStatus:
		return componentState(o)
	case *corev1.ConfigMap, *corev1.Secret, *corev1.ServiceAccount, *corev1.Service, *corev1.Endpoints, *discoveryv1.EndpointSlice,
		*coordinationv1.Lease, *rbacv1.Role, *rbacv1.ClusterRole, *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
		// Just data: there are many of them, and nothing to look for.
		return StateOK
	case *corev1.ReplicationController:
		return replicas(o.Spec.Replicas, o.Status.Replicas, o.Status.ReadyReplicas, o.Generation, o.Status.ObservedGeneration, false)
	}
	return workloadState(obj)
}

func workloadState(obj runtime.Object) State {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		stuck := false
		for _, c := range o.Status.Conditions {
			stuck = stuck || c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse ||
				c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		}
		state := replicas(o.Spec.Replicas, o.Status.UpdatedReplicas, o.Status.AvailableReplicas, o.Generation, o.Status.ObservedGeneration, stuck)
		if state == StateOK && o.Status.Replicas > o.Status.UpdatedReplicas {
			return StateProgressing // pods of an older template are still there
		}
		return state
	case *appsv1.ReplicaSet:
		return replicas(o.Spec.Replicas, o.Status.Replicas, o.Status.ReadyReplicas, o.Generation, o.Status.ObservedGeneration, false)
	case *appsv1.StatefulSet:
		return replicas(o.Spec.Replicas, o.Status.Replicas, o.Status.ReadyReplicas, o.Generation, o.Status.ObservedGeneration, false)
	case *appsv1.DaemonSet:
		return replicas(&o.Status.DesiredNumberScheduled, o.Status.UpdatedNumberScheduled, o.Status.NumberAvailable, o.Generation, o.Status.ObservedGeneration, false)
	case *batchv1.Job:
		switch JobWord(o) {
		case "Complete":
			return StateDone
		case "Failed", "FailureTarget":
			return StateError
		case "Suspended":
			return StateUnknown
		}
		return StateProgressing
	}
	return conditionState(obj)
}

// replicas is a workload's state: on its way to a new template or count
// (made counts what exists of the newest), short of what it should have, or
// stuck.
func replicas(want *int32, made, have int32, generation, observed int64, stuck bool) State {
	n := int32(1)
	if want != nil {
		n = *want
	}
	switch {
	case stuck:
		return StateError
	case observed < generation || made < n:
		return StateProgressing
	case have < n:
		return StateWarning
	}
	return StateOK
}

// podState goes by kubectl's word, so that word and colour never disagree.
func podState(pod *corev1.Pod) State {
	w := WordsOfPod(pod)
	switch w.Status {
	case "Running":
		if w.Ready < max(w.Total, len(pod.Status.ContainerStatuses)) {
			return StateWarning
		}
		return StateOK
	case "Completed", "Succeeded":
		return StateDone
	case "Pending":
		if c := PodCondition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
			return StateWarning
		}
		return StateProgressing
	case "ContainerCreating", "PodInitializing", corev1.PodReasonSchedulingGated:
		return StateProgressing
	case "NotReady":
		return StateWarning
	case "Unknown", "":
		return StateUnknown
	case "Terminating":
		return StateTerminating
	}
	if step, ok := strings.CutPrefix(w.Status, "Init:"); ok && strings.Contains(step, "/") {
		return StateProgressing
	}
	return StateError
}

func nodeState(n *corev1.Node) State {
	word, _, cordoned := strings.Cut(NodeWord(n), ",")
	switch {
	case word == "Unknown":
		return StateUnknown
	case word != "Ready":
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				return StateUnknown
			}
		}
		return StateError
	case cordoned:
		return StateWarning
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue && strings.HasSuffix(string(c.Type), "Pressure") {
			return StateWarning
		}
	}
	return StateOK
}

func componentState(c *corev1.ComponentStatus) State {
	for _, condition := range c.Conditions {
		if condition.Type == corev1.ComponentHealthy {
			return truth(string(condition.Status))
		}
	}
	return StateUnknown
}

func phaseState(phase string) State {
	switch phase {
	case "Active", "Bound", "Available":
		return StateOK
	case "Pending":
		return StateProgressing
	case "Released":
		return StateDone
	case "Lost", "Failed":
		return StateError
	case "Terminating":
		return StateTerminating
	}
	return StateUnknown
}

func truth(status string) State {
	switch status {
	case "True":
		return StateOK
	case "False":
		return StateError
	}
	return StateUnknown
}

// conditionState is for kinds that nothing more is known of: by the condition
// that says whether the object is as it should be. What has no conditions is
// just data, and in order.
func conditionState(obj runtime.Object) State {
	conditions := conditionsOf(obj)
	for _, good := range []string{"Ready", "Available", "Established", "Healthy", "Succeeded", "Approved"} {
		for _, c := range conditions {
			if c.Type != good {
				continue
			}
			if c.Status == metav1.ConditionFalse {
				return StateWarning
			}
			return truth(string(c.Status))
		}
	}
	for _, c := range conditions {
		if (c.Type == "Failed" || c.Type == "Denied" || c.Type == "Dangling" || c.Type == "Stalled") && c.Status == metav1.ConditionTrue {
			return StateError
		}
	}
	return StateOK
}

// conditionsOf finds status.conditions in any object.
func conditionsOf(obj runtime.Object) []metav1.Condition {
	content, err := contentOf(obj)
	if err != nil {
		return nil
	}
	list, _, err := unstructured.NestedSlice(content, "status", "conditions")
	if err != nil {
		return nil
	}
	var out []metav1.Condition
	for _, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _ := fields["type"].(string)
		status, _ := fields["status"].(string)
		out = append(out, metav1.Condition{Type: name, Status: metav1.ConditionStatus(status)})
	}
	return out
}

func contentOf(obj runtime.Object) (map[string]any, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		return u.UnstructuredContent(), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}
