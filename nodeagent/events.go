package nodeagent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// event tells of a pod.
func (w *worker) event(pod *corev1.Pod, kind, reason, text string) {
	w.a.events.Event(podRef(pod, ""), kind, reason, text)
}

// containerEvent tells of one of a pod's containers.
func (w *worker) containerEvent(pod *corev1.Pod, name, kind, reason, text string) {
	field := fmt.Sprintf("spec.containers{%s}", name)
	switch {
	case initIndex(pod, name) >= 0:
		field = fmt.Sprintf("spec.initContainers{%s}", name)
	case isEphemeral(pod, name):
		field = fmt.Sprintf("spec.ephemeralContainers{%s}", name)
	}
	w.a.events.Event(podRef(pod, field), kind, reason, text)
}

func podRef(pod *corev1.Pod, field string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
		UID: pod.UID, ResourceVersion: pod.ResourceVersion, FieldPath: field,
	}
}

// nodeEvent tells of the node; its UID is its name, as upstream's kubelet has
// it, since events begin before the node is registered.
func (a *Agent) nodeEvent(kind, reason, text string) {
	a.events.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.cfg.NodeName, UID: typesUID(a.cfg.NodeName)}, kind, reason, text)
}
