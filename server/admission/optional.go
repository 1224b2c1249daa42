package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/registry"
)

// Plugins about other things than pods that only run if they are asked for.

// inNamespace is the On of plugins that look after the namespace of a request.
func inNamespace(ops ...Operation) func(*Request) bool {
	return func(r *Request) bool {
		return slices.Contains(ops, r.Operation) && r.Namespace != "" && !(r.Resource.Group == "" && r.Resource.Resource == "namespaces")
	}
}

// namespaceAutoProvision makes the namespace of what is created.
func namespaceAutoProvision(reader Reader, writer Writer) Plugin {
	return Plugin{
		Name: "NamespaceAutoProvision",
		On:   func(r *Request) bool { return !r.DryRun && inNamespace(Create)(r) },
		Mutate: func(ctx context.Context, r *Request) error {
			_, err := reader.Get(ctx, core("namespaces"), "", r.Namespace)
			if apierrors.IsNotFound(err) {
				_, err = writer.Create(ctx, core("namespaces"), newNamespace(r.Namespace))
			}
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return r.forbid("%w", err)
			}
			return nil
		},
	}
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.Now().Rfc3339Copy(), Labels: map[string]string{corev1.LabelMetadataName: name}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

// namespaceExists refuses what is in no namespace.
func namespaceExists(reader Reader) Plugin {
	return Plugin{
		Name: "NamespaceExists", On: inNamespace(Create, Update, Delete),
		Validate: func(ctx context.Context, r *Request) error {
			_, err := reader.Get(ctx, core("namespaces"), "", r.Namespace)
			return err
		},
	}
}

// denyExternalIPs keeps services from drawing traffic for addresses that are not
// theirs. What a service has already it may keep.
func denyExternalIPs() Plugin {
	return Plugin{
		Name: "DenyServiceExternalIPs", On: on("", "services", Create, Update),
		Validate: func(_ context.Context, r *Request) error {
			s, ok := r.Object.(*corev1.Service)
			if !ok {
				return nil
			}
			had := &corev1.Service{}
			if old, ok := r.Old.(*corev1.Service); ok {
				had = old
			}
			if slices.ContainsFunc(s.Spec.ExternalIPs, func(ip string) bool { return !slices.Contains(had.Spec.ExternalIPs, ip) }) {
				return r.forbid("Use of external IPs is denied by admission control")
			}
			return nil
		},
	}
}

// ownerReferences lets nobody give an object an owner, and so have it collected,
// who may not delete it; nor hold up the deletion of an owner whose finalizers it
// may not set.
func ownerReferences(kinds *registry.Table, authz authorizer.UnconditionalAuthorizer) Plugin {
	o := owners{kinds, authz}
	return Plugin{
		Name: "OwnerReferencesPermissionEnforcement",
		On: func(r *Request) bool {
			return (r.Operation == Create || r.Operation == Update) && !r.Is("", "pods/status") && r.User != nil
		},
		Validate: o.check,
	}
}

type owners struct {
	kinds *registry.Table
	authz authorizer.UnconditionalAuthorizer
}

func (o owners) check(ctx context.Context, r *Request) error {
	now, old := references(r.Object), references(r.Old)
	if equality.Semantic.DeepEqual(now, old) || len(now)+len(old) == 0 {
		return nil
	}
	if r.Operation != Create {
		decision, reason, err := o.authz.Authorize(ctx, authorizer.AttributesRecord{
			User: r.User, Verb: "delete", Namespace: r.Namespace, APIGroup: r.Resource.Group, APIVersion: r.Resource.Version,
			Resource: r.Resource.Resource, Subresource: r.Subresource, Name: r.Name, ResourceRequest: true,
		})
		if decision != authorizer.DecisionAllow {
			return r.forbid("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err)
		}
	}
	blocking := slices.DeleteFunc(slices.Clone(now), func(ref metav1.OwnerReference) bool {
		return !blocks(ref) || slices.ContainsFunc(old, func(had metav1.OwnerReference) bool { return had.UID == ref.UID && blocks(had) })
	})
	if len(blocking) == 0 || o.mayFinalize(ctx, r.User, schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}, "", "*") == "" {
		return nil
	}
	for _, ref := range blocking {
		if err := o.checkBlocking(ctx, r, ref); err != nil {
			return err
		}
	}
	return nil
}

// checkBlocking asks for the right on every resource that the owner may be of.
func (o owners) checkBlocking(ctx context.Context, r *Request, ref metav1.OwnerReference) error {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	found := false
	for _, k := range o.kinds.Kinds() {
		if k.GroupVersionKind != kind {
			continue
		}
		found = true
		namespace := ""
		if k.Namespaced {
			namespace = r.Namespace // owners are in the namespace of what they own
		}
		if refusal := o.mayFinalize(ctx, r.User, k.GroupVersionResource(), namespace, ref.Name); refusal != "" {
			return r.forbid("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %s", refusal)
		}
	}
	if !found {
		err := &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
		return r.forbid("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", ref.APIVersion, ref.Kind, err)
	}
	return nil
}

// mayFinalize says why a user may not set finalizers, or nothing.
func (o owners) mayFinalize(ctx context.Context, who user.Info, of schema.GroupVersionResource, namespace, name string) (refusal string) {
	decision, reason, err := o.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "update", Namespace: namespace, APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource, Subresource: "finalizers", Name: name, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return ""
	}
	return fmt.Sprintf("%v, %v", reason, err)
}

func references(obj any) []metav1.OwnerReference {
	if m, ok := obj.(metav1.Object); ok {
		return m.GetOwnerReferences()
	}
	return nil
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
