package registry

import (
	"context"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Sub is the subresources of a row by name.
type Sub = map[string]Subresource

// The sets of verbs that subresources come with, in discovery's order. Never
// changed.
var (
	readWrite   = []string{"get", "patch", "update"}
	streamVerbs = []string{"create", "get"}
	proxyVerbs  = []string{"create", "delete", "get", "patch", "update"}
	createOnly  = []string{"create"}
)

// view is a subresource that shows the object itself; keep puts back what the
// view may not change.
func view[T any](verbs []string, keep func(obj, old *T), validate func(obj, old *T) field.ErrorList) Subresource {
	s := Subresource{
		Verbs:   verbs,
		New:     newObject[T],
		Prepare: func(_ context.Context, obj, old runtime.Object) { keep(as[T](obj), own[T](old)) },
	}
	if validate != nil {
		s.Validate = func(obj, old runtime.Object) field.ErrorList { return validate(as[T](obj), as[T](old)) }
	}
	return s
}

// warning gives a view its warnings.
func warning[T any](s Subresource, warn func(obj *T) []string) Subresource {
	s.Warn = func(obj runtime.Object) []string { return warn(as[T](obj)) }
	return s
}

// handled is a subresource that the server has a handler of its own for.
func handled[T any](kind schema.GroupVersionKind, verbs ...string) Subresource {
	return Subresource{Kind: kind, Verbs: verbs, New: newObject[T]}
}

// scaleKind is the kind that every /scale speaks.
func scaleKind() schema.GroupVersionKind { return autoscalingv1.SchemeGroupVersion.WithKind("Scale") }

// scale is the /scale row of a kind with replicas in its spec and its status. selector
// is that of its pods, in the form of a label selector's string.
func scale[T any](selector func(*T) (string, error)) Subresource {
	return Subresource{
		Kind: scaleKind(), Verbs: readWrite,
		New: newObject[autoscalingv1.Scale], Path: []string{"spec", "replicas"},
		Validate: validScale,
		Get:      func(obj runtime.Object) (runtime.Object, error) { return scaleOf(as[T](obj), selector) },
		Put:      func(obj, sub runtime.Object) error { return putScale(as[T](obj), as[autoscalingv1.Scale](sub)) },
	}
}

func validScale(obj, _ runtime.Object) field.ErrorList {
	if s := as[autoscalingv1.Scale](obj); s.Spec.Replicas < 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), s.Spec.Replicas, "must be greater than or equal to 0").WithOrigin("minimum")}
	}
	return nil
}

// replicasOf is the field that a Scale changes.
func replicasOf[T any](obj *T) **int32 {
	return fieldOf(obj, "Spec").FieldByName("Replicas").Addr().Interface().(**int32)
}

func scaleOf[T any](obj *T, selector func(*T) (string, error)) (runtime.Object, error) {
	chosen, err := selector(obj)
	if err != nil {
		return nil, fmt.Errorf("selector of scale: %w", err)
	}
	m := any(obj).(metav1.Object)
	s := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUID(),
			ResourceVersion: m.GetResourceVersion(), CreationTimestamp: m.GetCreationTimestamp(),
		},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(fieldOf(obj, "Status").FieldByName("Replicas").Int()), Selector: chosen},
	}
	s.SetGroupVersionKind(scaleKind())
	if n := *replicasOf(obj); n != nil {
		s.Spec.Replicas = *n
	}
	return s, nil
}

func putScale[T any](obj *T, s *autoscalingv1.Scale) error {
	n := s.Spec.Replicas
	where := replicasOf(obj)
	if *where == nil || **where != n {
		setGeneration(obj, generationOf(obj)+1)
	}
	*where = &n
	any(obj).(metav1.Object).SetResourceVersion(s.ResourceVersion)
	return nil
}

func lower(s string) string { return strings.ToLower(s) }

// selectorText is a label selector as Scale's status has it.
func selectorText(s *metav1.LabelSelector) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}
