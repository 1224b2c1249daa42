package storage

import (
	"context"
	"sync"
	"time"
)

// revisionReader asks etcd for its revision on behalf of everyone who wants to
// know it. A reader may share only a question that was put after it came, so
// whoever comes while one is under way waits for the next.
type revisionReader struct {
	ask func(context.Context) (int64, error)

	mu   sync.Mutex // protects next
	next *question
	turn chan struct{} // holds the right to ask
}

type question struct {
	done     chan struct{}
	revision int64
	err      error
}

// askTimeout ends a question whose first asker may have gone long ago.
const askTimeout = 5 * time.Second

func newRevisionReader(ask func(context.Context) (int64, error)) *revisionReader {
	return &revisionReader{ask: ask, turn: make(chan struct{}, 1)}
}

func (r *revisionReader) read(ctx context.Context) (int64, error) {
	r.mu.Lock()
	q := r.next
	mine := q == nil
	if mine {
		q = &question{done: make(chan struct{})}
		r.next = q
	}
	r.mu.Unlock()
	if mine {
		r.put(ctx, q)
	}
	select {
	case <-q.done:
		return q.revision, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// put asks when it is its turn. Others depend on the answer, so the first
// asker's end does not end the question.
func (r *revisionReader) put(ctx context.Context, q *question) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	defer close(q.done)
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		q.err = ctx.Err()
	}
	r.mu.Lock()
	r.next = nil
	r.mu.Unlock()
	if q.err == nil {
		q.revision, q.err = r.ask(ctx)
	}
}
