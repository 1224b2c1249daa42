package storage

import (
	"sync"
	"time"
)

// bell wakes everyone who listens. Listen first, then look at the state, then
// wait: what happens in between rings too. The zero value is ready for use.
type bell struct {
	mu sync.Mutex // protects ch
	ch chan struct{}
}

// listen returns a channel that is closed by the next ring.
func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake()
}

// wake is ring for whoever holds mu.
func (b *bell) wake() {
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// crowdBell is a bell that many may listen to. After a quiet time it rings at once,
// but no sooner again than it takes to serve all who listen: of changes that come
// faster each then gets several at a time, which costs him and us hardly more than
// one.
type crowdBell struct {
	bell
	rung time.Time // mu of bell protects this and due
	due  bool      // it is about to ring
}

// perListener is about what it takes to serve one of a crowd. A few are not worth
// waiting for, and nothing waits longer than most.
const (
	perListener = 20 * time.Microsecond
	fewest      = 50
	most        = 20 * time.Millisecond
)

func (b *crowdBell) ring(listeners int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due {
		return
	}
	if listeners >= fewest {
		pace := min(time.Duration(listeners)*perListener, most)
		if wait := pace - time.Since(b.rung); wait > 0 {
			b.due = true
			time.AfterFunc(wait, b.ringLate)
			return
		}
		b.rung = time.Now()
	}
	b.wake()
}

func (b *crowdBell) ringLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due, b.rung = false, time.Now()
	b.wake()
}
