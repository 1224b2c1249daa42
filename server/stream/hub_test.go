package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
)

// fakeSource is a log of events of one kind, pods, in revisions 1, 2, 3...
type fakeSource struct {
	mu      sync.Mutex
	log     []Event
	oldest  int           // revisions up to this one are compacted
	epoch   int           // a watch of an older epoch has lost events
	grown   chan struct{} // closed and replaced on every change
	down    bool
	allowed map[string]bool // namespaces that the user may list; "" is all
	open    int             // watches under way
}

func newFake() *fakeSource {
	return &fakeSource{grown: make(chan struct{}), allowed: map[string]bool{"": true}}
}

func (f *fakeSource) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.grown)
	f.grown = make(chan struct{})
}

func (f *fakeSource) put(ns, name string) {
	f.change(func() {
		row := api.Row{UID: ns + "/" + name, Namespace: ns, Name: name, Cells: []any{name, len(f.log) + 1}, State: api.StateOK}
		f.log = append(f.log, Event{UID: row.UID, Namespace: ns, Object: row})
	})
}

func (f *fakeSource) remove(ns, name string) {
	f.change(func() { f.log = append(f.log, Event{UID: ns + "/" + name, Namespace: ns, Gone: true}) })
}

func (f *fakeSource) Kind(v api.View) (*Kind, error) {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: v.Resource}
	if v.Resource != "pods" {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	encode := func(o any) (json.RawMessage, error) { return json.Marshal(o) }
	return &Kind{GroupVersionResource: gvr, Namespaced: true, Columns: []api.RowColumn{{Name: "Name", Type: "string"}}, Row: encode, Whole: encode}, nil
}

func (f *fakeSource) Namespaces(context.Context) ([]string, error) {
	return []string{"a", "b", "c"}, nil
}

func (f *fakeSource) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.allowed[""] || f.allowed[a.GetNamespace()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (f *fakeSource) Watch(ctx context.Context, _ *Kind, s Selection, revision string) (Watch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, apierrors.NewServiceUnavailable("storage is away")
	}
	w := &fakeWatch{f: f, s: s, epoch: f.epoch}
	if revision != "" {
		w.at, _ = strconv.Atoi(revision)
		w.synced = true
		if w.at < f.oldest {
			return nil, apierrors.NewResourceExpired("too old")
		}
	}
	f.open++
	context.AfterFunc(ctx, func() { f.change(func() { f.open-- }) })
	return w, nil
}

type fakeWatch struct {
	f      *fakeSource
	s      Selection
	at     int
	epoch  int
	synced bool
}

