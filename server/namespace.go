package server

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"orrery.dev/server/registry"
)

// A namespace dies in three steps: a delete marks it Terminating (here), the
// namespace controller empties it and then takes "kubernetes" out of
// spec.finalizers through the finalize subresource, and that update deletes it.

func namespaceOf(obj runtime.Object) (*corev1.Namespace, bool) {
	ns, ok := obj.(*corev1.Namespace)
	return ns, ok
}

// namespaceHeld reports whether obj is a namespace that spec.finalizers keep.
func namespaceHeld(obj runtime.Object) bool {
	ns, ok := namespaceOf(obj)
	return ok && len(ns.Spec.Finalizers) > 0
}

// hasEnded reports whether a namespace is empty: it is deleted like any other object
// from then on.
func hasEnded(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) == 0
}

// decideNamespace is decideDeletion for namespaces.
func decideNamespace(ns *corev1.Namespace, options *metav1.DeleteOptions, now time.Time) deletion {
	if ns.DeletionTimestamp == nil {
		when := metav1.NewTime(now).Rfc3339Copy()
		ns.DeletionTimestamp = &when
		ns.Status.Phase = corev1.NamespaceTerminating
		ns.Finalizers = finalizersFor(&registry.Kind{}, ns, options)
		if len(ns.Spec.Finalizers) > 0 || len(ns.Finalizers) > 0 {
			return deletion{}
		}
	}
	if len(ns.Spec.Finalizers) > 0 {
		return deletion{pending: true}
	}
	return deletion{now: true}
}
