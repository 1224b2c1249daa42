package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/btree"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage/value"
)

// Collection is the objects of one kind. See the interface collection for what
// its methods promise.
//
// It is filled by the store: load.go lists the kind once, follow.go feeds every
// change after that. Only those two change it; everyone else reads.
type Collection struct {
	store    *Store
	resource Resource
	// transformer encrypts values (seal.go).
	transformer value.Transformer
	prefix      string        // "/registry/pods/"
	loaded      chan struct{} // closed when the first load is done
	inflight    inflight      // decoded objects of our own writes
	leases      leases
	// reading holds the right to read the past into the window, and with it
	// unreachable, the latest revision from which that did not work.
	reading     chan struct{}
	unreachable int64

	mu sync.RWMutex // protects the fields below
	// tree is all objects by key, as they were at revision at().
	tree    *btree.BTreeG[*Item]
	bytes   int64 // of all objects in tree
	indexes map[string]fieldIndex
	corrupt map[string]error // keys whose value cannot be decoded
	rev     int64            // of the last change applied, or of the load
	// synced says that the store's progress is ours too. It is false while
	// a load runs; changes then wait in held.
	synced     bool
	held       []prepared
	sealed     bool // loads fail for want of a key; until one succeeds
	generation int  // of loads: a newer one makes a running one void
	void       bool // the cache is of an etcd history that is no more
	removed    bool

	window window
	snap   *btree.BTreeG[*Item] // of tree, until the next change
	kept   []snapshot           // that continue tokens were given out for
}

// snapshot is the collection as it was at one revision. Reading it needs no
// lock.
type snapshot struct {
	tree  *btree.BTreeG[*Item]
	rev   int64
	since int64 // the state is the same at every revision from since to rev
	taken time.Time
}

func newCollection(s *Store, r Resource) *Collection {
	return &Collection{
		store: s, resource: r, transformer: s.options.transformer(r.GroupResource), prefix: registryPrefix + r.Prefix + "/",
		loaded: make(chan struct{}), reading: make(chan struct{}, 1),
		leases: leases{ttl: r.TTL, grant: s.backend.Grant, full: s.metrics.leased},
		tree:   newTree(), indexes: map[string]fieldIndex{}, corrupt: map[string]error{},
		window: newWindow(s.options.WindowSize, s.options.WindowAge),
	}
}

func newTree() *btree.BTreeG[*Item] {
	return btree.NewG(32, func(a, b *Item) bool { return a.key < b.key })
}

// Size is the number of objects in the cache, and the bytes that they take in
// etcd.
func (c *Collection) Size() (objects int, bytes int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.tree.Len(), c.bytes
}

// Count is the number of objects in the cache.
func (c *Collection) Count() int {
	n, _ := c.Size()
	return n
}

// Resource is what the collection was made for.
func (c *Collection) Resource() Resource { return c.resource }

// key is where an object is in etcd.
func (c *Collection) key(namespace, name string) string {
	if c.resource.Namespaced {
		return c.prefix + namespace + "/" + name
	}
	return c.prefix + name
}

// scope is the prefix of all keys of a namespace ("": of all).
func (c *Collection) scope(namespace string) string {
	if c.resource.Namespaced && namespace != "" {
		return c.prefix + namespace + "/"
	}
	return c.prefix
}

// at is the revision that the cache's state is the truth of. Caller holds mu.
func (c *Collection) at() int64 {
	if !c.synced {
		return c.rev
	}
	return max(c.rev, c.store.progress.Load())
}

// snapshot takes the present state.
func (c *Collection) snapshot() snapshot {
	c.mu.RLock()
	tree, rev, since := c.snap, c.at(), c.rev
	c.mu.RUnlock()
	if tree == nil {
		c.mu.Lock()
		if c.snap == nil {
			c.snap = c.tree.Clone()
		}
		tree, rev, since = c.snap, c.at(), c.rev
		c.mu.Unlock()
	}
	return snapshot{tree: tree, rev: rev, since: since, taken: time.Now()}
}

// How long a list in pages can count on the snapshot of its first page, and how
// many snapshots are kept. What is not kept is read from etcd.
const (
	keepSnapshot  = 5 * time.Minute
	keepSnapshots = 8
)

