package server

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/fields"

	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// fieldFilter picks objects by fields of the version that is served, where
// storage knows only those of the one that is stored: after a conversion they may
// have other names and values. nil picks all.
type fieldFilter struct {
	call     *call
	selector fields.Selector
}

// hasOwnFields reports whether a kind's selectable fields are not those of the
// stored version.
func hasOwnFields(k *registry.Kind) bool { return k.FromStored != nil && k.Fields != nil }

// splitFields leaves to storage what it can pick by, and returns a filter for the
// rest.
func (c *call) splitFields(sel *storage.Selection) *fieldFilter {
	if sel.Fields == nil || !hasOwnFields(c.kind) {
		return nil
	}
	f := &fieldFilter{c, sel.Fields}
	sel.Fields = nil
	return f
}

func (f *fieldFilter) picks(item *storage.Item) (bool, error) {
	if f == nil {
		return true, nil
	}
	k := f.call.kind
	if !k.Unstructured() {
		served, err := f.call.served(item.Object())
		if err != nil {
			return false, err
		}
		return f.selector.Matches(k.SelectableFields(served)), nil
	}
	// The encoded form is made once for all, and a conversion may be a call to
	// somebody far away.
	body, err := f.call.itemJSON(item)
	if err != nil {
		return false, err
	}
	obj := k.New()
	if err := json.Unmarshal(body, obj); err != nil {
		return false, err
	}
	return f.selector.Matches(k.SelectableFields(obj)), nil
}

// list lists what is picked. Where a page in pieces comes out short of its limit
// it goes on; if that fails, the page stays short, and the client goes on where
// its token says.
func (f *fieldFilter) list(ctx context.Context, col *storage.Collection, o storage.ListOptions) (*storage.Page, error) {
	page, err := col.List(ctx, o)
	if f == nil || err != nil {
		return page, err
	}
	picked, limit := &storage.Page{Revision: page.Revision}, o.Limit
	for {
		for _, item := range page.Items {
			ok, err := f.picks(item)
			if err != nil {
				return nil, err
			}
			if ok {
				picked.Items = append(picked.Items, item)
			}
		}
		picked.Continue = page.Continue
		o.ResourceVersion, o.Match, o.Continue, o.Limit = "", "", page.Continue, limit-int64(len(picked.Items))
		if o.Continue == "" || o.Limit <= 0 {
			return picked, nil
		}
		if page, err = col.List(ctx, o); err != nil {
			return picked, nil
		}
	}
}

// event is what a watcher with this filter sees of a change: objects come and go
// as their fields change.
func (f *fieldFilter) event(e storage.Event) (seen storage.Event, ok bool, err error) {
	if f == nil || e.Item == nil {
		return e, true, nil
	}
	is, err := f.picks(e.Item)
	if err != nil || e.Type != storage.Modified {
		return e, is, err
	}
	was, err := f.picks(e.Prev)
	if err != nil {
		return e, false, err
	}
	switch {
	case is && !was:
		e.Type = storage.Added
	case was && !is:
		e.Type, e.Item = storage.Deleted, e.Prev.AtRevision(e.Revision)
	}
	return e, is || was, nil
}
