package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"orrery.dev/server/stream"
)

// pageSize is how many objects are in memory at a time while a list is read.
const pageSize = 1000

// reader lists and watches one kind in one form.
type reader struct {
	client *rest.RESTClient
	accept string // "" with the typed client
	params map[string]string
	gvr    schema.GroupVersionResource
	// read makes events of a list, or of the object of a watch event. Their Objects
	// are what the faces get, as JSON.
	read func(runtime.Object) ([]stream.Event, error)
}

func (s *Source) reader(k *stream.Kind, sel stream.Selection) reader {
	r := reader{gvr: k.GroupVersionResource, client: s.plain, params: map[string]string{}}
	field := ""
	if sel.Fields != nil {
		field = sel.Fields.String()
	}
	if sel.Labels != nil {
		r.params["labelSelector"] = sel.Labels.String()
	}
	known := s.known(k.GroupVersionResource)
	switch {
	case sel.Name != "":
		field = fields.OneTermEqualSelector("metadata.name", sel.Name).String()
		r.accept, r.read = runtime.ContentTypeJSON, wholeObjects
	case known != nil:
		r.client, r.read = s.typed, printed(known.FaceRows())
	default:
		r.accept, r.params["includeObject"] = acceptTable, "Object"
		r.read = tableRows(k.Columns)
	}
	r.params["fieldSelector"] = field
	return r
}

func (r reader) request(namespace string, more map[string]string) *rest.Request {
	path := []string{"apis", r.gvr.Group, r.gvr.Version}
	if r.gvr.Group == "" {
		path = []string{"api", r.gvr.Version}
	}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	request := r.client.Get().AbsPath(append(path, r.gvr.Resource)...)
	if r.accept != "" {
		request.SetHeader("Accept", r.accept)
	}
	for _, params := range []map[string]string{r.params, more} {
		for name, value := range params {
			if value != "" {
				request.Param(name, value)
			}
		}
	}
	return request
}

// list reads a page; items of any kind say what they are.
func (r reader) list(ctx context.Context, namespace string, more map[string]string) (runtime.Object, error) {
	answer := r.request(namespace, more).Do(ctx)
	if r.accept == "" {
		return answer.Get()
	}
	data, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	return runtime.Decode(unstructured.UnstructuredJSONScheme, data)
}

// Watch implements stream.Source. Each of several namespaces is watched for itself,
// since who may see some need not be allowed to see all.
func (s *Source) Watch(ctx context.Context, k *stream.Kind, sel stream.Selection, revision string) (stream.Watch, error) {
	namespaces := sel.Namespaces
	if len(namespaces) == 0 || !k.Namespaced {
		namespaces = []string{""}
	}
	w := &following{told: make(chan part), at: slices.Repeat([]string{revision}, len(namespaces))}
	if revision == "" {
		w.unsynced = len(namespaces)
	}
	r := s.reader(k, sel)
	for i, namespace := range namespaces {
		f := follower{reader: r, namespace: namespace, revision: revision, tell: func(p part) error {
			p.which = i
			select {
			case w.told <- p:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		go f.run(ctx) // ends with ctx, as the watch does
	}
	return w, nil
}

// following is a watch of some namespaces.
type following struct {
	told     chan part
	at       []string // revision of each namespace
	unsynced int
}

// part is what happened in one of them.
type part struct {
	which    int
	events   []stream.Event
	revision string // "": as before
	synced   bool
	err      error
}

// Next implements stream.Watch.
func (w *following) Next(ctx context.Context) (stream.Batch, error) {
	var p part
	select {
	case p = <-w.told:
	case <-ctx.Done():
		return stream.Batch{}, ctx.Err()
	}
	if p.err != nil {
		return stream.Batch{}, p.err
	}
	b := stream.Batch{Events: p.events}
	if p.revision != "" {
		w.at[p.which] = p.revision
	}
	if p.synced {
		w.unsynced--
		b.Synced = w.unsynced == 0
	}
	if w.unsynced == 0 {
		b.Revision = slices.MinFunc(w.at, older) // from where nothing would be missed
	}
	return b, nil
}

// older compares revisions, which are numbers.
func older(a, b string) int {
	x, _ := strconv.ParseUint(a, 10, 64)
	y, _ := strconv.ParseUint(b, 10, 64)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// follower lists and watches one namespace, or all.
type follower struct {
	reader
	namespace, revision string
	tell                func(part) error
}

func (f *follower) run(ctx context.Context) {
	err := f.follow(ctx)
	if ctx.Err() == nil {
		_ = f.tell(part{err: err}) // fails when ctx ends
	}
}

// follow returns an error sooner or later: watches end, and are begun again where
// they were.
func (f *follower) follow(ctx context.Context) error {
	if f.revision == "" {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	for {
		began := time.Now()
		if err := f.watch(ctx); err != nil {
			return err
		}
		if time.Since(began) < time.Second {
			return errors.New("the server ended the watch at once")
		}
	}
}

func (f *follower) list(ctx context.Context) error {
	next := ""
	for {
		list, err := f.reader.list(ctx, f.namespace, map[string]string{"limit": strconv.Itoa(pageSize), "continue": next})
		if err != nil {
			return err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("list of %s: %w", f.gvr.Resource, err)
		}
		events, err := f.read(list)
		if err != nil {
			return err
		}
		f.revision, next = m.GetResourceVersion(), m.GetContinue()
		if err := f.tell(part{events: events, revision: f.revision, synced: next == ""}); err != nil || next == "" {
			return err
		}
	}
}

func (f *follower) watch(ctx context.Context) error {
	w, err := f.request(f.namespace, map[string]string{"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": f.revision}).Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		p := part{revision: revisionOf(e.Object)}
		if e.Type != watch.Bookmark {
			if p.events, err = f.read(e.Object); err != nil {
				return err
			}
			for i := range p.events {
				p.events[i].Gone = e.Type == watch.Deleted
			}
		}
		if p.revision != "" {
			f.revision = p.revision
		}
		if err := f.tell(p); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// away tells an API server that can't be reached from one that only refuses.
func away(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError)
}