// keep remembers a snapshot for the pages to come.
func (c *Collection) keep(s snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		if k.rev == s.rev {
			return
		}
	}
	c.kept = append(c.kept, s)
	c.dropKept()
}

// dropKept lets go of old snapshots. Caller holds mu.
func (c *Collection) dropKept() {
	for len(c.kept) > keepSnapshots || len(c.kept) > 0 && time.Since(c.kept[0].taken) > keepSnapshot {
		c.kept[0] = snapshot{} // or the array would hold on to it
		c.kept = c.kept[1:]
	}
}

// snapshotAt finds the state at exactly a revision, if the cache has it.
func (c *Collection) snapshotAt(rev int64) (snapshot, bool) {
	c.mu.RLock()
	for _, k := range c.kept {
		if k.since <= rev && rev <= k.rev {
			c.mu.RUnlock()
			k.rev = rev
			return k, true
		}
	}
	synced := c.synced
	c.mu.RUnlock()
	s := c.snapshot()
	ok := synced && s.since <= rev && rev <= s.rev
	s.rev = rev
	return s, ok
}

// lookup finds an object in the cache.
func (c *Collection) lookup(key string) (*Item, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.corrupt[key]; err != nil {
		return nil, errCorrupt(err)
	}
	i, _ := c.tree.Get(&Item{key: key})
	return i, nil
}

// waitLoaded waits until the collection can be read at all.
func (c *Collection) waitLoaded(ctx context.Context) error {
	select {
	case <-c.loaded:
		return nil
	default:
	}
	if c.isSealed() {
		return errUnsynced // waiting would be for nothing
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.options.ReadTimeout)
	defer cancel()
	select {
	case <-c.loaded:
		return nil
	case <-ctx.Done():
		return errUnsynced
	}
}

// waitFor waits until the cache has everything up to a revision. It gives up
// with errUnsynced.
func (c *Collection) waitFor(ctx context.Context, rev int64) error {
	defer c.observe(c.store.metrics.waits, time.Now())
	if c.reached(rev) {
		return nil
	}
	timeout := time.NewTimer(c.store.options.ReadTimeout)
	defer timeout.Stop()
	// Changes to keys that are not ours move etcd's revision but send us
	// nothing; then only a progress notification can tell.
	nudge := time.NewTicker(5 * time.Millisecond)
	defer nudge.Stop()
	for {
		rung := c.store.moved.listen()
		if c.reached(rev) {
			return nil
		}
		select {
		case <-rung:
		case <-nudge.C:
			c.store.nudge(ctx)
		case <-timeout.C:
			return errUnsynced
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Collection) reached(rev int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.synced && c.at() >= rev
}

func (c *Collection) isSynced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.synced
}

// fresh waits until the cache has everything that was written before the call.
func (c *Collection) fresh(ctx context.Context) error {
	if err := c.waitLoaded(ctx); err != nil {
		return err
	}
	rev, err := c.store.Revision(ctx)
	if err != nil {
		return err
	}
	return c.waitFor(ctx, rev)
}

// atLeast waits until the cache is as new as a client knows the world to be.
func (c *Collection) atLeast(ctx context.Context, rev int64) error {
	if err := c.waitLoaded(ctx); err != nil {
		return err
	}
	err := c.waitFor(ctx, rev)
	if !errors.Is(err, errUnsynced) {
		return err
	}
	current, err := c.store.Revision(ctx)
	if err != nil {
		return err
	}
	if current < rev {
		return errTooLarge(rev, current)
	}
	return errUnsynced
}

// decode makes an item of what etcd has; outdated is as in decodeItem.
func (c *Collection) decode(ctx context.Context, kv *KV) (item *Item, outdated bool, err error) {
	item, outdated, err = c.decodeItem(ctx, *kv)
	switch {
	case isSealed(err):
		return nil, false, apierrors.NewInternalError(err)
	case err != nil:
		return nil, false, errCorrupt(err)
	}
	return item, outdated, nil
}

func (c *Collection) String() string {
	return fmt.Sprintf("collection of %s", c.resource.GroupResource)
}
