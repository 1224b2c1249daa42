package server

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"orrery.dev/server/registry"
)

// fewManagers is how many there may be before the oldest are put together.
const fewManagers = 10

// keep finds that an update by manager leaves all ownership as it was, and keeps it: it
// gives no more than other values to fields that are the manager's already, and nobody
// else's. So it is with most updates (a Lease is renewed, a node says that it is still
// there), and to see it costs a fraction of comparing objects by their schema. It says
// false where that has to be done, with obj untouched.
func (f *fieldManagers) keep(k *registry.Kind, subresource string, live, obj runtime.Object, manager string) bool {
	now, err := meta.Accessor(obj)
	before, errBefore := meta.Accessor(live)
	if err != nil || errBefore != nil || k.Unstructured() || k != k.Hub() || reflect.TypeOf(obj) != reflect.TypeOf(live) {
		return false
	}
	owners := before.GetManagedFields()
	sent := now.GetManagedFields()
	if subresource == "" && sent != nil && !equality.Semantic.DeepEqual(sent, owners) {
		return false
	}
	mine := entryOf(owners, metav1.ManagedFieldsEntry{Manager: manager, APIVersion: k.GroupVersion().String(), Subresource: subresource})
	if mine < 0 {
		return false
	}
	var d differences
	if !d.walk(reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem()) || !f.ownedBy(owners, mine, d.found) {
		return false
	}
	owners = slices.Clone(owners)
	if len(d.found) > 0 {
		owners[mine].Time = &metav1.Time{Time: time.Now().UTC()}
		slices.SortStableFunc(owners, inOrderOfTime)
	}
	now.SetManagedFields(owners)
	return true
}

// entryOf finds a manager's updates among owners that all speak one version; less than
// zero: there are none, or it isn't so.
func entryOf(owners []metav1.ManagedFieldsEntry, want metav1.ManagedFieldsEntry) int {
	mine := -1
	if len(owners) > fewManagers {
		return mine
	}
	for i, o := range owners {
		switch {
		case o.APIVersion != want.APIVersion || o.FieldsType != "FieldsV1" || o.FieldsV1 == nil:
			return -1
		case o.Operation == metav1.ManagedFieldsOperationUpdate && o.Manager == want.Manager && o.Subresource == want.Subresource:
			mine = i
		}
	}
	return mine
}

// ownedBy reports whether fields are those of one owner alone.
func (f *fieldManagers) ownedBy(owners []metav1.ManagedFieldsEntry, mine int, fields []fieldpath.Path) bool {
	if len(fields) == 0 {
		return true
	}
	for i := range owners {
		set := f.sets.of(owners[i].FieldsV1)
		if set == nil || slices.ContainsFunc(fields, func(p fieldpath.Path) bool { return set.Has(p) != (i == mine) }) {
			return false
		}
	}
	return true
}

// inOrderOfTime is the order of managedFields.
func inOrderOfTime(a, b metav1.ManagedFieldsEntry) int {
	seconds := func(t *metav1.Time) int64 {
		if t == nil {
			return 0
		}
		return t.Unix()
	}
	return cmp.Or(
		cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(seconds(a.Time), seconds(b.Time)),
		cmp.Compare(a.Manager, b.Manager),
		cmp.Compare(a.APIVersion, b.APIVersion),
		cmp.Compare(a.Subresource, b.Subresource),
	)
}

// fieldSets remembers what sets of fields mean: many objects have the same.
type fieldSets struct {
	mu     sync.Mutex // protects parsed
	parsed map[string]*fieldpath.Set
}

// mostFieldSets bounds the memory that it takes.
const mostFieldSets = 256

// of is a set of fields, to be read only; nil: it cannot be read.
func (s *fieldSets) of(fields *metav1.FieldsV1) *fieldpath.Set {
	text := fields.GetRawBytes()
	s.mu.Lock()
	defer s.mu.Unlock()
	if set, ok := s.parsed[string(text)]; ok {
		return set
	}
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(text)); err != nil {
		return nil
	}
	if s.parsed == nil || len(s.parsed) >= mostFieldSets {
		s.parsed = map[string]*fieldpath.Set{}
	}
	s.parsed[string(text)] = set
	return set
}

// differences finds the fields that have other values in one of two objects of a Go
// type. It knows no schema, and gives up at whatever that would have to tell: what
// comes or goes, lists whose items cannot be told apart, values of their own kinds.
type differences struct {
	at    []step // where the walk is
	found []fieldpath.Path
}

// step is one into a field, or into the item of a list that has a key.
type step struct{ field, item string }

// unowned are the fields of metadata that are nobody's.
var unowned = []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"}

// walk goes into both, and says false where it gives up.
func (d *differences) walk(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Struct:
		return d.structs(a, b)
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return d.walk(a.Elem(), b.Elem())
	case reflect.Slice:
		return d.lists(a, b)
	case reflect.Map:
		return d.maps(a, b)
	case reflect.Interface, reflect.Func, reflect.Chan:
		return a.IsNil() && b.IsNil()
	}
	return a.Equal(b) || d.differ(a, b)
}

