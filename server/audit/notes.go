package audit

import (
	"context"
	"maps"
	"sync"
)

// Notes gathers annotations of work that several requests may share, or whose
// outcome is used again: they are added to the events of those requests later.
type Notes struct {
	mu  sync.Mutex // protects all
	all map[string]string
}

type notesKey struct{}

// WithNotes makes Annotate write to notes instead of a request's event.
func WithNotes(ctx context.Context) (context.Context, *Notes) {
	n := &Notes{}
	return context.WithValue(ctx, notesKey{}, n), n
}

// All is what was noted.
func (n *Notes) All() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.all)
}

func (n *Notes) annotate(key, value string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]string{}
	}
	n.all[key] = value
}
