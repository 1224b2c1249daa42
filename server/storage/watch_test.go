package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

func startWatch(t testing.TB, c *Collection, o WatchOptions) *Watcher {
	t.Helper()
	w, err := c.Watch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWatchStarts(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{}, podResource)
		c := s.Collection(podResource.GroupResource)
		x := mustCreate(t, c, pod("a", "x"))
		y := mustCreate(t, c, pod("a", "y"))
		if err := c.fresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		rv := func(n int64) string { return strconv.FormatInt(n, 10) }
		initial := []string{"ADDED a/x", "ADDED a/y"}
		for name, tc := range map[string]struct {
			o    WatchOptions
			want []string
		}{
			"most recent":                {WatchOptions{}, initial},
			"any":                        {WatchOptions{ResourceVersion: "0"}, initial},
			"after":                      {WatchOptions{ResourceVersion: rv(x.Revision)}, []string{"ADDED a/y"}},
			"now":                        {WatchOptions{ResourceVersion: rv(y.Revision)}, nil},
			"streaming list":             {WatchOptions{SendInitial: yes(), Bookmarks: true}, append(slices.Clone(initial), "INITIAL-END")},
			"streaming list, old":        {WatchOptions{SendInitial: yes(), Bookmarks: true, ResourceVersion: rv(x.Revision)}, append(slices.Clone(initial), "INITIAL-END")},
			"streaming, no bookmarks":    {WatchOptions{SendInitial: yes()}, initial},
			"no initial events":          {WatchOptions{SendInitial: no()}, nil},
			"one name":                   {WatchOptions{Selection: Selection{Namespace: "a", Name: "y"}}, []string{"ADDED a/y"}},
			"after, one name":            {WatchOptions{Selection: Selection{Name: "x"}, ResourceVersion: rv(x.Revision - 1)}, []string{"ADDED a/x"}},
			"empty streaming list":       {WatchOptions{Selection: Selection{Namespace: "none"}, SendInitial: yes(), Bookmarks: true}, []string{"INITIAL-END"}},
			"no initial events of a set": {WatchOptions{Selection: Selection{Namespace: "a"}, SendInitial: no(), ResourceVersion: "0"}, nil},
		} {
			w := startWatch(t, c, tc.o)
			// Every watch must go on, in place, with what comes next.
			mustUpdate(t, c, "a", "y", labelled("n", name))
			events := next(t, w, len(tc.want))
			if got := tell(events)[:len(tc.want)]; !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", name, got, tc.want)
			}
			if tc.o.Name == "x" || tc.o.Namespace == "none" {
				continue
			}
			// An older start sees the updates of the other cases before ours.
			for len(events) == 0 || events[len(events)-1].Type != Modified || events[len(events)-1].Item.Labels["n"] != name {
				events = next(t, w, 1)
			}
		}
	})
}

func TestWatchTransitions(t *testing.T) {
	m := newMemory(t)
	s := runStore(t, m, Options{}, podResource)
	c := s.Collection(podResource.GroupResource)
	byNode := Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", "n1")}
	ready, _ := labels.Parse("ready=true")
	watchers := map[string]*Watcher{
		"all":   startWatch(t, c, WatchOptions{}),
		"node":  startWatch(t, c, WatchOptions{Selection: byNode}),
		"ready": startWatch(t, c, WatchOptions{Selection: Selection{Labels: ready}}),
		"space": startWatch(t, c, WatchOptions{Selection: Selection{Namespace: "a"}}),
		"other": startWatch(t, c, WatchOptions{Selection: Selection{Namespace: "b"}}),
	}
	mustCreate(t, c, pod("a", "x"))
	mustUpdate(t, c, "a", "x", onNode("n1"))
	mustUpdate(t, c, "a", "x", labelled("ready", "true"))
	out := mustUpdate(t, c, "a", "x", labelled("ready", "false"))
	mustUpdate(t, c, "a", "x", labelled("ready", "true"))
	gone, _ := c.Delete(t.Context(), "a", "x", WriteOptions{}, nil)
	if err := c.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"all":   {"ADDED a/x", "MODIFIED a/x", "MODIFIED a/x", "MODIFIED a/x", "MODIFIED a/x", "DELETED a/x"},
		"node":  {"ADDED a/x", "MODIFIED a/x", "MODIFIED a/x", "MODIFIED a/x", "DELETED a/x"},
		"ready": {"ADDED a/x", "DELETED a/x", "ADDED a/x", "DELETED a/x"},
		"space": {"ADDED a/x", "MODIFIED a/x", "MODIFIED a/x", "MODIFIED a/x", "MODIFIED a/x", "DELETED a/x"},
		"other": nil,
	} {
		events := next(t, watchers[name], len(want))
		if got := tell(events); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if name == "ready" {
			left, dead := events[1], events[3]
			if p := left.Item.Object().(*corev1.Pod); p.Labels["ready"] != "true" || p.ResourceVersion != strconv.FormatInt(out.Revision, 10) {
				t.Errorf("left the selection: labels %v, resourceVersion %s, want the last state that matched at %d", p.Labels, p.ResourceVersion, out.Revision)
			}
			if dead.Revision != gone.Revision || dead.Item.Revision != gone.Revision {
				t.Errorf("deleted at %d, want %d", dead.Item.Revision, gone.Revision)
			}
		}
	}
}

