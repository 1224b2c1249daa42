package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespaceLifecycle lets nothing be created in a namespace that is missing or
// being deleted, and keeps the namespaces that no cluster can do without.
func namespaceLifecycle(reader Reader) Plugin {
	immortal := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}
	return Plugin{
		Name: "NamespaceLifecycle",
		On:   func(r *Request) bool { return r.Operation != Connect },
		Mutate: func(ctx context.Context, r *Request) error {
			if r.Operation == Delete {
				if r.Is("", "namespaces") && slices.Contains(immortal, r.Name) {
					return apierrors.NewForbidden(core("namespaces"), r.Name, fmt.Errorf("this namespace may not be deleted"))
				}
				return nil
			}
			if r.Namespace == "" || r.Resource.Group == "" && r.Resource.Resource == "namespaces" || r.Is("authorization.k8s.io", "localsubjectaccessreviews") {
				return nil
			}
			ns, err := get[*corev1.Namespace](ctx, reader, core("namespaces"), "", r.Namespace)
			if err != nil {
				return err // NotFound reads: namespaces "x" not found
			}
			if r.Operation != Create || ns.Status.Phase != corev1.NamespaceTerminating {
				return nil
			}
			refusal := r.forbid("unable to create new content in namespace %s because it is being terminated", r.Namespace)
			refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
				Type:    corev1.NamespaceTerminatingCause,
				Message: fmt.Sprintf("namespace %s is being terminated", r.Namespace),
				Field:   "metadata.namespace",
			})
			return refusal
		},
	}
}
