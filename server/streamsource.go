package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	o := storage.WatchOptions{
		Selection:       storage.Selection{Namespace: sel.Namespace, Name: sel.Name, Labels: sel.Labels, Fields: sel.Fields},
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
	ages := ageColumns(k)
	form := "row:" + k.GroupVersionResource().String()
	row := func(obj runtime.Object) ([]byte, error) { return streamRow(k, ages, obj) }
	return &stream.Kind{
		GroupVersionResource: k.GroupVersionResource(),
		Namespaced:           k.Namespaced,
		Columns:              streamColumns(k, ages),
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

func streamRow(k *registry.Kind, ages map[int]bool, obj runtime.Object) ([]byte, error) {
	obj, err := served(k, obj)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("row of a %s: %w", k.Kind, err)
	}
	row := api.Row{
		UID: string(m.GetUID()), Namespace: m.GetNamespace(), Name: m.GetName(),
		State: api.StateOf(obj), Created: m.GetCreationTimestamp().Time, Labels: m.GetLabels(),
		Cells: []any{m.GetName(), timeCell(m.GetCreationTimestamp())},
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		row.Owner = owner.Kind + "/" + owner.Name
	}
	if k.Row != nil {
		row.Cells = k.Row(obj)
		for i, cell := range row.Cells {
			if words, ok := cell.(registry.Words); ok {
				cell = words(time.Now())
			}
			if ages[i] {
				cell = timeCell(cell)
			}
			row.Cells[i] = cell
		}
	}
	return json.Marshal(row)
}

func streamColumns(k *registry.Kind, ages map[int]bool) []api.RowColumn {
	if k.Row == nil {
		return []api.RowColumn{{Name: "Name", Type: "string"}, {Name: "Age", Type: "age"}}
	}
	columns := make([]api.RowColumn, len(k.Columns))
	for i, c := range k.Columns {
		columns[i] = api.RowColumn{Name: c.Name, Type: c.Type, Priority: c.Priority, Description: c.Description}
		if ages[i] {
			columns[i].Type = "age"
		}
	}
	return columns
}

// ageColumns finds the columns whose cells are times: kubectl's column
// definitions call them strings, since by then they are words.
func ageColumns(k *registry.Kind) map[int]bool {
	ages := map[int]bool{}
	for i, c := range k.Columns {
		if c.Type == "date" {
			ages[i] = true
		}
	}
	if k.Row == nil || k.New == nil {
		return ages
	}
	for i, cell := range k.Row(k.New()) {
		switch cell.(type) {
		case metav1.Time, *metav1.Time, metav1.MicroTime, *metav1.MicroTime, time.Time:
			ages[i] = true
		}
	}
	return ages
}

// timeCell makes a time of whatever type RFC 3339, and no time nothing. What a
// row function has put into words already stays.
func timeCell(cell any) any {
	var t time.Time
	switch c := cell.(type) {
	case registry.Aged:
		t = c.Since.Time
	case metav1.Time:
		t = c.Time
	case *metav1.Time:
		if c != nil {
			t = c.Time
		}
	case metav1.MicroTime:
		t = c.Time
	case *metav1.MicroTime:
		if c != nil {
			t = c.Time
		}
	case time.Time:
		t = c
	default:
		return cell
	}
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}
