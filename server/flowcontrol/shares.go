package flowcontrol

import (
	"math"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// bounds are the seats of a level: those that are its own by its share, and what
// lending and borrowing may make of them.
type bounds struct{ nominal, least, most int }

// shareOf is a level's share of the server's seats.
func shareOf(p *flowcontrolv1.PriorityLevelConfiguration) (shares int32, lendable, borrowing *int32) {
	nominal := (*int32)(nil)
	switch {
	case p.Spec.Limited != nil:
		nominal, lendable, borrowing = p.Spec.Limited.NominalConcurrencyShares, p.Spec.Limited.LendablePercent, p.Spec.Limited.BorrowingLimitPercent
		shares = 30 // the default
	case p.Spec.Exempt != nil:
		nominal, lendable = p.Spec.Exempt.NominalConcurrencyShares, p.Spec.Exempt.LendablePercent
	}
	if nominal != nil {
		shares = *nominal
	}
	return shares, lendable, borrowing
}

// boundsOf divides seats by the level's part of all shares, rounded up.
func boundsOf(p *flowcontrolv1.PriorityLevelConfiguration, seats int, all int64) bounds {
	shares, lendable, borrowing := shareOf(p)
	nominal := 0
	if all > 0 {
		nominal = int(math.Ceil(float64(seats) * float64(shares) / float64(all)))
	}
	percent := func(of *int32, without int) int {
		if of == nil {
			return without
		}
		return int(math.Round(float64(nominal) * float64(*of) / 100))
	}
	return bounds{nominal, nominal - percent(lendable, 0), nominal + percent(borrowing, seats)}
}

// widest is the most seats that one request may take at a level with queues, so
// that it does not hold up too much; 0: the level does not say.
func widest(p *flowcontrolv1.PriorityLevelConfiguration, nominal int) int {
	if p.Spec.Limited == nil || p.Spec.Limited.LimitResponse.Queuing == nil {
		return 0
	}
	hand := int(p.Spec.Limited.LimitResponse.Queuing.HandSize)
	return max(1, min(int(math.Ceil(0.15*float64(nominal))), nominal/hand))
}

// demand is how many seats a level could have used, over a time.
type demand struct {
	seconds, sum, squares, most float64

	// What has come of it.
	high                   int
	average, deviation     float64
	smoothed, target, fair float64
}

func (d *demand) add(seats float64, elapsed time.Duration) {
	s := elapsed.Seconds()
	d.seconds += s
	d.sum += s * seats
	d.squares += s * seats * seats
	d.most = max(d.most, seats)
}

// smoothing makes a demand that is no more count half after five minutes.
const smoothing = 0.977

// draw closes a period of time in which the demand ends at now. What was asked
// for comes down slowly, and goes up at once.
func (d *demand) draw(now float64) {
	d.high = int(max(d.most, now))
	if d.seconds > 0 {
		d.average = d.sum / d.seconds
		d.deviation = math.Sqrt(max(0, d.squares/d.seconds-d.average*d.average))
		envelope := d.average + d.deviation
		d.smoothed = max(envelope, smoothing*d.smoothed+(1-smoothing)*envelope)
	}
	d.seconds, d.sum, d.squares, d.most = 0, 0, 0, now
}

// claim is what a level may have and would like to have.
type claim struct{ least, most, target float64 }

// allot divides seats so that every level gets the same fraction of its target,
// within its bounds. The seats are assumed to be between the sums of both bounds;
// if they are not, all get the bound that is nearer.
func allot(seats float64, claims []claim) (allotted []float64, fair float64) {
	const tiny = 0.001 // a target of nothing has no fractions
	allotted = make([]float64, len(claims))
	sum := func(fraction float64) (sum float64) {
		for i, c := range claims {
			allotted[i] = max(c.least, min(c.most, fraction*max(c.target, tiny)))
			sum += allotted[i]
		}
		return sum
	}
	low, high := 0.0, 1.0
	for sum(high) < seats && high < 1e12 {
		high *= 2
	}
	for range 100 { // the sum grows with the fraction
		if fair = (low + high) / 2; sum(fair) < seats {
			low = fair
		} else {
			high = fair
		}
	}
	sum(fair)
	return allotted, fair
}

// rebalance gives every level its limit for the time to come: what levels do not
// use, others may borrow, and what they use again, they get back.
func (c *Controller) rebalance(now time.Time) {
	left, leasts, floors := c.nominal, 0, 0
	floor := map[*level]int{} // what a level has use for, of its own
	var order []*level
	var claims []claim
	for _, l := range c.levels {
		l.mu.Lock()
		l.advance(now)
		l.demand.draw(float64(l.seats + l.seatsWaiting))
		if l.exempt {
			floor[l] = max(l.bounds.least, l.demand.high)
			left -= floor[l]
		} else {
			floor[l] = max(l.bounds.least, min(l.bounds.nominal, l.demand.high))
			l.demand.target = max(float64(floor[l]), l.demand.smoothed)
			order = append(order, l)
			claims = append(claims, claim{float64(floor[l]), float64(l.bounds.most), l.demand.target})
			leasts, floors = leasts+l.bounds.least, floors+floor[l]
		}
		l.mu.Unlock()
	}
	limits := floor
	c.fair.Store(0)
	switch {
	case left <= leasts:
		for _, l := range order {
			limits[l] = l.bounds.least
		}
	case left <= floors:
		part := float64(left-leasts) / float64(floors-leasts)
		for _, l := range order {
			limits[l] = l.bounds.least + int(math.Round(float64(floor[l]-l.bounds.least)*part))
		}
	default:
		allotted, fair := allot(float64(c.nominal), claims)
		c.fair.Store(math.Float64bits(fair))
		for i, l := range order {
			limits[l] = int(math.Round(allotted[i]))
		}
	}
	for l, limit := range limits {
		l.mu.Lock()
		l.advance(now)
		l.limit = limit
		l.serveAll()
		l.mu.Unlock()
	}
}
