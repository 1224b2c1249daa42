package storage

import (
	"context"
	"sync"
	"time"
)

// revisionReader asks etcd for its revision on behalf of everyone who wants to
// know it. A reader may share only a question that was put after it came, so
// whoever comes while one is under way waits for the next. Each waits as long as
// its own time lasts.
type revisionReader struct {
	ask func(context.Context) (int64, error)

	mu   sync.Mutex // protects next, and how many wait for each question
	next *question
	turn chan struct{} // holds the right to ask
}

type question struct {
	waiting  int
	drop     context.CancelFunc
	done     chan struct{}
	revision int64
	err      error
}

// askPatience is how long a question without an answer keeps the next one from being
// put: it may have been lost.
const askPatience = 5 * time.Second

func newRevisionReader(ask func(context.Context) (int64, error)) *revisionReader {
	return &revisionReader{ask: ask, turn: make(chan struct{}, 1)}
}

func (r *revisionReader) read(ctx context.Context) (int64, error) {
	q := r.join(ctx)
	select {
	case <-q.done:
		return q.revision, q.err
	case <-ctx.Done():
		r.leave(q)
		return 0, ctx.Err()
	}
}

// join waits for the next question. It outlives its first asker, as others depend on
// the answer, but not the last.
func (r *revisionReader) join(ctx context.Context) *question {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		ctx, drop := context.WithCancel(context.WithoutCancel(ctx))
		r.next = &question{done: make(chan struct{}), drop: drop}
		go r.put(ctx, r.next)
	}
	r.next.waiting++
	return r.next
}

func (r *revisionReader) leave(q *question) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.waiting--; q.waiting > 0 {
		return
	}
	q.drop()
	if r.next == q {
		r.next = nil
	}
}

// put asks when it is its turn.
func (r *revisionReader) put(ctx context.Context, q *question) {
	defer q.drop()
	defer close(q.done)
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		q.err = ctx.Err()
		return
	}
	pass := sync.OnceFunc(func() { <-r.turn })
	defer pass()
	defer time.AfterFunc(askPatience, pass).Stop()
	r.mu.Lock()
	if r.next == q {
		r.next = nil
	}
	r.mu.Unlock()
	q.revision, q.err = r.ask(ctx)
}
