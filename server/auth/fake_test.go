package auth

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type fakeKey struct {
	resource        schema.GroupResource
	namespace, name string
}

// fakeStore is a Store and a Source in memory.
type fakeStore struct {
	mu      sync.Mutex // protects the fields below
	objects map[fakeKey]runtime.Object
	writes  int
}

func newFakeStore() *fakeStore {
	return &fakeStore{objects: map[fakeKey]runtime.Object{}}
}

func (s *fakeStore) put(resource schema.GroupResource, objs ...runtime.Object) {
	for _, o := range objs {
		m := o.(metav1.Object)
		s.mu.Lock()
		s.objects[fakeKey{resource, m.GetNamespace(), m.GetName()}] = o
		s.mu.Unlock()
	}
}

func (s *fakeStore) Get(_ context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[fakeKey{resource, namespace, name}]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
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
	s.put(resource, obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	return obj, nil
}

func (s *fakeStore) Update(ctx context.Context, resource schema.GroupResource, namespace, name string, change func(runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	old, err := s.Get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	obj, err := change(old.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	s.put(resource, obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	return obj, nil
}

func (s *fakeStore) Delete(_ context.Context, resource schema.GroupResource, namespace, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, fakeKey{resource, namespace, name})
	return nil
}

func (s *fakeStore) Follow(ctx context.Context, resource schema.GroupResource, apply func([]Change, bool)) error {
	var first []Change
	s.mu.Lock()
	for k, o := range s.objects {
		if k.resource == resource {
			first = append(first, Change{Object: o})
		}
	}
	s.mu.Unlock()
	apply(first, true)
	<-ctx.Done()
	return ctx.Err()
}
