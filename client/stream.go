package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	wstransport "k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"

	"orrery.dev/api"
)

const (
	dialWithin = 10 * time.Second
	// The server sends something every ten seconds; silence for longer than
	// this means that the connection is half open.
	silentFor  = 22 * time.Second
	writeIn    = 10 * time.Second
	reopenWait = 2 * time.Second
)

// Dial opens a websocket that speaks the row protocol, with the credentials,
// proxy and trust of cfg. The error is ErrNoRows when there is nobody to speak
// it with.
func Dial(ctx context.Context, cfg *rest.Config) (*websocket.Conn, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	base.Path = strings.TrimSuffix(base.Path, "/") + api.StreamPath
	wrapped, socket, err := wstransport.RoundTripperFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), nil)
	if err != nil {
		return nil, err
	}
	conn, err := wstransport.Negotiate(wrapped, socket, req, api.StreamProtocol)
	if err != nil {
		return nil, dialError(err)
	}
	return conn, nil
}

// dialError tells a server that has no row protocol, which answers the request
// as any other, from one that is in trouble.
func dialError(err error) error {
	var refused *httpstream.UpgradeFailureError
	if !errors.As(err, &refused) {
		return err
	}
	var status apierrors.APIStatus
	code := 0
	if errors.As(refused.Cause, &status) {
		code = int(status.Status().Code)
	}
	text := refused.Cause.Error()
	switch {
	case code == http.StatusNotFound, code == http.StatusForbidden,
		code == 0 && (strings.Contains(text, "(404") || strings.Contains(text, "(403") || strings.Contains(text, "invalid protocol")):
		return fmt.Errorf("%w: %w", ErrNoRows, refused.Cause)
	}
	return refused.Cause
}

// Stream is the client of the row protocol: one websocket, many views. It
// connects again when the connection breaks, and resumes each view from the
// revision that was applied last.
type Stream struct {
	config  *rest.Config
	instead http.Handler // serves the protocol where the server does not; may be nil
	foreign bool         // it is what we use
	changed func()

	mu    sync.Mutex // protects the fields below
	link  Link
	next  int
	views map[int]*streamView
	queue []api.Ask     // not yet written
	woken chan struct{} // one slot: the writer has something to do
}

type streamView struct {
	view api.View
	tell func(api.Tell)
	// revision is what has been applied; empty while a reset is half applied,
	// because then there is nothing to resume from.
	revision string
	reopen   time.Time // when to ask again after an error, zero if open
}

// NewStream makes the client; Run connects it. If the server does not speak the
// protocol, instead does, in this process. changed, if set, is called when the
// link's state changes and must not block.
func NewStream(cfg *rest.Config, instead http.Handler, changed func()) *Stream {
	if changed == nil {
		changed = func() {}
	}
	return &Stream{config: cfg, instead: instead, changed: changed, views: map[int]*streamView{}, woken: make(chan struct{}, 1),
		link: Link{State: LinkConnecting, Since: time.Now()}}
}

// Open implements Feed.
func (s *Stream) Open(view api.View, tell func(api.Tell)) (closeView func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	id := s.next
	s.views[id] = &streamView{view: view, tell: tell}
	s.askLocked(api.Ask{ID: id, Op: "open", View: &view})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.views[id] != nil {
			delete(s.views, id)
			s.askLocked(api.Ask{ID: id, Op: "close"})
		}
	}
}

// Link implements Feed.
func (s *Stream) Link() Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return linkNow(s.link, time.Now())
}

// Run implements Feed. It returns ErrNoRows if there is nobody to speak the
// protocol with.
func (s *Stream) Run(ctx context.Context) error {
	known := false
	wait := backoffFrom
	var inside sync.WaitGroup
	defer inside.Wait()
	for {
		socket, err := s.connect(ctx, &inside)
		if err == nil {
			known, wait = true, backoffFrom
			err = s.serve(ctx, socket)
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrNoRows) && !known {
			return err
		}
		s.lost(err)
		jitter := time.Duration(rand.Int64N(int64(wait/2) + 1))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait + jitter):
		}
		wait = min(2*wait, backoffTo)
	}
}

