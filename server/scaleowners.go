package server

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"orrery.dev/server/registry"
)

// Who owns the number of replicas is recorded in the object, but can be seen and
// changed through its Scale, where the field has another path.

// scaleOwners translates ownership between an object and its Scale.
type scaleOwners struct{ *managedfields.ScaleHandler }

// show gives a Scale the owners of its one field.
func (f *fieldManagers) show(k *registry.Kind, obj, scale runtime.Object) (scaleOwners, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return scaleOwners{}, err
	}
	paths := managedfields.ResourcePathMappings{}
	for _, row := range f.kinds.Kinds() {
		if row != k && row.Stored() != k.Stored() {
			continue
		}
		var path fieldpath.Path // nil: a version without a Scale
		if sub, ok := row.Sub["scale"]; ok {
			for _, name := range sub.Path {
				path = append(path, fieldpath.PathElement{FieldName: &name})
			}
		}
		paths[row.GroupVersion().String()] = path
	}
	owners := scaleOwners{managedfields.NewScaleHandler(m.GetManagedFields(), k.GroupVersion(), paths)}
	entries, err := owners.ToSubresource()
	if err != nil {
		return owners, fmt.Errorf("owners of the scale: %w", err)
	}
	shown, err := meta.Accessor(scale)
	if err != nil {
		return owners, err
	}
	shown.SetManagedFields(entries)
	return owners, nil
}

// hide puts the owners of a Scale's field back into the object.
func (o scaleOwners) hide(obj, scale runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	shown, err := meta.Accessor(scale)
	if err != nil {
		return err
	}
	entries, err := o.ToParent(shown.GetManagedFields())
	if err != nil {
		return fmt.Errorf("owners of the scale: %w", err)
	}
	m.SetManagedFields(entries)
	return nil
}

// ofSub returns the manager of a subresource that is another kind.
func (f *fieldManagers) ofSub(sub *registry.Subresource, name string) (*managedfields.FieldManager, error) {
	key := fieldManagerKey{sub.Kind, name}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.managers[key]; ok {
		return e.manager, nil
	}
	types, err := f.types.typesOf(&registry.Kind{GroupVersionKind: sub.Kind, New: sub.New})
	if err != nil {
		return nil, err
	}
	m, err := managedfields.NewDefaultFieldManager(types, scheme.Scheme, scheme.Scheme, scheme.Scheme, sub.Kind, sub.Kind.GroupVersion(), name, nil)
	if err != nil {
		return nil, fmt.Errorf("field ownership of %s: %w", sub.Kind, err)
	}
	f.managers[key] = fieldManagerEntry{manager: m}
	return m, nil
}

// ownSub is own for a subresource that is another kind.
func (f *fieldManagers) ownSub(sub *registry.Subresource, name string, live, obj runtime.Object, manager string) runtime.Object {
	m, err := f.ofSub(sub, name)
	if err != nil {
		return obj
	}
	return m.UpdateNoErrors(live, obj, manager)
}

// applySub is apply for a subresource that is another kind.
func (f *fieldManagers) applySub(sub *registry.Subresource, name string, live, applied runtime.Object, manager string, force bool) (runtime.Object, error) {
	m, err := f.ofSub(sub, name)
	if err != nil {
		return nil, err
	}
	return m.Apply(live, applied, manager, force)
}