func (w *fakeWatch) Next(ctx context.Context) (Batch, error) {
	for {
		w.f.mu.Lock()
		grown := w.f.grown
		switch {
		case w.f.down:
			w.f.mu.Unlock()
			return Batch{}, apierrors.NewServiceUnavailable("storage is away")
		case w.epoch != w.f.epoch:
			w.f.mu.Unlock()
			return Batch{}, apierrors.NewResourceExpired("events were lost")
		}
		b := Batch{Revision: strconv.Itoa(len(w.f.log)), Synced: !w.synced}
		for _, e := range w.f.log[w.at:] {
			if (len(w.s.Namespaces) != 1 || w.s.Namespaces[0] == e.Namespace) && (w.s.Name == "" || strings.HasSuffix(e.UID, "/"+w.s.Name)) {
				b.Events = append(b.Events, e)
			}
		}
		more := len(w.f.log) > w.at || b.Synced
		w.at, w.synced = len(w.f.log), true
		w.f.mu.Unlock()
		if more {
			return b, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// face is a client that keeps rows as a dashboard does.
type face struct {
	t      *testing.T
	socket *websocket.Conn
	rows   map[string]api.Row
	last   api.Tell
	resets int
}

func serve(t *testing.T, f *fakeSource) string {
	t.Helper()
	hub := New(Config{Source: f, Authorizer: f, Log: slog.New(slog.DiscardHandler),
		User: func(r *http.Request) user.Info {
			if r.Header.Get("X-User") == "" {
				return nil
			}
			return &user.DefaultInfo{Name: r.Header.Get("X-User")}
		}})
	// Close waits for every handler, and so for every goroutine of the hub.
	var serving sync.WaitGroup
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		hub.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.Close(); serving.Wait() })
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

func dial(t *testing.T, url string) *face {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{api.StreamProtocol}}
	socket, _, err := d.Dial(url, http.Header{"X-User": {"jane"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &face{t: t, socket: socket, rows: map[string]api.Row{}}
}

func (c *face) ask(a api.Ask) {
	c.t.Helper()
	if err := c.socket.WriteJSON(a); err != nil {
		c.t.Fatal(err)
	}
}

func (c *face) open(v api.View) { c.t.Helper(); c.ask(api.Ask{ID: 1, Op: "open", View: &v}) }

// next reads one message and applies it; pings are passed over.
func (c *face) next(ack bool) api.Tell {
	c.t.Helper()
	_ = c.socket.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		var m api.Tell
		if err := c.socket.ReadJSON(&m); err != nil {
			c.t.Fatalf("read: %v (rows %v)", err, c.rows)
		}
		if m.Type == "ping" {
			continue
		}
		if m.Reset {
			c.resets++
			c.rows = map[string]api.Row{}
		}
		for _, r := range m.Rows {
			c.rows[r.UID] = r
		}
		for _, uid := range m.Gone {
			delete(c.rows, uid)
		}
		if ack && m.Revision != "" {
			c.ask(api.Ask{ID: m.ID, Op: "ack", Revision: m.Revision})
		}
		c.last = m
		return m
	}
}

// until reads on until the rows are these.
func (c *face) until(want ...string) {
	c.t.Helper()
	for {
		same := len(c.rows) == len(want)
		for _, uid := range want {
			_, ok := c.rows[uid]
			same = same && ok
		}
		if same && c.last.Type == "rows" {
			return
		}
		c.next(true)
		if c.last.Error != nil {
			c.t.Fatalf("error %+v", c.last.Error)
		}
	}
}

func TestViewGetsSnapshotThenChanges(t *testing.T) {
	f := newFake()
	f.put("a", "one")
	f.put("b", "two")
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods"})
	if m := c.next(true); m.Type != "columns" || len(m.Columns) != 1 {
		t.Fatalf("first message %+v, want columns", m)
	}
	if m := c.next(true); !m.Reset || !m.Live || m.Revision != "2" || len(m.Rows) != 2 {
		t.Fatalf("snapshot %+v", m)
	}
	f.put("a", "three")
	f.remove("b", "two")
	c.until("a/one", "a/three")
	if c.resets != 1 {
		t.Errorf("%d resets, want 1", c.resets)
	}
}

func TestColumnsThatAViewAsksFor(t *testing.T) {
	f := newFake()
	f.put("a", "one")
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods", Columns: []api.ViewColumn{{Name: "UID", Path: ".uid"}, {Name: "All", Path: "{.cells[*]}"}, {Name: "None", Path: ".none.such"}}})
	if m := c.next(true); len(m.Columns) != 4 || m.Columns[1].Name != "UID" {
		t.Fatalf("columns %+v", m.Columns)
	}
	if m := c.next(true); fmt.Sprint(m.Rows[0].Cells) != "[one 1 a/one one,1 <nil>]" {
		t.Errorf("cells %v", m.Rows[0].Cells)
	}
}

func TestOneSocketManyViews(t *testing.T) {
	f := newFake()
	f.put("a", "one")
	c := dial(t, serve(t, f))
	for id := 1; id <= 3; id++ {
		c.ask(api.Ask{ID: id, Op: "open", View: &api.View{Resource: "pods"}})
	}
	got := map[int]bool{}
	for len(got) < 3 {
		if m := c.next(true); m.Type == "rows" {
			got[m.ID] = true
		}
	}
	c.ask(api.Ask{ID: 2, Op: "close"})
	await(t, "the closed view's watch to end", func() bool { return f.watches() == 2 })
	c.socket.Close()
	await(t, "all watches to end with the connection", func() bool { return f.watches() == 0 })
}

func TestLargeSnapshotComesInParts(t *testing.T) {
	f := newFake()
	for i := range chunk + 5 {
		f.put("a", fmt.Sprint(i))
	}
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods"})
	c.next(true)
	if m := c.next(true); !m.Reset || len(m.Rows) != chunk || m.Revision != "" {
		t.Fatalf("first part: reset %v, %d rows, revision %q", m.Reset, len(m.Rows), m.Revision)
	}
	if m := c.next(true); m.Reset || len(m.Rows) != 5 || m.Revision == "" || !m.Live {
		t.Fatalf("last part: reset %v, %d rows, revision %q", m.Reset, len(m.Rows), m.Revision)
	}
}

func TestResumeSendsOnlyWhatChanged(t *testing.T) {
	f := newFake()
	f.put("a", "one")
	f.put("a", "two") // revision 2: what the client has
	f.put("a", "three")
	url := serve(t, f)

	c := dial(t, url)
	c.ask(api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods"}, Revision: "2"})
	c.until("a/three")
	if c.resets != 0 {
		t.Errorf("resumed with a reset")
	}

	f.change(func() { f.oldest = 3 })
	c = dial(t, url)
	c.ask(api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods"}, Revision: "2"})
	c.until("a/one", "a/two", "a/three")
	if c.resets != 1 {
		t.Errorf("a revision too old gave %d resets, want 1", c.resets)
	}
}

func TestResumeWithoutChangesIsLiveAtOnce(t *testing.T) {
	f := newFake()
	f.put("a", "one")
	c := dial(t, serve(t, f))
	c.ask(api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods"}, Revision: "1"})
	c.next(true)
	if m := c.next(true); m.Type != "rows" || m.Reset || !m.Live || m.Revision != "1" || len(m.Rows) != 0 {
		t.Fatalf("got %+v", m)
	}
}

func TestLostEventsGiveAReset(t *testing.T) {
	f := newFake()
	f.put("a", "one")
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods"})
	c.until("a/one")
	f.change(func() {
		f.epoch++
		f.log = append(f.log, Event{UID: "a/one", Namespace: "a", Gone: true})
	})
	f.put("a", "two")
	c.until("a/two")
	if c.resets != 2 {
		t.Errorf("%d resets, want 2", c.resets)
	}
}

func TestStorageAwayShowsAsNotLive(t *testing.T) {
	f := newFake()
	f.put("a", "one")
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods"})
	c.until("a/one")
	f.change(func() { f.down = true })
	if m := c.next(true); m.Live || m.Reset {
		t.Fatalf("while away: %+v", m)
	}
	if len(c.rows) != 1 {
		t.Fatal("rows went away with storage")
	}
	f.change(func() { f.down = false })
	f.put("a", "two")
	c.until("a/one", "a/two")
	if !c.last.Live || c.resets != 1 {
		t.Errorf("after: live %v, %d resets", c.last.Live, c.resets)
	}
}

func TestSilentClientGetsNoMoreThenAReset(t *testing.T) {
	f := newFake()
	f.put("a", "pod")
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods"})
	c.next(false)
	var m api.Tell
	for range window { // one change a flush, none acknowledged
		m = c.next(false)
		f.put("a", "pod")
	}
	for i := range maxPending + 1 {
		f.put("b", fmt.Sprint(i))
	}
	await(t, "the watch to be dropped", func() bool { return f.watches() == 0 })
	c.ask(api.Ask{ID: 1, Op: "ack", Revision: m.Revision})
	for len(c.rows) != maxPending+2 {
		c.next(true)
	}
	if c.resets != 2 {
		t.Errorf("%d resets, want 2", c.resets)
	}
}

func TestUserSeesTheNamespacesThatTheyMayList(t *testing.T) {
	f := newFake()
	f.allowed = map[string]bool{"a": true, "b": true}
	for _, ns := range []string{"a", "b", "c"} {
		f.put(ns, "x")
	}
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods"})
	c.until("a/x", "b/x")

	c.ask(api.Ask{ID: 2, Op: "open", View: &api.View{Resource: "pods", Namespaces: []string{"c"}}})
	for c.last.Type != "error" {
		c.next(true)
	}
	e := c.last.Error
	if e.Code != 403 || e.Retry || !strings.Contains(e.Message, `User "jane" cannot list resource "pods" in API group "" in the namespace "c"`) {
		t.Errorf("error %+v", e)
	}
	await(t, "only the first view to be open", func() bool { return f.watches() == 1 })
}

func TestRefusals(t *testing.T) {
	f := newFake()
	f.allowed = nil
	for name, test := range map[string]struct {
		ask  api.Ask
		code int
		text string
	}{
		"nothing allowed":  {api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods"}}, 403, `cannot list resource "pods" in API group "" at the cluster scope`},
		"object":           {api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods", Name: "x", Namespaces: []string{"a"}}}, 403, `cannot get resource "pods"`},
		"unknown kind":     {api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "widgets"}}, 404, "widgets"},
		"bad selector":     {api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods", LabelSelector: "=="}}, 400, "label selector"},
		"bad column":       {api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods", Columns: []api.ViewColumn{{Name: "x", Path: ".a["}}}}, 400, "column x"},
		"no view":          {api.Ask{ID: 1, Op: "open"}, 400, "view"},
		"object, no space": {api.Ask{ID: 1, Op: "open", View: &api.View{Resource: "pods", Name: "x"}}, 400, "namespace"},
		"unknown op":       {api.Ask{ID: 1, Op: "dance"}, 400, "dance"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, serve(t, f))
			c.ask(test.ask)
			for c.last.Type != "error" {
				c.next(true)
			}
			if e := c.last.Error; e.Code != test.code || !strings.Contains(e.Message, test.text) {
				t.Errorf("error %+v", e)
			}
		})
	}
}

func TestObjectView(t *testing.T) {
	f := newFake()
	f.put("a", "x")
	f.put("a", "y")
	c := dial(t, serve(t, f))
	c.open(api.View{Resource: "pods", Name: "x", Namespaces: []string{"a"}})
	m := c.next(true)
	if m.Type != "object" || !strings.Contains(string(m.Object), `"x"`) || !m.Live {
		t.Fatalf("object %+v", m)
	}
	f.remove("a", "x")
	if m = c.next(true); len(m.Gone) != 1 || m.Object != nil {
		t.Fatalf("after deletion %+v", m)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	url := serve(t, newFake())
	_, answer, err := websocket.DefaultDialer.Dial(url, nil)
	if err == nil || answer.StatusCode != 401 {
		t.Errorf("no user: %v, %v", answer, err)
	}
	_, answer, err = websocket.DefaultDialer.Dial(url, http.Header{"X-User": {"jane"}, "Origin": {"https://evil.example"}})
	if err == nil || answer.StatusCode != 403 {
		t.Errorf("other origin: %v, %v", answer, err)
	}
}

func (f *fakeSource) watches() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// await polls, for what no message tells.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}
