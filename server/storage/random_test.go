package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestRandom lets writers, watchers and mishaps loose on one collection, and
// then asks of every watcher that what it saw leads, step by step, from the
// state that it began with to the state that is there in the end.
func TestRandom(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		f := &flaky{Backend: b}
		s := runStore(t, f, Options{Log: slog.New(slog.DiscardHandler)}, podResource, nodeResource)
		c := s.Collection(podResource.GroupResource)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		quiet, hush := context.WithCancel(ctx)
		defer hush()
		var watching, writing sync.WaitGroup
		ready, _ := labels.Parse("ready=true")
		var all []*observer
		for n := range 24 {
			sel := []Selection{
				{}, {Namespace: "ns1"}, {Name: "p3"}, {Labels: ready},
				{Fields: fields.OneTermEqualSelector("spec.nodeName", "n1")},
				{Labels: ready, Fields: fields.OneTermEqualSelector("spec.nodeName", "n0"), Namespace: "ns0"},
			}[n%6]
			o := &observer{c: c, sel: sel, state: map[string]int64{}}
			all = append(all, o)
			watching.Go(func() { o.observe(ctx, t, rand.New(rand.NewPCG(seed, uint64(n)))) })
		}
		for n := range 4 {
			writing.Go(func() { writeAtRandom(ctx, quiet, t, c, rand.New(rand.NewPCG(seed, uint64(100+n)))) })
		}
		disturb(ctx, f, rand.New(rand.NewPCG(seed, 200)))
		hush()
		writing.Wait()
		final, err := c.listDirect(ctx, ListOptions{}, 0, "") // what is true, whatever the cache says
		if err != nil {
			t.Fatal(err)
		}
		mustCreate(t, c, pod("end", "end", onNode("n1"), labelled("ready", "true")))
		for _, o := range all {
			o.until(ctx, t, final)
		}
		cancel()
		watching.Wait()
		for n, o := range all {
			o.check(t, n, final)
		}
	})
}

// observer is a client with a selection: it lists, watches, and when told 410
// lists again.
type observer struct {
	c   *Collection
	sel Selection

	mu    sync.Mutex // protects the fields below
	state map[string]int64
	rev   int64
	grown bell
	lists int
}

func (o *observer) observe(ctx context.Context, t *testing.T, random *rand.Rand) {
	for ctx.Err() == nil {
		page, err := o.c.List(ctx, ListOptions{Selection: o.sel})
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("list: %v", err)
			}
			return
		}
		o.mu.Lock()
		o.lists++
		if page.Revision < o.rev {
			t.Errorf("a list went back from %d to %d", o.rev, page.Revision)
		}
		o.rev, o.state = page.Revision, map[string]int64{}
		for _, i := range page.Items {
			o.state[i.key] = i.Revision
		}
		o.mu.Unlock()
		o.grown.ring()
		for o.follow(ctx, t, random) {
		}
	}
}

// follow watches from where the observer is, for a while. It reports whether
// the next watch can go on from there.
func (o *observer) follow(ctx context.Context, t *testing.T, random *rand.Rand) bool {
	w, err := o.c.Watch(ctx, WatchOptions{Selection: o.sel, ResourceVersion: strconv.FormatInt(o.rev, 10), Bookmarks: true})
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) {
			t.Errorf("watch: %v", err)
		}
		return false
	}
	for n := random.IntN(40); n >= 0; n-- {
		events, err := w.Next(ctx)
		if err != nil {
			if ctx.Err() == nil && !apierrors.IsResourceExpired(err) {
				t.Errorf("next: %v", err)
			}
			return false
		}
		o.mu.Lock()
		for _, e := range events {
			if err := o.take(e); err != nil {
				t.Errorf("selection %+v: %v", o.sel, err)
			}
		}
		o.rev = max(o.rev, w.rev)
		o.mu.Unlock()
		o.grown.ring()
	}
	return true
}

