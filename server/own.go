package server

import (
	"context"
	"maps"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// The names under which the server owns what it writes of itself; what it needs for
// priority and fairness, and what that says, have others.
const (
	ownManager        = "kube-apiserver"
	flowManager       = "api-priority-and-fairness-config-producer-v1"
	flowStatusManager = "api-priority-and-fairness-config-consumer-v1"
)

// OwnStore is the storage for objects that the server itself keeps: it notes in them
// whose they are.
type OwnStore struct {
	*storage.Store
	fields *fieldManagers
}

// NewOwnStore makes one.
func NewOwnStore(store *storage.Store, kinds *registry.Table, types *FieldTypes) *OwnStore {
	return &OwnStore{store, newFieldManagers(kinds, types)}
}

// Create stores a new object.
func (o *OwnStore) Create(ctx context.Context, resource schema.GroupResource, obj runtime.Object) (runtime.Object, error) {
	return o.Store.Create(ctx, resource, o.fields.begunByServer(ctx, resource, obj))
}

// ApplyCondition applies a condition to the status of an object without a namespace,
// under the name of the part of the server that found it.
func (o *OwnStore) ApplyCondition(ctx context.Context, resource schema.GroupResource, name, manager string, condition any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(condition)
	if err != nil {
		return err
	}
	maps.DeleteFunc(content, func(_ string, value any) bool { return value == "" }) // which says nothing
	kind := o.fields.kinds.Stored(resource)
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name}, "status": map[string]any{"conditions": []any{content}},
	}}
	wanted.SetGroupVersionKind(kind.GroupVersionKind)
	_, err = o.Store.Update(ctx, resource, "", name, func(current runtime.Object) (runtime.Object, error) {
		merged, err := o.fields.apply(kind, "status", current, wanted, manager, true)
		if err != nil {
			return nil, err
		}
		return typedBy(kind, merged)
	})
	return err
}

// Update changes an object; change is as in Collection's Update.
func (o *OwnStore) Update(ctx context.Context, resource schema.GroupResource, namespace, name string, change func(current runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	return o.Store.Update(ctx, resource, namespace, name, func(current runtime.Object) (runtime.Object, error) {
		before := current.DeepCopyObject()
		changed, err := change(current)
		if err != nil {
			return nil, err
		}
		return o.fields.ownByServer(resource, "", before, changed), nil
	})
}

// begunByServer notes that the server itself has made obj, and fills in what is
// nobody's.
func (f *fieldManagers) begunByServer(ctx context.Context, resource schema.GroupResource, obj runtime.Object) runtime.Object {
	obj = f.ownByServer(resource, "", nil, obj)
	if k := f.kinds.Stored(resource); k != nil && k.Prepare != nil {
		k.Prepare(ctx, obj, nil)
	}
	return obj
}

// ownByServer notes that the server itself has written obj; live is nil if it is new.
func (f *fieldManagers) ownByServer(resource schema.GroupResource, subresource string, live, obj runtime.Object) runtime.Object {
	k := f.kinds.Stored(resource)
	if k == nil {
		return obj
	}
	if live == nil {
		live = k.New()
	}
	for _, o := range []runtime.Object{live, obj} {
		o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	}
	manager := ownManager
	if resource.Group == flowcontrolv1.GroupName {
		manager = flowManager
	}
	return f.own(k, subresource, live, obj, manager)
}
