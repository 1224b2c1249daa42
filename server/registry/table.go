package registry

import (
	"slices"
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Table holds every kind that the server serves, built-in and custom. It is
// safe for concurrent use: custom resources come and go while requests run.
type Table struct {
	mu       sync.RWMutex // protects the fields below
	kinds    map[schema.GroupVersionResource]*Kind
	versions []schema.GroupVersion // in discovery order
	changed  chan struct{}         // closed and replaced on every change
}

// NewTable makes a table of the given groups, in that order.
func NewTable(groups ...[]*Kind) *Table {
	t := &Table{kinds: map[schema.GroupVersionResource]*Kind{}, changed: make(chan struct{})}
	for _, kinds := range groups {
		for _, k := range kinds {
			t.put(k)
		}
	}
	return t
}

// Find returns the row that a URL names, or nil.
func (t *Table) Find(gvr schema.GroupVersionResource) *Kind {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.kinds[gvr]
}

// FindKind returns the row of a group, version and kind, or nil.
func (t *Table) FindKind(gvk schema.GroupVersionKind) *Kind {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, k := range t.kinds {
		if k.GroupVersionKind == gvk {
			return k
		}
	}
	return nil
}

// Stored is the row of the version in which a resource is stored, or nil.
func (t *Table) Stored(gr schema.GroupResource) *Kind {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, k := range t.kinds {
		if stored := k.Stored(); stored.GroupResource() == gr {
			return stored
		}
	}
	return nil
}

// Versions lists the served group versions in discovery order.
func (t *Table) Versions() []schema.GroupVersion {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return append([]schema.GroupVersion(nil), t.versions...)
}

// Kinds lists every row, ordered by group, version and plural name.
func (t *Table) Kinds() []*Kind {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*Kind, 0, len(t.kinds))
	for _, k := range t.kinds {
		all = append(all, k)
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.Group != b.Group {
			return a.Group < b.Group
		}
		if a.Version != b.Version {
			return a.Version < b.Version
		}
		return a.Plural < b.Plural
	})
	return all
}

// Within reports whether a rule that names resources, or all, has to do with what is
// in namespaces. What the table does not know may be.
func (t *Table) Within(resources []string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.ContainsFunc(resources, func(resource string) bool {
		known := false
		for _, k := range t.kinds {
			if k.Plural == resource {
				if known = true; k.Namespaced {
					return true
				}
			}
		}
		return !known
	})
}

// Put adds rows, or replaces those of the same group, version and plural.
func (t *Table) Put(kinds ...*Kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range kinds {
		t.put(k)
	}
	t.notify()
}

// Remove takes rows out of the table.
func (t *Table) Remove(gvrs ...schema.GroupVersionResource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, gvr := range gvrs {
		delete(t.kinds, gvr)
	}
	kept := t.versions[:0:0]
	for _, gv := range t.versions {
		for gvr := range t.kinds {
			if gvr.GroupVersion() == gv {
				kept = append(kept, gv)
				break
			}
		}
	}
	t.versions = kept
	t.notify()
}

// Changed is closed at the next change of the table: what is derived from it
// (discovery, OpenAPI) waits on it.
func (t *Table) Changed() <-chan struct{} {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.changed
}

func (t *Table) put(k *Kind) {
	t.kinds[k.GroupVersionResource()] = k
	for _, gv := range t.versions {
		if gv == k.GroupVersion() {
			return
		}
	}
	// A version of a group that is there already goes where its maturity puts it.
	at := len(t.versions)
	for i, gv := range t.versions {
		if gv.Group == k.Group && version.CompareKubeAwareVersionStrings(gv.Version, k.Version) < 0 {
			at = i
			break
		}
	}
	t.versions = slices.Insert(t.versions, at, k.GroupVersion())
}

func (t *Table) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}
