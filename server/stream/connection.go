package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
)

const (
	flushEvery = 100 * time.Millisecond
	pingEvery  = 10 * time.Second
	// A peer that answers no ping for this long, or takes no bytes, is gone.
	readWait  = 3 * pingEvery
	writeWait = 10 * time.Second
	// A connection ends after about this long, so that the client, which
	// resumes at once, is authenticated again.
	maxAge = 30 * time.Minute

	maxSubscriptions = 64
	maxMessage       = 64 << 10
	maxQueue         = 1000 // answers to messages that are not taken
	compressFrom     = 4 << 10
)

var (
	errAge  = errors.New("connection is old")
	errDeaf = errors.New("client asks and does not listen")
)

// connection is one client. Its reader is run itself; the writer and the
// subscriptions are goroutines that run waits for.
type connection struct {
	config Config
	user   user.Info
	socket *websocket.Conn
	woken  chan struct{} // one slot: the writer has something to do
	work   sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	subs  map[int]*openView
	queue []tell // messages that belong to no pending change
}

type openView struct {
	*subscription
	cancel context.CancelFunc
}

func newConnection(c Config, who user.Info, socket *websocket.Conn) *connection {
	return &connection{config: c, user: who, socket: socket,
		woken: make(chan struct{}, 1), subs: map[int]*openView{}}
}

func (c *connection) run(ctx context.Context) error {
	age := maxAge + time.Duration(rand.Int64N(int64(maxAge/10)))
	ctx, cancel := context.WithTimeoutCause(ctx, age, errAge)
	defer c.work.Wait()
	defer cancel()
	// Closing the socket is what wakes a reader.
	stop := context.AfterFunc(ctx, func() { c.goodbye(); c.socket.Close() })
	defer stop()

	c.work.Go(func() {
		defer cancel()
		c.write(ctx)
	})
	return c.read(ctx)
}

// read handles what the client asks until the connection breaks.
func (c *connection) read(ctx context.Context) error {
	c.socket.SetReadLimit(maxMessage)
	alive := func(string) error { return c.socket.SetReadDeadline(time.Now().Add(readWait)) }
	c.socket.SetPongHandler(alive)
	for {
		if err := alive(""); err != nil {
			return err
		}
		_, data, err := c.socket.ReadMessage()
		if err != nil {
			return err
		}
		if err := c.receive(ctx, data); err != nil {
			return err
		}
	}
}

// receive handles one message. It fails if the client asks without ever listening.
func (c *connection) receive(ctx context.Context, data []byte) error {
	var ask api.Ask
	if err := json.Unmarshal(data, &ask); err != nil {
		c.send(tell{Type: "error", Error: &api.Error{Code: http.StatusBadRequest, Message: "not a message of " + api.StreamProtocol + ": " + err.Error()}})
	} else {
		c.handle(ctx, ask)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) >= maxQueue {
		return errDeaf
	}
	return nil
}

func (c *connection) handle(ctx context.Context, ask api.Ask) {
	switch ask.Op {
	case "open":
		if err := c.open(ctx, ask); err != nil {
			c.send(tell{ID: ask.ID, Type: "error", Error: asError(err)})
		}
	case "ack":
		c.mu.Lock()
		sub := c.subs[ask.ID]
		c.mu.Unlock()
		if sub != nil {
			sub.ack(ask.Revision)
		}
	case "close":
		c.forget(ask.ID)
	default:
		c.send(tell{ID: ask.ID, Type: "error", Error: asError(apierrors.NewBadRequest(fmt.Sprintf("unknown op %q: want open, ack or close", ask.Op)))})
	}
}

func (c *connection) open(ctx context.Context, ask api.Ask) error {
	if ask.ID <= 0 || ask.View == nil || ask.View.Resource == "" {
		return apierrors.NewBadRequest("open needs an id above 0 and a view with a resource")
	}
	kind, err := c.config.Source.Kind(*ask.View)
	if err != nil {
		return err
	}
	if kind, err = withColumns(kind, ask.View.Columns); err != nil {
		return err
	}
	g := guard{source: c.config.Source, authorizer: c.config.Authorizer, user: c.user, kind: kind, view: *ask.View}
	if !kind.Namespaced {
		g.view.Namespaces = nil
	}
	if kind.Namespaced && g.view.Name != "" && len(g.view.Namespaces) != 1 {
		return apierrors.NewBadRequest("a view of one object needs its namespace")
	}
	sub, err := newSubscription(ask.ID, g, c.wake)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.subs[ask.ID] != nil:
		cancel()
		return apierrors.NewBadRequest(fmt.Sprintf("id %d is open already", ask.ID))
	case len(c.subs) >= maxSubscriptions:
		cancel()
		return apierrors.NewTooManyRequests(fmt.Sprintf("at most %d views on one connection", maxSubscriptions), 1)
	}
	c.subs[ask.ID] = &openView{sub, cancel}
	if ask.View.Name == "" {
		c.queue = append(c.queue, tell{ID: ask.ID, Type: "columns", Columns: kind.Columns})
	}
	c.work.Go(func() { sub.run(ctx, ask.Revision) })
	return nil
}

func (c *connection) forget(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub := c.subs[id]; sub != nil {
		sub.cancel()
		delete(c.subs, id)
	}
}

func (c *connection) send(t tell) {
	c.mu.Lock()
	c.queue = append(c.queue, t)
	c.mu.Unlock()
	c.wake()
}

// wake never blocks, and may be called with a subscription's lock held.
func (c *connection) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// write flushes what there is, at most once every flushEvery.
func (c *connection) write(ctx context.Context) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
			err = c.ping()
		case <-c.woken:
			err = c.flush()
			pause.Reset(flushEvery)
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *connection) ping() error {
	if err := c.socket.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeWait)); err != nil {
		return err
	}
	// Scripts in a browser don't see a ping frame; this they see.
	return c.put(tell{Type: "ping"})
}

func (c *connection) flush() error {
	queue, subs := c.waiting()
	for _, t := range queue {
		if err := c.put(t); err != nil {
			return err
		}
	}
	for _, sub := range subs {
		for {
			t, ok, done := sub.take()
			if !ok {
				break
			}
			if err := c.put(t); err != nil {
				return err
			}
			if done {
				c.forget(sub.id)
				break
			}
		}
	}
	return nil
}

// waiting takes the queue, and tells which subscriptions may have something.
func (c *connection) waiting() ([]tell, []*subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.queue
	c.queue = nil
	ids := slices.Sorted(maps.Keys(c.subs))
	subs := make([]*subscription, len(ids))
	for i, id := range ids {
		subs[i] = c.subs[id].subscription
	}
	return queue, subs
}

func (c *connection) put(t tell) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	c.socket.EnableWriteCompression(len(data) >= compressFrom)
	if err := c.socket.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	return c.socket.WriteMessage(websocket.TextMessage, data)
}

func (c *connection) goodbye() {
	message := websocket.FormatCloseMessage(websocket.CloseGoingAway, "resume")
	_ = c.socket.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second))
}
