package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
)

// tableAccept asks for a table, and takes an object where there is none.
const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// maxTableWait bounds the pause between two tries of a view.
const maxTableWait = 5 * time.Second

// Tables is a Feed over any Kubernetes API server: one list and watch per view,
// in the form of tables.
type Tables struct {
	client  *rest.RESTClient
	find    discovery.DiscoveryInterface
	changed func()

	mu      sync.Mutex // protects the fields below
	link    Link
	ctx     context.Context // of Run; nil before
	work    sync.WaitGroup
	waiting []func(context.Context) // views opened before Run
}

// NewTables makes the feed; Run feeds it.
func NewTables(cfg *rest.Config, changed func()) (*Tables, error) {
	if changed == nil {
		changed = func() {}
	}
	find, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	own := rest.CopyConfig(cfg)
	own.APIPath, own.GroupVersion = "/", &schema.GroupVersion{}
	own.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	own.QPS, own.Burst = -1, -1
	client, err := rest.UnversionedRESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Tables{client: client, find: find, changed: changed, link: Link{State: LinkConnecting, Since: time.Now()}}, nil
}

// Link implements Feed.
func (f *Tables) Link() Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	return linkNow(f.link, time.Now())
}

// Run implements Feed.
func (f *Tables) Run(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	for _, start := range f.waiting {
		f.work.Go(func() { start(ctx) })
	}
	f.waiting = nil
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()   // no view starts any more: Open sees that ctx ended
	f.mu.Unlock() //nolint:staticcheck // the empty section is a barrier
	f.work.Wait()
	return nil
}

// Open implements Feed.
func (f *Tables) Open(view api.View, tell func(api.Tell)) (closeView func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	over, cancel := context.WithCancel(context.Background())
	start := func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(over, stop)()
		v := &tableView{feed: f, view: view, tell: tell}
		v.run(ctx)
	}
	switch {
	case f.ctx == nil:
		f.waiting = append(f.waiting, start)
	case f.ctx.Err() == nil:
		run := f.ctx
		f.work.Go(func() { start(run) })
	}
	return cancel
}

func (f *Tables) up() {
	f.mu.Lock()
	was := f.link.State
	if was != LinkLive {
		f.link = Link{State: LinkLive, Since: time.Now()}
	}
	f.mu.Unlock()
	if was != LinkLive {
		f.changed()
	}
}

func (f *Tables) down(err error) {
	f.mu.Lock()
	if f.link.State == LinkLive {
		f.link.State, f.link.Since = LinkReconnecting, time.Now()
	}
	f.link.Err = err
	f.mu.Unlock()
	f.changed()
}

// tableView is one view: the goroutine that lists and watches for it.
type tableView struct {
	feed     *Tables
	view     api.View
	tell     func(api.Tell)
	path     string
	columns  []metav1.TableColumnDefinition
	revision string
}

func (v *tableView) run(ctx context.Context) {
	wait := backoffFrom
	for ctx.Err() == nil {
		began := time.Now()
		err := v.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			v.revision = ""
			continue
		}
		var status apierrors.APIStatus
		answered := errors.As(err, &status)
		switch {
		case err == nil: // a watch ends now and then
		case answered && status.Status().Code < 500 && status.Status().Code != http.StatusTooManyRequests:
			v.tell(api.Tell{Type: "error", Error: &api.Error{Code: int(status.Status().Code), Message: err.Error(), Retry: true}})
			wait = maxTableWait // rights and kinds may come
		default:
			v.tell(api.Tell{Type: "rows", Live: false})
			v.feed.down(err)
		}
		if time.Since(began) > maxTableWait {
			wait = backoffFrom
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, maxTableWait)
	}
}

// follow lists, unless the view can go on where it was, and watches.
func (v *tableView) follow(ctx context.Context) error {
	if v.path == "" {
		path, err := v.locate()
		if err != nil {
			return err
		}
		v.path = path
	}
	if v.revision == "" {
		if err := v.list(ctx); err != nil {
			return err
		}
	}
	return v.watch(ctx)
}

