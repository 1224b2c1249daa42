package storage

import (
	"bytes"
	"context"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"orrery.dev/trace"
)

// Create stores a new object.
func (c *Collection) Create(ctx context.Context, obj runtime.Object, o WriteOptions) (*Item, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if m.GetResourceVersion() != "" {
		return nil, errVersionOnCreate
	}
	name := m.GetName()
	key := c.key(m.GetNamespace(), name)
	w, err := c.newWrite(key, obj, 0)
	if err != nil {
		return nil, err
	}
	if o.DryRun {
		kv, _, err := c.store.backend.Get(ctx, key)
		if err != nil {
			return nil, backendError(c.resource.GroupResource, "create", err)
		}
		if kv != nil {
			return nil, apierrors.NewAlreadyExists(c.resource.GroupResource, name)
		}
		return w.item, nil
	}
	item, _, err := c.commit(ctx, key, w)
	if err != nil {
		return nil, backendError(c.resource.GroupResource, "create", err)
	}
	if item == nil {
		return nil, apierrors.NewAlreadyExists(c.resource.GroupResource, name)
	}
	return item, nil
}

// newWrite encodes an object and decodes it again: what a client is answered is
// what every other client will read, not what was sent.
func (c *Collection) newWrite(key string, obj runtime.Object, guard int64) (*pendingWrite, error) {
	value, err := c.resource.encode(obj)
	if err != nil {
		return nil, err
	}
	item, err := c.resource.decodeItem(KV{Key: key, Value: value})
	if err != nil {
		return nil, err
	}
	return &pendingWrite{plain: value, guard: guard, item: item}, nil
}

// commit makes the guarded transaction. Of a write that came too late it
// returns no item but what is there instead (nil: nothing).
func (c *Collection) commit(ctx context.Context, key string, w *pendingWrite) (*Item, *KV, error) {
	lease, err := c.leases.lease(ctx)
	if err != nil {
		return nil, nil, err
	}
	if w.value, err = c.seal(ctx, key, w.plain); err != nil {
		return nil, nil, err
	}
	c.inflight.add(key, w)
	step := trace.LastStep(ctx, "etcd commit")
	out, err := c.store.backend.Put(ctx, key, w.value, w.guard, lease)
	step.EndQuietly(err)
	if err != nil || !out.Done || !c.isSynced() {
		c.inflight.drop(key, w)
	}
	if err != nil || !out.Done {
		return nil, out.Current, err
	}
	if item := w.finish(out.Revision); item != nil {
		return item, nil, nil
	}
	item, _, err := c.decode(ctx, &KV{Key: key, Value: w.value, Mod: out.Revision})
	return item, nil, err
}

// state is the object that a write starts from. One from the cache may be old:
// whatever speaks against the write then has to be checked with etcd, and so has
// that there is nothing to write.
type state struct {
	item     *Item
	stale    bool
	outdated bool // as in decodeItem; unknown if stale
}

// current finds the state to start from, in the cache if it is there.
func (c *Collection) current(ctx context.Context, key, name string) (state, error) {
	if item, _ := c.lookup(key); item != nil {
		return state{item: item, stale: true}, nil
	}
	item, outdated, err := c.getDirect(ctx, key, name)
	return state{item: item, outdated: outdated}, err
}

// refresh replaces a state from the cache by etcd's. It reports whether that
// is another one, or has to be written in any case; if not, what spoke against
// the write stands.
func (c *Collection) refresh(ctx context.Context, key string, s *state) (changed bool, err error) {
	if !s.stale {
		return false, nil
	}
	fresh, outdated, err := c.getDirect(ctx, key, s.item.Name)
	if err != nil {
		return false, err
	}
	changed = fresh.Revision != s.item.Revision
	if !changed {
		fresh = s.item
	}
	*s = state{item: fresh, outdated: outdated}
	return changed || outdated, nil
}

