package controllers

import (
	"sync"
	"time"
)

// Status is what one controller has been doing.
type Status struct {
	Name      string    `json:"name"`
	Writes    []string  `json:"writes,omitempty"`
	Depth     int       `json:"depth"` // keys that wait in its queue
	Syncs     uint64    `json:"syncs"`
	Failures  uint64    `json:"failures"`
	LastKey   string    `json:"lastKey,omitempty"`
	LastSync  time.Time `json:"lastSync,omitzero"`
	LastError string    `json:"lastError,omitempty"`
	FailedKey string    `json:"failedKey,omitempty"`
	FailedAt  time.Time `json:"failedAt,omitzero"`
}

// Board holds the state of the controllers that run in this process, for the
// faces and for health checks. Its zero value is ready; give its address to Run.
type Board struct {
	mu    sync.Mutex // protects the fields below
	order []string
	rows  map[string]*Status
	depth map[string]func() int
}

// Snapshot returns the present state, in the order of the list of controllers;
// nothing while another instance leads.
func (b *Board) Snapshot() []Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Status, 0, len(b.order))
	for _, name := range b.order {
		row := *b.rows[name]
		row.Depth = b.depth[name]()
		out = append(out, row)
	}
	return out
}

func (b *Board) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order, b.rows, b.depth = nil, map[string]*Status{}, map[string]func() int{}
}

func (b *Board) add(name string, writes []string, depth func() int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows == nil {
		b.rows, b.depth = map[string]*Status{}, map[string]func() int{}
	}
	b.order = append(b.order, name)
	b.rows[name] = &Status{Name: name, Writes: writes}
	b.depth[name] = depth
}

func (b *Board) synced(name, key string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.rows[name]
	row.Syncs++
	row.LastKey, row.LastSync = key, time.Now()
	if err != nil {
		row.Failures++
		row.LastError, row.FailedKey, row.FailedAt = err.Error(), key, row.LastSync
	}
}
