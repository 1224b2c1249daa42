package storage

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Get reads one object.
func (c *Collection) Get(ctx context.Context, namespace, name, rv string) (*Item, error) {
	key := c.key(namespace, name)
	wanted, err := parseVersion(rv)
	if err != nil {
		return nil, err
	}
	switch err := c.await(ctx, rv, wanted); {
	case errors.Is(err, errUnsynced):
		item, _, err := c.getDirect(ctx, key, name)
		return item, err
	case err != nil:
		return nil, backendError(c.resource.GroupResource, "get", err)
	}
	item, err := c.lookup(key)
	if err == nil && item == nil {
		err = apierrors.NewNotFound(c.resource.GroupResource, name)
	}
	return item, err
}

// await waits until the cache is as new as a resourceVersion asks for. It does
// not wait for a cache that is being loaded anew: etcd is quicker then.
func (c *Collection) await(ctx context.Context, rv string, wanted int64) error {
	switch {
	case rv == "":
		err := c.awaitNow(ctx)
		c.count(c.store.metrics.consistent, 1, strconv.FormatBool(err == nil), strconv.FormatBool(errors.Is(err, errUnsynced)))
		return err
	case wanted == 0:
		return c.waitLoaded(ctx)
	}
	return c.atLeast(ctx, wanted)
}

func (c *Collection) awaitNow(ctx context.Context) error {
	if err := c.waitLoaded(ctx); err != nil {
		return err
	}
	if !c.isSynced() {
		return errUnsynced
	}
	return c.fresh(ctx)
}

// getDirect reads one object from etcd; outdated is as in decodeItem.
func (c *Collection) getDirect(ctx context.Context, key, name string) (item *Item, outdated bool, err error) {
	kv, _, err := c.store.backend.Get(ctx, key)
	if err != nil {
		return nil, false, backendError(c.resource.GroupResource, "get", err)
	}
	if kv == nil {
		return nil, false, apierrors.NewNotFound(c.resource.GroupResource, name)
	}
	return c.decode(ctx, kv)
}

// List reads the objects that a selection picks, in pages if asked to.
func (c *Collection) List(ctx context.Context, o ListOptions) (*Page, error) {
	page, err := c.list(ctx, o)
	if err != nil {
		return nil, backendError(c.resource.GroupResource, "list", err)
	}
	return page, nil
}

func (c *Collection) list(ctx context.Context, o ListOptions) (*Page, error) {
	if o.Continue != "" {
		return c.listOn(ctx, o)
	}
	wanted, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest("invalid resource version: " + err.Error())
	}
	// A limit with a resourceVersion and no match has always meant Exact.
	if wanted > 0 && (o.Match == metav1.ResourceVersionMatchExact || o.Match == "" && o.Limit > 0) {
		return c.listAt(ctx, o, wanted, "")
	}
	if o.ResourceVersion == "0" {
		o.Limit = 0 // as upstream: "any" is answered from memory, at once
	}
	switch err := c.await(ctx, o.ResourceVersion, wanted); {
	case errors.Is(err, errUnsynced):
		return c.listDirect(ctx, o, 0, "")
	case err != nil:
		return nil, err
	}
	if field, value, ok := o.exact(); ok {
		p := c.listIndexed(o.Selection, field, value)
		if o.Limit == 0 || int64(len(p.Items)) <= o.Limit {
			return p, nil
		}
	}
	return c.page(c.snapshot(), o, ""), nil
}

// listOn continues a list in pages.
func (c *Collection) listOn(ctx context.Context, o ListOptions) (*Page, error) {
	t, err := decodeToken(o.Continue)
	if err != nil {
		return nil, err
	}
	if o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if t.Revision > 0 {
		return c.listAt(ctx, o, t.Revision, t.Start)
	}
	if err := c.fresh(ctx); err != nil {
		return c.listDirect(ctx, o, 0, t.Start)
	}
	return c.page(c.snapshot(), o, t.Start), nil
}

