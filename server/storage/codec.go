package storage

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// envelope is how protobuf values begin; a runtime.Unknown follows.
var envelope = []byte("k8s\x00")

// selfDescribed is how CBOR begins, as upstream stores custom resources if its gate
// CBORServingAndStorage is on.
var selfDescribed = []byte{0xd9, 0xd9, 0xf7}

// encode makes the bytes that are stored, which have neither resourceVersion
// nor selfLink: the revision is etcd's to know. It clears both in obj.
func (r *Resource) encode(obj runtime.Object) ([]byte, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion("")
	m.SetSelfLink("")
	if u, ok := obj.(*unstructured.Unstructured); ok {
		var b bytes.Buffer
		err := unstructured.UnstructuredJSONScheme.Encode(u, &b)
		return b.Bytes(), err
	}
	obj.GetObjectKind().SetGroupVersionKind(r.Kind)
	if r.JSON {
		var b bytes.Buffer
		err = json.NewEncoder(&b).Encode(obj)
		return b.Bytes(), err
	}
	return encodeProtobuf(r.Kind, obj)
}

// decode makes an object of stored bytes, in any encoding and of any version that is
// known.
func (r *Resource) decode(value []byte) (runtime.Object, error) {
	obj, err := r.decodeAny(value)
	if err != nil {
		return nil, err
	}
	if _, custom := obj.(*unstructured.Unstructured); custom {
		return obj, nil
	}
	obj.GetObjectKind().SetGroupVersionKind(r.Kind)
	if r.Decoded != nil {
		r.Decoded(obj)
	}
	if r.Default != nil {
		r.Default(obj)
	}
	return obj, nil
}

func (r *Resource) decodeAny(value []byte) (runtime.Object, error) {
	raw, isProtobuf := bytes.CutPrefix(value, envelope)
	if isProtobuf {
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(raw); err != nil {
			return nil, err
		}
		return r.decodeAs(unknown.TypeMeta, func(obj runtime.Object) error {
			into, ok := obj.(interface{ Unmarshal([]byte) error })
			if !ok {
				return fmt.Errorf("%T cannot be stored as protobuf", obj)
			}
			return into.Unmarshal(unknown.Raw)
		})
	}
	if u, ok := r.New().(*unstructured.Unstructured); ok {
		var decoder runtime.Decoder = unstructured.UnstructuredJSONScheme
		if bytes.HasPrefix(value, selfDescribed) {
			decoder = cbor.NewSerializer(nil, nil)
		}
		_, _, err := decoder.Decode(value, nil, u)
		return u, err
	}
	var kind runtime.TypeMeta
	if err := utiljson.Unmarshal(value, &kind); err != nil {
		return nil, err
	}
	return r.decodeAs(kind, func(obj runtime.Object) error { return utiljson.Unmarshal(value, obj) })
}

// decodeAs fills an object of the kind that a value says it is, and makes it one
// of ours. A version that is not known is refused: its fields would be misread.
func (r *Resource) decodeAs(stored runtime.TypeMeta, fill func(runtime.Object) error) (runtime.Object, error) {
	kind := stored.GroupVersionKind()
	if kind == r.Kind {
		obj := r.New()
		return obj, fill(obj)
	}
	if r.Older != nil {
		if older, ok := r.Older(kind); ok {
			obj := older.New()
			if err := fill(obj); err != nil {
				return nil, err
			}
			return older.Convert(obj)
		}
	}
	wantVersion, wantKind := r.Kind.ToAPIVersionAndKind()
	return nil, fmt.Errorf("stored as %s %s, want %s %s", stored.APIVersion, stored.Kind, wantVersion, wantKind)
}

// item wraps an object, and the value that it was decoded from, as it is at a
// revision (0: not stored yet).
func (r *Resource) item(key string, obj runtime.Object, value []byte, revision int64) (*Item, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	i := &Item{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), Revision: revision,
		Labels: labels.Set(m.GetLabels()), key: key, resource: r, value: value,
	}
	if r.Fields != nil {
		i.Fields = r.Fields(obj)
	} else {
		i.Fields = fields.Set{"metadata.name": i.Name}
		if r.Namespaced {
			i.Fields["metadata.namespace"] = i.Namespace
		}
	}
	i.object.Store(&decoded{obj: i.stamp(obj)})
	return i, nil
}

// decodeItem makes an Item of a key's value.
func (r *Resource) decodeItem(kv KV) (*Item, error) {
	obj, err := r.decode(kv.Value)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", kv.Key, err)
	}
	return r.item(kv.Key, obj, kv.Value, kv.Mod)
}
