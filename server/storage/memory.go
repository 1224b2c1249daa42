package storage

import (
	"context"
	"sort"
	"strings"
	"sync"
	"time"
)

// Memory is a Backend for tests and short-lived servers: the same semantics as
// etcd's, history and compaction included, in a map.
type Memory struct {
	mu        sync.Mutex // protects the fields below
	revision  int64
	compacted int64
	history   map[string][]Change // per key, oldest first
	log       []Change            // of all keys, from compacted on
	attached  map[int64]map[string]bool
	timers    map[int64]*time.Timer
	lastLease int64
	asked     int64 // how often progress was requested
	broken    int64 // how often watches were broken
	breakWith error
	bell      bell
}

// NewMemory makes an empty store. As in etcd, its revision is 1.
func NewMemory() *Memory {
	return &Memory{
		revision: 1,
		history:  map[string][]Change{},
		attached: map[int64]map[string]bool{},
		timers:   map[int64]*time.Timer{},
	}
}

// Get reads one key.
func (m *Memory) Get(ctx context.Context, key string) (*KV, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at(key, m.revision), m.revision, ctx.Err()
}

// at is the key at a revision, or nil.
func (m *Memory) at(key string, revision int64) *KV {
	h := m.history[key]
	i := sort.Search(len(h), func(i int) bool { return h[i].Mod > revision })
	if i == 0 || h[i-1].Deleted {
		return nil
	}
	kv := h[i-1].KV
	return &kv
}

// List reads a range.
func (m *Memory) List(ctx context.Context, start, end string, revision, limit int64) (Range, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case revision == 0:
		revision = m.revision
	case revision > m.revision:
		return Range{}, ErrFuture
	case revision < m.compacted:
		return Range{}, ErrCompacted
	}
	r := Range{Revision: revision}
	for key := range m.history {
		if key < start || key >= end {
			continue
		}
		if kv := m.at(key, revision); kv != nil {
			r.KVs = append(r.KVs, *kv)
		}
	}
	sort.Slice(r.KVs, func(i, j int) bool { return r.KVs[i].Key < r.KVs[j].Key })
	r.Count = int64(len(r.KVs))
	if limit > 0 && limit < r.Count {
		r.KVs = r.KVs[:limit]
	}
	return r, ctx.Err()
}

// Put writes a key if it is unchanged.
func (m *Memory) Put(ctx context.Context, key string, value []byte, guard, lease int64) (Outcome, error) {
	return m.write(ctx, guard, lease, Change{KV: KV{Key: key, Value: append([]byte(nil), value...)}})
}

// Delete removes a key if it is unchanged.
func (m *Memory) Delete(ctx context.Context, key string, guard int64) (Outcome, error) {
	return m.write(ctx, guard, 0, Change{KV: KV{Key: key}, Deleted: true})
}

