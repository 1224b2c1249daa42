package stream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/api"
)

const (
	// window is how many messages of a subscription may be unacknowledged.
	window = 8
	// A client that is behind by more than this gets a new snapshot instead.
	maxPending = 20000
	maxBehind  = 5 * time.Second
	// recheck is how soon a change of permissions shows.
	recheck = 10 * time.Second
	// quiet is how often a view without changes shows that time goes on.
	quiet = 5 * time.Second
)

var (
	errScope = errors.New("permissions changed")
	errSlow  = errors.New("client does not acknowledge")
)

// subscription is one open view of a connection.
type subscription struct {
	id     int
	guard  guard
	chosen Selection
	wake   func()        // tells the connection's writer that there is something to take
	acked  chan struct{} // one slot: the window is open again

	mu      sync.Mutex // protects the fields below
	pending pending
	unacked []string  // revisions of the messages in flight
	blocked time.Time // since when the window is full; zero: it is not
	told    time.Time // when the last message was taken
	failed  *api.Error
}

func newSubscription(id int, g guard, wake func()) (*subscription, error) {
	s := &subscription{id: id, guard: g, wake: wake, acked: make(chan struct{}, 1)}
	var err error
	if s.chosen.Labels, err = labels.Parse(g.view.LabelSelector); err != nil {
		return nil, apierrors.NewBadRequest("label selector: " + err.Error())
	}
	if s.chosen.Fields, err = fields.ParseSelector(g.view.FieldSelector); err != nil {
		return nil, apierrors.NewBadRequest("field selector: " + err.Error())
	}
	s.chosen.Name = g.view.Name
	return s, nil
}

// run follows the view until ctx ends or the view is refused. revision is what
// the client has from an earlier connection, or "".
func (s *subscription) run(ctx context.Context, revision string) {
	pause := 100 * time.Millisecond
	for {
		started := time.Now()
		err := s.follow(ctx, revision)
		if ctx.Err() != nil {
			return
		}
		revision = ""
		switch {
		case errors.Is(err, errScope), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			continue
		case errors.Is(err, errSlow):
			select {
			case <-s.acked:
				continue
			case <-ctx.Done():
				return
			}
		case final(err):
			s.fail(err)
			return
		}
		// Storage is away. What the client shows stays, marked as stale.
		revision = s.stale()
		if time.Since(started) > recheck {
			pause = 100 * time.Millisecond
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 2*time.Second)
		case <-ctx.Done():
			return
		}
	}
}

// follow watches once, from revision or from scratch.
func (s *subscription) follow(ctx context.Context, revision string) error {
	allowed, err := s.guard.scope(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { s.watchScope(ctx, allowed, cancel) })

	w, err := s.guard.source.Watch(ctx, s.guard.kind, s.selection(allowed), revision)
	if err != nil {
		return cause(ctx, err)
	}
	s.start(revision)
	for {
		b, err := w.Next(ctx)
		if err != nil {
			return cause(ctx, err)
		}
		if err := s.add(b, allowed); err != nil {
			return err
		}
	}
}

// selection restricts the watch itself where it can be.
func (s *subscription) selection(allowed scope) Selection {
	sel := s.chosen
	switch {
	case sel.Name != "" && s.guard.kind.Namespaced && len(s.guard.view.Namespaces) > 0:
		sel.Namespaces = s.guard.view.Namespaces
	case !allowed.all:
		sel.Namespaces = allowed.namespaces
	}
	return sel
}

// watchScope ends the watch when the user may see more or less than before.
func (s *subscription) watchScope(ctx context.Context, was scope, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := s.guard.scope(ctx)
		if ctx.Err() == nil && (apierrors.IsForbidden(err) || err == nil && !now.equal(was)) {
			cancel(errScope)
			return
		}
	}
}

func (s *subscription) start(revision string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == "" {
		s.pending.begin()
		return
	}
	s.pending.resume(revision)
	s.wake()
}

func (s *subscription) add(b Batch, allowed scope) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending.add(b, allowed.has)
	if len(b.Events) == 0 && !b.Synced && time.Since(s.told) > quiet {
		s.pending.notice = true
	}
	behind := !s.blocked.IsZero() && (len(s.pending.changes) > maxPending || time.Since(s.blocked) > maxBehind)
	if behind && len(s.pending.changes) > 0 {
		s.pending = pending{}
		return errSlow
	}
	if !s.pending.empty() {
		s.wake()
	}
	return nil
}

// stale marks the view and returns the revision to go on from.
func (s *subscription) stale() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending.loading {
		return ""
	}
	s.pending.stale()
	s.wake()
	return s.pending.revision
}

func (s *subscription) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = asError(err)
	s.wake()
}

// take returns the next message, if there is one and the client may have it.
// done is true after the last message of all.
func (s *subscription) take() (t tell, ok, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return tell{ID: s.id, Type: "error", Error: s.failed}, true, true
	}
	if s.pending.empty() || !s.blocked.IsZero() {
		return tell{}, false, false
	}
	var err error
	if s.guard.view.Name != "" {
		t, err = s.pending.object(s.guard.kind.Whole)
	} else {
		t, err = s.pending.rows(s.guard.kind.Row)
	}
	if err != nil {
		return tell{ID: s.id, Type: "error", Error: asError(err)}, true, true
	}
	t.ID, s.told = s.id, time.Now()
	if t.Revision != "" {
		s.unacked = append(s.unacked, t.Revision)
		if len(s.unacked) >= window {
			s.blocked = time.Now()
		}
	}
	return t, true, false
}

// ack opens the window: everything up to the last message of that revision has
// arrived.
func (s *subscription) ack(revision string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.unacked) - 1; i >= 0; i-- {
		if s.unacked[i] == revision {
			s.unacked = s.unacked[i+1:]
			break
		}
	}
	if s.blocked.IsZero() || len(s.unacked) >= window {
		return
	}
	s.blocked = time.Time{}
	select {
	case s.acked <- struct{}{}:
	default:
	}
	s.wake()
}

// cause prefers the reason for which ctx was cancelled to what the watch made
// of it.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// final reports whether asking again would get the same answer.
func final(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

func asError(err error) *api.Error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		st := status.Status()
		return &api.Error{Code: int(st.Code), Message: st.Message, Retry: !final(err)}
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &api.Error{Code: http.StatusBadRequest, Message: err.Error()}
	}
	return &api.Error{Code: http.StatusInternalServerError, Message: err.Error(), Retry: true}
}
