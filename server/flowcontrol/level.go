package flowcontrol

import (
	"math"
	"slices"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// level is a priority level: seats, and queues of those who wait for one.
//
// A flow is dealt a hand of queues and joins the shortest of them, so that flows
// of many requests fill their own few queues and leave the others' alone. The
// next to be served is the one that would be done first if all queues were served
// at once, a seat-second of each in turn. virtual is the time of that imagined
// service, in seat-seconds that each queue has been served; a queue's next is when
// in it the first request in line begins.
//
//	           +--- no seat, queue full, or no queues: refused
//	arrives ---+--- waits ---+--- gives up
//	           +-------------+--- is served --- lingers --- gone
type level struct {
	name  string
	gauge levelMetrics // its own synchronization, but see advance
	pace  pace

	mu sync.Mutex // protects the fields below
	// object is what it is configured by.
	object *flowcontrolv1.PriorityLevelConfiguration
	// unwanted: its object is gone. It goes when nobody is in it any more.
	unwanted bool
	exempt   bool
	bounds   bounds
	limit    int // of seats, for now
	// desired queues, of which a flow gets hand, and each holds length. There may
	// be more that are not empty yet. 0: whoever finds no seat is refused.
	desired, hand, length int
	queues                []*queue
	next                  int  // the queue to look at first
	loose                 line // those who are served without having been in a queue

	now     time.Time
	virtual float64
	active  int // queues that somebody is in

	waiting, seatsWaiting                    int
	executing, seats                         int // seats: of those who linger too
	dispatched, refused, timedOut, cancelled int
	demand                                   demand
}

// queue is one of a level's. Invariant: next is not before the first in line came.
type queue struct {
	waiting, executing line
	seats              int     // of those being served
	work               float64 // of those waiting
	next               float64
}

func (q *queue) empty() bool { return q.waiting.n+q.executing.n == 0 }

// settle keeps the invariant: a queue has no claim to the time before it had
// anybody.
func (q *queue) settle() {
	if first := q.waiting.first(); first != nil {
		q.next = max(q.next, first.virtual)
	}
}

// line is a list of passes.
type line struct {
	head, tail *Pass
	n          int
}

func (l *line) first() *Pass { return l.head }

func (l *line) push(p *Pass) {
	p.prev, p.next, p.in = l.tail, nil, l
	if l.tail == nil {
		l.head = p
	} else {
		l.tail.next = p
	}
	l.tail = p
	l.n++
}

// leave takes a pass out of the line that it is in.
func (p *Pass) leave() {
	l := p.in
	if p.prev == nil {
		l.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.in = nil, nil, nil
	l.n--
}

// all are the passes in the line.
func (l *line) all(yield func(*Pass) bool) {
	for p := l.head; p != nil && yield(p); p = p.next {
	}
}

// advance brings the level's time up to now. Caller holds mu, as of all below.
func (l *level) advance(now time.Time) {
	elapsed := now.Sub(l.now)
	if elapsed <= 0 {
		return
	}
	l.now = now
	l.demand.add(float64(l.seats+l.seatsWaiting), elapsed)
	l.gauge.add(l, elapsed)
	if l.active > 0 {
		served := min(l.seats+l.seatsWaiting, l.limit)
		l.virtual += elapsed.Seconds() * float64(served) / float64(l.active)
	}
}

// configure takes over an object's queues.
func (l *level) configure(p *flowcontrolv1.PriorityLevelConfiguration) {
	l.object, l.exempt, l.unwanted = p, p.Spec.Exempt != nil, false
	l.desired = 0
	if p.Spec.Limited == nil || p.Spec.Limited.LimitResponse.Queuing == nil {
		return
	}
	q := p.Spec.Limited.LimitResponse.Queuing
	l.desired, l.hand, l.length = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
	for len(l.queues) < l.desired {
		l.queues = append(l.queues, &queue{})
	}
}

// Why requests are refused.
const (
	reasonQueueFull = "queue-full"
	reasonNoSeat    = "concurrency-limit"
	reasonTimeout   = "time-out"
)

// enter seats a pass, or puts it in a queue, and then makes the channel that is
// closed when its turn comes; or it says why the request is refused.
func (l *level) enter(now time.Time, p *Pass, hash uint64) (refusal string) {
	l.advance(now)
	p.arrived, p.virtual = now, l.virtual
	p.work.narrow(l.limit)
	if l.desired == 0 {
		if !l.exempt && !l.fits(p) {
			l.refused++
			return reasonNoSeat
		}
		l.serve(p)
		return ""
	}
	q := l.pick(hash)
	if l.seats >= l.limit && q.waiting.n >= l.length {
		l.refused++
		return reasonQueueFull
	}
	if q.empty() {
		q.next = l.virtual
		l.active++
	}
	p.queue = q
	p.flow.counts.length.Observe(float64(q.waiting.n + 1))
	if l.waiting == 0 && l.seats < l.limit && l.fits(p) {
		l.serve(p) // it would be the next to be served anyway
		return ""
	}
	l.wait(p, 1)
	q.waiting.push(p)
	q.settle()
	l.serveAll()
	if p.started.IsZero() {
		p.turn = make(chan struct{})
	}
	return ""
}

// wait counts a pass that waits (1), or does so no more (-1).
func (l *level) wait(p *Pass, n int) {
	l.waiting += n
	l.seatsWaiting += n * p.work.width()
	p.queue.work += float64(n) * p.work.total()
	p.flow.counts.waiting.Add(int64(n))
	p.flow.counts.seatsWaiting.Add(int64(n * p.work.width()))
}

// fits: a request that is wider than the level gets its turn when it is alone.
func (l *level) fits(p *Pass) bool {
	if p.work.width() > l.limit {
		return l.executing == 0
	}
	return l.seats+p.work.width() <= l.limit
}

// pick chooses the queue of the hand that the least work waits in.
func (l *level) pick(hash uint64) *queue {
	var hand [24]int // the largest that validation lets through is smaller
	cards := deal(hash, l.desired, hand[:min(l.hand, len(hand))])
	best := l.queues[cards[0]]
	for _, card := range cards[1:] {
		// Of equals, the one where fewer are being served.
		if q := l.queues[card]; q.work < best.work || q.work == best.work && q.executing.n < best.executing.n {
			best = q
		}
	}
	return best
}

// deal fills a hand with different cards of a deck, as the hash has it.
func deal(hash uint64, deck int, hand []int) []int {
	for i := range hand {
		card := int(hash % uint64(deck-i))
		hash /= uint64(deck - i)
		at := 0
		for ; at < i && hand[at] <= card; at++ {
			card++ // skip the cards that are dealt; they are in order
		}
		copy(hand[at+1:i+1], hand[at:i])
		hand[at] = card
	}
	return hand
}

// serve gives a pass its seats.
func (l *level) serve(p *Pass) {
	p.started = l.now
	l.dispatched++
	l.count(p, 1)
	l.take(p, 1)
	p.flow.counts.dispatched.Add(1)
	in := &l.loose
	if q := p.queue; q != nil {
		in = &q.executing
		q.next += p.work.total()
	}
	in.push(p)
	if p.turn != nil {
		close(p.turn)
	}
}

func (l *level) count(p *Pass, n int) {
	l.executing += n
	p.flow.counts.executing.Add(int64(n))
}

func (l *level) take(p *Pass, n int) {
	l.seats += n * p.work.width()
	p.flow.counts.seats.Add(int64(n * p.work.width()))
	if p.queue != nil {
		p.queue.seats += n * p.work.width()
	}
}

// serveAll serves those who wait, as far as there are seats. If the next is too
// wide, it is waited for: others must not starve it.
func (l *level) serveAll() {
	for l.waiting > 0 && l.seats < l.limit {
		q := l.soonest()
		p := q.waiting.first()
		if !l.fits(p) {
			p.flow.counts.tooWide.Add(1)
			return
		}
		p.leave()
		l.wait(p, -1)
		l.serve(p)
		q.settle()
	}
}

// soonest is the queue whose first in line would be done first. There is one.
func (l *level) soonest() *queue {
	var best *queue
	least, at := math.Inf(1), l.next
	for i := range l.queues {
		n := (l.next + 1 + i) % len(l.queues)
		q := l.queues[n]
		if first := q.waiting.first(); first != nil && q.next+first.work.total() < least {
			best, least, at = q, q.next+first.work.total(), n
		}
	}
	l.next = at
	return best
}

// giveUp takes a pass out of its queue. It is too late for that if its turn has
// come.
func (l *level) giveUp(now time.Time, p *Pass, cancelled bool) bool {
	l.advance(now)
	if !p.started.IsZero() {
		return false
	}
	p.leave()
	l.wait(p, -1)
	l.refused++
	if cancelled {
		l.cancelled++
	} else {
		l.timedOut++
	}
	p.queue.settle()
	l.retire(p.queue)
	return true
}

// finish ends the service of a pass, and tells how long it lingers on its seats:
// free then takes them back, at once if it does not.
func (l *level) finish(now time.Time, p *Pass) time.Duration {
	l.advance(now)
	l.count(p, -1)
	p.leave()
	if q := p.queue; q != nil {
		q.next += float64(p.work.seats) * (now.Sub(p.started) - guess).Seconds()
		q.settle()
		l.retire(q)
	}
	if p.work.extra == 0 {
		l.free(now, p)
	}
	return p.work.extra
}

func (l *level) free(now time.Time, p *Pass) {
	l.advance(now)
	l.take(p, -1)
	l.serveAll()
}

// retire is called when somebody has left a queue. Queues that are too many go
// when they are empty.
func (l *level) retire(q *queue) {
	if !q.empty() {
		return
	}
	l.active--
	for len(l.queues) > l.desired && l.queues[len(l.queues)-1].empty() {
		l.queues = slices.Delete(l.queues, len(l.queues)-1, len(l.queues))
	}
	if l.active == 0 {
		l.virtual = 0 // nobody remembers
	}
}

func (l *level) idle() bool { return l.waiting+l.executing == 0 }
