package storage

import (
	"context"
	"errors"
)

// maxPast is how many changes of the past are read at most. To list is cheaper
// than to read on.
const maxPast = 8192

// reach extends the window back to a revision, if it begins later and etcd still
// knows. After a restart of the server the window is empty, and all its clients
// come back with revisions from before: the first one's question is read from
// etcd, and those of the others are in the window by then.
//
// It leaves it to the caller to find that the window does not reach back.
func (c *Collection) reach(ctx context.Context, rev int64) error {
	if _, _, short := c.shortOf(rev); !short {
		return nil
	}
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	start, room, short := c.shortOf(rev)
	if !short || rev <= c.unreachable {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.options.ReadTimeout)
	defer cancel()
	past, err := c.store.backend.History(ctx, c.prefix, rev+1, start, min(room, maxPast))
	if errors.Is(err, ErrCompacted) || errors.Is(err, context.DeadlineExceeded) {
		c.unreachable = rev // nobody needs to try that again
		return nil
	}
	if err != nil {
		return err
	}
	c.prepend(rev, start, c.decodePast(past))
	return nil
}

// shortOf reports whether the window begins after a revision, where it begins,
// and how many changes it has room for.
func (c *Collection) shortOf(rev int64) (start int64, room int, short bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.window.start, c.window.room(), rev < c.window.start && !c.removed
}

func (c *Collection) prepend(rev, start int64, past []*change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window.start == start && len(past) <= c.window.room() {
		c.window.prepend(rev, past)
	}
}

// decodePast makes changes of what etcd knows. The state after one change is
// the state before the next of the same key.
func (c *Collection) decodePast(past []Past) []*change {
	latest := map[string]*Item{}
	var all []*change
	for _, p := range past {
		ch := &change{rev: p.Mod, prev: latest[p.Key]}
		if ch.prev == nil && p.Prev != nil {
			ch.prev = c.pastItem(*p.Prev)
		}
		if !p.Deleted {
			ch.item = c.pastItem(p.KV)
		}
		latest[p.Key] = ch.item
		if ch.item != nil || ch.prev != nil {
			all = append(all, ch)
		}
	}
	return all
}

// pastItem is nil for what cannot be read, as in the cache.
func (c *Collection) pastItem(kv KV) *Item {
	if now, _ := c.lookup(kv.Key); now != nil && now.Revision == kv.Mod {
		return now
	}
	item, err := c.resource.decodeItem(kv)
	if err != nil {
		return nil
	}
	return item
}