func (s *Stream) connect(ctx context.Context, inside *sync.WaitGroup) (*websocket.Conn, error) {
	if !s.foreign {
		socket, err := Dial(ctx, s.config)
		s.foreign = errors.Is(err, ErrNoRows) && s.instead != nil
		if !s.foreign {
			return socket, err
		}
	}
	return dialInside(ctx, s.instead, s.config.Impersonate, inside)
}

// lost notes why there is no connection; the moment it went stays.
func (s *Stream) lost(err error) {
	s.mu.Lock()
	if s.link.State == LinkLive {
		s.link.State, s.link.Since = LinkReconnecting, time.Now()
	}
	s.link.Err = err
	s.mu.Unlock()
	s.changed()
}

// serve uses one connection until it breaks or ctx ends.
func (s *Stream) serve(ctx context.Context, socket *websocket.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	// Closing the socket is what wakes the reader.
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()

	s.mu.Lock()
	s.link = Link{State: LinkLive, Since: time.Now()}
	s.queue = s.queue[:0] // was for the connection before
	for id, v := range s.views {
		s.openAgainLocked(id, v)
	}
	s.mu.Unlock()
	s.changed()

	work.Go(func() {
		defer cancel()
		s.write(ctx, socket)
	})
	err := s.read(socket)
	if errors.Is(err, io.EOF) || websocket.IsCloseError(err, websocket.CloseGoingAway) {
		err = errors.New("the server ended the connection")
	}
	return err
}

func (s *Stream) openAgainLocked(id int, v *streamView) {
	v.reopen = time.Time{}
	view := v.view
	s.askLocked(api.Ask{ID: id, Op: "open", View: &view, Revision: v.revision})
}

func (s *Stream) read(socket *websocket.Conn) error {
	alive := func() { _ = socket.SetReadDeadline(time.Now().Add(silentFor)) }
	socket.SetPingHandler(func(text string) error {
		alive()
		err := socket.WriteControl(websocket.PongMessage, []byte(text), time.Now().Add(writeIn))
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})
	for {
		alive()
		_, data, err := socket.ReadMessage()
		if err != nil {
			return err
		}
		var tell api.Tell
		if err := json.Unmarshal(data, &tell); err != nil {
			return fmt.Errorf("message of the server: %w", err)
		}
		if tell.Type == "error" && tell.ID == 0 {
			return errors.New(tell.Error.Message)
		}
		s.apply(tell)
	}
}

// apply hands a message to its view, notes where the view stands, and
// acknowledges.
func (s *Stream) apply(tell api.Tell) {
	s.mu.Lock()
	v := s.views[tell.ID]
	if v == nil { // a ping, or closed meanwhile
		s.mu.Unlock()
		return
	}
	switch {
	case tell.Type == "error" && tell.Error != nil:
		v.revision = ""
		if tell.Error.Retry {
			v.reopen = time.Now().Add(reopenWait)
		}
	case tell.Revision != "":
		v.revision = tell.Revision
	case tell.Reset:
		v.revision = ""
	}
	s.mu.Unlock()

	v.tell(tell)

	if tell.Revision != "" {
		s.mu.Lock()
		s.askLocked(api.Ask{ID: tell.ID, Op: "ack", Revision: tell.Revision})
		s.mu.Unlock()
	}
}

func (s *Stream) askLocked(a api.Ask) {
	if s.link.State != LinkLive {
		return // all views are opened anew with the next connection
	}
	s.queue = append(s.queue, a)
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// write sends what is asked, and asks again for views that the server could not
// serve for a while.
func (s *Stream) write(ctx context.Context, socket *websocket.Conn) {
	tick := time.NewTicker(reopenWait / 2)
	defer tick.Stop()
	for {
		s.mu.Lock()
		for id, v := range s.views {
			if !v.reopen.IsZero() && time.Now().After(v.reopen) {
				s.openAgainLocked(id, v)
			}
		}
		queue := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, ask := range queue {
			_ = socket.SetWriteDeadline(time.Now().Add(writeIn))
			if err := socket.WriteJSON(ask); err != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.woken:
		case <-tick.C:
		}
	}
}