// differ notes that a field has another value: one that it is shown with, before and now.
func (d *differences) differ(a, b reflect.Value) bool {
	if a.IsZero() || b.IsZero() {
		return false
	}
	var path fieldpath.Path
	for _, s := range d.at {
		element := fieldpath.PathElement{FieldName: &s.field}
		if s.item != "" {
			element = fieldpath.PathElement{Key: fieldpath.KeyByFields(s.field, s.item)}
		}
		path = append(path, element)
	}
	d.found = append(d.found, path)
	return true
}

func (d *differences) into(s step, a, b reflect.Value) bool {
	d.at = append(d.at, s)
	ok := d.walk(a, b)
	d.at = d.at[:len(d.at)-1]
	return ok
}

func (d *differences) structs(a, b reflect.Value) bool {
	form := formOf(a.Type())
	switch {
	case form.time && a.Equal(b):
		return true
	case form.opaque:
		return exactly.DeepEqual(a.Interface(), b.Interface()) || form.time && d.differ(a, b)
	}
	for _, f := range form.fields {
		x, y := a.Field(f.index), b.Field(f.index)
		switch {
		case f.name == "": // its fields are those of the struct
			if len(d.at) > 0 && !d.walk(x, y) { // but of an object they are its kind
				return false
			}
		case len(d.at) == 1 && d.at[0].field == "metadata" && slices.Contains(unowned, f.name):
		case !d.into(step{field: f.name}, x, y):
			return false
		}
	}
	return true
}

// lists are walked item by item: a difference counts where the item has a key.
func (d *differences) lists(a, b reflect.Value) bool {
	if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
		return false
	}
	key := ""
	switch a.Type().Elem().Kind() {
	case reflect.Uint8:
		return bytes.Equal(a.Bytes(), b.Bytes())
	case reflect.Struct:
		key = formOf(a.Type().Elem()).key
	}
	for i := range a.Len() {
		x, y, found := a.Index(i), b.Index(i), len(d.found)
		item := "?"
		if key != "" {
			item = keyOf(x)
		}
		if !d.into(step{strings.ToLower(key), item}, x, y) {
			return false
		}
		if len(d.found) > found && (key == "" || item == "" || item != keyOf(y) || alike(a, i)) {
			return false
		}
	}
	return true
}

// alike tells if another item of a list has the key of one.
func alike(list reflect.Value, one int) bool {
	for i := range list.Len() {
		if i != one && keyOf(list.Index(i)) == keyOf(list.Index(one)) {
			return true
		}
	}
	return false
}

func keyOf(item reflect.Value) string {
	return item.Field(formOf(item.Type()).keyIndex).String()
}

// maps of texts are walked, others have to be the same.
func (d *differences) maps(a, b reflect.Value) bool {
	x, ok := a.Interface().(map[string]string)
	if !ok {
		return a.IsNil() == b.IsNil() && exactly.DeepEqual(a.Interface(), b.Interface())
	}
	y := b.Interface().(map[string]string)
	if len(x) != len(y) || a.IsNil() != b.IsNil() {
		return false
	}
	for key, value := range x {
		other, ok := y[key]
		if !ok || other != value && !d.into(step{field: key}, reflect.ValueOf(value), reflect.ValueOf(other)) {
			return false
		}
	}
	return true
}

// exactly is equality of what is shown: the same quantity can be shown in several ways.
var exactly = conversion.EqualitiesOrDie(
	func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 && a.Format == b.Format },
	func(a, b metav1.Time) bool { return a.Equal(&b) },
	func(a, b metav1.MicroTime) bool { return a.Equal(&b) },
)

// form is what a walk has to know of a struct.
type form struct {
	fields []formField
	// key is the field, a text, that tells items of lists apart, if any of the usual ones.
	key      string
	keyIndex int
	opaque   bool // it has a form of its own in JSON
	time     bool // which is one value, and always the same for the same
}

type formField struct {
	index int
	name  string // in JSON; empty: inlined
}

var (
	forms     sync.Map // by reflect.Type
	marshaler = reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]()
)

func formOf(t reflect.Type) *form {
	if known, ok := forms.Load(t); ok {
		return known.(*form)
	}
	f := &form{opaque: t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)}
	f.time = t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.MicroTime]()
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		f.opaque = f.opaque || !field.IsExported() || name == "-" || name == "" && !field.Anonymous
		f.fields = append(f.fields, formField{i, name})
	}
	for _, key := range []string{"Type", "Name"} {
		if field, ok := t.FieldByName(key); ok && field.Type.Kind() == reflect.String && len(field.Index) == 1 && f.key == "" {
			f.key, f.keyIndex = key, field.Index[0]
		}
	}
	forms.Store(t, f)
	return f
}
