package api

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// StateOf says in which of the seven states a face shows an object. Kinds that
// have no health of their own are ok as long as they are not being deleted.
func StateOf(obj runtime.Object) State {
	if m, err := meta.Accessor(obj); err == nil && m.GetDeletionTimestamp() != nil {
		return StateTerminating
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return podState(o)
	case *corev1.Node:
		return nodeState(o)
	case *corev1.Namespace:
		if o.Status.Phase == corev1.NamespaceTerminating {
			return StateTerminating
		}
	case *corev1.Event:
		if o.Type == corev1.EventTypeWarning {
			return StateWarning
		}
	case *corev1.PersistentVolumeClaim:
		return phaseState(string(o.Status.Phase))
	case *corev1.PersistentVolume:
		return phaseState(string(o.Status.Phase))
	case *appsv1.Deployment:
		return deploymentState(o)
	case *appsv1.ReplicaSet:
		return replicasState(o.Spec.Replicas, o.Status.ReadyReplicas)
	case *corev1.ReplicationController:
		return replicasState(o.Spec.Replicas, o.Status.ReadyReplicas)
	case *appsv1.StatefulSet:
		return replicasState(o.Spec.Replicas, o.Status.ReadyReplicas)
	case *appsv1.DaemonSet:
		return replicasState(&o.Status.DesiredNumberScheduled, o.Status.NumberReady)
	case *batchv1.Job:
		return jobState(o)
	case *batchv1.CronJob:
		if o.Spec.Suspend != nil && *o.Spec.Suspend {
			return StateDone
		}
	case *unstructured.Unstructured:
		return conditionState(o)
	}
	return StateOK
}

// podState follows kubectl's status word, but also looks behind it: a pod whose
// word is Running while a container waits to be restarted is in trouble.
func podState(pod *corev1.Pod) State {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return StateDone
	case corev1.PodFailed:
		return StateError
	case corev1.PodUnknown:
		return StateUnknown
	}
	worst := StateOK
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i, c := range statuses {
		init := i < len(pod.Status.InitContainerStatuses)
		switch {
		case c.State.Waiting != nil && !starting(c.State.Waiting.Reason):
			return StateError
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			worst = StateError
		case c.State.Waiting != nil && worst == StateOK:
			worst = StateProgressing
		case !init && c.State.Running != nil && !c.Ready && worst == StateOK:
			worst = StateWarning // runs, and fails its readiness probe
			if c.Started == nil || !*c.Started {
				worst = StateProgressing
			}
		}
	}
	if worst != StateOK {
		return worst
	}
	if pod.Status.Phase != corev1.PodPending {
		return StateOK
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return StateWarning // no node takes it
		}
	}
	return StateProgressing
}

// starting tells the reasons for waiting that pass from those that are errors.
func starting(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

func nodeState(node *corev1.Node) State {
	state := StateUnknown
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && state == StateUnknown:
			state = StateOK
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse:
			return StateError
		case c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue:
			state = StateWarning // pressure of some kind
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
			return StateUnknown
		}
	}
	if state == StateOK && node.Spec.Unschedulable {
		return StateWarning
	}
	return state
}

func deploymentState(d *appsv1.Deployment) State {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse ||
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return StateError
		}
	}
	want := replicas(d.Spec.Replicas)
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < want || d.Status.Replicas > d.Status.UpdatedReplicas {
		return StateProgressing
	}
	return replicasState(d.Spec.Replicas, d.Status.AvailableReplicas)
}

func replicasState(wanted *int32, ready int32) State {
	switch want := replicas(wanted); {
	case ready >= want:
		return StateOK
	case ready > 0:
		return StateWarning
	default:
		return StateProgressing
	}
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func jobState(job *batchv1.Job) State {
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobSuspended:
			return StateDone
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			return StateError
		}
	}
	return StateProgressing
}

func phaseState(phase string) State {
	switch phase {
	case "Bound", "Available":
		return StateOK
	case "Released":
		return StateDone
	case "Failed", "Lost":
		return StateError
	}
	return StateProgressing
}

// conditionState reads the conditions that custom resources have by custom.
func conditionState(o *unstructured.Unstructured) State {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		kind, _ := condition["type"].(string)
		if kind != "Ready" && kind != "Available" && kind != "Healthy" && kind != "Established" {
			continue
		}
		switch condition["status"] {
		case "True":
			return StateOK
		case "False":
			return StateWarning
		default:
			return StateProgressing
		}
	}
	return StateOK
}
