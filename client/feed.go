package client

import (
	"context"
	"errors"
	"time"

	"orrery.dev/api"
)

// Feed gives views of the cluster as they change. Stream is it outside of tests.
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

// ErrNoRows is what Dial fails with when the server does not speak the row
// protocol, at least not to this user.
var ErrNoRows = errors.New("the server does not speak the row protocol")

// linkNow ages a link: what is away for long is stale.
func linkNow(l Link, now time.Time) Link {
	if l.State == LinkReconnecting && now.Sub(l.Since) > staleAfter {
		l.State = LinkStale
	}
	return l
}
