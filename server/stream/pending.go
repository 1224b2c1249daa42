package stream

import (
	"encoding/json"

	"orrery.dev/api"
)

// chunk is how many rows go into one message, so that the first rows of a large
// snapshot are on screen before the last are encoded.
const chunk = 2000

// tell is api.Tell with rows that are encoded already.
type tell struct {
	ID       int               `json:"id"`
	Type     string            `json:"type"`
	Revision string            `json:"revision,omitempty"`
	Columns  []api.RowColumn   `json:"columns,omitempty"`
	Reset    bool              `json:"reset,omitempty"`
	Rows     []json.RawMessage `json:"rows,omitempty"`
	Gone     []string          `json:"gone,omitempty"`
	Object   json.RawMessage   `json:"object,omitempty"`
	Live     bool              `json:"live,omitempty"`
	Error    *api.Error        `json:"error,omitempty"`
}

// pending is what a client has not been told yet: the last change per object.
// It does no I/O and is not safe for concurrent use.
type pending struct {
	reset    bool // everything told before is void
	loading  bool // a snapshot is being collected: nothing to tell yet
	notice   bool // there is something to tell even if no row changed
	live     bool
	revision string
	order    []string // UIDs in order of their first pending change
	changes  map[string]Event
}

// begin voids everything and starts to collect a snapshot.
func (p *pending) begin() {
	*p = pending{reset: true, loading: true, live: true, changes: map[string]Event{}}
}

// resume starts to collect changes after what the client has.
func (p *pending) resume(revision string) {
	if p.changes == nil {
		p.changes = map[string]Event{}
	}
	if p.revision == "" {
		p.revision = revision
	}
	p.live, p.notice = true, true
}

// stale tells the client that its view may be behind.
func (p *pending) stale() {
	if p.live {
		p.live, p.notice = false, true
	}
}

// add merges a batch.
func (p *pending) add(b Batch, keep func(namespace string) bool) {
	for _, e := range b.Events {
		if !keep(e.Namespace) {
			continue
		}
		_, known := p.changes[e.UID]
		if e.Gone && p.reset {
			// The client has not heard of it, and a reset drops what it had.
			delete(p.changes, e.UID)
			continue
		}
		if !known {
			p.order = append(p.order, e.UID)
		}
		p.changes[e.UID] = e
	}
	if b.Revision != "" {
		p.revision = b.Revision
	}
	if b.Synced && p.loading {
		p.loading, p.notice = false, true
	}
}

// empty reports whether there is nothing to tell.
func (p *pending) empty() bool { return p.loading || !p.notice && len(p.changes) == 0 }

// rows takes the next message about rows. A message that does not empty p has
// no revision, and is not acknowledged: a client can only resume from a whole
// one.
func (p *pending) rows(encode func(any) (json.RawMessage, error)) (tell, error) {
	t := tell{Type: "rows", Reset: p.reset}
	n := 0
	for _, uid := range p.order {
		if len(t.Rows)+len(t.Gone) == chunk {
			break
		}
		n++
		e, ok := p.changes[uid]
		if !ok {
			continue // came and went, or is later in the order again
		}
		delete(p.changes, uid)
		if e.Gone {
			t.Gone = append(t.Gone, uid)
			continue
		}
		row, err := encode(e.Object)
		if err != nil {
			return tell{}, err
		}
		t.Rows = append(t.Rows, row)
	}
	p.order, p.reset, p.notice = p.order[n:], false, false
	if len(p.changes) == 0 {
		p.order = nil
		t.Revision, t.Live = p.revision, p.live
	}
	return t, nil
}

// object takes the message of an object view: the last state only.
func (p *pending) object(encode func(any) (json.RawMessage, error)) (tell, error) {
	t := tell{Type: "object", Reset: p.reset, Revision: p.revision, Live: p.live}
	for _, uid := range p.order {
		e, ok := p.changes[uid]
		switch {
		case !ok:
		case e.Gone:
			t.Gone = append(t.Gone, uid)
		default:
			whole, err := encode(e.Object)
			if err != nil {
				return tell{}, err
			}
			t.Object = whole
		}
	}
	p.order, p.changes, p.reset, p.notice = nil, map[string]Event{}, false, false
	return t, nil
}
