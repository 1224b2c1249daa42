package storage

import (
	"context"
	"errors"
	"slices"

	"github.com/google/btree"
)

// prepared is a change whose value is decoded already, outside of any lock.
type prepared struct {
	Change
	item *Item // nil: deleted, or err
	err  error
}

// prepare decodes a batch of changes, or finds the objects that our own writers
// have decoded.
func (c *Collection) prepare(changes []Change) []prepared {
	all := make([]prepared, len(changes))
	for n, ch := range changes {
		all[n].Change = ch
		if ch.Deleted {
			continue
		}
		before, _ := c.lookup(ch.Key)
		if all[n].item = c.inflight.take(ch.KV, before); all[n].item == nil {
			all[n].item, _, all[n].err = c.decodeItem(context.Background(), ch.KV)
		}
	}
	return all
}

// feed takes in the changes of one delivery of the watch.
func (c *Collection) feed(changes []Change) {
	c.count(c.store.metrics.received, len(changes))
	if c.holdSealed(changes) {
		return
	}
	all := c.prepare(changes)
	if slices.ContainsFunc(all, func(p prepared) bool { return isSealed(p.err) }) {
		c.markSealed()
		c.store.reload(c) // will find these changes in etcd
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		c.held = append(c.held, all...)
		return
	}
	c.apply(all)
}

// apply brings the cache up to the last of the changes. Caller holds mu.
func (c *Collection) apply(all []prepared) {
	base := c.rev // several changes may have one revision
	var corrupt []error
	for _, p := range all {
		if p.Mod <= base {
			continue // the load had it
		}
		c.rev = p.Mod
		if p.err != nil {
			corrupt = append(corrupt, p.err)
		}
		c.put(p)
	}
	c.dropKept()
	c.window.ring()
	if len(corrupt) > 0 {
		c.store.options.Log.Error("stored object cannot be read", "resource", c.resource.String(), "err", errors.Join(corrupt...))
	}
}

// put makes one change to the tree and adds it to the window. An object that
// cannot be read counts as none. Caller holds mu.
func (c *Collection) put(p prepared) {
	c.snap = nil
	delete(c.corrupt, p.Key)
	if p.err != nil {
		c.corrupt[p.Key] = p.err
		c.count(c.store.metrics.unread, 1)
	}
	var prev *Item
	if p.item == nil {
		prev, _ = c.tree.Delete(&Item{key: p.Key})
	} else {
		prev, _ = c.tree.ReplaceOrInsert(p.item)
		c.bytes += int64(len(p.item.value))
	}
	if prev != nil {
		c.bytes -= int64(len(prev.value))
	}
	if p.item == nil && prev == nil {
		return
	}
	for field, index := range c.indexes {
		index.move(field, prev, p.item)
	}
	c.window.append(&change{rev: p.Mod, item: p.item, prev: prev})
}

// fieldIndex is the objects by the value of one selectable field. An index is
// made when somebody first selects by the field.
type fieldIndex map[string]*btree.BTreeG[*Item]

func (x fieldIndex) move(field string, from, to *Item) {
	if from != nil && (to == nil || to.Fields[field] != from.Fields[field]) {
		value := from.Fields[field]
		x[value].Delete(from)
		if x[value].Len() == 0 {
			delete(x, value)
		}
	}
	if to != nil {
		value := to.Fields[field]
		if x[value] == nil {
			x[value] = newTree()
		}
		x[value].ReplaceOrInsert(to)
	}
}

// indexed returns the objects whose field has a value, in order, and the
// revision of that state. The slice is the caller's.
func (c *Collection) indexed(field, value string) ([]*Item, int64) {
	c.mu.RLock()
	index, ok := c.indexes[field]
	if !ok {
		c.mu.RUnlock()
		c.makeIndex(field)
		c.mu.RLock()
		index = c.indexes[field]
	}
	defer c.mu.RUnlock()
	return index.list(value), c.at()
}

func (x fieldIndex) list(value string) []*Item {
	tree := x[value]
	if tree == nil {
		return nil
	}
	items := make([]*Item, 0, tree.Len())
	tree.Ascend(func(i *Item) bool {
		items = append(items, i)
		return true
	})
	return items
}

func (c *Collection) makeIndex(field string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index(field)
}

// index returns the index of a field, made if need be. Caller holds mu.
func (c *Collection) index(field string) fieldIndex {
	if x, ok := c.indexes[field]; ok {
		return x
	}
	x := fieldIndex{}
	c.tree.Ascend(func(i *Item) bool {
		x.move(field, nil, i)
		return true
	})
	c.indexes[field] = x
	return x
}

// install takes in a listing at a revision and what the watch has brought
// since it began, unless another load was started meanwhile. It fails if the
// latter cannot be unsealed.
func (c *Collection) install(generation int, items map[string]prepared, rev int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation || c.removed {
		return nil
	}
	if err := c.unsealHeld(); err != nil {
		return err
	}
	c.restart(items, rev)
	select {
	case <-c.loaded:
	default:
		close(c.loaded)
	}
	held := c.held
	c.held, c.synced, c.sealed, c.void = nil, true, false, false
	c.apply(held)
	return nil
}

// restart forgets all that was, watchers included: what happened between the last
// change that was seen and the listing is not known. Caller holds mu.
func (c *Collection) restart(items map[string]prepared, rev int64) {
	c.tree, c.bytes, c.snap, c.kept = newTree(), 0, nil, nil
	c.indexes, c.corrupt = map[string]fieldIndex{}, map[string]error{}
	for key, p := range items {
		if p.err != nil {
			c.corrupt[key] = p.err
			c.count(c.store.metrics.unread, 1)
			c.store.options.Log.Error("stored object cannot be read", "resource", c.resource.String(), "err", p.err)
			continue
		}
		c.tree.ReplaceOrInsert(p.item)
		c.bytes += int64(len(p.item.value))
	}
	c.rev = rev
	c.window.restart(rev)
}
