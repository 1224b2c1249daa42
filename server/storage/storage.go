package storage

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource says how the objects of one kind are stored. It is what storage
// needs to know of a registry row.
type Resource struct {
	schema.GroupResource
	Kind       schema.GroupVersionKind // of the stored version
	Prefix     string                  // etcd path below /registry: "pods", "services/specs"
	Namespaced bool
	New        func() runtime.Object // an empty object of the stored version
	Decoded    func(runtime.Object)  // restores what the encoding loses; nil: nothing
	JSON       bool                  // custom resources: unstructured, stored as JSON
	TTL        time.Duration         // written with a lease of this length; 0: none
	// Fields are the selectable fields of an object, metadata's included.
	Fields func(runtime.Object) fields.Set
	// Default fills in what a value lacks because whoever wrote it knew less than
	// we do: an older release, or another's server. Nil: nothing.
	Default func(runtime.Object)
	// Older finds how a value is read that was stored as another kind or version;
	// nil: there is none.
	Older func(schema.GroupVersionKind) (Older, bool)
}

// Older reads the values of a former version of a kind.
type Older struct {
	New     func() runtime.Object
	Convert func(runtime.Object) (runtime.Object, error)
}

// EventType says what happened to an object, as a watcher with a selection
// sees it: an object that changes into the selection is Added, one that changes
// out of it is Deleted.
type EventType string

// The types of events, as in the watch protocol.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is one change, or a bookmark (Item nil).
type Event struct {
	Type     EventType
	Item     *Item // for Deleted: the last state, its Revision that of the deletion
	Prev     *Item // for Modified: the state before
	Revision int64
	// InitialEnd marks the bookmark that ends the initial events of a watch
	// with SendInitial.
	InitialEnd bool
}

// Selection picks objects. The zero value picks all of the collection.
type Selection struct {
	Namespace string // "": all
	Name      string // "": all
	Labels    labels.Selector
	Fields    fields.Selector
}

// ListOptions are those of metav1.ListOptions that storage serves, by the same
// rules (resourceVersion, resourceVersionMatch, limit, continue).
type ListOptions struct {
	Selection
	ResourceVersion string
	Match           metav1.ResourceVersionMatch
	Limit           int64
	Continue        string
}

// Page is one answer to a list.
type Page struct {
	Items     []*Item // ordered by namespace and name, as etcd keys are
	Revision  int64
	Continue  string
	Remaining *int64 // nil: unknown (selectors) or none
}

// WatchOptions say where a watch starts and what it carries.
type WatchOptions struct {
	Selection
	// ResourceVersion: "": most recent state as synthetic Added events, then
	// changes; "0": the same from any state; else the changes after it.
	ResourceVersion string
	Bookmarks       bool
	// SendInitial asks for the streaming list: initial Added events, then a
	// bookmark with InitialEnd, then changes. Nil: by ResourceVersion as above.
	SendInitial *bool
}

// WriteOptions modify a write.
type WriteOptions struct {
	DryRun bool // do everything but the transaction
	// Preconditions make the write fail with a Conflict unless they hold.
	Preconditions *metav1.Preconditions
}

// Errors are *apierrors.StatusError in upstream's words: NotFound,
// AlreadyExists, Conflict, Expired (410), TooLargeResourceVersion (504 Timeout),
// InvalidContinue (400), so that a verb passes them on.

// collection is what a Collection does; it is here to be read in one place.
type collection interface {
	// Get reads one object. rv "" is consistent, "0" whatever the cache has,
	// any other at least as new as that.
	Get(ctx context.Context, namespace, name, rv string) (*Item, error)
	List(ctx context.Context, o ListOptions) (*Page, error)
	Watch(ctx context.Context, o WatchOptions) (*Watcher, error)
	// Create stores a new object (which it takes over: do not use it after)
	// and returns it with its resourceVersion.
	Create(ctx context.Context, obj runtime.Object, o WriteOptions) (*Item, error)
	// Update reads the object, lets change make the new state out of it and
	// stores that, again and again until no other writer interfered. change is
	// given a deep copy, may be called several times, and may return the object
	// it was given; its errors end the update. A result equal to what is stored
	// is not written. A result with a resourceVersion set that is not the
	// current one is a Conflict.
	Update(ctx context.Context, namespace, name string, o WriteOptions, change func(current runtime.Object) (runtime.Object, error)) (*Item, error)
	// Delete removes the object if check (nil: always) agrees with the current
	// state, and returns the last state with the revision of the deletion.
	Delete(ctx context.Context, namespace, name string, o WriteOptions, check func(current runtime.Object) error) (*Item, error)
	// Count is the number of objects in the cache.
	Count() int
}

var _ collection = (*Collection)(nil)
