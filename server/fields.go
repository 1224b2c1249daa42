package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
)

// FieldTypes tells how the fields of each kind are merged: which lists are sets
// or maps, and which parts are replaced as a whole.
type FieldTypes struct {
	kinds *registry.Table
	// builtIn knows the schemas of the built-in kinds. They take a while to
	// parse, so not before the first write.
	builtIn func() managedfields.TypeConverter

	mu     sync.Mutex // protects custom
	custom map[*registry.Kind]managedfields.TypeConverter
}

// builtInTypes is made once for all servers of a process.
var builtInTypes = sync.OnceValue(func() managedfields.TypeConverter {
	return &trusting{TypeConverter: applyconfigurations.NewTypeConverter(scheme.Scheme)}
})

// NewFieldTypes makes one for the kinds of a table.
func NewFieldTypes(kinds *registry.Table) *FieldTypes {
	return &FieldTypes{
		kinds:   kinds,
		builtIn: builtInTypes,
		custom:  map[*registry.Kind]managedfields.TypeConverter{},
	}
}

// trusting spares objects of Go types the check against their schemas, which they
// cannot but fit. What is applied, in which duplicates are an error, is checked.
type trusting struct {
	managedfields.TypeConverter
	shapes sync.Map // by kind: a typed value with its schema
}

// ObjectToTyped makes an object what merges work on.
func (t *trusting) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if _, ok := obj.(runtime.Unstructured); ok || !slices.Contains(options, typed.AllowDuplicates) {
		return t.TypeConverter.ObjectToTyped(obj, options...)
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	if shape, ok := t.shapes.Load(kind); ok {
		content, err := value.NewValueReflect(obj)
		if err != nil {
			return nil, err
		}
		shape := shape.(*typed.TypedValue)
		return typed.AsTypedUnvalidated(content, shape.Schema(), shape.TypeRef()), nil
	}
	checked, err := t.TypeConverter.ObjectToTyped(obj, options...)
	if err == nil {
		t.shapes.Store(kind, typed.AsTypedUnvalidated(nil, checked.Schema(), checked.TypeRef()))
	}
	return checked, err
}

// Of is how the fields of a kind are merged.
func (f *FieldTypes) Of(k *registry.Kind) (managedfields.TypeConverter, error) {
	if isApplied(k) {
		return f.builtIn(), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if types, ok := f.custom[k]; ok {
		return types, nil
	}
	types, err := f.typesOf(k)
	if err != nil {
		return nil, err
	}
	// The rows of a definition are replaced with every change of it.
	maps.DeleteFunc(f.custom, func(row *registry.Kind, _ managedfields.TypeConverter) bool {
		return f.kinds.Find(row.GroupVersionResource()) != row
	})
	f.custom[k] = types
	return types, nil
}

func (f *FieldTypes) typesOf(k *registry.Kind) (managedfields.TypeConverter, error) {
	if k.Unstructured() {
		return f.customTypes(k)
	}
	models, err := openapi.Models(k)
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(models, false)
}

// isApplied reports whether a kind's schema is among those that clients apply
// objects by: questions are not, which are stored nowhere.
func isApplied(k *registry.Kind) bool {
	return !k.Unstructured() && k.Can("patch") && scheme.Scheme.Recognizes(k.GroupVersionKind)
}

// fieldManagers keeps book of who owns which field (metadata.managedFields), and
// merges what is applied. There is one manager for each kind and subresource,
// made when it is first needed.
type fieldManagers struct {
	kinds *registry.Table
	types *FieldTypes

	sets   fieldSets
	firsts firstFields

	mu       sync.Mutex // protects managers
	managers map[fieldManagerKey]fieldManagerEntry
}

type fieldManagerKey struct {
	kind        schema.GroupVersionKind
	subresource string
}

// fieldManagerEntry remembers the row it was made for: a custom kind's row is
// replaced when its definition changes.
type fieldManagerEntry struct {
	row     *registry.Kind
	manager *managedfields.FieldManager
}

func newFieldManagers(kinds *registry.Table, types *FieldTypes) *fieldManagers {
	return &fieldManagers{kinds: kinds, types: types, managers: map[fieldManagerKey]fieldManagerEntry{}}
}

// of returns the manager of a kind's subresource ("" for the object itself).
func (f *fieldManagers) of(k *registry.Kind, subresource string) (*managedfields.FieldManager, error) {
	key := fieldManagerKey{k.GroupVersionKind, subresource}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.managers[key]; ok && e.row == k {
		return e.manager, nil
	}
	m, err := f.make(k, subresource)
	if err != nil {
		return nil, fmt.Errorf("field ownership of %s: %w", k.GroupVersionKind, err)
	}
	f.managers[key] = fieldManagerEntry{k, m}
	return m, nil
}

func (f *fieldManagers) make(k *registry.Kind, subresource string) (*managedfields.FieldManager, error) {
	hub := k.Hub().GroupVersion()
	objects := objectFactory{f.kinds}
	reset := resetFields(k, subresource)
	types, err := f.types.Of(k)
	if err != nil {
		return nil, err
	}
	if k.Unstructured() {
		return managedfields.NewDefaultCRDFieldManager(types, objects, objects, objects, k.GroupVersionKind, hub, subresource, reset)
	}
	return managedfields.NewDefaultFieldManager(types, objects, objects, objects, k.GroupVersionKind, hub, subresource, reset)
}

// resetFields are the fields that a write through this door cannot change, and
// so does not come to own: status through the object, spec through its status.
func resetFields(k *registry.Kind, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	reset := k.Sub[subresource].Resets
	_, hasStatus := k.Sub["status"]
	switch {
	case subresource == "" && hasStatus:
		reset = append([]string{"status"}, k.Fixed...)
	case reset != nil:
	case subresource == "status" && k.Unstructured():
		reset = []string{"metadata", "spec"}
	case subresource == "status":
		reset = []string{"spec"}
	default:
		return nil
	}
	paths := fieldpath.NewSet()
	for _, path := range reset {
		var parts []any
		for _, part := range strings.Split(path, ".") {
			parts = append(parts, part)
		}
		paths.Insert(fieldpath.MakePathOrDie(parts...))
	}
	return map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(k.GroupVersion().String()): fieldpath.NewExcludeSetFilter(paths)}
}

