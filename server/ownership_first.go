package server

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"orrery.dev/server/registry"
)

// firstFields remembers which fields the managers of new objects came to own, by the
// outlines of the objects: the pods of one template have the same.
type firstFields struct {
	mu    sync.Mutex // protects known
	known map[string]*metav1.FieldsV1
}

// Bounds of the memory that it takes.
const (
	mostOutlines   = 256
	longestOutline = 8 << 10 // bytes
)

func (f *firstFields) find(outline []byte) *metav1.FieldsV1 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[string(outline)]
}

// learn remembers what the manager of a new object owns.
func (f *firstFields) learn(outline []byte, obj runtime.Object) {
	m, err := meta.Accessor(obj)
	if err != nil || len(m.GetManagedFields()) != 1 || m.GetManagedFields()[0].FieldsV1 == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) >= mostOutlines {
		f.known = map[string]*metav1.FieldsV1{}
	}
	f.known[string(outline)] = m.GetManagedFields()[0].FieldsV1.DeepCopy()
}

// first gives a new object to its manager, if another of the same outline is known.
// Of one that is new, with an outline, it returns that.
func (f *fieldManagers) first(k *registry.Kind, subresource string, live, obj runtime.Object, manager string) (outline []byte, done bool) {
	now, err := meta.Accessor(obj)
	before, errBefore := meta.Accessor(live)
	if err != nil || errBefore != nil || k.Unstructured() || k != k.Hub() || manager == "" ||
		before.GetUID() != "" || before.GetResourceVersion() != "" || before.GetManagedFields() != nil || now.GetManagedFields() != nil {
		return nil, false
	}
	o := outliner{text: make([]byte, 0, 2<<10)}
	o.put(k.GroupVersionKind.String())
	o.put(subresource)
	if !o.walk(reflect.ValueOf(obj).Elem(), false) || len(o.text) > longestOutline {
		return nil, false
	}
	fields := f.firsts.find(o.text)
	if fields == nil {
		return o.text, false
	}
	now.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: k.GroupVersion().String(), Subresource: subresource,
		Time: &metav1.Time{Time: time.Now().UTC()}, FieldsType: "FieldsV1", FieldsV1: fields.DeepCopy(),
	}})
	return nil, true
}

// outliner writes down of an object what its fields are called by: all but the values
// outside of lists. Those inside may be keys.
type outliner struct{ text []byte }

func (o *outliner) put(text string) {
	o.text = append(binary.AppendUvarint(o.text, uint64(len(text))), text...)
}

// walk says false at what it does not know.
func (o *outliner) walk(v reflect.Value, inList bool) bool {
	switch v.Kind() {
	case reflect.Struct:
		return o.structs(v, inList)
	case reflect.Pointer:
		return !v.IsNil() && o.walk(v.Elem(), inList)
	case reflect.Slice:
		return o.lists(v, inList)
	case reflect.Map:
		return o.maps(v, inList)
	case reflect.String:
		if inList {
			o.put(v.String())
		}
		return true
	case reflect.Bool:
		if inList {
			o.text = strconv.AppendBool(o.text, v.Bool())
		}
		return true
	case reflect.Int32, reflect.Int64, reflect.Int:
		if inList {
			o.text = binary.AppendVarint(o.text, v.Int())
		}
		return true
	}
	return false
}

func (o *outliner) structs(v reflect.Value, inList bool) bool {
	form := formOf(v.Type())
	if form.opaque {
		return o.values(v, form, inList)
	}
	for _, f := range form.fields {
		if field := v.Field(f.index); !field.IsZero() {
			o.text = binary.AppendUvarint(o.text, uint64(f.index)+1)
			if !o.walk(field, inList) {
				return false
			}
		}
	}
	o.text = append(o.text, 0)
	return true
}

// values are those that are no structs to clients.
func (o *outliner) values(v reflect.Value, form *form, inList bool) bool {
	if form.time {
		return !inList && !v.IsZero()
	}
	switch x := v.Interface().(type) {
	case resource.Quantity:
		if inList {
			o.put(x.String())
		}
	case intstr.IntOrString:
		if inList {
			o.put(x.String())
		}
	default:
		return false
	}
	return true
}

func (o *outliner) lists(v reflect.Value, inList bool) bool {
	if v.IsNil() {
		return false
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if inList {
			o.put(string(v.Bytes()))
		}
		return true
	}
	o.text = binary.AppendUvarint(o.text, uint64(v.Len()))
	for i := range v.Len() {
		if !o.walk(v.Index(i), true) {
			return false
		}
	}
	return true
}

func (o *outliner) maps(v reflect.Value, inList bool) bool {
	if v.IsNil() || v.Type().Key().Kind() != reflect.String {
		return false
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	o.text = binary.AppendUvarint(o.text, uint64(len(keys)))
	for _, key := range keys {
		o.put(key.String())
		if !o.walk(v.MapIndex(key), inList) {
			return false
		}
	}
	return true
}
