package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
)

// rowServer speaks the server's side of the protocol by hand: a test takes each
// connection and each ask as it comes.
type rowServer struct {
	*httptest.Server
	sockets chan *websocket.Conn
	auth    chan string
}

func newRowServer(t *testing.T) *rowServer {
	t.Helper()
	s := &rowServer{sockets: make(chan *websocket.Conn, 4), auth: make(chan string, 16)}
	up := websocket.Upgrader{Subprotocols: []string{api.StreamProtocol}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != api.StreamPath {
			http.NotFound(w, r)
			return
		}
		s.auth <- r.Header.Get("Authorization")
		socket, err := up.Upgrade(w, r, nil)
		if err == nil {
			s.sockets <- socket
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *rowServer) config() *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func (s *rowServer) accept(t *testing.T) *websocket.Conn {
	t.Helper()
	select {
	case c := <-s.sockets:
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(time.Minute):
		t.Fatal("no connection came")
		return nil
	}
}

func ask(t *testing.T, c *websocket.Conn) api.Ask {
	t.Helper()
	var a api.Ask
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if err := c.ReadJSON(&a); err != nil {
		t.Fatalf("read an ask: %v", err)
	}
	return a
}

func say(t *testing.T, c *websocket.Conn, m api.Tell) {
	t.Helper()
	if err := c.WriteJSON(m); err != nil {
		t.Fatal(err)
	}
}

// start runs a feed until the test ends, and checks that it ends.
func start(t *testing.T, f Feed) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); work.Wait() })
}

func next(t *testing.T, from chan api.Tell) api.Tell {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
		return api.Tell{}
	}
}

func TestStreamResumesWhereItWas(t *testing.T) {
	s := newRowServer(t)
	stream := NewStream(s.config(), nil)
	told := make(chan api.Tell, 16)
	stream.Open(api.View{Resource: "pods"}, func(m api.Tell) { told <- m })
	start(t, stream)

	c := s.accept(t)
	if got := <-s.auth; got != "Bearer secret" {
		t.Errorf("credentials %q", got)
	}
	if a := ask(t, c); a.Op != "open" || a.View.Resource != "pods" || a.Revision != "" {
		t.Fatalf("first ask %+v", a)
	}
	say(t, c, api.Tell{ID: 1, Type: "rows", Reset: true, Rows: []api.Row{{UID: "a"}}, Revision: "7", Live: true})
	if m := next(t, told); !m.Reset || len(m.Rows) != 1 {
		t.Fatalf("told %+v", m)
	}
	if a := ask(t, c); a.Op != "ack" || a.Revision != "7" {
		t.Fatalf("ask %+v, want an ack of 7", a)
	}
	if got := stream.Link().State; got != LinkLive {
		t.Errorf("link %s", got)
	}
	c.Close()

	c = s.accept(t)
	if a := ask(t, c); a.Op != "open" || a.Revision != "7" {
		t.Fatalf("after the break %+v, want to resume from 7", a)
	}
	// Half a snapshot is nothing to resume from.
	say(t, c, api.Tell{ID: 1, Type: "rows", Reset: true, Rows: []api.Row{{UID: "b"}}})
	next(t, told)
	c.Close()
	c = s.accept(t)
	if a := ask(t, c); a.Op != "open" || a.Revision != "" {
		t.Fatalf("after half a snapshot %+v, want a whole one", a)
	}
}

func TestStreamAsksAgainForWhatMayComeBack(t *testing.T) {
	s := newRowServer(t)
	stream := NewStream(s.config(), nil)
	told := make(chan api.Tell, 16)
	closeView := stream.Open(api.View{Resource: "widgets"}, func(m api.Tell) { told <- m })
	start(t, stream)
	c := s.accept(t)
	ask(t, c)
	say(t, c, api.Tell{ID: 1, Type: "error", Error: &api.Error{Code: 503, Retry: true}})
	if m := next(t, told); m.Error == nil || m.Error.Code != 503 {
		t.Fatalf("told %+v", m)
	}
	if a := ask(t, c); a.Op != "open" || a.ID != 1 {
		t.Fatalf("ask %+v, want the view opened again", a)
	}
	closeView()
	if a := ask(t, c); a.Op != "close" || a.ID != 1 {
		t.Fatalf("ask %+v, want close", a)
	}
}

func TestFeedFallsBackToTables(t *testing.T) {
	mux := http.NewServeMux()
	table := `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"columnDefinitions":[{"name":"Name","type":"string"},{"name":"Status","type":"string"},{"name":"Age","type":"string"}],"rows":[%s]}`
	row := `{"cells":["one","CrashLoopBackOff","5m"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"one","namespace":"a","uid":"u1","resourceVersion":"%d","creationTimestamp":"2026-01-02T03:04:05Z"}}}`
	over := make(chan struct{})
	mux.HandleFunc("/api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, table, fmt.Sprintf(row, 5))
			return
		}
		if got := r.URL.Query().Get("resourceVersion"); got != "5" && got != "6" {
			t.Errorf("watch from %q", got)
		}
		fmt.Fprintf(w, `{"type":"DELETED","object":`+table+`}`, fmt.Sprintf(row, 6))
		w.(http.Flusher).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(over) })
	f := NewFeed(&rest.Config{Host: s.URL}, nil)
	told := make(chan api.Tell, 16)
	f.Open(api.View{Resource: "pods"}, func(m api.Tell) { told <- m })
	start(t, f)
	if m := next(t, told); m.Type != "columns" || m.Columns[2].Type != "age" {
		t.Fatalf("told %+v, want columns", m)
	}
	m := next(t, told)
	if !m.Reset || m.Revision != "5" || len(m.Rows) != 1 || m.Rows[0].State != api.StateError || m.Rows[0].Cells[2] != "2026-01-02T03:04:05Z" {
		t.Fatalf("snapshot %+v", m)
	}
	if m := next(t, told); len(m.Gone) != 1 || m.Gone[0] != "u1" || m.Revision != "6" {
		t.Fatalf("change %+v", m)
	}
	if got := f.Link().State; got != LinkLive {
		t.Errorf("link %s", got)
	}
}

func TestNoRowProtocolIsNotAnOutage(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if _, err := Dial(context.Background(), &rest.Config{Host: s.URL}); !errors.Is(err, ErrNoRows) {
		t.Errorf("404 gives %v", err)
	}
	s.Close()
	if _, err := Dial(context.Background(), &rest.Config{Host: s.URL}); err == nil || errors.Is(err, ErrNoRows) {
		t.Errorf("nobody there gives %v", err)
	}
}

func TestLinkGoesStale(t *testing.T) {
	now := time.Now()
	l := Link{State: LinkReconnecting, Since: now.Add(-time.Minute)}
	if got := linkNow(l, now).State; got != LinkStale {
		t.Errorf("after a minute: %s", got)
	}
	l.Since = now
	if got := linkNow(l, now).State; got != LinkReconnecting {
		t.Errorf("at once: %s", got)
	}
}