// own records in obj's managedFields what a write by manager changed. live is
// the present object, or an empty one on create. Ownership is not worth failing
// a write for: what cannot be worked out is kept as it was.
func (f *fieldManagers) own(k *registry.Kind, subresource string, live, obj runtime.Object, manager string) runtime.Object {
	if f.keep(k, subresource, live, obj, manager) {
		return obj
	}
	m, err := f.of(k, subresource)
	if err != nil {
		return obj
	}
	outline, done := f.first(k, subresource, live, obj, manager)
	if done {
		return obj
	}
	obj = m.UpdateNoErrors(live, obj, manager)
	if outline != nil {
		f.firsts.learn(outline, obj)
	}
	return obj
}

// apply merges a server-side apply into live.
func (f *fieldManagers) apply(k *registry.Kind, subresource string, live, applied runtime.Object, manager string, force bool) (runtime.Object, error) {
	m, err := f.of(k, subresource)
	if err != nil {
		return nil, err
	}
	return m.Apply(live, applied, manager, force)
}

// keepTimestamps undoes an update that would change nothing but the times in
// managedFields, so that it isn't written.
func keepTimestamps(obj, old runtime.Object) {
	newMeta, err1 := meta.Accessor(obj)
	oldMeta, err2 := meta.Accessor(old)
	if err1 != nil || err2 != nil || len(newMeta.GetManagedFields()) == 0 {
		return
	}
	present := newMeta.GetManagedFields()
	if !sameOwners(present, oldMeta.GetManagedFields()) {
		return
	}
	newMeta.SetManagedFields(oldMeta.GetManagedFields())
	if !equality.Semantic.DeepEqual(obj, old) {
		newMeta.SetManagedFields(present)
	}
}

func sameOwners(a, b []metav1.ManagedFieldsEntry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		x.Time, y.Time = nil, nil
		if !equality.Semantic.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// objectFactory makes, defaults and converts objects by the rows of the table,
// for the field manager.
type objectFactory struct{ kinds *registry.Table }

func (o objectFactory) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	row := o.kinds.FindKind(kind)
	if row == nil {
		return nil, runtime.NewNotRegisteredErrForKind("orrery", kind)
	}
	obj := row.New()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj, nil
}

func (o objectFactory) Default(obj runtime.Object) {
	if row := o.kinds.FindKind(obj.GetObjectKind().GroupVersionKind()); row != nil && row.Default != nil {
		row.Default(obj)
	}
}

// ConvertToVersion goes to another version by way of the stored one. The merge
// works on unstructured objects, so this also gives typed kinds their type back.
func (o objectFactory) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if gv, one := target.(schema.GroupVersion); one && !ok { // events are in two groups
		to = gv.WithKind(from.Kind)
		ok = o.kinds.FindKind(to) != nil
	}
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("orrery", nil, target)
	}
	source := o.kinds.FindKind(from)
	if source == nil {
		return nil, runtime.NewNotRegisteredErrForKind("orrery", from)
	}
	obj, err := typedBy(source, in)
	if err != nil || from == to {
		return obj, err
	}
	dest := o.kinds.FindKind(to)
	if dest == nil {
		return nil, runtime.NewNotRegisteredErrForKind("orrery", to)
	}
	if source.ToStored != nil {
		if obj, err = source.ToStored(obj); err != nil {
			return nil, err
		}
	}
	if obj, err = fromStored(dest, obj); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(to)
	return obj, nil
}

// typedBy turns an unstructured object into the row's own type.
func typedBy(k *registry.Kind, obj runtime.Object) (runtime.Object, error) {
	u, ok := obj.(runtime.Unstructured)
	if !ok || k.Unstructured() {
		return obj, nil
	}
	typed := k.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), typed); err != nil {
		return nil, err
	}
	typed.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return typed, nil
}

func (o objectFactory) Convert(in, out, context any) error {
	return fmt.Errorf("convert %T to %T: not needed", in, out)
}

func (o objectFactory) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
