package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

const (
	// garbageLook is the time between two looks for new kinds of objects.
	garbageLook = 10 * time.Second
	// firstWatches bounds how long the collector waits for the caches of all
	// kinds before it starts: one broken kind must not stop all collecting.
	firstWatches = 30 * time.Second
	orphanKey    = "orphan/"
)

// garbageCollector deletes what its owners have left behind, of all kinds,
// custom ones included. garbage_graph.go knows who owns whom; here are the
// watches that feed it and the workers that act on it. Whatever the graph says
// is checked against the server before anything is deleted.
type garbageCollector struct {
	*env
	graph  *graph
	events record.EventRecorder
	ready  atomic.Bool // the graph knows all objects that were there at the start

	mu       sync.Mutex // protects the fields below
	kinds    map[schema.GroupVersionKind]deletable
	watching map[schema.GroupVersionResource]*kindWatch
	wake     func(key string)
}

// kindWatch is the watch of one kind of objects.
type kindWatch struct {
	cancel context.CancelFunc
	done   chan struct{}
	synced func() bool
}

func newGarbageCollector(e *env) Controller {
	c := &garbageCollector{
		env: e, graph: newGraph(), events: e.recorders("garbage-collector-controller"),
		kinds: map[schema.GroupVersionKind]deletable{}, watching: map[schema.GroupVersionResource]*kindWatch{},
	}
	return Controller{
		Name:    "garbage-collector-controller",
		Writes:  []string{"*"},
		Workers: 20,
		Sync:    c.sync,
		Beside:  c.watch,
	}
}

// watch keeps one watch for each kind of objects that can be deleted.
func (c *garbageCollector) watch(ctx context.Context, wake func(string)) error {
	c.mu.Lock()
	c.wake = wake
	c.mu.Unlock()
	defer c.stopAll()
	ticker := time.NewTicker(garbageLook)
	defer ticker.Stop()
	deadline := time.Now().Add(firstWatches)
	c.refresh(ctx)
	settle := time.NewTicker(100 * time.Millisecond)
	defer settle.Stop()
	for !c.ready.Load() {
		select {
		case <-ctx.Done():
			return nil
		case <-settle.C:
			if len(c.watching) == 0 {
				c.refresh(ctx)
			}
			if len(c.watching) > 0 && c.allSynced() || time.Now().After(deadline) {
				c.ready.Store(true)
			}
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.refresh(ctx)
		}
	}
}

func (c *garbageCollector) allSynced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watching {
		if !w.synced() {
			return false
		}
	}
	return true
}

func (c *garbageCollector) stopAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watching {
		w.cancel()
	}
	for _, w := range c.watching {
		<-w.done
	}
}

// refresh starts watches for kinds that have appeared and stops those of kinds
// that are gone. A group that does not answer keeps its watches.
func (c *garbageCollector) refresh(ctx context.Context) {
	lists, err := c.clients.Discovery().ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		slog.Warn("discovery", "controller", "garbage-collector-controller", "err", err)
		return
	}
	found := map[schema.GroupVersionResource]deletable{}
	for _, d := range deletableResources(lists) {
		if d.gvr.Resource == "events" && (d.gvr.Group == "" || d.gvr.Group == "events.k8s.io") {
			continue // they have no owners, and are many
		}
		found[d.gvr] = d
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for gvr, d := range found {
		c.kinds[gvr.GroupVersion().WithKind(d.kind)] = d
		if c.watching[gvr] == nil && d.can("list") && d.can("watch") {
			c.watching[gvr] = c.start(ctx, d)
		}
	}
	if err != nil {
		return
	}
	for gvr, w := range c.watching {
		if _, there := found[gvr]; !there {
			w.cancel()
			delete(c.watching, gvr)
		}
	}
}

func (c *garbageCollector) start(ctx context.Context, d deletable) *kindWatch {
	ctx, cancel := context.WithCancel(ctx)
	informer := metadatainformer.NewFilteredMetadataInformer(c.metadata, d.gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(onlyOwners); err != nil {
		panic(err) // the informer has not started
	}
	ref := func(o *metav1.PartialObjectMetadata) objectRef {
		return objectRef{d.gvr.GroupVersion().String(), d.kind, o.Namespace, o.Name, o.UID}
	}
	observe := func(obj any) {
		if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
			c.queue(c.graph.observe(ref(o), o))
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: observe,
		UpdateFunc: func(before, after any) {
			b, ok1 := before.(*metav1.PartialObjectMetadata)
			a, ok2 := after.(*metav1.PartialObjectMetadata)
			if ok1 && ok2 && b.UID != a.UID { // deleted and made again between two looks
				c.queue(c.graph.forget(b.UID))
			}
			observe(after)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
				c.queue(c.graph.forget(o.UID))
			}
		},
	})
	if err != nil {
		panic(err) // the informer has not stopped
	}
	w := &kindWatch{cancel: cancel, done: make(chan struct{}), synced: registration.HasSynced}
	go func() {
		defer close(w.done)
		informer.RunWithContext(ctx)
	}()
	return w
}

