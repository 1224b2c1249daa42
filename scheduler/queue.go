package scheduler

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"

	"orrery.dev/scheduler/plugins"
)

// Times after which a refused pod is tried again; upstream's.
const (
	firstBackoff = time.Second
	maxBackoff   = 10 * time.Second
	// anyway is when a pod is tried again though nothing seems to have changed.
	anyway = 5 * time.Minute
)

// waiting is a pod that has no node.
//
// It is in exactly one place: ready (to be tried next), backing off (woken, but
// tried too recently: tried early if nothing else is there), resting (its binding
// failed: not tried early), refused (until a change that its refusers care
// about), or being tried (in no list).
type waiting struct {
	pod      *corev1.Pod // the latest version; the queue's lock protects it
	added    time.Time
	attempts int
	refusers []string
	tried    time.Time // of the last attempt
	place    place
	index    int    // in the heap of its place
	seen     uint64 // the queue's change counter when the attempt began
	gone     bool   // deleted or assigned while it was being tried
}

type place int

const (
	beingTried place = iota
	isReady
	backingOff
	isResting
	isRefused
)

func (w *waiting) backoffEnds() time.Time {
	pause := firstBackoff
	for i := 1; i < w.attempts && pause < maxBackoff; i++ {
		pause *= 2
	}
	return w.tried.Add(min(pause, maxBackoff))
}

// queue orders the pods without a node.
type queue struct {
	wakes map[string][]plugins.Change // by plugin name

	mu      sync.Mutex // protects the fields below
	pods    map[types.UID]*waiting
	ready   pile
	backoff pile
	resting pile
	// recent are the latest changes, so that one that came while a pod was
	// being tried is not lost on it.
	changes uint64
	recent  map[plugins.Change]uint64
	nominee map[string]map[types.UID]*corev1.Pod // by node
	ring    chan struct{}                        // holds one when ready may be non-empty
}

func newQueue(all []plugins.Plugin) *queue {
	q := &queue{
		wakes: map[string][]plugins.Change{}, pods: map[types.UID]*waiting{}, recent: map[plugins.Change]uint64{},
		nominee: map[string]map[types.UID]*corev1.Pod{}, ring: make(chan struct{}, 1),
	}
	for _, p := range all {
		q.wakes[p.Name] = p.Wakes
	}
	q.ready.less = func(a, b *waiting) bool {
		pa, pb := schedulinghelper.PodPriority(a.pod), schedulinghelper.PodPriority(b.pod)
		if pa != pb {
			return pa > pb
		}
		return a.added.Before(b.added)
	}
	sooner := func(a, b *waiting) bool { return a.backoffEnds().Before(b.backoffEnds()) }
	q.backoff.less, q.resting.less = sooner, sooner
	return q
}

// add puts a pod in line, or takes over a new version of one that is waiting. A
// version that changes more than the status may fit now.
func (q *queue) add(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.pods[pod.UID]
	if w == nil {
		w = &waiting{pod: pod, added: time.Now()}
		q.pods[pod.UID] = w
		q.nominate(pod, pod.Status.NominatedNodeName)
		q.toReady(w)
		return
	}
	old := w.pod
	w.pod = pod
	if pod.Status.NominatedNodeName != "" || old.Status.NominatedNodeName != "" {
		q.nominate(pod, pod.Status.NominatedNodeName)
	}
	if pod.Generation != old.Generation || !sameLabels(pod.Labels, old.Labels) || len(pod.Spec.Tolerations) != len(old.Spec.Tolerations) ||
		len(pod.Spec.SchedulingGates) != len(old.Spec.SchedulingGates) {
		q.wake(w, plugins.PodItselfChange)
	}
}

func sameLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// remove forgets a pod that was deleted or has a node.
func (q *queue) remove(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.pods[uid]
	if w == nil {
		return
	}
	w.gone = true
	q.unlist(w)
	delete(q.pods, uid)
	q.nominate(w.pod, "")
}

// pop waits for the next pod to try, in its latest version; it fails when ctx
// ends.
func (q *queue) pop(ctx context.Context) (*waiting, *corev1.Pod, error) {
	for {
		if w, pod := q.next(); w != nil {
			return w, pod, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-q.ring:
		}
	}
}

// next takes a pod that is ready. Backing off keeps pods that fit nowhere from
// holding the others up; where there are none, it would be lost time.
func (q *queue) next() (*waiting, *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := &q.ready
	if from.Len() == 0 {
		from = &q.backoff
	}
	if from.Len() == 0 {
		return nil, nil
	}
	w := heap.Pop(from).(*waiting)
	w.place, w.seen = beingTried, q.changes
	w.attempts++
	w.tried = time.Now()
	if q.ready.Len()+q.backoff.Len() > 0 {
		q.knock()
	}
	return w, w.pod
}

