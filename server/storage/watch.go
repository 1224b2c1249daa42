package storage

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Watcher is one watch of a collection: a position in its window. It holds
// nothing that needs closing; what it shares ends with the ctx of Watch. It is
// for one goroutine.
type Watcher struct {
	c     *Collection
	sel   Selection
	topic *topic // nil: every change is looked at
	epoch int
	pos   int64 // number of the next change to look at
	from  int64 // changes up to this revision are not sent
	rev   int64 // everything up to here has been returned

	initial []*Item // still to be returned
	mark    bool    // an InitialEnd bookmark is due after them

	bookmarks bool
	nextMark  time.Time
	lastMark  int64 // revision of the last bookmark
}

// maxBatch is how many events Next returns at most, and how many changes it
// looks at while it holds the lock.
const maxBatch = 500

// Watch starts a watch, which lasts as long as ctx.
func (c *Collection) Watch(ctx context.Context, o WatchOptions) (*Watcher, error) {
	w, err := c.startWatch(ctx, o)
	if errors.Is(err, errUnsynced) {
		return nil, apierrors.NewTooManyRequests("storage is (re)initializing", 1)
	}
	var bad *field.Error
	if errors.As(err, &bad) { // the version that was asked for
		return nil, err
	}
	if err != nil {
		return nil, backendError(c.resource.GroupResource, "watch", err)
	}
	return w, nil
}

func (c *Collection) startWatch(ctx context.Context, o WatchOptions) (*Watcher, error) {
	wanted, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	initial := wanted == 0
	if o.SendInitial != nil {
		initial = *o.SendInitial
	}
	// A watch of the changes after a revision may start before the cache has
	// that revision: they are all still to come.
	switch {
	case wanted > 0 && !initial:
		if err = c.waitLoaded(ctx); err == nil {
			err = c.reach(ctx, wanted)
		}
	case o.ResourceVersion == "":
		err = c.fresh(ctx)
	default:
		err = c.await(ctx, o.ResourceVersion, wanted)
	}
	if err != nil {
		return nil, err
	}
	w := &Watcher{c: c, sel: o.Selection, bookmarks: o.Bookmarks}
	w.scheduleMark()
	snap, err := w.place(ctx, wanted, initial)
	if err != nil {
		return nil, err
	}
	if initial {
		w.mark = o.SendInitial != nil && o.Bookmarks
		if w.initial == nil {
			w.initial = c.page(snap, ListOptions{Selection: w.sel}, "").Items
		}
		c.count(c.store.metrics.initial, len(w.initial))
	}
	return w, nil
}

// place finds the watcher's position and the state that belongs to it. If an
// index has that, it sets initial itself.
func (w *Watcher) place(ctx context.Context, wanted int64, initial bool) (snapshot, error) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed {
		return snapshot{}, errTooOld(wanted, c.rev)
	}
	if initial {
		wanted = 0
	}
	w.epoch = c.window.epoch
	if err := w.position(wanted); err != nil {
		return snapshot{}, err
	}
	w.from = w.rev
	w.join(ctx)
	if !initial {
		return snapshot{}, nil
	}
	if field, value, ok := w.sel.exact(); ok {
		w.initial = slices.DeleteFunc(c.index(field).list(value), func(i *Item) bool { return !w.sel.matches(i) })
		if w.initial == nil {
			w.initial = []*Item{} // none, which is known
		}
	}
	if c.snap == nil {
		c.snap = c.tree.Clone()
	}
	return snapshot{tree: c.snap, rev: w.rev}, nil
}

// position finds where to start after a revision (0: now). Caller holds c.mu.
func (w *Watcher) position(rev int64) error {
	if rev == 0 {
		w.pos, w.rev = w.c.window.next, w.c.at()
		return nil
	}
	pos, ok := w.c.window.seek(rev)
	if !ok {
		return errTooOld(rev, w.c.window.start)
	}
	w.pos, w.rev = pos, rev
	return nil
}

// join subscribes to the narrowest topic. The changes before that are looked at
// once, here. Caller holds c.mu.
func (w *Watcher) join(ctx context.Context) {
	win := &w.c.window
	field, value, ok := w.sel.topic()
	if !ok {
		win.watchers++
		context.AfterFunc(ctx, func() {
			w.c.mu.Lock()
			defer w.c.mu.Unlock()
			win.watchers--
		})
		return
	}
	t := win.subscribe(field, value)
	var older []int64
	for n := w.pos; n <= t.dropped && n < win.next; n++ {
		if win.at(n).concerns(field, value) {
			older = append(older, n)
		}
	}
	t.numbers = append(older, t.numbers...)
	t.dropped = min(t.dropped, w.pos-1)
	w.topic = t
	context.AfterFunc(ctx, func() {
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		win.unsubscribe(field, value, t)
	})
}

