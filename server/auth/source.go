package auth

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reader reads stored objects. They are shared and must not be changed. Get
// returns NotFound as a StatusError.
type Reader interface {
	Get(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error)
}

// Writer creates and changes stored objects; change is as in storage's Update.
type Writer interface {
	Create(ctx context.Context, resource schema.GroupResource, obj runtime.Object) (runtime.Object, error)
	Update(ctx context.Context, resource schema.GroupResource, namespace, name string, change func(current runtime.Object) (runtime.Object, error)) (runtime.Object, error)
	Delete(ctx context.Context, resource schema.GroupResource, namespace, name string) error
}

// Source is how authorisers follow the objects that they decide by.
type Source interface {
	// Follow calls apply with all objects of a resource (reset true), then with
	// each batch of changes (reset false), and with all again whenever changes
	// may have been missed. It blocks until ctx ends. Objects must not be changed.
	Follow(ctx context.Context, resource schema.GroupResource, apply func(changes []Change, reset bool)) error
}

// Change is an object's new state, or its last one when it was deleted.
type Change struct {
	Object  runtime.Object
	Deleted bool
}

func core(resource string) schema.GroupResource { return schema.GroupResource{Resource: resource} }

func rbac(resource string) schema.GroupResource {
	return schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: resource}
}
