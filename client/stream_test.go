package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
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
	stream := NewStream(s.config(), nil, nil)
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
	stream := NewStream(s.config(), nil, nil)
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

func TestStreamInsideTheProcess(t *testing.T) {
	outside := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(outside.Close)
	sockets := make(chan *websocket.Conn, 4)
	away := true
	up := websocket.Upgrader{Subprotocols: []string{api.StreamProtocol}}
	asked := make(chan http.Header, 4)
	jane := rest.ImpersonationConfig{UserName: "jane", Groups: []string{"devs", "ops"}}
	stream := NewStream(&rest.Config{Host: outside.URL, Impersonate: jane}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away {
			away = false
			http.Error(w, "the API server is away", http.StatusBadGateway)
			return
		}
		asked <- r.Header
		if socket, err := up.Upgrade(w, r, nil); err == nil {
			sockets <- socket
			<-r.Context().Done()
		}
	}), nil)
	told := make(chan api.Tell, 16)
	stream.Open(api.View{Resource: "pods"}, func(m api.Tell) { told <- m })
	start(t, stream)
	c := <-sockets
	if h := <-asked; h.Get("Impersonate-User") != "jane" || !slices.Equal(h.Values("Impersonate-Group"), jane.Groups) {
		t.Errorf("asks as %v", h)
	}
	if a := ask(t, c); a.Op != "open" || a.View.Resource != "pods" {
		t.Fatalf("first ask %+v", a)
	}
	say(t, c, api.Tell{ID: 1, Type: "rows", Reset: true, Rows: []api.Row{{UID: "a"}}, Revision: "7", Live: true})
	if m := next(t, told); len(m.Rows) != 1 {
		t.Fatalf("told %+v", m)
	}
	if got := stream.Link().State; got != LinkLive {
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
