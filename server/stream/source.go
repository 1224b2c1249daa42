package stream

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
)

// Source is where a hub reads from. Its errors are *apierrors.StatusError.
type Source interface {
	// Kind finds the kind of a view; without a version, the preferred one. It
	// fails with NotFound.
	Kind(view api.View) (*Kind, error)
	// Namespaces lists the names of all namespaces.
	Namespaces(ctx context.Context) ([]string, error)
	// Watch follows the selected objects of a kind: from a revision on, or, if
	// that is "", all there are and then the changes. It fails with Expired
	// when the revision is too old. The watch ends with ctx.
	Watch(ctx context.Context, k *Kind, s Selection, revision string) (Watch, error)
}

// Authorizer answers what a user may do.
type Authorizer interface {
	Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error)
}

// Watch is a watch under way.
type Watch interface {
	// Next returns what happened since the last call, waiting for something if
	// nothing has. It fails with Expired when events were lost.
	Next(ctx context.Context) (Batch, error)
}

// Kind is what a hub needs to know of a kind. Row and Whole encode an object of
// an Event, as an api.Row and as the object itself; the hub calls them once per
// message and subscriber, so a Source should remember their results.
type Kind struct {
	schema.GroupVersionResource
	Namespaced bool
	Columns    []api.RowColumn
	Row        func(object any) (json.RawMessage, error)
	Whole      func(object any) (json.RawMessage, error)
}

// Selection picks objects of a kind; the zero value picks all. Of several
// namespaces a Source may give more: what the user may not see is dropped.
type Selection struct {
	Namespaces []string // none: all
	Name       string
	Labels     labels.Selector
	Fields     fields.Selector
}

// Event is one object that came, changed, or went out of the selection.
type Event struct {
	UID, Namespace string
	Gone           bool
	Object         any // opaque: for the Kind's functions
}

// Batch is some events in order. Revision is that of the last change it
// reflects. Synced ends the initial events of a watch without a revision; it
// comes exactly once, also when there are no objects.
type Batch struct {
	Events   []Event
	Revision string
	Synced   bool
}
