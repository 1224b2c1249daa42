package storage

import "sync"

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
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