// Update changes an object.
func (c *Collection) Update(ctx context.Context, namespace, name string, o WriteOptions, change func(runtime.Object) (runtime.Object, error)) (*Item, error) {
	key := c.key(namespace, name)
	from, err := c.current(ctx, key, name)
	if err != nil {
		return nil, err
	}
	for {
		w, err := c.changed(key, from, o, change)
		if err != nil || w == nil {
			changed, refreshErr := c.refresh(ctx, key, &from)
			switch {
			case refreshErr != nil:
				return nil, refreshErr
			case changed:
				continue
			case err != nil:
				return nil, err
			}
			return from.item, nil // nothing to write
		}
		if o.DryRun {
			w.item.setRevision(from.item.Revision)
			return w.item, nil
		}
		item, instead, err := c.commit(ctx, key, w)
		switch {
		case err != nil:
			return nil, backendError(c.resource.GroupResource, "update", err)
		case item != nil:
			return item, nil
		case instead == nil:
			return nil, apierrors.NewNotFound(c.resource.GroupResource, name)
		}
		from.stale = false
		if from.item, from.outdated, err = c.decode(ctx, instead); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// changed applies a change to a state. It returns no write if the result is what
// was there.
func (c *Collection) changed(key string, s state, o WriteOptions, change func(runtime.Object) (runtime.Object, error)) (*pendingWrite, error) {
	from := s.item
	if err := checkPreconditions(c.resource.GroupResource, key, o.Preconditions, from); err != nil {
		return nil, err
	}
	obj, err := change(from.Object().DeepCopyObject())
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if rv := m.GetResourceVersion(); rv != "" && rv != strconv.FormatInt(from.Revision, 10) {
		return nil, errConflict(c.resource.GroupResource, from.Name)
	}
	w, err := c.newWrite(key, obj, from.Revision)
	if err == nil && bytes.Equal(from.value, w.plain) && !s.outdated {
		return nil, nil
	}
	return w, err
}

// Delete removes an object.
func (c *Collection) Delete(ctx context.Context, namespace, name string, o WriteOptions, check func(runtime.Object) error) (*Item, error) {
	key := c.key(namespace, name)
	from, err := c.current(ctx, key, name)
	if err != nil {
		return nil, err
	}
	for {
		err := checkPreconditions(c.resource.GroupResource, key, o.Preconditions, from.item)
		if err == nil && check != nil {
			err = check(from.item.Object())
		}
		if err != nil {
			changed, refreshErr := c.refresh(ctx, key, &from)
			if refreshErr != nil {
				return nil, refreshErr
			}
			if !changed {
				return nil, err
			}
			continue
		}
		if o.DryRun {
			return from.item, nil
		}
		step := trace.LastStep(ctx, "etcd commit")
		out, err := c.store.backend.Delete(ctx, key, from.item.Revision)
		step.EndQuietly(err)
		switch {
		case err != nil:
			return nil, backendError(c.resource.GroupResource, "delete", err)
		case out.Done:
			return from.item.AtRevision(out.Revision), nil
		case out.Current == nil:
			return nil, apierrors.NewNotFound(c.resource.GroupResource, name)
		}
		from.stale = false
		if from.item, _, err = c.decode(ctx, out.Current); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// DeleteUnreadable removes an object that is stored and cannot be read. One that can
// is not touched.
func (c *Collection) DeleteUnreadable(ctx context.Context, namespace, name string, dryRun bool) error {
	gr, key := c.resource.GroupResource, c.key(namespace, name)
	kv, _, err := c.store.backend.Get(ctx, key)
	switch {
	case err != nil:
		return backendError(gr, "delete", err)
	case kv == nil:
		return apierrors.NewNotFound(gr, name)
	}
	if _, _, err := c.decode(ctx, kv); err == nil {
		return errUnfit(gr, key, name, "unsafe deletion is not allowed because the object is decodable from storage")
	}
	if dryRun {
		return nil
	}
	out, err := c.store.backend.Delete(ctx, key, kv.Mod)
	if err == nil && !out.Done {
		return errConflict(gr, name)
	}
	return backendError(gr, "delete", err)
}

// CheckAbsent compares what a client said about an object's identity with that of
// none.
func (c *Collection) CheckAbsent(namespace, name string, p *metav1.Preconditions) error {
	return checkPreconditions(c.resource.GroupResource, c.key(namespace, name), p, &Item{Name: name})
}
