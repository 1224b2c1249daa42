package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inner shows a value as upstream's messages do: in the form of the types that its
// server works with, which have the names of Go and leave nothing out.
type inner struct{ value any }

// MarshalJSON writes that form.
func (i inner) MarshalJSON() ([]byte, error) { return innerJSON(reflect.ValueOf(i.value)) }

// shown is a value as an error has it: plain ones as they are, objects in
// upstream's form.
func shown(value any) any {
	t := reflect.TypeOf(value)
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || ofLibrary(t) {
		return value
	}
	return inner{value}
}

// ofLibrary tells the types that upstream's server shares with clients from those
// of which it has its own.
func ofLibrary(t reflect.Type) bool { return strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") }

func innerJSON(v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Invalid:
		return []byte("null"), nil
	case reflect.Pointer, reflect.Interface:
		return innerJSON(v.Elem())
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		return innerList(v)
	case reflect.Map:
		if v.IsNil() {
			break
		}
		return innerMap(v)
	case reflect.Struct:
		if ofLibrary(v.Type()) {
			break
		}
		return innerStruct(v)
	}
	return json.Marshal(v.Interface())
}

func innerList(v reflect.Value) ([]byte, error) {
	out := []byte{'['}
	for i := range v.Len() {
		value, err := innerJSON(v.Index(i))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}
	return append(out, ']'), nil
}

// innerMap writes a map, whose keys are strings, in their order.
func innerMap(v reflect.Value) ([]byte, error) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	var members [][]byte
	for _, key := range keys {
		value, err := innerJSON(v.MapIndex(key))
		if err != nil {
			return nil, err
		}
		members = append(members, member(key.String(), value))
	}
	return object(members), nil
}

// innerStruct writes a struct; what it embeds, metadata too, is merged into it.
func innerStruct(v reflect.Value) ([]byte, error) {
	var members [][]byte
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue // an object within another has none there
		}
		value, err := innerJSON(v.Field(i))
		if err != nil {
			return nil, err
		}
		switch {
		case !f.Anonymous:
			members = append(members, member(f.Name, value))
		case len(value) > len("{}"):
			members = append(members, value[1:len(value)-1])
		}
	}
	return object(members), nil
}

func member(name string, value []byte) []byte {
	key, _ := json.Marshal(name) // a string always has a JSON form
	return append(append(key, ':'), value...)
}

func object(members [][]byte) []byte {
	return append(append([]byte{'{'}, bytes.Join(members, []byte{','})...), '}')
}
