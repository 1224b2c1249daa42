package storage

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// leases hands out leases of one length. Writes of about the same time share
// one, because a lease costs etcd as much as a write.
type leases struct {
	ttl   time.Duration
	grant func(context.Context, time.Duration) (int64, error)
	full  prometheus.Observer // of how many keys shared a lease

	mu   sync.Mutex // protects the fields below; held while a lease is made
	last int64
	ends time.Time
	keys int
}

// As upstream has it: a lease is shared for 5% of its length, a minute at most,
// by 1,000 keys at most.
const (
	shareLease    = time.Minute
	shareFraction = 20
	maxLeaseKeys  = 1000
)

// lease returns a lease for a write now, or 0 if objects live for ever.
func (l *leases) lease(ctx context.Context) (int64, error) {
	if l.ttl == 0 {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.last != 0 && l.keys < maxLeaseKeys && !l.ends.Before(now.Add(l.ttl)) {
		l.keys++
		return l.last, nil
	}
	length := l.ttl + min(shareLease, l.ttl/shareFraction)
	id, err := l.grant(ctx, length)
	if err != nil {
		return 0, err
	}
	if l.keys > 0 {
		l.full.Observe(float64(l.keys))
	}
	l.last, l.ends, l.keys = id, now.Add(length), 1
	return id, nil
}
