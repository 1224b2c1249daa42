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
	var changes []*change
	if err == nil {
		changes, err = c.decodePast(ctx, past)
	}
	if isSealed(err) || errors.Is(err, ErrCompacted) || errors.Is(err, context.DeadlineExceeded) {
		c.unreachable = rev // nobody needs to try that again
		return nil
	}
	if err != nil {
		return err
	}
	c.prepend(rev, start, changes)
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
func (c *Collection) decodePast(ctx context.Context, past []Past) (all []*change, err error) {
	latest := map[string]*Item{}
	for _, p := range past {
		ch := &change{rev: p.Mod, prev: latest[p.Key]}
		if ch.prev == nil && p.Prev != nil {
			if ch.prev, err = c.pastItem(ctx, *p.Prev); err != nil {
				return nil, err
			}
		}
		if !p.Deleted {
			if ch.item, err = c.pastItem(ctx, p.KV); err != nil {
				return nil, err
			}
		}
		latest[p.Key] = ch.item
		if ch.item != nil || ch.prev != nil {
			all = append(all, ch)
		}
	}
	return all, nil
}

// pastItem is nil for what makes no sense, as in the cache. It fails for what
// cannot be unsealed.
func (c *Collection) pastItem(ctx context.Context, kv KV) (*Item, error) {
	if now, _ := c.lookup(kv.Key); now != nil && now.Revision == kv.Mod {
		return now, nil
	}
	item, _, err := c.decodeItem(ctx, kv)
	if isSealed(err) {
		return nil, err
	}
	return item, nil
}
