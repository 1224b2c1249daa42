package storage

import (
	"slices"
	"sort"
	"sync"
	"time"
)

// change is one change to a collection. prev is nil if the object is new, item
// if it is gone.
type change struct {
	rev        int64
	item, prev *Item
	at         time.Time

	goneOnce sync.Once
	goneItem *Item
}

// gone is the last state with the revision of the change: what those see from
// whose selection the object has vanished.
func (c *change) gone() *Item {
	c.goneOnce.Do(func() { c.goneItem = c.prev.AtRevision(c.rev) })
	return c.goneItem
}

// window is the recent changes of a collection, numbered without gaps.
// Watchers are positions in it. It is bounded by number and age: it grows only
// while its oldest change is younger than age. Its collection's mu protects it.
type window struct {
	slots       []*change // number n is in slots[n % len(slots)]; some power of 2 of them
	first, next int64     // it holds the numbers first <= n < next
	start       int64     // every change with a greater revision is in it
	epoch       int       // counts restarts: positions of an earlier epoch are void
	limit       int
	age         time.Duration
	topics      map[string]map[string]*topic // by field and value
	stirred     []*topic                     // with changes since the last ring
	watchers    int                          // of everything
	grew        int                          // times that it made room for more
	grown       crowdBell
}

// topic is the changes that concern one value of one field, before or after
// them. It exists while somebody watches it, so that a watcher of one node's
// pods is woken by those alone.
type topic struct {
	numbers  []int64
	dropped  int64 // the last number that was forgotten
	watchers int
	grown    crowdBell
	stirred  bool // it is in the window's list of the same name
}

const (
	minWindow = 128
	// firstNumber leaves room for changes of the past before it.
	firstNumber = 1 << 40
)

func newWindow(limit int, age time.Duration) window {
	return window{
		slots: make([]*change, minWindow), limit: max(limit, minWindow), age: age,
		first: firstNumber, next: firstNumber, topics: map[string]map[string]*topic{},
	}
}

func (w *window) restart(rev int64) {
	w.slots = make([]*change, minWindow)
	w.first, w.start = w.next, rev
	w.epoch++
	w.ring()
	for _, values := range w.topics {
		for _, t := range values {
			t.grown.ring(t.watchers)
		}
	}
}

func (w *window) append(c *change) {
	c.at = time.Now()
	w.makeRoom(c.at)
	w.slots[w.next%int64(len(w.slots))] = c
	for field, values := range w.topics {
		w.file(values, field, c)
	}
	w.next++
}

// expire forgets what is too old. A few changes are kept whatever their age; more
// would hold on to the objects of a busy hour.
func (w *window) expire(now time.Time) {
	for w.next-w.first >= minWindow && now.Sub(w.at(w.first).at) > w.age {
		w.forget()
	}
}

// makeRoom forgets what is too old, and grows for what is not.
func (w *window) makeRoom(now time.Time) {
	w.expire(now)
	switch full := w.next-w.first == int64(len(w.slots)); {
	case full && len(w.slots) < w.limit:
		w.resize(2 * len(w.slots))
		w.grew++
	case full:
		w.forget()
	}
}

// forget drops the oldest change.
func (w *window) forget() {
	w.start = w.at(w.first).rev
	w.slots[w.first%int64(len(w.slots))] = nil
	w.first++
}

func (w *window) resize(size int) {
	bigger := make([]*change, size)
	for n := w.first; n < w.next; n++ {
		bigger[n%int64(size)] = w.slots[n%int64(len(w.slots))]
	}
	w.slots = bigger
}

// room is how many more changes fit.
func (w *window) room() int { return w.limit - int(w.next-w.first) }

// prepend adds the changes that came before the window, all of those after a
// revision. They are as good as new ones: somebody has just asked for them.
func (w *window) prepend(rev int64, past []*change) {
	for size := len(w.slots); ; size *= 2 {
		if size >= len(past)+int(w.next-w.first) {
			w.resize(size)
			break
		}
	}
	w.first -= int64(len(past))
	now := time.Now()
	for n, c := range past {
		c.at = now
		w.slots[(w.first+int64(n))%int64(len(w.slots))] = c
	}
	w.start = rev
}

// file adds a change to the topics that it concerns.
func (w *window) file(values map[string]*topic, field string, c *change) {
	var before, now string
	if c.prev != nil {
		before = c.prev.field(field)
		w.note(values[before])
	}
	if c.item != nil {
		if now = c.item.field(field); c.prev == nil || now != before {
			w.note(values[now])
		}
	}
}

func (w *window) note(t *topic) {
	if t == nil {
		return
	}
	if len(t.numbers) > 0 && t.numbers[0] < w.first {
		n, _ := slices.BinarySearch(t.numbers, w.first)
		t.dropped = t.numbers[n-1]
		t.numbers = append(t.numbers[:0], t.numbers[n:]...)
	}
	t.numbers = append(t.numbers, w.next)
	if !t.stirred {
		t.stirred = true
		w.stirred = append(w.stirred, t)
	}
}

// ring wakes those whom the changes since the last ring concern.
func (w *window) ring() {
	w.grown.ring(w.watchers)
	for _, t := range w.stirred {
		t.stirred = false
		t.grown.ring(t.watchers)
	}
	clear(w.stirred)
	w.stirred = w.stirred[:0]
}

// seek finds the position after a revision.
func (w *window) seek(rev int64) (position int64, ok bool) {
	if rev < w.start {
		return 0, false
	}
	held := int(w.next - w.first)
	n := sort.Search(held, func(n int) bool { return w.at(w.first+int64(n)).rev > rev })
	return w.first + int64(n), true
}

func (w *window) at(number int64) *change { return w.slots[number%int64(len(w.slots))] }

// subscribe joins a topic. The topic knows only what comes from now on.
func (w *window) subscribe(field, value string) *topic {
	values := w.topics[field]
	if values == nil {
		values = map[string]*topic{}
		w.topics[field] = values
	}
	t := values[value]
	if t == nil {
		t = &topic{dropped: w.next - 1}
		values[value] = t
	}
	t.watchers++
	return t
}

func (w *window) unsubscribe(field, value string, t *topic) {
	if t.watchers--; t.watchers > 0 {
		return
	}
	delete(w.topics[field], value)
	if len(w.topics[field]) == 0 {
		delete(w.topics, field)
	}
}