func (m *Memory) write(ctx context.Context, guard, lease int64, ch Change) (Outcome, error) {
	if err := ctx.Err(); err != nil {
		return Outcome{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.at(ch.Key, m.revision)
	if now == nil && guard != 0 || now != nil && guard != now.Mod {
		return Outcome{Current: now}, nil
	}
	if now == nil && ch.Deleted {
		return Outcome{Done: true, Revision: m.revision}, nil
	}
	m.revision++
	m.record(ch, now)
	for _, keys := range m.attached {
		delete(keys, ch.Key)
	}
	if lease != 0 && m.attached[lease] != nil {
		m.attached[lease][ch.Key] = true
	}
	m.bell.ring()
	return Outcome{Done: true, Revision: m.revision}, nil
}

// record adds a change at the current revision.
func (m *Memory) record(ch Change, before *KV) {
	ch.Mod = m.revision
	if before == nil {
		ch.Create = m.revision
	} else if !ch.Deleted {
		ch.Create = before.Create
	}
	m.history[ch.Key] = append(m.history[ch.Key], ch)
	m.log = append(m.log, ch)
}

// Watch follows a prefix.
func (m *Memory) Watch(ctx context.Context, prefix string, from int64, sink func([]Change, int64)) error {
	m.mu.Lock()
	asked, broken := m.asked, m.broken
	m.mu.Unlock()
	if from == 0 {
		from = 1
	}
	for {
		rung := m.bell.listen()
		m.mu.Lock()
		if m.broken != broken {
			err := m.breakWith
			m.mu.Unlock()
			return err
		}
		if from < m.compacted {
			m.mu.Unlock()
			return ErrCompacted
		}
		changes := m.since(prefix, from)
		progress := m.asked != asked
		asked = m.asked
		revision := m.revision
		m.mu.Unlock()

		if len(changes) > 0 {
			sink(changes, changes[len(changes)-1].Mod)
		}
		if progress {
			sink(nil, max(revision, from-1))
		}
		from = max(from, revision+1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rung:
		}
	}
}

func (m *Memory) since(prefix string, from int64) []Change {
	i := sort.Search(len(m.log), func(i int) bool { return m.log[i].Mod >= from })
	var changes []Change
	for _, ch := range m.log[i:] {
		if strings.HasPrefix(ch.Key, prefix) {
			changes = append(changes, ch)
		}
	}
	return changes
}

// History reads the past.
func (m *Memory) History(ctx context.Context, prefix string, from, to int64, limit int) (all []Past, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if from <= m.compacted {
		return nil, ErrCompacted
	}
	for _, ch := range m.since(prefix, from) {
		if ch.Mod > to {
			break
		}
		if len(all) == limit {
			return nil, ErrCompacted
		}
		all = append(all, Past{ch, m.at(ch.Key, ch.Mod-1)})
	}
	return all, ctx.Err()
}

// RequestProgress makes watches report.
func (m *Memory) RequestProgress(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	m.bell.ring()
	return ctx.Err()
}

// Revision is the current revision.
func (m *Memory) Revision(ctx context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, ctx.Err()
}

// Compact forgets the past.
func (m *Memory) Compact(ctx context.Context, revision int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision > m.revision {
		return ErrFuture
	}
	if revision <= m.compacted {
		return ErrCompacted
	}
	m.compact(revision)
	return ctx.Err()
}

// compact drops what no revision from this one on can see. Caller holds mu.
func (m *Memory) compact(revision int64) {
	m.compacted = revision
	for key, h := range m.history {
		i := sort.Search(len(h), func(i int) bool { return h[i].Mod > revision })
		if i > 0 && !h[i-1].Deleted {
			i--
		}
		if h = h[i:]; len(h) == 0 {
			delete(m.history, key)
			continue
		}
		m.history[key] = h
	}
	i := sort.Search(len(m.log), func(i int) bool { return m.log[i].Mod >= revision })
	m.log = append([]Change(nil), m.log[i:]...)
}

// Grant makes a lease, which ends by itself.
func (m *Memory) Grant(ctx context.Context, ttl time.Duration) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastLease++
	id := m.lastLease
	m.attached[id] = map[string]bool{}
	m.timers[id] = time.AfterFunc(ttl, func() { m.expire(id) })
	return id, ctx.Err()
}

// expire removes a lease's keys in one revision, as etcd does.
func (m *Memory) expire(lease int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for key := range m.attached[lease] {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	delete(m.attached, lease)
	delete(m.timers, lease)
	if len(keys) == 0 {
		return
	}
	before := m.revision
	m.revision++
	for _, key := range keys {
		if now := m.at(key, before); now != nil {
			m.record(Change{KV: KV{Key: key}, Deleted: true}, now)
		}
	}
	m.bell.ring()
}

// Break ends all running watches with an error, as a lost connection would.
func (m *Memory) Break(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken++
	m.breakWith = err
	m.bell.ring()
}

// Close stops the clocks of leases.
func (m *Memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.timers {
		t.Stop()
	}
}