// locate finds the view's URL; a version left out is the preferred one.
func (v *tableView) locate() (string, error) {
	version := v.view.Version
	if version == "" {
		version = "v1"
		if v.view.Group != "" {
			groups, err := v.feed.find.ServerGroups()
			if err != nil {
				return "", err
			}
			for _, g := range groups.Groups {
				if g.Name == v.view.Group {
					version = g.PreferredVersion.Version
				}
			}
		}
	}
	path := "/api/" + version
	if v.view.Group != "" {
		path = "/apis/" + v.view.Group + "/" + version
	}
	if len(v.view.Namespaces) == 1 {
		path += "/namespaces/" + v.view.Namespaces[0]
	}
	return path + "/" + v.view.Resource, nil
}

func (v *tableView) request(watch bool) *rest.Request {
	r := v.feed.client.Get().AbsPath(v.path).SetHeader("Accept", tableAccept).Param("includeObject", "Metadata")
	field := v.view.FieldSelector
	if v.view.Name != "" {
		field = "metadata.name=" + v.view.Name
		r = v.feed.client.Get().AbsPath(v.path).SetHeader("Accept", "application/json")
	}
	if field != "" {
		r = r.Param("fieldSelector", field)
	}
	if v.view.LabelSelector != "" {
		r = r.Param("labelSelector", v.view.LabelSelector)
	}
	if watch {
		r = r.Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", v.revision).
			Param("timeoutSeconds", strconv.Itoa(300))
	}
	return r
}

func (v *tableView) list(ctx context.Context) error {
	data, err := v.request(false).Do(ctx).Raw()
	if err != nil {
		return err
	}
	v.feed.up()
	if v.view.Name != "" {
		return v.tellOne(data)
	}
	table, err := v.decode(data)
	if err != nil {
		return err
	}
	v.columns, v.revision = table.ColumnDefinitions, table.ResourceVersion
	v.tell(api.Tell{Type: "columns", Columns: rowColumns(table.ColumnDefinitions)})
	rows := v.rows(table)
	v.tell(api.Tell{Type: "rows", Reset: true, Rows: rows, Revision: v.revision, Live: true})
	return nil
}

// tellOne tells the object of an object view, found by its name in a list.
func (v *tableView) tellOne(data []byte) error {
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
		metav1.TypeMeta
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("list %s: %w", v.path, err)
	}
	v.revision = list.Metadata.ResourceVersion
	if len(list.Items) == 0 {
		v.tell(api.Tell{Type: "object", Reset: true, Revision: v.revision, Live: true})
		return nil
	}
	object := map[string]any{}
	if err := json.Unmarshal(list.Items[0], &object); err != nil {
		return fmt.Errorf("list %s: %w", v.path, err)
	}
	// Items of a typed list don't name their kind.
	object["apiVersion"], object["kind"] = list.APIVersion, strings.TrimSuffix(list.Kind, "List")
	whole, err := json.Marshal(object)
	if err != nil {
		return err
	}
	v.tell(api.Tell{Type: "object", Object: whole, Revision: v.revision, Live: true})
	return nil
}

// watch tells changes until the server ends the watch.
func (v *tableView) watch(ctx context.Context) error {
	body, err := v.request(true).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	v.feed.up()
	events := json.NewDecoder(body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := v.event(e.Type, e.Object); err != nil {
			return err
		}
	}
}

func (v *tableView) event(kind string, object []byte) error {
	if kind == "ERROR" {
		var status metav1.Status
		if err := json.Unmarshal(object, &status); err != nil {
			return fmt.Errorf("watch %s: %w", v.path, err)
		}
		v.revision = ""
		return &apierrors.StatusError{ErrStatus: status}
	}
	if v.view.Name != "" {
		return v.objectEvent(kind, object)
	}
	table, err := v.decode(object)
	if err != nil {
		return err
	}
	rows := v.rows(table)
	tell := api.Tell{Type: "rows", Live: true}
	for _, r := range table.Rows {
		if m := rowMeta(r); m.ResourceVersion != "" {
			v.revision = m.ResourceVersion
		}
	}
	switch kind {
	case "ADDED", "MODIFIED":
		tell.Rows = rows
	case "DELETED":
		for _, r := range rows {
			tell.Gone = append(tell.Gone, r.UID)
		}
	default: // BOOKMARK: only the revision
	}
	tell.Revision = v.revision
	v.tell(tell)
	return nil
}

