package storage

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Item is an object as it was at one revision, shared by every reader of the
// cache.
//
// What it keeps for good is the stored value, and what selections pick by. The
// object and its encodings are made of the value when they are asked for, and let
// go of when nobody has asked for a while (tidy.go): a decoded pod takes five
// times the memory of its value, and the garbage collector has to walk all of it.
type Item struct {
	Namespace, Name string
	UID             types.UID
	Revision        int64 // etcd's mod revision = metadata.resourceVersion
	Labels          labels.Set
	Fields          fields.Set

	key      string    // in etcd
	resource *Resource // how value is read
	value    []byte    // as stored, unsealed; nil: object is all there is
	object   atomic.Pointer[decoded]
	encoded  encodings
	message  messageForm
}

// decoded is an object in memory.
type decoded struct {
	obj  runtime.Object
	idle idleness
}

// NewItem wraps an object that is not from the cache, for those who answer with
// it as if it were.
func NewItem(obj runtime.Object) *Item {
	i := &Item{}
	if m, err := meta.Accessor(obj); err == nil {
		i.Namespace, i.Name, i.UID = m.GetNamespace(), m.GetName(), m.GetUID()
		i.Revision, _ = strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	}
	i.object.Store(&decoded{obj: obj})
	return i
}

// Object is the object, which must never be changed: deep-copy it first.
func (i *Item) Object() runtime.Object {
	d := i.decoded()
	d.idle.end()
	return d.obj
}

func (i *Item) decoded() *decoded {
	d := i.object.Load()
	if d == nil {
		obj, err := i.resource.decode(i.value)
		if err != nil { // it could be read when it came in
			panic(fmt.Sprintf("%s cannot be read any more: %v", i.key, err))
		}
		d = &decoded{obj: i.stamp(obj)}
		i.object.Store(d)
	}
	return d
}

// stamp gives an object that nobody else has seen yet the item's revision.
func (i *Item) stamp(obj runtime.Object) runtime.Object {
	if m, err := meta.Accessor(obj); err == nil && i.Revision != 0 {
		m.SetResourceVersion(strconv.FormatInt(i.Revision, 10))
	}
	return obj
}

// setRevision is for items that nobody else has seen yet.
func (i *Item) setRevision(revision int64) {
	i.Revision = revision
	if d := i.object.Load(); d != nil {
		i.stamp(d.obj)
	}
}

// AtRevision is the item at another revision: a deleted object's last state goes
// out with the revision of its deletion.
func (i *Item) AtRevision(revision int64) *Item {
	gone := &Item{
		Namespace: i.Namespace, Name: i.Name, UID: i.UID, Labels: i.Labels, Fields: i.Fields,
		key: i.key, resource: i.resource, value: i.value,
	}
	if i.value == nil {
		gone.object.Store(&decoded{obj: i.Object().DeepCopyObject()})
	}
	gone.setRevision(revision)
	return gone
}

// field is the value of a selectable field.
func (i *Item) field(name string) string {
	switch name {
	case "metadata.name":
		return i.Name
	case "metadata.namespace":
		return i.Namespace
	}
	return i.Fields[name]
}

// Encoded returns the object's bytes in a form ("autoscaling/v1+json", a table
// row), made by encode at the first call and kept for those to come. encode must
// depend on the form and the object only.
func (i *Item) Encoded(form string, encode func(runtime.Object) ([]byte, error)) ([]byte, error) {
	e := i.encoded.of(form)
	e.idle.end()
	e.once.Do(func() { e.bytes, e.err = encode(i.Object()) })
	return e.bytes, e.err
}

// encodings are the bytes of one object in the forms that were asked for.
type encodings struct {
	mu  sync.Mutex // protects all
	all []*encoding
}

// encoding is made once, by the first who asks, while others of the same form
// wait for it.
type encoding struct {
	form  string
	once  sync.Once
	bytes []byte
	err   error
	idle  idleness
	again bool // it was asked for more than once
}

func (e *encodings) of(form string) *encoding {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, enc := range e.all {
		if enc.form == form {
			enc.again = true
			return enc
		}
	}
	enc := &encoding{form: form}
	e.all = append(e.all, enc)
	return enc
}