// onlyOwners keeps of an object what the graph needs.
func onlyOwners(obj any) (any, error) {
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	o.ManagedFields, o.Labels, o.Annotations = nil, nil, nil
	return o, nil
}

func (c *garbageCollector) queue(chores []chore) {
	c.mu.Lock()
	wake := c.wake
	c.mu.Unlock()
	for _, one := range chores {
		key := string(one.uid)
		if one.orphan {
			key = orphanKey + key
		}
		wake(key)
	}
}

// api is the client for objects of a kind, or false if the server has no such
// kind (any more).
func (c *garbageCollector) api(ref objectRef) (metadata.ResourceInterface, deletable, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.kinds[schema.FromAPIVersionAndKind(ref.apiVersion, ref.kind)]
	if !ok {
		return nil, d, false
	}
	if d.namespaced {
		return c.metadata.Resource(d.gvr).Namespace(ref.namespace), d, true
	}
	return c.metadata.Resource(d.gvr), d, true
}

func (c *garbageCollector) sync(ctx context.Context, key string) (time.Duration, error) {
	if !c.ready.Load() {
		return time.Second, nil
	}
	if uid, ok := strings.CutPrefix(key, orphanKey); ok {
		return 0, c.orphan(ctx, c.graph.view(types.UID(uid)))
	}
	return c.collect(ctx, c.graph.view(types.UID(key)))
}

// live reads an object; nil without error means that it is gone, or another one
// has its name.
func (c *garbageCollector) live(ctx context.Context, ref objectRef) (*metav1.PartialObjectMetadata, error) {
	api, d, ok := c.api(ref)
	if !ok {
		return nil, fmt.Errorf("%s %s: no such kind", ref.apiVersion, ref.kind)
	}
	if d.namespaced && ref.namespace == "" {
		return nil, nil // a cluster-wide object cannot be owned by one in a namespace
	}
	o, err := api.Get(ctx, ref.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && o.UID != ref.uid {
		return nil, nil
	}
	return o, err
}

// collect looks whether an object still has an owner, and deletes it if not.
func (c *garbageCollector) collect(ctx context.Context, v view) (time.Duration, error) {
	if !v.known || v.deleting && !v.foreground && !v.virtual {
		return 0, nil
	}
	if v.virtual {
		if _, _, ok := c.api(v.objectRef); !ok {
			return garbageLook, nil // an owner of an unknown kind counts as present
		}
	}
	o, err := c.live(ctx, v.objectRef)
	if err != nil {
		return 0, err
	}
	if o == nil {
		c.queue(c.graph.forget(v.uid))
		return 0, nil
	}
	if v.virtual {
		c.graph.confirm(v.uid)
		if v.deleting = o.DeletionTimestamp != nil; v.deleting {
			return 0, nil
		}
	}
	if v.foreground {
		return 0, c.leaveAfterDependents(ctx, v, o)
	}
	if len(o.OwnerReferences) == 0 {
		return 0, nil
	}
	fates, err := c.ownerFates(ctx, v, o)
	if err != nil {
		return 0, err
	}
	return c.act(ctx, v, o, fates)
}

// fates sorts the owners of an object.
type fates struct {
	solid, gone, waiting []metav1.OwnerReference
	unknown              bool // an owner of a kind that the server does not know
}

func (c *garbageCollector) ownerFates(ctx context.Context, v view, o *metav1.PartialObjectMetadata) (fates, error) {
	var f fates
	for _, ref := range o.OwnerReferences {
		owner := objectRef{ref.APIVersion, ref.Kind, v.namespace, ref.Name, ref.UID}
		_, d, ok := c.api(owner)
		if !ok {
			f.unknown = true
			f.solid = append(f.solid, ref)
			continue
		}
		if d.namespaced && v.namespace == "" {
			c.events.Eventf(&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v.apiVersion, Kind: v.kind}, ObjectMeta: o.ObjectMeta},
				"Warning", "OwnerRefInvalidNamespace", "ownerRef [%s] does not exist in namespace %q", ownerText(ref), v.namespace)
			f.solid = append(f.solid, ref) // a mistake of its author's, not a reason to delete
			continue
		}
		if g := c.graph.view(ref.UID); g.known && !g.virtual && (!d.namespaced || g.namespace == v.namespace) && g.kind == ref.Kind && g.name == ref.Name {
			if g.foreground {
				f.waiting = append(f.waiting, ref)
				continue
			}
			f.solid = append(f.solid, ref)
			continue
		} else if g.known && !g.virtual && d.namespaced && g.namespace != v.namespace {
			c.events.Eventf(&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v.apiVersion, Kind: v.kind}, ObjectMeta: o.ObjectMeta},
				"Warning", "OwnerRefInvalidNamespace", "ownerRef [%s] does not exist in namespace %q", ownerText(ref), v.namespace)
		}
		found, err := c.live(ctx, owner)
		switch {
		case err != nil:
			return f, err
		case found == nil:
			f.gone = append(f.gone, ref)
		case found.DeletionTimestamp != nil && slices.Contains(found.Finalizers, metav1.FinalizerDeleteDependents):
			f.waiting = append(f.waiting, ref)
		default:
			f.solid = append(f.solid, ref)
		}
	}
	return f, nil
}