// listAt reads the state at exactly one revision, from the cache if it has it.
func (c *Collection) listAt(ctx context.Context, o ListOptions, rev int64, start string) (*Page, error) {
	var page *Page
	err := ErrCompacted
	if rev >= c.store.compacted.Load() {
		if s, ok := c.snapshotAt(rev); ok {
			return c.page(s, o, start), nil
		}
		page, err = c.listDirect(ctx, o, rev, start)
	}
	switch {
	case errors.Is(err, ErrFuture):
		current, err := c.store.Revision(ctx)
		if err != nil {
			return nil, err
		}
		return nil, errTooLarge(rev, current)
	case errors.Is(err, ErrCompacted) && start == "":
		return nil, apierrors.NewResourceExpired(msgListExpired)
	case errors.Is(err, ErrCompacted):
		expired := apierrors.NewResourceExpired(msgContinueMixed)
		expired.ErrStatus.ListMeta.Continue = token{Revision: -1, Start: start}.encode()
		return nil, expired
	}
	return page, err
}

// listIndexed picks by a field that is indexed.
func (c *Collection) listIndexed(s Selection, field, value string) *Page {
	items, rev := c.indexed(field, value)
	fetched := len(items)
	items = slices.DeleteFunc(items, func(i *Item) bool { return !s.matches(i) })
	c.countList("watch_cache", "f:"+field, fetched, 0, len(items))
	return &Page{Items: items, Revision: rev}
}

// page walks a snapshot from start (below the listed prefix) on.
func (c *Collection) page(s snapshot, o ListOptions, start string) *Page {
	p := &Page{Revision: s.rev}
	fetched := 0
	defer func() { c.countList("watch_cache", "", fetched, 0, len(p.Items)) }()
	if name := o.name(); name != "" && start == "" && (o.namespace() != "" || !c.resource.Namespaced) {
		if i, ok := s.tree.Get(&Item{key: c.key(o.namespace(), name)}); ok && o.matches(i) {
			p.Items, fetched = []*Item{i}, 1
		}
		return p
	}
	scope := c.scope(o.Namespace)
	var more int64
	s.tree.AscendGreaterOrEqual(&Item{key: scope + start}, func(i *Item) bool {
		fetched++
		switch {
		case !strings.HasPrefix(i.key, scope):
			return false
		case !o.matches(i):
			return true
		case o.Limit > 0 && int64(len(p.Items)) == o.Limit:
			more++
			return o.everything() // count the rest, or be content that there is one
		}
		p.Items = append(p.Items, i)
		return true
	})
	if more > 0 {
		c.keep(s)
		p.cut(scope, &o.Selection, more)
	}
	return p
}

// cut marks a page as not the last.
func (p *Page) cut(scope string, s *Selection, more int64) {
	last := p.Items[len(p.Items)-1].key
	p.Continue = token{Revision: p.Revision, Start: strings.TrimPrefix(last, scope) + "\x00"}.encode()
	if s.everything() {
		p.Remaining = &more
	}
}

// directPage is how many keys are read at a time when etcd is listed directly.
const directPage = 500

// listDirect reads from etcd, at a revision (0: now).
func (c *Collection) listDirect(ctx context.Context, o ListOptions, rev int64, start string) (*Page, error) {
	scope := c.scope(o.Namespace)
	from, end := scope+start, after(scope)
	p := &Page{}
	fetched, evaluated := 0, 0
	defer func(began time.Time) {
		c.countList("etcd", "", fetched, evaluated, len(p.Items))
		c.observe(c.store.metrics.listing, began, "false")
	}(time.Now())
	for {
		limit := int64(directPage)
		if o.Limit > 0 && o.everything() {
			limit = o.Limit
		}
		r, err := c.store.backend.List(ctx, from, end, rev, limit)
		if err != nil {
			return nil, err
		}
		rev, p.Revision, fetched = r.Revision, r.Revision, fetched+len(r.KVs)
		for n := range r.KVs {
			item, _, err := c.decode(ctx, &r.KVs[n])
			if err != nil {
				return nil, err
			}
			if evaluated++; !o.matches(item) {
				continue
			}
			p.Items = append(p.Items, item)
			if rest := r.Count - int64(n) - 1; o.Limit > 0 && int64(len(p.Items)) == o.Limit {
				if rest > 0 {
					p.cut(scope, &o.Selection, rest)
				}
				return p, nil
			}
		}
		if int64(len(r.KVs)) == r.Count || len(r.KVs) == 0 {
			return p, nil
		}
		from = r.KVs[len(r.KVs)-1].Key + "\x00"
	}
}