// take applies an event, which must fit the state that came before it.
func (o *observer) take(e Event) error {
	if e.Type == Bookmark {
		return nil
	}
	was, known := o.state[e.Item.key]
	switch {
	case e.Revision < o.rev || e.Item.Revision != e.Revision:
		return fmt.Errorf("%s %s at %d (item %d), after %d", e.Type, e.Item.key, e.Revision, e.Item.Revision, o.rev)
	case known && e.Revision <= was:
		return fmt.Errorf("%s %s at %d twice", e.Type, e.Item.key, e.Revision)
	case e.Type == Added && known:
		return fmt.Errorf("%s added at %d, but it is there since %d", e.Item.key, e.Revision, was)
	case e.Type != Added && !known:
		return fmt.Errorf("%s %s at %d, but it is not there", e.Type, e.Item.key, e.Revision)
	case e.Type != Deleted && !o.sel.matches(e.Item):
		return fmt.Errorf("%s %s does not match", e.Type, e.Item.key)
	}
	o.rev = e.Revision
	if o.state[e.Item.key] = e.Revision; e.Type == Deleted {
		delete(o.state, e.Item.key)
	}
	return nil
}

// until waits until the observer has caught up with a list.
func (o *observer) until(ctx context.Context, t *testing.T, final *Page) {
	for {
		rung := o.grown.listen()
		o.mu.Lock()
		done := o.rev >= final.Revision || o.matches(final)
		o.mu.Unlock()
		if done {
			return
		}
		select {
		case <-rung:
		case <-ctx.Done():
			t.Errorf("an observer of %+v is at %d, want %d", o.sel, o.rev, final.Revision)
			return
		}
	}
}

func (o *observer) matches(final *Page) bool {
	n := 0
	for _, i := range final.Items {
		if !o.sel.matches(i) {
			continue
		}
		if n++; o.state[i.key] != i.Revision {
			return false
		}
	}
	return n == len(o.state)
}

func (o *observer) check(t *testing.T, n int, final *Page) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.state, "/registry/pods/end/end")
	if !o.matches(final) {
		t.Errorf("observer %d of %+v ended with %d objects of %d", n, o.sel, len(o.state), len(final.Items))
	}
}

// writeAtRandom goes on until it is to be quiet. It ends no write in the middle, which
// might count all the same, and after the others.
func writeAtRandom(ctx, quiet context.Context, t *testing.T, c *Collection, random *rand.Rand) {
	for quiet.Err() == nil {
		ns, name := fmt.Sprint("ns", random.IntN(2)), fmt.Sprint("p", random.IntN(8))
		node, ready := fmt.Sprint("n", random.IntN(3)), fmt.Sprint(random.IntN(2) == 0)
		var err error
		switch random.IntN(4) {
		case 0:
			_, err = c.Create(ctx, pod(ns, name, onNode(node), labelled("ready", ready)), WriteOptions{})
		case 1:
			_, err = c.Delete(ctx, ns, name, WriteOptions{}, nil)
		default:
			_, err = c.Update(ctx, ns, name, WriteOptions{}, func(o runtime.Object) (runtime.Object, error) {
				onNode(node)(o.(*corev1.Pod))
				labelled("ready", ready)(o.(*corev1.Pod))
				return o, nil
			})
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			t.Errorf("write: %v", err)
		}
		if random.IntN(2) == 0 {
			sleep(ctx, 2*time.Millisecond)
		}
	}
}

// flaky is a Backend whose watch can be cut.
type flaky struct {
	Backend
	mu  sync.Mutex // protects cut
	cut context.CancelCauseFunc
}

var errCut = errors.New("connection lost")

func (f *flaky) Watch(ctx context.Context, prefix string, from int64, sink func([]Change, int64)) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.mu.Lock()
	f.cut = cancel
	f.mu.Unlock()
	err := f.Backend.Watch(inner, prefix, from, sink)
	if ctx.Err() == nil && inner.Err() != nil {
		return errCut
	}
	return err
}

// List is slow, so that loads have changes to hold back.
func (f *flaky) List(ctx context.Context, start, end string, revision, limit int64) (Range, error) {
	r, err := f.Backend.List(ctx, start, end, revision, limit)
	sleep(ctx, 5*time.Millisecond)
	return r, err
}

// disturb cuts the watch again and again. Half of the time it compacts all that
// was written since, so that the watch cannot resume.
func disturb(ctx context.Context, f *flaky, random *rand.Rand) {
	for range 8 {
		sleep(ctx, time.Duration(random.IntN(40))*time.Millisecond)
		f.mu.Lock()
		if f.cut != nil {
			f.cut(errCut)
		}
		f.mu.Unlock()
		if random.IntN(2) == 0 {
			sleep(ctx, firstPause/2)
			if rev, err := f.Revision(ctx); err == nil {
				f.Compact(ctx, rev)
			}
		}
	}
}
