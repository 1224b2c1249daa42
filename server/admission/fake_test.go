package admission

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/server/fake"
)

// fakeStore is a Reader and a Writer in memory.
type fakeStore struct{ *fake.Store }

func newFakeStore() *fakeStore { return &fakeStore{fake.New()} }

func (s *fakeStore) with(resource schema.GroupResource, objs ...runtime.Object) *fakeStore {
	s.With(resource, objs...)
	return s
}

// ApplyCondition knows service ranges only.
func (s *fakeStore) ApplyCondition(ctx context.Context, resource schema.GroupResource, name, _ string, condition any) error {
	_, err := s.Update(ctx, resource, "", name, func(current runtime.Object) (runtime.Object, error) {
		current.(*networkingv1.ServiceCIDR).Status.Conditions = []metav1.Condition{*condition.(*metav1.Condition)}
		return current, nil
	})
	return err
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