func TestSlowWatcherExpires(t *testing.T) {
	m := newMemory(t)
	s := runStore(t, m, Options{WindowSize: minWindow}, podResource)
	c := s.Collection(podResource.GroupResource)
	first := mustCreate(t, c, pod("a", "x"))
	slow := startWatch(t, c, WatchOptions{ResourceVersion: strconv.FormatInt(first.Revision, 10)})
	// This one is just as slow, but there is nothing for it to miss.
	quiet := startWatch(t, c, WatchOptions{Selection: Selection{Name: "z"}, ResourceVersion: strconv.FormatInt(first.Revision, 10)})
	missed := startWatch(t, c, WatchOptions{Selection: Selection{Name: "x"}, ResourceVersion: strconv.FormatInt(first.Revision, 10)})
	for i := range minWindow + 1 {
		mustUpdate(t, c, "a", "x", labelled("i", fmt.Sprint(i)))
	}
	mustCreate(t, c, pod("a", "z"))
	if err := c.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]*Watcher{"slow": slow, "missed": missed} {
		if _, err := w.Next(t.Context()); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: %v, want 410", name, err)
		}
	}
	if got := tell(next(t, quiet, 1)); !slices.Equal(got, []string{"ADDED a/z"}) {
		t.Errorf("quiet: %v", got)
	}
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		s := New(m, Options{CompactInterval: -1})
		s.Add(podResource)
		s.Add(nodeResource)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		defer running.Wait()
		defer cancel()
		c := s.Collection(podResource.GroupResource)
		w, err := c.Watch(ctx, WatchOptions{Bookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		// Pods are quiet; that nodes are not moves the bookmark on.
		node := mustCreate(t, s.Collection(nodeResource.GroupResource), &corev1.Node{ObjectMeta: pod("", "n").ObjectMeta})
		start := time.Now()
		events, err := w.Next(ctx)
		if err != nil || len(events) != 1 || events[0].Type != Bookmark || events[0].Revision != node.Revision {
			t.Errorf("got %+v %v, want a bookmark at %d", events, err, node.Revision)
		}
		if d := time.Since(start); d < 50*time.Second || d > 70*time.Second {
			t.Errorf("bookmark after %v", d)
		}
		short, stop := context.WithTimeout(ctx, 10*time.Minute)
		defer stop()
		if events, err := w.Next(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing happened, but: %v %v", tell(events), err)
		}
		if mark, ok := w.Bookmark(); !ok || mark.Revision != node.Revision {
			t.Errorf("asked for a bookmark: %+v", mark)
		}
	})
}

// TestTopicsEnd: what a watch subscribes to ends with its context.
func TestTopicsEnd(t *testing.T) {
	s := runStore(t, newMemory(t), Options{}, podResource)
	c := s.Collection(podResource.GroupResource)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 100 {
		if _, err := c.Watch(ctx, WatchOptions{Selection: Selection{Name: fmt.Sprint(i % 50)}}); err != nil {
			t.Fatal(err)
		}
	}
	topics := func() int {
		c.mu.RLock()
		defer c.mu.RUnlock()
		return len(c.window.topics["metadata.name"])
	}
	if n := topics(); n != 50 {
		t.Errorf("%d topics, want 50", n)
	}
	cancel()
	for topics() > 0 {
		runtime.Gosched()
	}
}

// TestBlindWatch: what happens while the watch is away, and is compacted before
// it comes back, is lost; watchers are told so, and are not told a part of it.
func TestBlindWatch(t *testing.T) {
	m := newMemory(t)
	s := runStore(t, m, Options{}, podResource)
	c := s.Collection(podResource.GroupResource)
	for _, name := range []string{"changed", "deleted", "kept", "replaced"} {
		mustCreate(t, c, pod("a", name))
	}
	if err := c.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, c, WatchOptions{ResourceVersion: "1"})
	next(t, w, 4)
	blind := s.progress.Load()

	m.mu.Lock() // the watch sees nothing of this until it is over
	write := func(name, label string) {
		key := "/registry/pods/a/" + name
		ch := Change{KV: KV{Key: key}, Deleted: label == ""}
		if !ch.Deleted {
			ch.Value, _ = podResource.encode(pod("a", name, labelled("l", label)))
		}
		before := m.at(key, m.revision)
		m.revision++
		m.record(ch, before)
	}
	write("deleted", "")
	write("changed", "1")
	write("replaced", "")
	write("replaced", "1")
	write("fleeting", "1")
	write("fleeting", "")
	write("new", "1")
	write("changed", "2")
	last := m.revision
	m.compact(last)
	m.mu.Unlock()
	m.Break(ErrCompacted)

	if events, err := w.Next(t.Context()); !apierrors.IsResourceExpired(err) {
		t.Errorf("the watch went on: %v %v", tell(events), err)
	}
	for _, rev := range []int64{blind, blind + 2} {
		if _, err := c.Watch(t.Context(), WatchOptions{ResourceVersion: strconv.FormatInt(rev, 10)}); !apierrors.IsResourceExpired(err) {
			t.Errorf("watch from before the end of the blind time: %v", err)
		}
	}
	p, err := c.List(t.Context(), ListOptions{})
	if want := []string{"a/changed", "a/kept", "a/new", "a/replaced"}; err != nil || !slices.Equal(names(p.Items), want) {
		t.Errorf("list: %v %v", names(p.Items), err)
	}
}

