package storage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Pauses after something went wrong with etcd.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second // it is one client, and everyone waits for it
)

// errAstray ends a watch on an etcd that was set back.
var errAstray = errors.New("etcd's revision went back")

// follow feeds the collections from one watch, again and again, and loads them
// at the start and after each time that the watch could not be resumed.
//
//	start ──> watch from now on, load ──> watching ──broken──> resume after the
//	            ^                            │                 last delivery
//	            └──── compacted, set back ───┘
func (s *Store) follow(ctx context.Context, running *sync.WaitGroup) {
	turns := make(chan struct{}, 8) // loads at a time
	loader := func(c *Collection, restart bool) {
		generation := c.unsync(restart)
		running.Go(func() { s.load(ctx, c, generation, turns) })
	}
	defer func() {
		s.mu.Lock()
		s.loader = nil
		s.mu.Unlock()
	}()
	pause := firstPause
	resume, restart := false, false
	for ctx.Err() == nil {
		if !resume {
			if err := s.begin(ctx, loader, restart); err != nil {
				s.options.Log.Warn("etcd cannot be read", "err", err)
				sleep(ctx, pause)
				pause = min(2*pause, maxPause)
				continue
			}
		}
		before := s.progress.Load()
		err := s.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.progress.Load() != before {
			pause = firstPause
		}
		s.options.Log.Warn("etcd watch ended", "err", err)
		restart = errors.Is(err, errAstray)
		resume = !restart && !errors.Is(err, ErrCompacted)
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// begin finds the revision to watch from and starts the loads, whose listings
// will be at that revision or later, so that no change falls in between.
//
// restart says that the revisions known so far are void.
func (s *Store) begin(ctx context.Context, loader func(*Collection, bool), restart bool) error {
	rev, err := s.askRevision(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.collections {
		loader(c, restart)
	}
	s.loader = func(c *Collection) { loader(c, false) }
	s.progress.Store(rev)
	return nil
}

// askTimeout is how long the follower waits for an answer before it asks again.
const askTimeout = 5 * time.Second

// askRevision does not wait for ever for an etcd that accepts but never answers.
func (s *Store) askRevision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.backend.Revision(ctx)
}

// watch delivers changes until the watch breaks.
func (s *Store) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var alarm sync.WaitGroup
	defer alarm.Wait()
	defer cancel(nil)
	astray := s.astray.listen()
	alarm.Go(func() {
		select {
		case <-astray:
			cancel(errAstray)
		case <-ctx.Done():
		}
	})
	// A resumed watch must not wait for a revision that etcd has lost.
	if rev, err := s.askRevision(ctx); err != nil {
		return err
	} else if rev < s.progress.Load() {
		return errAstray
	}
	err := s.backend.Watch(ctx, registryPrefix, s.progress.Load()+1, s.deliver)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// deliver hands changes to their collections and then moves progress. All
// changes of one collection are handed over at once: a reader must not see half
// of a revision.
func (s *Store) deliver(changes []Change, rev int64) {
	if len(changes) == 1 {
		if c := s.find(changes[0].Key); c != nil {
			c.feed(changes)
		}
	} else {
		var order []*Collection
		parts := map[*Collection][]Change{}
		for _, ch := range changes {
			c := s.find(ch.Key)
			if c == nil {
				continue
			}
			if parts[c] == nil {
				order = append(order, c)
			}
			parts[c] = append(parts[c], ch)
		}
		for _, c := range order {
			c.feed(parts[c])
		}
	}
	if rev > s.progress.Load() {
		s.progress.Store(rev)
		s.moved.ring()
	}
}

// load fills a collection, trying until it works.
func (s *Store) load(ctx context.Context, c *Collection, generation int, turns chan struct{}) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		began := time.Now()
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		items, rev, err := c.listAll(ctx)
		<-turns
		if err == nil {
			err = c.install(generation, items, rev)
		}
		if err == nil {
			c.count(s.metrics.loads, 1)
			c.observe(s.metrics.loading, began)
			s.moved.ring()
			return
		}
		c.count(s.metrics.failedLoads, 1)
		if isSealed(err) {
			c.markSealed()
		}
		if ctx.Err() == nil {
			s.options.Log.Warn("load from etcd", "resource", c.resource.GroupResource.String(), "err", err)
		}
		sleep(ctx, pause)
	}
}

// unsync makes the collection hold changes back until the next load, and
// voids a running one. restart makes that load begin a new history.
func (c *Collection) unsync(restart bool) (generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rev = c.at()
	c.synced, c.held = false, nil
	c.void = c.void || restart
	c.inflight.forget()
	c.generation++
	return c.generation
}

// trusted says whether a revision that the cache knows means the same to etcd.
func (c *Collection) trusted() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.void
}

// loadPage is how many objects a load reads at a time.
const loadPage = 1000

// listAll reads the whole collection at one revision. Objects that the cache
// has already are not decoded again.
func (c *Collection) listAll(ctx context.Context) (map[string]prepared, int64, error) {
	items := map[string]prepared{}
	trusted := c.trusted()
	start, end, rev := c.prefix, after(c.prefix), int64(0)
	for {
		page, err := c.store.backend.List(ctx, start, end, rev, loadPage)
		if err != nil {
			return nil, 0, err
		}
		rev = page.Revision
		for _, kv := range page.KVs {
			p := prepared{Change: Change{KV: kv}}
			if known, _ := c.lookup(kv.Key); known != nil && known.Revision == kv.Mod && trusted {
				p.item = known
			} else {
				p.item, _, p.err = c.decodeItem(ctx, kv)
			}
			if isSealed(p.err) {
				return nil, 0, p.err
			}
			p.Value = nil
			items[kv.Key] = p
		}
		if int64(len(page.KVs)) == page.Count || len(page.KVs) == 0 {
			return items, rev, nil
		}
		start = page.KVs[len(page.KVs)-1].Key + "\x00"
	}
}

// remove ends the collection and its watches.
func (c *Collection) remove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = true
	c.generation++
	c.synced = false
	c.window.restart(c.rev)
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
