package storage

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// registryPrefix is where everything is in etcd.
const registryPrefix = "/registry/"

// Options of a Store. The zero value is what an API server should use.
type Options struct {
	// CompactInterval is how much of the past etcd keeps, 5 minutes if 0;
	// negative: this store never compacts.
	CompactInterval time.Duration
	// ReadTimeout is how long a read waits for the cache before it goes to
	// etcd itself, 3 s if 0.
	ReadTimeout time.Duration
	// WindowSize and WindowAge bound the recent changes of each kind that
	// watchers can be served from: 65,536 if 0, and 2 minutes if 0.
	WindowSize int
	WindowAge  time.Duration
	// BookmarkInterval is the time between bookmarks, a minute if 0.
	BookmarkInterval time.Duration
	// Transformers say how the values of each resource are encrypted in etcd;
	// nil: they are not.
	Transformers value.ResourceTransformers
	Log          *slog.Logger // nil: slog.Default()
}

func (o *Options) setDefaults() {
	setDefault(&o.CompactInterval, 5*time.Minute)
	setDefault(&o.ReadTimeout, 3*time.Second)
	setDefault(&o.WindowSize, 65536)
	setDefault(&o.WindowAge, 2*time.Minute)
	setDefault(&o.BookmarkInterval, time.Minute)
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Store holds the collections of all stored kinds over one backend. One watch
// of the whole prefix feeds them all (follow.go), so a kind that nobody uses
// costs nothing, and every kind's revision moves on with every write.
type Store struct {
	backend   *measured
	options   Options
	metrics   *metrics
	revisions *revisionReader

	// progress is the revision up to which the watch has delivered
	// everything; moved rings when it grows or a load ends.
	progress atomic.Int64
	moved    bell
	nudged   atomic.Int64 // when progress was last asked for, in Unix ns
	astray   bell         // rings when etcd turns out to have been set back
	// compacted is the revision before which the past has been given up, by this
	// server or another. The cache may know longer, but whether a client is served
	// from it or from etcd must make no difference.
	compacted atomic.Int64

	mu          sync.RWMutex // protects the fields below
	collections map[schema.GroupResource]*Collection
	byPrefix    map[string]*Collection // by Resource.Prefix
	loader      func(*Collection)      // starts a load; nil while nothing runs
}

// New makes a store without kinds. Add them, then Run it.
func New(backend Backend, o Options) *Store {
	o.setDefaults()
	s := &Store{
		options: o, metrics: newMetrics(),
		collections: map[schema.GroupResource]*Collection{},
		byPrefix:    map[string]*Collection{},
	}
	s.backend = &measured{backend, s.metrics, s.find}
	s.revisions = newRevisionReader(s.backend.Revision)
	return s
}

// Add makes the collection of a resource, at any time. A resource that is
// there already stays as it is.
func (s *Store) Add(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections[r.GroupResource] != nil {
		return
	}
	c := newCollection(s, r)
	s.collections[r.GroupResource] = c
	s.byPrefix[r.Prefix] = c
	if s.loader != nil {
		s.loader(c)
	}
}

// Replace makes the collection of a resource anew if there is one already, for a
// change in how the objects are to be read. Watches of the old one end.
func (s *Store) Replace(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.collections[r.GroupResource]; old != nil {
		old.remove()
	}
	c := newCollection(s, r)
	s.collections[r.GroupResource] = c
	s.byPrefix[r.Prefix] = c
	if s.loader != nil {
		s.loader(c)
	}
}

// Remove drops a collection, though not its objects. Its watches end.
func (s *Store) Remove(gr schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[gr]
	if c == nil {
		return
	}
	delete(s.collections, gr)
	delete(s.byPrefix, c.resource.Prefix)
	c.remove()
}

// Collection returns the collection of a resource, or nil.
func (s *Store) Collection(gr schema.GroupResource) *Collection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.collections[gr]
}

// Run keeps the caches up to date and etcd compacted until ctx ends. Writes work
// without it; reads then go to etcd one by one.
func (s *Store) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if s.options.CompactInterval > 0 {
		running.Go(func() { s.compactForever(ctx) })
	}
	running.Go(func() { s.tidy(ctx) })
	s.follow(ctx, &running)
	return nil
}

// Ready reports whether etcd answers, which is what /healthz and /readyz ask.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := s.backend.Revision(ctx); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}

// WaitLoaded waits until every present collection is in the cache.
func (s *Store) WaitLoaded(ctx context.Context) error {
	for _, c := range s.all() {
		select {
		case <-c.loaded:
		case <-ctx.Done():
			return fmt.Errorf("load %s: %w", c.resource.GroupResource, ctx.Err())
		}
	}
	return nil
}

// Revision is etcd's current revision. Concurrent callers share one question.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	known := s.progress.Load()
	rev, err := s.revisions.read(ctx)
	if err == nil && rev < known {
		// etcd has less than the watch has told: it was restored from a
		// backup. The watch would wait for the old revision for ever.
		s.compacted.Store(0) // another past begins
		s.astray.ring()
	}
	return rev, err
}

func (s *Store) all() []*Collection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*Collection, 0, len(s.collections))
	for _, c := range s.collections {
		all = append(all, c)
	}
	return all
}

// find returns the collection that a key belongs to, or nil. Prefixes have one
// or two segments ("pods", "services/specs").
func (s *Store) find(key string) *Collection {
	path, ok := strings.CutPrefix(key, registryPrefix)
	if !ok {
		return nil
	}
	first := strings.IndexByte(path, '/')
	if first < 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if second := strings.IndexByte(path[first+1:], '/'); second >= 0 {
		if c := s.byPrefix[path[:first+1+second]]; c != nil {
			return c
		}
	}
	return s.byPrefix[path[:first]]
}

// nudgeInterval is how often at most progress is asked for.
const nudgeInterval = 20 * time.Millisecond

func (s *Store) nudge(ctx context.Context) {
	now, last := time.Now().UnixNano(), s.nudged.Load()
	if now-last < int64(nudgeInterval) || !s.nudged.CompareAndSwap(last, now) {
		return
	}
	if err := s.backend.RequestProgress(ctx); err != nil && ctx.Err() == nil {
		s.options.Log.Debug("progress request", "err", err)
	}
}