// done ends the wait of a pod that got a node (or needs none any more).
func (q *queue) done(w *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[w.pod.UID] == w {
		delete(q.pods, w.pod.UID)
		q.nominate(w.pod, "")
	}
}

// refuse takes back a pod that fitted nowhere.
func (q *queue) refuse(w *waiting, refusers []string, nominated string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.gone {
		return
	}
	w.refusers = refusers
	w.tried = time.Now()
	q.pods[w.pod.UID] = w
	if nominated != "" {
		q.nominate(w.pod, nominated)
	}
	w.place = isRefused
	for change, at := range q.recent {
		if at > w.seen {
			q.wake(w, change)
		}
	}
}

// retry takes back a pod whose binding failed: it fits, but must wait a little.
func (q *queue) retry(w *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.gone {
		return
	}
	w.tried = time.Now()
	q.pods[w.pod.UID] = w
	w.place = isResting
	heap.Push(&q.resting, w)
}

// changed wakes the pods that care.
func (q *queue) changed(change plugins.Change) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changes++
	q.recent[change] = q.changes
	for _, w := range q.pods {
		q.wake(w, change)
	}
}

// wake moves a refused pod on if a refuser cares about the change. Callers hold
// mu.
func (q *queue) wake(w *waiting, change plugins.Change) {
	if w.place != isRefused {
		return
	}
	cares := len(w.refusers) == 0
	for _, name := range w.refusers {
		cares = cares || slices.Contains(q.wakes[name], change)
	}
	if !cares {
		return
	}
	if time.Now().Before(w.backoffEnds()) {
		w.place = backingOff
		heap.Push(&q.backoff, w)
		q.knock()
		return
	}
	q.toReady(w)
}

func (q *queue) toReady(w *waiting) {
	w.place = isReady
	heap.Push(&q.ready, w)
	q.knock()
}

func (q *queue) unlist(w *waiting) {
	switch w.place {
	case isReady:
		heap.Remove(&q.ready, w.index)
	case backingOff:
		heap.Remove(&q.backoff, w.index)
	case isResting:
		heap.Remove(&q.resting, w.index)
	}
	w.place = beingTried
}

func (q *queue) knock() {
	select {
	case q.ring <- struct{}{}:
	default:
	}
}

// run moves pods on whose backoff ended, and those that waited for too long.
func (q *queue) run(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			q.mu.Lock()
			for _, p := range []*pile{&q.backoff, &q.resting} {
				for p.Len() > 0 && !now.Before(p.items[0].backoffEnds()) {
					q.toReady(heap.Pop(p).(*waiting))
				}
			}
			for _, w := range q.pods {
				if w.place == isRefused && now.Sub(w.tried) > anyway {
					q.toReady(w)
				}
			}
			q.mu.Unlock()
		}
	}
}

// nominate notes that room is being made for a pod on a node ("": nowhere).
// Callers hold mu.
func (q *queue) nominate(pod *corev1.Pod, node string) {
	for name, pods := range q.nominee {
		if delete(pods, pod.UID); len(pods) == 0 {
			delete(q.nominee, name)
		}
	}
	if node == "" {
		return
	}
	if q.nominee[node] == nil {
		q.nominee[node] = map[types.UID]*corev1.Pod{}
	}
	q.nominee[node][pod.UID] = pod
}

// nominated are the other pods of at least this priority for which room is being
// made on a node.
func (q *queue) nominated(node string, priority int32, except types.UID) []*corev1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	var pods []*corev1.Pod
	for uid, pod := range q.nominee[node] {
		if uid != except && schedulinghelper.PodPriority(pod) >= priority {
			pods = append(pods, pod)
		}
	}
	return pods
}

// counts are the numbers of pods per place, for metrics.
func (q *queue) counts() (ready, backoff, refused int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	backoff = q.backoff.Len() + q.resting.Len()
	return q.ready.Len(), backoff, len(q.pods) - q.ready.Len() - backoff
}

// pile is a heap of waiting pods; see container/heap.
type pile struct {
	items []*waiting
	less  func(a, b *waiting) bool
}

func (p *pile) Len() int           { return len(p.items) }
func (p *pile) Less(i, j int) bool { return p.less(p.items[i], p.items[j]) }
func (p *pile) Swap(i, j int) {
	p.items[i], p.items[j] = p.items[j], p.items[i]
	p.items[i].index, p.items[j].index = i, j
}

// Push is for container/heap.
func (p *pile) Push(x any) {
	w := x.(*waiting)
	w.index = len(p.items)
	p.items = append(p.items, w)
}

// Pop is for container/heap.
func (p *pile) Pop() any {
	last := len(p.items) - 1
	w := p.items[last]
	p.items[last] = nil
	p.items = p.items[:last]
	return w
}
