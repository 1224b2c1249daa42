// Package fake is a store in memory, for the tests of the packages that read and write
// objects by interfaces of their own. It keeps objects as they are, encodes nothing and
// knows no revisions; storage.NewMemory is a backend of the real one.
package fake

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key is where an object is.
type Key struct {
	Resource        schema.GroupResource
	Namespace, Name string
}

// Store has a server's methods of reading and writing.
type Store struct {
	mu      sync.Mutex // protects the fields below, but from tests that are alone with them
	Objects map[Key]runtime.Object
	Writes  int
}

// New makes an empty Store.
func New() *Store { return &Store{Objects: map[Key]runtime.Object{}} }

func keyOf(resource schema.GroupResource, obj runtime.Object) Key {
	m := obj.(metav1.Object)
	return Key{resource, m.GetNamespace(), m.GetName()}
}

// With puts objects into the store, as those of a resource.
func (s *Store) With(resource schema.GroupResource, objs ...runtime.Object) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objs {
		s.Objects[keyOf(resource, o)] = o
	}
	return s
}

// Get reads an object.
func (s *Store) Get(_ context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.Objects[Key{resource, namespace, name}]; ok {
		return o, nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

// List reads all objects of a resource in a namespace, or in all.
func (s *Store) List(_ context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []runtime.Object
	for k, o := range s.Objects {
		if k.Resource == resource && (namespace == "" || k.Namespace == namespace) {
			all = append(all, o)
		}
	}
	return all, nil
}

// Create stores a new object.
func (s *Store) Create(_ context.Context, resource schema.GroupResource, obj runtime.Object) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(resource, obj)
	if _, ok := s.Objects[key]; ok {
		return nil, apierrors.NewAlreadyExists(resource, key.Name)
	}
	s.Objects[key] = obj
	s.Writes++
	return obj, nil
}

// Update stores what change makes of an object.
func (s *Store) Update(_ context.Context, resource schema.GroupResource, namespace, name string, change func(runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := Key{resource, namespace, name}
	old, ok := s.Objects[key]
	if !ok {
		return nil, apierrors.NewNotFound(resource, name)
	}
	obj, err := change(old.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	s.Objects[key] = obj
	s.Writes++
	return obj, nil
}

// Delete removes an object.
func (s *Store) Delete(_ context.Context, resource schema.GroupResource, namespace, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := Key{resource, namespace, name}
	if _, ok := s.Objects[key]; !ok {
		return apierrors.NewNotFound(resource, name)
	}
	delete(s.Objects, key)
	s.Writes++
	return nil
}
