package storage

import (
	"bytes"
	"slices"
	"sync"
)

// inflight holds the objects of writes that the watch has not brought yet, so
// that a change that this server itself makes is decoded once, by the writer,
// and not again by the cache.
type inflight struct {
	mu     sync.Mutex // protects writes
	writes map[string][]*pendingWrite
}

type pendingWrite struct {
	plain []byte // the encoded object
	value []byte // what is stored of it
	guard int64
	item  *Item // without revision until the write is known to be done

	mu      sync.Mutex // protects stamped, and item's revision until then
	stamped bool
}

// add announces a write. take removes it when the watch brings it, drop when it
// will not, forget when the watch has lost its thread.
func (f *inflight) add(key string, w *pendingWrite) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writes == nil {
		f.writes = map[string][]*pendingWrite{}
	}
	f.writes[key] = append(f.writes[key], w)
}

func (f *inflight) drop(key string, w *pendingWrite) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := slices.DeleteFunc(f.writes[key], func(o *pendingWrite) bool { return o == w })
	if len(rest) == 0 {
		delete(f.writes, key)
		return
	}
	f.writes[key] = rest
}

// take finds the object of a change. The value alone does not prove whose it
// is, but value and predecessor do: of all writes with one guard one succeeds.
// It may then be a loser's object that is taken, which is as good: the loser
// has no use for it.
func (f *inflight) take(kv KV, before *Item) *Item {
	var guard int64
	if before != nil {
		guard = before.Revision
	}
	if guard == 0 && kv.Create != kv.Mod {
		return nil // the cache does not know the predecessor
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var found *Item
	rest := slices.DeleteFunc(f.writes[kv.Key], func(w *pendingWrite) bool {
		if found == nil && w.guard == guard && bytes.Equal(w.value, kv.Value) {
			found = w.finish(kv.Mod)
			return true
		}
		return w.doneBefore(kv.Mod)
	})
	if len(rest) == 0 {
		delete(f.writes, kv.Key)
	} else {
		f.writes[kv.Key] = rest
	}
	return found
}

func (f *inflight) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = nil
}

// finish gives the object its revision, once; writer and watch race for it.
// An object that has another revision already is of no use to this one.
func (w *pendingWrite) finish(revision int64) *Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stamped {
		w.stamped = true
		w.item.setRevision(revision)
	}
	if w.item.Revision != revision {
		return nil
	}
	return w.item
}

func (w *pendingWrite) doneBefore(revision int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stamped && w.item.Revision < revision
}