func ownerText(ref metav1.OwnerReference) string {
	return fmt.Sprintf("%s/%s, name: %s, uid: %s", ref.APIVersion, ref.Kind, ref.Name, ref.UID)
}

func (c *garbageCollector) act(ctx context.Context, v view, o *metav1.PartialObjectMetadata, f fates) (time.Duration, error) {
	var again time.Duration
	if f.unknown {
		again = garbageLook
	}
	switch {
	case len(f.solid) > 0 && len(f.gone)+len(f.waiting) == 0:
		return again, nil
	case len(f.solid) > 0: // others still own it: forget those that leave
		keep := slices.DeleteFunc(slices.Clone(o.OwnerReferences), func(r metav1.OwnerReference) bool {
			return !slices.ContainsFunc(f.solid, func(s metav1.OwnerReference) bool { return s.UID == r.UID })
		})
		return again, c.patch(ctx, v.objectRef, o, map[string]any{"ownerReferences": keep})
	case len(f.waiting) > 0 && len(v.dependents) > 0:
		// Its owner waits for it, and it has dependents itself: go in order. A
		// dependent that is also one of the owners would wait for ever.
		if slices.ContainsFunc(v.dependents, func(d dependent) bool { return d.foreground }) {
			if err := c.unblock(ctx, v, o); err != nil {
				return 0, err
			}
		}
		return 0, c.remove(ctx, v.objectRef, o, metav1.DeletePropagationForeground)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return 0, c.remove(ctx, v.objectRef, o, policy)
}

// unblock breaks a circle of owners that wait for each other.
func (c *garbageCollector) unblock(ctx context.Context, v view, o *metav1.PartialObjectMetadata) error {
	owners := slices.Clone(o.OwnerReferences)
	no := false
	changed := false
	for i := range owners {
		if blocks(owners[i]) {
			owners[i].BlockOwnerDeletion, changed = &no, true
		}
	}
	if !changed {
		return nil
	}
	return c.patch(ctx, v.objectRef, o, map[string]any{"ownerReferences": owners})
}

func (c *garbageCollector) remove(ctx context.Context, ref objectRef, o *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	api, _, ok := c.api(ref)
	if !ok {
		return nil
	}
	pre := &metav1.Preconditions{UID: &ref.uid}
	if o.DeletionTimestamp == nil {
		pre.ResourceVersion = &o.ResourceVersion // an owner may just have been added
	}
	err := api.Delete(ctx, ref.name, metav1.DeleteOptions{Preconditions: pre, PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s: %w", ref.kind, ref.namespace, ref.name, err)
	}
	return nil
}

// leaveAfterDependents lets go of an object in foreground deletion once nothing
// blocks it.
func (c *garbageCollector) leaveAfterDependents(ctx context.Context, v view, o *metav1.PartialObjectMetadata) error {
	blocked := false
	for _, d := range v.dependents {
		if d.blocks {
			blocked = true
			if !d.deleting {
				c.queue([]chore{{uid: d.uid}})
			}
		}
	}
	if blocked {
		return nil // woken when the last of them is gone
	}
	return c.dropFinalizer(ctx, v.objectRef, o, metav1.FinalizerDeleteDependents)
}

// orphan takes an object out of its dependents' owners, then lets it go.
func (c *garbageCollector) orphan(ctx context.Context, v view) error {
	if !v.known || v.virtual {
		return nil
	}
	o, err := c.live(ctx, v.objectRef)
	if err != nil || o == nil || !slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents) {
		return err
	}
	errs := parallel(len(v.dependents), func(i int) error {
		ref := v.dependents[i].objectRef
		d, err := c.live(ctx, ref)
		if err != nil || d == nil {
			return err
		}
		keep := slices.DeleteFunc(slices.Clone(d.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == v.uid })
		return c.patch(ctx, ref, d, map[string]any{"ownerReferences": keep})
	})
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("orphan the dependents of %s %s: %w", v.kind, v.name, err)
		}
	}
	return c.dropFinalizer(ctx, v.objectRef, o, metav1.FinalizerOrphanDependents)
}

func (c *garbageCollector) dropFinalizer(ctx context.Context, ref objectRef, o *metav1.PartialObjectMetadata, finalizer string) error {
	keep := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == finalizer })
	if len(keep) == len(o.Finalizers) {
		return nil
	}
	return c.patch(ctx, ref, o, map[string]any{"finalizers": keep})
}

// patch merges fields into an object's metadata, if it is still as we read it.
func (c *garbageCollector) patch(ctx context.Context, ref objectRef, o *metav1.PartialObjectMetadata, fields map[string]any) error {
	api, _, ok := c.api(ref)
	if !ok {
		return nil
	}
	fields["uid"], fields["resourceVersion"] = o.UID, o.ResourceVersion
	data, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	_, err = api.Patch(ctx, ref.name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch %s %s/%s: %w", ref.kind, ref.namespace, ref.name, err)
	}
	return nil
}