// TestSetBack: an etcd that was restored from an old backup voids everything.
func TestSetBack(t *testing.T) {
	m := newMemory(t)
	s := runStore(t, m, Options{}, podResource)
	c := s.Collection(podResource.GroupResource)
	mustCreate(t, c, pod("a", "old"))
	mustCreate(t, c, pod("a", "lost"))
	if err := c.fresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, c, WatchOptions{SendInitial: no()})

	m.mu.Lock()
	delete(m.history, "/registry/pods/a/lost")
	m.log = m.log[:len(m.log)-1]
	m.revision--
	m.mu.Unlock()
	for {
		p, err := c.List(t.Context(), ListOptions{})
		if err == nil && slices.Equal(names(p.Items), []string{"a/old"}) && s.progress.Load() == 2 {
			break
		}
		runtime.Gosched()
	}
	if _, err := w.Next(t.Context()); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch of a history that is no more: %v", err)
	}
}

// TestPast: a server that has just started serves watches from before its start.
func TestPast(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		first := runStore(t, b, Options{}, podResource)
		c := first.Collection(podResource.GroupResource)
		x := mustCreate(t, c, pod("a", "x"))
		mustUpdate(t, c, "a", "x", onNode("n1"))
		mustUpdate(t, c, "a", "x", onNode("n2"))
		mustCreate(t, c, pod("a", "y"))
		c.Delete(t.Context(), "a", "y", WriteOptions{}, nil)
		b.Put(t.Context(), "/elsewhere", nil, 0, 0)

		second := runStore(t, b, Options{}, podResource)
		c = second.Collection(podResource.GroupResource)
		for name, tc := range map[string]struct {
			sel  Selection
			want []string
		}{
			"all":  {Selection{}, []string{"MODIFIED a/x", "MODIFIED a/x", "ADDED a/y", "DELETED a/y", "ADDED a/z"}},
			"node": {Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", "n1")}, []string{"ADDED a/x", "DELETED a/x"}},
		} {
			w := startWatch(t, c, WatchOptions{Selection: tc.sel, ResourceVersion: strconv.FormatInt(x.Revision, 10)})
			if name == "all" {
				mustCreate(t, c, pod("a", "z"))
			}
			if got := tell(next(t, w, len(tc.want))); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", name, got, tc.want)
			}
		}
		rev, _ := b.Revision(t.Context())
		if err := b.Compact(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
		c = runStore(t, b, Options{}, podResource).Collection(podResource.GroupResource)
		if _, err := c.Watch(t.Context(), WatchOptions{ResourceVersion: strconv.FormatInt(x.Revision, 10)}); !apierrors.IsResourceExpired(err) {
			t.Errorf("watch from a compacted revision: %v", err)
		}
	})
}

// TestCompaction: two servers take turns and keep an interval's worth.
func TestCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		var servers []*Store
		for range 2 {
			s := New(m, Options{})
			s.Add(podResource)
			servers = append(servers, s)
			running.Go(func() { s.Run(ctx) })
			sleep(ctx, time.Minute)
		}
		sleep(ctx, 11*time.Minute)
		mustCreate(t, servers[0].Collection(podResource.GroupResource), pod("a", "x"))
		mustCreate(t, servers[0].Collection(podResource.GroupResource), pod("a", "y"))
		out, _ := m.Put(ctx, "/registry/x", nil, 0, 0)
		// The pods don't change, and both servers have them in memory. Still a list
		// cannot go on where its first page was read for ever.
		var tokens []string
		for _, s := range servers {
			page, err := s.Collection(podResource.GroupResource).List(ctx, ListOptions{Limit: 1})
			if err != nil || page.Continue == "" {
				t.Fatalf("first page: %v %v", page, err)
			}
			tokens = append(tokens, page.Continue)
		}
		compacted := func() int64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.compacted
		}
		sleep(ctx, 5*time.Minute)
		if to := compacted(); to >= out.Revision {
			t.Errorf("compacted to %d after 5 minutes, but %d was written since", to, out.Revision)
		}
		sleep(ctx, 6*time.Minute)
		if to := compacted(); to < out.Revision {
			t.Errorf("compacted to %d after 11 minutes, want %d", to, out.Revision)
		}
		sleep(ctx, 5*time.Minute) // the server whose turn it was not learns of it at its next
		for i, s := range servers {
			_, err := s.Collection(podResource.GroupResource).List(ctx, ListOptions{Limit: 1, Continue: tokens[i]})
			var expired *apierrors.StatusError
			if !errors.As(err, &expired) || !apierrors.IsResourceExpired(err) || expired.ErrStatus.Continue == "" {
				t.Errorf("server %d: %v", i, err)
			}
		}
	})
}
