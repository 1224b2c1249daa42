package server

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/admission"
	"orrery.dev/server/auth"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// resourceOf is what storage needs to know of a row.
func resourceOf(k *registry.Kind) storage.Resource {
	return storage.Resource{
		GroupResource: k.GroupResource(),
		Kind:          k.GroupVersionKind,
		Prefix:        k.Prefix,
		Namespaced:    k.Namespaced,
		New:           k.New,
		Decoded:       k.Decoded,
		JSON:          k.JSON,
		TTL:           k.TTL,
		Fields:        k.SelectableFields,
		Default:       k.Default,
		Older: func(stored schema.GroupVersionKind) (storage.Older, bool) {
			older, ok := k.Older(stored)
			return storage.Older(older), ok
		},
	}
}

// nodePortBooks holds the node ports that admission has handed out. It is not a
// kind that is served.
func nodePortBooks() storage.Resource {
	return storage.Resource{
		GroupResource: admission.RangeAllocations(),
		Kind:          corev1.SchemeGroupVersion.WithKind("RangeAllocation"),
		Prefix:        "ranges",
		New:           func() runtime.Object { return &corev1.RangeAllocation{} },
		Fields:        func(runtime.Object) fields.Set { return nil },
	}
}

// isStored tells kinds that are kept from questions that are only answered.
func isStored(k *registry.Kind) bool { return k.Store == nil && k.Can("get") && k.Can("create") }

// storeKinds gives every stored kind of the table its collection, and takes the
// collections of kinds that are gone away. known is what it left last time.
func (s *Server) storeKinds(known map[schema.GroupResource]bool) map[schema.GroupResource]bool {
	now := map[schema.GroupResource]bool{}
	s.Store.Add(nodePortBooks())
	for _, k := range s.Kinds.Kinds() {
		if stored := k.Stored(); isStored(stored) {
			now[stored.GroupResource()] = true
			s.Store.Add(resourceOf(stored))
		}
	}
	for gr := range known {
		if !now[gr] {
			s.Store.Remove(gr)
		}
	}
	return now
}

// followKinds keeps the collections in step with the table until ctx ends.
func (s *Server) followKinds(ctx context.Context) {
	known := s.storeKinds(nil)
	for {
		changed := s.Kinds.Changed()
		known = s.storeKinds(known)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// AuthSource lets the authoriser follow roles and what nodes may see from the
// cache.
type AuthSource struct{ Store *storage.Store }

var _ auth.Source = AuthSource{}

// followRetry is the wait before a failed watch is begun anew.
const followRetry = 200 * time.Millisecond

// Follow implements auth.Source.
func (a AuthSource) Follow(ctx context.Context, resource schema.GroupResource, apply func(changes []auth.Change, reset bool)) error {
	for ctx.Err() == nil {
		if err := a.followOnce(ctx, resource, apply); err != nil && ctx.Err() == nil {
			select {
			case <-time.After(followRetry):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// followOnce lists and then watches until that fails.
func (a AuthSource) followOnce(ctx context.Context, resource schema.GroupResource, apply func([]auth.Change, bool)) error {
	col := a.Store.Collection(resource)
	if col == nil {
		return fmt.Errorf("follow %s: not stored", resource)
	}
	page, err := col.List(ctx, storage.ListOptions{})
	if err != nil {
		return fmt.Errorf("follow %s: %w", resource, err)
	}
	all := make([]auth.Change, len(page.Items))
	for i, item := range page.Items {
		all[i] = auth.Change{Object: item.Object()}
	}
	apply(all, true)
	watcher, err := col.Watch(ctx, storage.WatchOptions{ResourceVersion: fmt.Sprint(page.Revision)})
	if err != nil {
		return fmt.Errorf("follow %s: %w", resource, err)
	}
	for {
		events, err := watcher.Next(ctx)
		if err != nil {
			return fmt.Errorf("follow %s: %w", resource, err)
		}
		var changes []auth.Change
		for _, e := range events {
			if e.Item != nil {
				changes = append(changes, auth.Change{Object: e.Item.Object(), Deleted: e.Type == storage.Deleted})
			}
		}
		if len(changes) > 0 {
			apply(changes, false)
		}
	}
}
