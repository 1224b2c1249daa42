package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"orrery.dev/api"
)

// Feed gives views of the cluster as they change. Its two forms are Stream, the
// row protocol of our own API server, and Tables, which makes the same out of
// any Kubernetes API server's tables and watches.
type Feed interface {
	// Open starts a view. tell is called with each message in turn, never
	// concurrently, on a goroutine of the feed, and must not block. The view
	// lives through broken connections until close is called or the feed ends.
	Open(view api.View, tell func(api.Tell)) (close func())
	// Link says how the connection does.
	Link() Link
	// Run feeds the views until ctx ends; it returns when all goroutines that
	// the feed started have ended.
	Run(ctx context.Context) error
}

// LinkState is what a face shows beside its data.
type LinkState string

// The states of a link. Stale means that it is away for so long that what is on
// screen should not be trusted any more.
const (
	LinkConnecting   LinkState = "connecting"
	LinkLive         LinkState = "live"
	LinkReconnecting LinkState = "reconnecting"
	LinkStale        LinkState = "stale"
)

// Link is the state of a feed's connection.
type Link struct {
	State LinkState
	Since time.Time // when it came to be live, or stopped to be
	Err   error     // why it is not live
}

const (
	staleAfter  = 15 * time.Second
	backoffFrom = 100 * time.Millisecond
	backoffTo   = 3 * time.Second
)

// ErrNoRows is returned by Stream.Run when the server does not speak the row
// protocol, at least not to this user.
var ErrNoRows = errors.New("the server does not speak the row protocol")

// NewFeed returns a feed that fits the server, which it finds out when it runs:
// the row protocol if the server speaks it, else tables. changed, if set, is
// called when the link's state changes and must not block.
func NewFeed(cfg *rest.Config, changed func()) Feed {
	if changed == nil {
		changed = func() {}
	}
	return &anyFeed{config: cfg, changed: changed, link: Link{State: LinkConnecting, Since: time.Now()}}
}

type anyFeed struct {
	config  *rest.Config
	changed func()

	mu      sync.Mutex // protects the fields below
	feed    Feed       // nil until the server has answered
	link    Link
	waiting []*early
}

// early is a view opened before there was a feed to open it with.
type early struct {
	view   api.View
	tell   func(api.Tell)
	close  func()
	closed bool
}

// Open implements Feed.
func (f *anyFeed) Open(view api.View, tell func(api.Tell)) (closeView func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.feed != nil {
		return f.feed.Open(view, tell)
	}
	e := &early{view: view, tell: tell}
	f.waiting = append(f.waiting, e)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		e.closed = true
		if e.close != nil {
			e.close()
		}
	}
}

// Link implements Feed.
func (f *anyFeed) Link() Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.feed != nil {
		return f.feed.Link()
	}
	return linkNow(f.link, time.Now())
}

// Run implements Feed.
func (f *anyFeed) Run(ctx context.Context) error {
	feed, err := f.choose(ctx)
	if err != nil || feed == nil {
		return err
	}
	f.mu.Lock()
	f.feed = feed
	for _, e := range f.waiting {
		if !e.closed {
			e.close = feed.Open(e.view, e.tell)
		}
	}
	f.waiting = nil
	f.mu.Unlock()
	return feed.Run(ctx)
}

// choose asks until the server answers; it returns nil when ctx ends first.
func (f *anyFeed) choose(ctx context.Context) (Feed, error) {
	for wait := backoffFrom; ; wait = min(2*wait, backoffTo) {
		socket, err := Dial(ctx, f.config)
		if err == nil {
			s := NewStream(f.config, f.changed)
			s.first = socket
			return s, nil
		}
		if errors.Is(err, ErrNoRows) {
			return NewTables(f.config, f.changed)
		}
		f.mu.Lock()
		f.link.Err = err
		f.mu.Unlock()
		f.changed()
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(wait):
		}
	}
}

// linkNow ages a link: what is away for long is stale.
func linkNow(l Link, now time.Time) Link {
	if l.State == LinkReconnecting && now.Sub(l.Since) > staleAfter {
		l.State = LinkStale
	}
	return l
}
