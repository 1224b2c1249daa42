package admission

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

type fakeKey struct {
	resource        schema.GroupResource
	namespace, name string
}

// fakeStore is a Reader and a Writer in memory.
type fakeStore struct {
	mu      sync.Mutex // protects objects
	objects map[fakeKey]runtime.Object
}

func newFakeStore() *fakeStore { return &fakeStore{objects: map[fakeKey]runtime.Object{}} }

// with puts objects into the store, as those of a resource.
func (s *fakeStore) with(resource schema.GroupResource, objs ...runtime.Object) *fakeStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objs {
		m := o.(metav1.Object)
		s.objects[fakeKey{resource, m.GetNamespace(), m.GetName()}] = o
	}
	return s
}

func (s *fakeStore) Get(_ context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[fakeKey{resource, namespace, name}]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

// ApplyCondition knows service ranges only.
func (s *fakeStore) ApplyCondition(ctx context.Context, resource schema.GroupResource, name, _ string, condition any) error {
	_, err := s.Update(ctx, resource, "", name, func(current runtime.Object) (runtime.Object, error) {
		current.(*networkingv1.ServiceCIDR).Status.Conditions = []metav1.Condition{*condition.(*metav1.Condition)}
		return current, nil
	})
	return err
}

func (s *fakeStore) List(_ context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []runtime.Object
	for k, o := range s.objects {
		if k.resource == resource && (namespace == "" || k.namespace == namespace) {
			all = append(all, o)
		}
	}
	return all, nil
}

func (s *fakeStore) Create(_ context.Context, resource schema.GroupResource, obj runtime.Object) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := obj.(metav1.Object)
	key := fakeKey{resource, m.GetNamespace(), m.GetName()}
	if _, ok := s.objects[key]; ok {
		return nil, apierrors.NewAlreadyExists(resource, m.GetName())
	}
	s.objects[key] = obj
	return obj, nil
}

func (s *fakeStore) Update(_ context.Context, resource schema.GroupResource, namespace, name string, change func(runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fakeKey{resource, namespace, name}
	old, ok := s.objects[key]
	if !ok {
		return nil, apierrors.NewNotFound(resource, name)
	}
	obj, err := change(old.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	s.objects[key] = obj
	return obj, nil
}

func (s *fakeStore) Delete(_ context.Context, resource schema.GroupResource, namespace, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fakeKey{resource, namespace, name}
	if _, ok := s.objects[key]; !ok {
		return apierrors.NewNotFound(resource, name)
	}
	delete(s.objects, key)
	return nil
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: named("ns", name), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// request is about obj, or on delete about old.
func request(op Operation, resource string, obj, old runtime.Object) *Request {
	group := ""
	for g, resources := range map[string][]string{
		"networking.k8s.io": {"ingresses"}, "scheduling.k8s.io": {"priorityclasses"}, "coordination.k8s.io": {"leases"},
		"certificates.k8s.io": {"certificatesigningrequests", "podcertificaterequests"},
	} {
		for _, r := range resources {
			if r == resource {
				group = g
			}
		}
	}
	r := &Request{Operation: op, Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Object: obj, Old: old, User: &user.DefaultInfo{Name: "ann"}}
	if m := r.Meta(); m != nil {
		r.Namespace, r.Name = m.GetNamespace(), m.GetName()
	}
	return r
}

func (r *Request) sub(name string) *Request {
	r.Subresource = name
	return r
}

func (r *Request) by(name string, groups ...string) *Request {
	r.User = &user.DefaultInfo{Name: name, Groups: groups}
	return r
}

// run runs both halves of a plugin, and tells it of the end that the outcome has.
func run(t *testing.T, p Plugin, r *Request) error {
	t.Helper()
	c := Chain{p}
	err := c.Mutate(t.Context(), r)
	if err == nil {
		err = c.Validate(t.Context(), r)
	}
	switch {
	case err != nil || r.DryRun || r.Operation == Delete:
		r.Finish(t.Context(), nil)
	default:
		r.Finish(t.Context(), r.Object)
	}
	return err
}

// wantError compares an error's text; "" is none.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
