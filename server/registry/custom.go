package registry

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/version"
)

// Custom is what a CustomResourceDefinition adds to the table.
type Custom struct {
	// Rows has one row for each served version, the most mature first.
	Rows []*Kind
	// Stored is how the objects are kept. It is every row's Store, and not
	// itself in the table: objects in etcd may be of any version that once was
	// the storage version, and rows convert what they find.
	Stored *Kind
}

// Converter makes an object of another version of its kind. It may change obj.
type Converter func(obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error)

// Relabel is the conversion between versions that differ in name only, as far
// as the server is told (strategy None).
func Relabel(obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	obj.SetAPIVersion(to.String())
	return obj, nil
}

// NewCustom makes the rows of a definition whose names have been accepted.
func NewCustom(crd *apiextensionsv1.CustomResourceDefinition, convert Converter) (*Custom, error) {
	names := crd.Status.AcceptedNames
	if names.Plural == "" || names.Singular == "" || names.Kind == "" || names.ListKind == "" {
		return nil, fmt.Errorf("customresourcedefinition %s: names are not accepted yet", crd.Name)
	}
	made := &Custom{}
	var stored *customVersion
	versions := map[string]*customVersion{}
	for i := range crd.Spec.Versions {
		v, err := newCustomVersion(crd, &crd.Spec.Versions[i])
		if err != nil {
			return nil, fmt.Errorf("customresourcedefinition %s, version %s: %w", crd.Name, crd.Spec.Versions[i].Name, err)
		}
		v.convert, v.siblings = convert, versions
		versions[v.kind.Version] = v
		if v.spec.Storage {
			stored = v
		}
	}
	if stored == nil {
		return nil, fmt.Errorf("customresourcedefinition %s: no version is the storage version", crd.Name)
	}
	made.Stored = stored.row(crd)
	made.Stored.Fields, made.Stored.Verbs = fieldsOfAll(versions), nil
	for _, v := range versions {
		if !v.spec.Served {
			continue
		}
		row := v.row(crd)
		row.Store = made.Stored
		row.FromStored = v.read
		row.ToStored = stored.write
		made.Rows = append(made.Rows, row)
	}
	sort.Slice(made.Rows, func(i, j int) bool {
		return version.CompareKubeAwareVersionStrings(made.Rows[i].Version, made.Rows[j].Version) > 0
	})
	return made, nil
}

