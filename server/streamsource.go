package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
	"orrery.dev/server/stream"
)

// NewStream makes the hub of a server's rows. Mount it at api.StreamPath, behind
// authentication but not behind authorisation: it asks for each view itself.
func NewStream(kinds *registry.Table, store *storage.Store, authz stream.Authorizer, log *slog.Logger) *stream.Hub {
	return stream.New(stream.Config{
		Source:     &StreamSource{Table: kinds, Store: store},
		Authorizer: authz,
		User:       func(r *http.Request) user.Info { return registry.UserFrom(r.Context()) },
		Log:        log,
	})
}

// StreamSource lets the hub of the row protocol read the table of kinds and the
// cache, the same that answer kubectl.
type StreamSource struct {
	Table *registry.Table
	Store *storage.Store
}

var _ stream.Source = (*StreamSource)(nil)

// Kind finds the row that a view names. Without a version it is that of the
// first group version in discovery order.
func (s *StreamSource) Kind(v api.View) (*stream.Kind, error) {
	for _, gv := range s.Table.Versions() {
		if gv.Group != v.Group || v.Version != "" && gv.Version != v.Version {
			continue
		}
		k := s.Table.Find(gv.WithResource(v.Resource))
		if k != nil && k.Can("list") && k.Can("watch") {
			return streamKind(k), nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: v.Group, Resource: v.Resource}, v.Name)
}

// Namespaces lists the names of all namespaces.
func (s *StreamSource) Namespaces(ctx context.Context) ([]string, error) {
	page, err := s.Store.Collection(schema.GroupResource{Resource: "namespaces"}).List(ctx, storage.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(page.Items))
	for i, item := range page.Items {
		names[i] = item.Name
	}
	return names, nil
}

// Watch opens a watch of the cache.
func (s *StreamSource) Watch(ctx context.Context, k *stream.Kind, sel stream.Selection, revision string) (stream.Watch, error) {
	kind := s.Table.Find(k.GroupVersionResource)
	if kind == nil {
		return nil, apierrors.NewNotFound(k.GroupVersionResource.GroupResource(), sel.Name)
	}
	one := ""
	if len(sel.Namespaces) == 1 {
		one = sel.Namespaces[0] // several are picked out of a watch of all: only one watch has one order
	}
	o := storage.WatchOptions{
		Selection:       storage.Selection{Namespace: one, Name: sel.Name, Labels: sel.Labels, Fields: sel.Fields},
		ResourceVersion: revision,
		Bookmarks:       true,
	}
	if revision == "" {
		initial := true
		o.SendInitial = &initial
	}
	collection := s.Store.Collection(kind.Stored().GroupResource())
	if collection == nil {
		return nil, apierrors.NewNotFound(k.GroupVersionResource.GroupResource(), sel.Name)
	}
	w, err := collection.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return streamWatch{w}, nil
}

// streamWatch speaks of UIDs where storage speaks of items.
type streamWatch struct{ *storage.Watcher }

// Next waits for the next events.
func (w streamWatch) Next(ctx context.Context) (stream.Batch, error) {
	events, err := w.Watcher.Next(ctx)
	if err != nil {
		return stream.Batch{}, err
	}
	var b stream.Batch
	for _, e := range events {
		if e.Revision > 0 {
			b.Revision = strconv.FormatInt(e.Revision, 10)
		}
		if e.Type == storage.Bookmark {
			b.Synced = b.Synced || e.InitialEnd
			continue
		}
		b.Events = append(b.Events, stream.Event{
			UID: string(e.Item.UID), Namespace: e.Item.Namespace, Gone: e.Type == storage.Deleted, Object: e.Item,
		})
	}
	return b, nil
}

// streamKind is a kind as the hub sees it. Rows are kept with the item, so that
// an object that many faces show is printed once; not those of custom
// resources, whose columns can change while the object stays.
func streamKind(k *registry.Kind) *stream.Kind {
	rows := k.FaceRows()
	form := "row:" + k.GroupVersionResource().String()
	row := func(obj runtime.Object) ([]byte, error) {
		obj, err := served(k, obj)
		if err != nil {
			return nil, err
		}
		return rows.Encode(obj)
	}
	return &stream.Kind{
		GroupVersionResource: k.GroupVersionResource(),
		Namespaced:           k.Namespaced,
		Columns:              rows.Columns,
		Row: func(item any) (json.RawMessage, error) {
			if k.JSON {
				return row(item.(*storage.Item).Object())
			}
			return item.(*storage.Item).Encoded(form, row)
		},
		Whole: func(item any) (json.RawMessage, error) { return wholeObject(k, item.(*storage.Item).Object()) },
	}
}

func served(k *registry.Kind, obj runtime.Object) (runtime.Object, error) {
	if k.FromStored == nil {
		return obj, nil
	}
	return k.FromStored(obj)
}

// wholeObject is the object as a GET would show it: objects in storage need not
// carry their kind.
func wholeObject(k *registry.Kind, obj runtime.Object) ([]byte, error) {
	obj, err := served(k, obj)
	if err != nil {
		return nil, err
	}
	if obj.GetObjectKind().GroupVersionKind() != k.GroupVersionKind {
		obj = obj.DeepCopyObject() // shared with everybody
		obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	}
	return json.Marshal(obj)
}
