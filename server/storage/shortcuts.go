package storage

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The methods of Store in this file are for the server's own needs: admission
// and authorisation read through them at every request, so reads are from the
// cache, and only what is missing there is looked for in etcd. Objects are
// shared and must not be changed.

// Get reads an object.
func (s *Store) Get(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error) {
	c, err := s.need(resource)
	if err != nil {
		return nil, err
	}
	item, err := c.Get(ctx, namespace, name, "0")
	if apierrors.IsNotFound(err) {
		item, err = c.Get(ctx, namespace, name, "")
	}
	if err != nil {
		return nil, err
	}
	return item.Object(), nil
}

// List reads the objects of a namespace, or of all ("").
func (s *Store) List(ctx context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	c, err := s.need(resource)
	if err != nil {
		return nil, err
	}
	page, err := c.List(ctx, ListOptions{Selection: Selection{Namespace: namespace}, ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	objects := make([]runtime.Object, len(page.Items))
	for n, i := range page.Items {
		objects[n] = i.Object()
	}
	return objects, nil
}

// Create stores a new object, which it takes over.
func (s *Store) Create(ctx context.Context, resource schema.GroupResource, obj runtime.Object) (runtime.Object, error) {
	c, err := s.need(resource)
	if err != nil {
		return nil, err
	}
	item, err := c.Create(ctx, obj, WriteOptions{})
	if err != nil {
		return nil, err
	}
	return item.Object(), nil
}

// Update changes an object; change is as in Collection's Update.
func (s *Store) Update(ctx context.Context, resource schema.GroupResource, namespace, name string, change func(current runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	c, err := s.need(resource)
	if err != nil {
		return nil, err
	}
	item, err := c.Update(ctx, namespace, name, WriteOptions{}, change)
	if err != nil {
		return nil, err
	}
	return item.Object(), nil
}

// Delete removes an object.
func (s *Store) Delete(ctx context.Context, resource schema.GroupResource, namespace, name string) error {
	c, err := s.need(resource)
	if err != nil {
		return err
	}
	_, err = c.Delete(ctx, namespace, name, WriteOptions{}, nil)
	return err
}

func (s *Store) need(resource schema.GroupResource) (*Collection, error) {
	if c := s.Collection(resource); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no such resource in storage: %s", resource)
}
