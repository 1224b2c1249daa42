package web

import (
	"context"
	"sync"
	"time"
)

// live knows what is open in the name of each session, and the sessions that were
// ended before their time.
type live struct {
	mu    sync.Mutex                      // protects the fields below
	open  map[string]map[*time.Timer]bool // each ends a request when the session does
	ended map[string]time.Time            // until when their cookies would be good
}

func newLive() *live {
	return &live{open: map[string]map[*time.Timer]bool{}, ended: map[string]time.Time{}}
}

// request gives a request of a session its end: that of the session.
func (l *live) request(ctx context.Context, s session) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	end := time.AfterFunc(time.Until(s.until()), cancel)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[s.ID] == nil {
		l.open[s.ID] = map[*time.Timer]bool{}
	}
	l.open[s.ID][end] = true
	return ctx, func() {
		end.Stop()
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.open[s.ID], end); len(l.open[s.ID]) == 0 {
			delete(l.open, s.ID)
		}
	}
}

func (l *live) end(s session) {
	l.mu.Lock()
	l.remember(s.ID, s.Ends)
	l.mu.Unlock()
	l.goOn(s.ID, time.Now())
}

// goOn gives what is open in a session's name another end.
func (l *live) goOn(id string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := range l.open[id] {
		end.Reset(time.Until(until))
	}
}

// once reports whether an ID has not been ended before, and ends it.
func (l *live) once(id string, until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, used := l.ended[id]
	l.remember(id, until)
	return !used
}

// remember forgets what is past, now and then.
func (l *live) remember(id string, until time.Time) {
	l.ended[id] = until
	if n := len(l.ended); n&(n-1) == 0 {
		for old, good := range l.ended {
			if old != id && time.Now().After(good) {
				delete(l.ended, old)
			}
		}
	}
}

func (l *live) over(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, over := l.ended[id]
	return over
}