// allButCreate is what is left of the verbs of a kind that goes away.
func allButCreate() []string {
	return []string{"delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// row is the row of one version, without its relation to the stored one.
func (v *customVersion) row(crd *apiextensionsv1.CustomResourceDefinition) *Kind {
	names := crd.Status.AcceptedNames
	k := &Kind{
		GroupVersionKind: v.kind,
		Plural:           names.Plural, Singular: names.Singular,
		Short: names.ShortNames, Categories: names.Categories,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		New:        v.newObject, NewList: func() runtime.Object {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(v.kind.GroupVersion().WithKind(names.ListKind))
			return list
		},
		Prefix: crd.Spec.Group + "/" + names.Plural, JSON: true,
		NoUnconditionalUpdate: true,
		Default:               v.fillIn, Prepare: v.prepare, Validate: v.validate, Warn: warnFinalizers,
		Coerce:     v.coerceObject,
		Columns:    v.columns(),
		Row:        v.cells(),
		Fields:     fieldsOf(v.spec.SelectableFields),
		Selectable: selectablePaths(v.spec.SelectableFields),
		Schema:     v.document,
		Deprecated: v.deprecation(&crd.Spec),
		Sub:        Sub{},
	}
	if crd.DeletionTimestamp != nil {
		k.Verbs = allButCreate()
	}
	if v.hasStatus() {
		k.Sub["status"] = Subresource{Verbs: readWrite, New: v.newObject, Prepare: v.prepareStatus, Validate: v.validateStatus}
	}
	if v.scale != nil {
		k.Sub["scale"] = v.scaleSub()
	}
	return k
}

func (v *customVersion) newObject() runtime.Object {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(v.kind)
	return u
}

// read makes what is stored, in whatever version, an object of this version: it
// is as if it had been written with the schemas of today. Defaults are those of the
// version that it was stored in; those of other versions are for what clients send.
func (v *customVersion) read(stored runtime.Object) (runtime.Object, error) {
	u := stored.(*unstructured.Unstructured).DeepCopy()
	if was := v.siblings[u.GroupVersionKind().Version]; was != nil {
		if _, err := was.coerce(u, true); err != nil {
			return nil, err
		}
		if was.fillIn(u); was == v {
			return u, nil
		}
	}
	u, err := v.to(u)
	if err != nil {
		return nil, err
	}
	_, err = v.coerce(u, true)
	return u, err
}

// write makes an object of any version what is stored; v is the storage version.
func (v *customVersion) write(obj runtime.Object) (runtime.Object, error) {
	u := obj.(*unstructured.Unstructured).DeepCopy()
	u, err := v.to(u)
	if err != nil {
		return nil, err
	}
	_, err = v.coerce(u, false)
	return u, err
}

func (v *customVersion) to(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if u.GetAPIVersion() == v.kind.GroupVersion().String() {
		return u, nil
	}
	return v.convert(u, v.kind.GroupVersion())
}

func (v *customVersion) hasStatus() bool {
	return v.spec.Subresources != nil && v.spec.Subresources.Status != nil
}

// prepare keeps the status out of writes of the object, if it has a door of its
// own, and counts the changes of everything that is not metadata.
func (v *customVersion) prepare(_ context.Context, obj, old runtime.Object) {
	u := obj.(*unstructured.Unstructured)
	if old == nil {
		if v.hasStatus() {
			delete(u.Object, "status")
		}
		u.SetGeneration(1)
		return
	}
	o := old.(*unstructured.Unstructured)
	if v.hasStatus() {
		if status, ok := o.Object["status"]; ok {
			u.Object["status"] = runtime.DeepCopyJSONValue(status)
		} else {
			delete(u.Object, "status")
		}
	}
	u.SetGeneration(o.GetGeneration())
	if !equality.Semantic.DeepEqual(withoutMetadata(u), withoutMetadata(o)) {
		u.SetGeneration(o.GetGeneration() + 1)
	}
}

func withoutMetadata(u *unstructured.Unstructured) map[string]any {
	rest := make(map[string]any, len(u.Object))
	for key, value := range u.Object {
		if key != "metadata" {
			rest[key] = value
		}
	}
	return rest
}

// prepareStatus lets nothing but the status through, and who owns it.
func (v *customVersion) prepareStatus(_ context.Context, obj, old runtime.Object) {
	u := obj.(*unstructured.Unstructured)
	status, ok := u.Object["status"]
	owners := u.GetManagedFields()
	u.Object = runtime.DeepCopyJSON(old.(*unstructured.Unstructured).Object)
	u.SetManagedFields(owners)
	if ok {
		u.Object["status"] = status
	} else {
		delete(u.Object, "status")
	}
}

// warnFinalizers names new finalizers that may clash with others' in time.
func warnFinalizers(obj, old runtime.Object) []string {
	var known []string
	if old != nil {
		known = old.(*unstructured.Unstructured).GetFinalizers()
	}
	var warnings []string
	for _, f := range obj.(*unstructured.Unstructured).GetFinalizers() {
		if slices.Contains(known, f) {
			continue
		}
		for _, problem := range validation.IsQualifiedName(f) {
			warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", f, problem))
		}
		if strings.Contains(f, "/") || f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents || f == "kubernetes" {
			continue
		}
		advice := "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
		if strings.Contains(f, ".") {
			advice = "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
		}
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", f, advice))
	}
	return warnings
}

// deprecation is the warning for clients of a deprecated version: the author's,
// or one that names the version to use instead.
func (v *customVersion) deprecation(crd *apiextensionsv1.CustomResourceDefinitionSpec) string {
	if !v.spec.Deprecated {
		return ""
	}
	if v.spec.DeprecationWarning != nil {
		return *v.spec.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", crd.Group, v.kind.Version, crd.Names.Kind)
	best := v.kind.Version
	for _, other := range crd.Versions {
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(other.Name, best) > 0 {
			best = other.Name
		}
	}
	if best == v.kind.Version {
		return text
	}
	return fmt.Sprintf("%s; use %s/%s %s", text, crd.Group, best, crd.Names.Kind)
}

// fieldsOf is the Fields of a version: JSON paths, by themselves without the
// leading dot.
func fieldsOf(selectable []apiextensionsv1.SelectableField) func(runtime.Object) fields.Set {
	if len(selectable) == 0 {
		return nil
	}
	paths := map[string]*lookup{}
	for _, f := range selectable {
		paths[strings.TrimPrefix(f.JSONPath, ".")] = newLookup(f.JSONPath)
	}
	return func(obj runtime.Object) fields.Set {
		set := fields.Set{}
		for name, path := range paths {
			set[name] = ""
			if value, ok := path.first(obj); ok && value != nil {
				set[name] = fmt.Sprint(value)
			}
		}
		return set
	}
}

func selectablePaths(selectable []apiextensionsv1.SelectableField) []string {
	var paths []string
	for _, f := range selectable {
		paths = append(paths, strings.TrimPrefix(f.JSONPath, "."))
	}
	return paths
}

// fieldsOfAll are the fields by which storage can pick: those of all versions.
func fieldsOfAll(versions map[string]*customVersion) func(runtime.Object) fields.Set {
	var all []apiextensionsv1.SelectableField
	for _, v := range versions {
		all = append(all, v.spec.SelectableFields...)
	}
	return fieldsOf(all)
}
