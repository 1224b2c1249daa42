package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"orrery.dev/trace"
)

// Controller is one loop: what wakes it, what it changes, and how it brings one
// key in order.
type Controller struct {
	Name    string
	Reads   []Source
	Writes  []string // resources it changes, as group/plural
	Workers int      // 0 means 1
	// Every, if set, queues the key "" at the start and then at this interval.
	Every time.Duration
	// Sync brings the object of key in order. It is called again after a
	// positive duration, and with growing delays after an error.
	Sync func(ctx context.Context, key string) (again time.Duration, err error)
	// Beside runs next to the workers, for controllers with sources of their
	// own. It may queue keys and blocks until ctx ends.
	Beside func(ctx context.Context, wake func(key string)) error
}

// Source is an informer and the keys that a change of one of its objects wakes.
// A source without Keys is only read; the workers wait until it has synced.
type Source struct {
	Informer cache.SharedIndexInformer
	Keys     func(obj any) []string
	// Changed, if set, says whether an update is worth a wake.
	Changed func(before, after any) bool
	// NotNew means that an object wakes nobody by coming into being.
	NotNew bool
	// self: its objects are what the controller works on.
	self bool
}

// wakes makes a source of the objects of type T.
func wakes[T any](informer cache.SharedIndexInformer, keys func(T) []string) Source {
	return Source{Informer: informer, Keys: func(obj any) []string {
		if o, ok := obj.(T); ok {
			return keys(o)
		}
		return nil
	}}
}

// wakesSelf makes a source whose objects are what the controller works on.
func wakesSelf(informer cache.SharedIndexInformer) Source {
	return Source{Informer: informer, self: true, Keys: func(obj any) []string {
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return nil
		}
		return []string{key}
	}}
}

// reads makes a source that wakes nobody.
func reads(informer cache.SharedIndexInformer) Source { return Source{Informer: informer} }

// when narrows a source to the updates that changed approves of.
func when[T any](s Source, changed func(before, after T) bool) Source {
	s.Changed = func(before, after any) bool {
		b, ok1 := before.(T)
		a, ok2 := after.(T)
		return !ok1 || !ok2 || changed(b, a)
	}
	return s
}

const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 5 * time.Minute
)

// loop is a Controller that is being run.
type loop struct {
	Controller
	queue workqueue.TypedRateLimitingInterface[string]
	board *Board
	trace *trace.Tracer
}

func newLoop(c Controller, cfg Config) (*loop, error) {
	l := &loop{Controller: c, board: cfg.Board, trace: cfg.Trace}
	l.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: c.Name})
	for _, s := range c.Reads {
		if s.Keys == nil {
			continue
		}
		if _, err := s.Informer.AddEventHandler(l.handler(s)); err != nil {
			return nil, fmt.Errorf("controller %s: %w", c.Name, err)
		}
	}
	l.board.add(c.Name, c.Writes, l.queue.Len)
	return l, nil
}

func (l *loop) handler(s Source) cache.ResourceEventHandler {
	wake := func(keys []string) {
		for _, key := range keys {
			l.queue.Add(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if !s.NotNew {
				wake(s.Keys(obj))
			}
		},
		UpdateFunc: func(before, after any) {
			if sameVersion(before, after) || s.Changed != nil && !s.Changed(before, after) {
				return
			}
			keys := s.Keys(after)
			wake(keys)
			// An object that moved from one owner to another concerns both.
			for _, key := range s.Keys(before) {
				if !slices.Contains(keys, key) {
					l.queue.Add(key)
				}
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			wake(s.Keys(obj))
		},
	}
}

// sameVersion tells a resync, in which nothing happened.
func sameVersion(before, after any) bool {
	b, err1 := meta.Accessor(before)
	a, err2 := meta.Accessor(after)
	return err1 == nil && err2 == nil && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// run works until ctx ends; everything it started has ended when it returns.
func (l *loop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer l.queue.ShutDown()
	for _, s := range l.Reads {
		if !cache.WaitForCacheSync(ctx.Done(), s.Informer.HasSynced) {
			return nil
		}
	}
	for range max(l.Workers, 1) {
		all.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	if l.Every > 0 {
		all.Go(func() { l.tick(ctx) })
	}
	if l.Beside != nil {
		if err := l.Beside(ctx, l.queue.Add); err != nil && ctx.Err() == nil {
			return fmt.Errorf("controller %s: %w", l.Name, err)
		}
	}
	<-ctx.Done()
	return nil
}

func (l *loop) tick(ctx context.Context) {
	l.queue.Add("")
	ticker := time.NewTicker(l.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.queue.Add("")
		}
	}
}

func (l *loop) next(ctx context.Context) bool {
	key, stop := l.queue.Get()
	if stop {
		return false
	}
	defer l.queue.Done(key)
	if ctx.Err() != nil {
		return false
	}
	ctx, span := l.begin(ctx, key)
	again, err := l.syncOnce(ctx, key)
	if err != nil && routine(err) {
		span.Set(attribute.String("again", string(apierrors.ReasonForError(err))))
		span.End(nil)
	} else {
		span.End(err)
	}
	l.board.synced(l.Name, key, err)
	if err != nil {
		if !routine(err) && ctx.Err() == nil {
			slog.Warn("sync", "controller", l.Name, "key", key, "err", err)
		}
		l.queue.AddRateLimited(key)
		return true
	}
	l.queue.Forget(key)
	if again > 0 {
		l.queue.AddAfter(key, again)
	}
	return true
}

// begin starts the span of a sync, if what it is about is known: an object of the
// controller's own kind, but no node, which all report every few seconds.
func (l *loop) begin(ctx context.Context, key string) (context.Context, *trace.Span) {
	for _, s := range l.Reads {
		if !s.self || l.trace == nil {
			continue
		}
		obj, _, _ := s.Informer.GetStore().GetByKey(key)
		if resource, m := resourceOf(obj); m != nil {
			return l.trace.Start(ctx, "sync", trace.Of(resource.Group, resource.Resource, m), attribute.String("controller", l.Name))
		}
	}
	return ctx, nil
}

// resourceOf is the resource of an object of a built-in kind.
func resourceOf(obj any) (schema.GroupResource, metav1.Object) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return schema.GroupResource{}, nil
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	m, isObject := obj.(metav1.Object)
	if err != nil || !isObject || kinds[0].Kind == "Node" {
		return schema.GroupResource{}, nil
	}
	plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
	return plural.GroupResource(), m
}

// routine errors are lost races, which the retry settles.
func routine(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

func (l *loop) syncOnce(ctx context.Context, key string) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return l.Sync(ctx, key)
}
