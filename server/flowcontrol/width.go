package flowcontrol

import (
	"math"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// work is what serving a request takes: seats while it is served, and seats for
// a time after the answer has gone, while its consequences are dealt with.
type work struct {
	seats, final int
	extra        time.Duration
}

// width is the most seats that are taken at a time.
func (w work) width() int { return max(w.seats, w.final) }

// total is in seat-seconds, by a guess of how long serving takes.
func (w work) total() float64 {
	return float64(w.seats)*guess.Seconds() + float64(w.final)*w.extra.Seconds()
}

// narrow makes the time after the answer one of fewer seats for longer, if there
// are not as many.
func (w *work) narrow(seats int) {
	if seats > 0 && w.final > seats {
		w.final, w.extra = seats, w.extra*time.Duration(w.final)/time.Duration(seats)
	}
}

// guess is how long a request is assumed to take until it has been served. What
// it took in truth is settled then.
const guess = 3 * time.Millisecond

// What requests cost.
const (
	bytesPerSeat     = 100_000
	mostBytesOfCache = 1_000_000 // what a list from the cache holds in memory at a time
	mostListSeats    = 100
	mostWriteSeats   = 10
	watchesPerSeat   = 10
	perEvent         = 5 * time.Millisecond // of a seat, to send an event to watchesPerSeat watchers
)

// estimate is what a request takes. most are the seats that it may take at its
// level; 0: no limit of the level's.
func (c *Controller) estimate(r *Request, f *flow, most int) work {
	if !r.Resource {
		return work{seats: 1}
	}
	switch r.Verb {
	case "list", "watch":
		return work{seats: c.listSeats(r, bound(most, mostListSeats))}
	case "create", "update", "patch", "delete":
		if r.GVR.Resource == "serviceaccounts" && r.Subresource == "token" {
			return work{seats: 1} // changes nothing that is watched
		}
		watchers := c.watches.interested(r)
		f.counts.watchers.Observe(float64(watchers))
		return writeWork(watchers, bound(most, mostWriteSeats))
	}
	return work{seats: 1}
}

func bound(most, limit int) int {
	if most == 0 {
		return limit
	}
	return min(most, limit)
}

// writeWork: to tell many watchers takes seats of its own. If there are more than
// the level has to give, fewer for longer.
func writeWork(watchers, most int) work {
	if watchers < watchesPerSeat {
		return work{seats: 1}
	}
	w := work{seats: 1, final: (watchers + watchesPerSeat - 1) / watchesPerSeat, extra: perEvent}
	w.narrow(most)
	return w
}

// listSeats: lists, and watches that begin with one, cost by the bytes that they
// hold.
func (c *Controller) listSeats(r *Request, most int) int {
	query := r.URL.Query()
	var o metav1.ListOptions
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, &o, nil); err != nil {
		return most // it will be refused
	}
	watch := r.Verb == "watch"
	if watch && (o.SendInitialEvents == nil || !*o.SendInitialEvents) && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return 1
	}
	if c.Objects == nil {
		return 1
	}
	count, bytes := c.Objects(r.GVR.GroupResource())
	if count == 0 {
		return 1
	}
	cached := watch || o.Continue == "" && o.ResourceVersionMatch != metav1.ResourceVersionMatchExact
	loaded := int64(count)
	if o.Limit > 0 {
		loaded = min(loaded, o.Limit)
	}
	switch {
	case r.Name != "":
		loaded = 1
	case !cached && (o.FieldSelector != "" || o.LabelSelector != ""):
		loaded = max(loaded, int64(count/2))
	}
	held := float64(loaded) * float64(bytes) / float64(count)
	if cached {
		held = min(held, mostBytesOfCache)
	}
	return max(1, min(most, int(math.Ceil(held/bytesPerSeat))))
}

// watched is what a watch is of.
type watched struct {
	schema.GroupResource
	namespace, name string
}

// watches counts the watches in progress.
type watches struct {
	mu    sync.Mutex // protects count
	count map[watched]int
}

// begin counts a watch until the returned function is called. One for the pods of
// a node is not counted: it hears of few of the changes.
func (w *watches) begin(r *Request) (end func()) {
	if r.GVR.Resource == "pods" && strings.Contains(r.URL.RawQuery, "nodeName") {
		selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
		if node, ok := "", false; err == nil {
			if node, ok = selector.RequiresExactMatch("spec.nodeName"); ok && node != "" {
				return func() {}
			}
		}
	}
	key := watched{r.GVR.GroupResource(), r.Namespace, r.Name}
	w.add(key, 1)
	return func() { w.add(key, -1) }
}

func (w *watches) add(key watched, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[key] += n; w.count[key] == 0 {
		delete(w.count, key)
	}
}

// interested is the number of watches that may hear of a write.
func (w *watches) interested(r *Request) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := watched{GroupResource: r.GVR.GroupResource()}
	n := w.count[key]
	if r.Namespace != "" {
		key.namespace = r.Namespace
		n += w.count[key]
	}
	if r.Name != "" {
		key.name = r.Name
		n += w.count[key]
	}
	return n
}
