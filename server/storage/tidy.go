package storage

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// What can be made again is let go of when it was not asked for through several
// looks in a row: objects soon, as they are heavy and quickly decoded, and so what
// was encoded for one reader only. What many have asked for stays some minutes: it
// makes long lists cheap.
const (
	lookInterval  = 10 * time.Second
	idleOnce      = 2
	idleShared    = 30
	worthSweeping = 1000 // things let go of, from which memory is handed back at once
)

// idleness counts the looks since something was last asked for.
type idleness struct{ looks atomic.Int32 }

func (i *idleness) end() {
	if i.looks.Load() != 0 { // else many readers would fight for the memory of one word
		i.looks.Store(0)
	}
}

// lasts counts a look, and reports whether those were enough.
func (i *idleness) lasts(looks int32) bool { return i.looks.Add(1) > looks }

// tidy lets go of what nobody asks for, until ctx ends.
func (s *Store) tidy(ctx context.Context) {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		dropped := 0
		for _, c := range s.all() {
			dropped += c.tidy()
		}
		if dropped >= worthSweeping {
			// A server that has become quiet would not collect for minutes what a
			// busy one has left behind.
			runtime.GC()
		}
	}
}

// tidy looks at all items once, those of former states included.
func (c *Collection) tidy() (dropped int) {
	c.snapshot().tree.Ascend(func(i *Item) bool {
		if d := i.object.Load(); d != nil && d.idle.looks.Load() == idleOnce {
			_, _ = i.Protobuf() // learns whether it can be spliced, while there is something to learn from
		}
		dropped += i.tidy()
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.expire(time.Now())
	for n := c.window.first; n < c.window.next; n++ {
		if prev := c.window.at(n).prev; prev != nil {
			dropped += prev.tidy()
		}
	}
	return dropped
}

// tidy lets go of what has been idle, and counts it.
func (i *Item) tidy() (dropped int) {
	if d := i.object.Load(); d != nil && i.value != nil && d.idle.lasts(idleOnce) {
		i.object.Store(nil)
		dropped++
	}
	return dropped + i.encoded.tidy()
}

func (e *encodings) tidy() (dropped int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.all[:0]
	for _, enc := range e.all {
		most := int32(idleOnce)
		if enc.again {
			most = idleShared
		}
		if !enc.idle.lasts(most) {
			kept = append(kept, enc)
		}
	}
	dropped = len(e.all) - len(kept)
	clear(e.all[len(kept):])
	if e.all = kept; len(kept) == 0 {
		e.all = nil
	}
	return dropped
}
