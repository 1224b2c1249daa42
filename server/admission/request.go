package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// on is the On of a plugin for one resource, "pods" or "pods/status", and the
// given operations.
func on(group, resource string, ops ...Operation) func(*Request) bool {
	return func(r *Request) bool { return slices.Contains(ops, r.Operation) && r.Is(group, resource) }
}

// either joins several.
func either(all ...func(*Request) bool) func(*Request) bool {
	return func(r *Request) bool {
		return slices.ContainsFunc(all, func(f func(*Request) bool) bool { return f(r) })
	}
}

// forbid is the refusal of a request: `pods "x" is forbidden: why`.
func (r *Request) forbid(format string, args ...any) *apierrors.StatusError {
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.shownName(), fmt.Errorf(format, args...))
}

// annotate adds an audit annotation, if anybody wants it.
func (r *Request) annotate(key, value string) {
	if r.Annotate != nil {
		r.Annotate(key, value)
	}
}

// shownName is the name in refusals: what the client knows the object by.
func (r *Request) shownName() string {
	if r.Name != "" {
		return r.Name
	}
	m := r.Meta()
	switch {
	case m == nil:
		return "Unknown"
	case m.GetName() != "":
		return m.GetName()
	case m.GetGenerateName() != "":
		return m.GetGenerateName()
	}
	return "Unknown"
}

// node is the node that the request's user is the kubelet of.
func (r *Request) node() (string, bool) {
	if r.User == nil || !slices.Contains(r.User.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return strings.CutPrefix(r.User.GetName(), "system:node:")
}

func core(resource string) schema.GroupResource { return schema.GroupResource{Resource: resource} }

// get reads an object of a known type.
func get[T any](ctx context.Context, r Reader, resource schema.GroupResource, namespace, name string) (T, error) {
	var none T
	obj, err := r.Get(ctx, resource, namespace, name)
	if err != nil {
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("%s %s: stored as %T", resource, name, obj)
	}
	return typed, nil
}

// list reads the objects of a known type in a namespace, or of all ("").
func list[T any](ctx context.Context, r Reader, resource schema.GroupResource, namespace string) ([]T, error) {
	objs, err := r.List(ctx, resource, namespace)
	if err != nil {
		return nil, err
	}
	typed := make([]T, 0, len(objs))
	for _, o := range objs {
		if t, ok := o.(T); ok {
			typed = append(typed, t)
		}
	}
	return typed, nil
}

// newestDefault picks, among objects that an annotation marks as default, the
// newest, and of equally new ones the first by name.
func newestDefault[T metav1.Object](all []T, isDefault func(T) bool) (T, bool) {
	var best T
	found := false
	for _, o := range all {
		if !isDefault(o) {
			continue
		}
		ours, theirs := o.GetCreationTimestamp(), metav1.Time{}
		if found {
			theirs = best.GetCreationTimestamp()
		}
		if !found || theirs.Before(&ours) || theirs.Equal(&ours) && o.GetName() < best.GetName() {
			best, found = o, true
		}
	}
	return best, found
}
