package storage

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// compactKey holds the revision of the last compaction. API servers, upstream's
// among them, agree over it on who compacts: who last saw it unchanged.
const compactKey = "compact_rev_key"

// compactForever keeps an interval's worth of the past in etcd: at each tick
// it compacts to where etcd was at the tick before.
func (s *Store) compactForever(ctx context.Context) {
	var guard, target int64
	for {
		sleep(ctx, s.options.CompactInterval)
		if ctx.Err() != nil {
			return
		}
		var err error
		guard, target, err = s.compactOnce(ctx, guard, target)
		if err != nil && ctx.Err() == nil {
			s.options.Log.Warn("compaction", "err", err)
		}
	}
}

// compactOnce takes the turn if nobody else did since last time, and compacts to
// target (0: not yet). It returns what to pass the next time.
func (s *Store) compactOnce(ctx context.Context, guard, target int64) (nextGuard, nextTarget int64, err error) {
	out, err := s.backend.Put(ctx, compactKey, strconv.AppendInt(nil, target, 10), guard, 0)
	if err != nil {
		return guard, target, fmt.Errorf("take turn: %w", err)
	}
	if !out.Done {
		guard = 0
		if out.Current != nil {
			guard = out.Current.Mod
			if by, err := strconv.ParseInt(string(out.Current.Value), 10, 64); err == nil {
				s.giveUp(by) // who took the turn
			}
		}
		now, err := s.Revision(ctx)
		return guard, now, err
	}
	if target > 0 {
		if err := s.backend.Compact(ctx, target); err != nil {
			return out.Revision, out.Revision, fmt.Errorf("compact to %d: %w", target, err)
		}
		s.giveUp(target)
	}
	return out.Revision, out.Revision, nil
}

// giveUp notes that the past before a revision is gone, and lets go of what was
// kept of it.
func (s *Store) giveUp(rev int64) {
	if rev <= s.compacted.Load() {
		return
	}
	s.compacted.Store(rev)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.collections {
		c.mu.Lock()
		c.kept = slices.DeleteFunc(c.kept, func(k snapshot) bool { return k.rev < rev })
		c.mu.Unlock()
	}
}