func (v *tableView) objectEvent(kind string, object []byte) error {
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &m); err != nil {
		return fmt.Errorf("watch %s: %w", v.path, err)
	}
	v.revision = m.ResourceVersion
	switch kind {
	case "ADDED", "MODIFIED":
		v.tell(api.Tell{Type: "object", Object: object, Revision: v.revision, Live: true})
	case "DELETED":
		v.tell(api.Tell{Type: "object", Gone: []string{string(m.UID)}, Revision: v.revision, Live: true})
	}
	return nil
}

// decode reads a table; columns come only with a list and a watch's first event.
func (v *tableView) decode(data []byte) (*metav1.Table, error) {
	table := &metav1.Table{}
	if err := json.Unmarshal(data, table); err != nil {
		return nil, fmt.Errorf("table of %s: %w", v.path, err)
	}
	if table.Kind != "Table" && table.Kind != "" && len(table.Rows) == 0 && !strings.HasSuffix(table.Kind, "List") {
		// A bookmark may come as the object itself.
		table.Rows = []metav1.TableRow{{Object: runtime.RawExtension{Raw: data}}}
	}
	return table, nil
}

func (v *tableView) rows(table *metav1.Table) []api.Row {
	out := make([]api.Row, 0, len(table.Rows))
	for _, r := range table.Rows {
		m := rowMeta(r)
		if len(v.view.Namespaces) > 1 && !contains(v.view.Namespaces, m.Namespace) {
			continue
		}
		row := api.Row{UID: string(m.UID), Namespace: m.Namespace, Name: m.Name, Cells: r.Cells,
			Created: m.CreationTimestamp.Time, Labels: m.Labels, State: stateFromCells(v.columns, r.Cells)}
		if o := metav1.GetControllerOf(m); o != nil {
			row.Owner = o.Kind + "/" + o.Name
		}
		for i, c := range v.columns {
			if c.Name == "Age" && i < len(r.Cells) {
				row.Cells[i] = m.CreationTimestamp.Format(time.RFC3339)
			}
		}
		if m.DeletionTimestamp != nil {
			row.State = api.StateTerminating
		}
		out = append(out, row)
	}
	return out
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

func rowMeta(r metav1.TableRow) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	if len(r.Object.Raw) > 0 {
		_ = json.Unmarshal(r.Object.Raw, m) // without it the row has no name, and is shown so
	}
	return m
}

func rowColumns(defs []metav1.TableColumnDefinition) []api.RowColumn {
	out := make([]api.RowColumn, len(defs))
	for i, d := range defs {
		out[i] = api.RowColumn{Name: d.Name, Type: d.Type, Priority: d.Priority, Description: d.Description}
		if d.Name == "Age" {
			out[i].Type = "age"
		}
	}
	return out
}

// stateFromCells guesses a row's state from the words that kubectl prints. Our
// own server tells the state; another Kubernetes tells only the words.
func stateFromCells(columns []metav1.TableColumnDefinition, cells []any) api.State {
	state := api.StateOK
	for i, c := range columns {
		if i >= len(cells) {
			break
		}
		word := fmt.Sprint(cells[i])
		switch c.Name {
		case "Status":
			state = stateOfWord(word)
		case "Ready":
			have, want, ok := strings.Cut(word, "/")
			if ok && have != want && state == api.StateOK {
				state = api.StateProgressing
			}
		}
	}
	return state
}

func stateOfWord(word string) api.State {
	first, _, _ := strings.Cut(word, ",")
	switch {
	case first == "Running", first == "Ready", first == "Active", first == "Bound", first == "Available":
		if strings.Contains(word, "SchedulingDisabled") {
			return api.StateWarning
		}
		return api.StateOK
	case first == "Completed", first == "Complete", first == "Succeeded":
		return api.StateDone
	case first == "Terminating", first == "Released":
		return api.StateTerminating
	case first == "Unknown":
		return api.StateUnknown
	case first == "Pending", first == "ContainerCreating", first == "PodInitializing", strings.HasPrefix(first, "Init:") && strings.Contains(first, "/"):
		return api.StateProgressing
	case first == "NotReady", first == "Evicted", first == "Failed", first == "Lost", first == "OOMKilled",
		strings.Contains(first, "Err"), strings.Contains(first, "BackOff"), strings.Contains(first, "ExitCode"), strings.Contains(first, "Invalid"):
		return api.StateError
	}
	return api.StateOK
}