// Next returns the events since the last call, waiting for one if there are
// none. It fails with Expired (410) when the watcher fell out of the window, and
// with ctx's error when that ends.
func (w *Watcher) Next(ctx context.Context) ([]Event, error) {
	if events := w.nextInitial(); len(events) > 0 {
		return events, nil
	}
	var due <-chan time.Time
	for {
		rung := w.listen()
		events, more, err := w.collect()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if more {
			continue
		}
		if w.bookmarks {
			if mark, ok := w.dueMark(); ok {
				return []Event{mark}, nil
			}
			if due == nil {
				t := time.NewTimer(time.Until(w.nextMark))
				defer t.Stop()
				due = t.C
			}
		}
		select {
		case <-rung:
		case <-due:
			due = nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Bookmark is a bookmark at the revision up to which the watcher has been
// served, for the moment before a verb ends a watch. ok is false while initial
// events are still due.
func (w *Watcher) Bookmark() (mark Event, ok bool) {
	if len(w.initial) > 0 || w.mark {
		return Event{}, false
	}
	return Event{Type: Bookmark, Revision: w.rev}, true
}

func (w *Watcher) nextInitial() []Event {
	if len(w.initial) == 0 {
		if !w.mark {
			return nil
		}
		w.mark = false
		return []Event{{Type: Bookmark, Revision: w.from, InitialEnd: true}}
	}
	n := min(len(w.initial), maxBatch)
	events := make([]Event, n, n+1)
	for i, item := range w.initial[:n] {
		events[i] = Event{Type: Added, Item: item, Revision: item.Revision}
	}
	if w.initial = w.initial[n:]; len(w.initial) == 0 {
		w.initial = nil // let go of the array
		events = append(events, w.nextInitial()...)
	}
	return events
}

func (w *Watcher) listen() <-chan struct{} {
	if w.topic != nil {
		return w.topic.grown.listen()
	}
	return w.c.window.grown.listen()
}

// collect looks at the next changes. more says that there are others after
// them.
func (w *Watcher) collect() (events []Event, more bool, err error) {
	w.c.mu.RLock()
	defer w.c.mu.RUnlock()
	win := &w.c.window
	if w.c.removed || w.epoch != win.epoch {
		return nil, false, errTooOld(w.rev, win.start)
	}
	if w.topic != nil {
		return w.collectTopic(win)
	}
	if w.pos < win.first {
		return nil, false, w.outrun(win)
	}
	end := min(win.next, w.pos+maxBatch)
	for ; w.pos < end; w.pos++ {
		events = w.look(win.at(w.pos), events)
	}
	if more = end < win.next; !more {
		w.rev = max(w.rev, w.c.at())
	}
	return events, more, nil
}

func (w *Watcher) collectTopic(win *window) (events []Event, more bool, err error) {
	t := w.topic
	if t.dropped >= w.pos {
		return nil, false, w.outrun(win)
	}
	n, _ := slices.BinarySearch(t.numbers, w.pos)
	for _, number := range t.numbers[n:] {
		if number < win.first {
			return nil, false, w.outrun(win)
		}
		if len(events) == maxBatch {
			return events, true, nil
		}
		events = w.look(win.at(number), events)
		w.pos = number + 1
	}
	w.pos = win.next
	w.rev = max(w.rev, w.c.at())
	return events, false, nil
}

// outrun ends a watcher that was too slow.
func (w *Watcher) outrun(win *window) error {
	w.c.count(w.c.store.metrics.outrun, 1)
	return errTooOld(w.rev, win.start)
}

// look adds a change to the events if it concerns the selection.
func (w *Watcher) look(c *change, events []Event) []Event {
	if c.rev <= w.from {
		return events
	}
	w.rev = max(w.rev, c.rev)
	was := c.prev != nil && w.sel.matches(c.prev)
	is := c.item != nil && w.sel.matches(c.item)
	switch {
	case is && was:
		return append(events, Event{Type: Modified, Item: c.item, Prev: c.prev, Revision: c.rev})
	case is:
		return append(events, Event{Type: Added, Item: c.item, Revision: c.rev})
	case was:
		return append(events, Event{Type: Deleted, Item: c.gone(), Revision: c.rev})
	}
	return events
}

// concerns reports whether a field has the value before or after a change.
func (c *change) concerns(field, value string) bool {
	return c.prev != nil && c.prev.field(field) == value || c.item != nil && c.item.field(field) == value
}

// dueMark returns a bookmark when it is time for one and there is something new
// to say.
func (w *Watcher) dueMark() (Event, bool) {
	if time.Now().Before(w.nextMark) {
		return Event{}, false
	}
	w.scheduleMark()
	if w.rev <= w.lastMark {
		return Event{}, false
	}
	w.lastMark = w.rev
	return Event{Type: Bookmark, Revision: w.rev}, true
}

// scheduleMark spreads bookmarks, or the watchers of a whole cluster that
// started together would all get theirs at once.
func (w *Watcher) scheduleMark() {
	interval := w.c.store.options.BookmarkInterval
	w.nextMark = time.Now().Add(interval - interval/10 + rand.N(interval/5+1))
}
