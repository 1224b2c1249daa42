package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestWrites(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{}, podResource)
		c := s.Collection(podResource.GroupResource)
		ctx := t.Context()

		made := mustCreate(t, c, pod("a", "x", func(p *corev1.Pod) { p.UID = "u1" }))
		if made.Revision == 0 || made.Object().(*corev1.Pod).ResourceVersion != strconv.FormatInt(made.Revision, 10) {
			t.Errorf("created with revision %d and resourceVersion %q", made.Revision, made.Object().(*corev1.Pod).ResourceVersion)
		}
		if _, err := c.Create(ctx, pod("a", "x"), WriteOptions{}); !apierrors.IsAlreadyExists(err) || err.Error() != `pods "x" already exists` {
			t.Errorf("second create: %v", err)
		}
		got, err := c.Get(ctx, "a", "x", "")
		if err != nil || got.Revision != made.Revision {
			t.Fatalf("get: %v %v", got, err)
		}
		if got != made {
			t.Error("the cache has decoded an object that this server wrote")
		}
		kv, _, _ := b.Get(ctx, "/registry/pods/a/x")
		if !strings.HasPrefix(string(kv.Value), "k8s\x00") || strings.Contains(string(kv.Value), got.Object().(*corev1.Pod).ResourceVersion+"\"") {
			t.Errorf("stored: %q", kv.Value)
		}

		same := mustUpdate(t, c, "a", "x", func(*corev1.Pod) {})
		if same.Revision != made.Revision {
			t.Error("an update without change was written")
		}
		changed := mustUpdate(t, c, "a", "x", onNode("n1"))
		if changed.Revision <= made.Revision || changed.Object().(*corev1.Pod).Spec.NodeName != "n1" {
			t.Errorf("update: %+v", changed.Object())
		}
		if made.Object().(*corev1.Pod).Spec.NodeName != "" {
			t.Error("update changed a shared object")
		}
		_, err = c.Update(ctx, "a", "x", WriteOptions{}, func(o runtime.Object) (runtime.Object, error) {
			p := o.(*corev1.Pod)
			p.ResourceVersion = strconv.FormatInt(made.Revision, 10)
			return p, nil
		})
		want := `Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again`
		if !apierrors.IsConflict(err) || err.Error() != want {
			t.Errorf("update with an old resourceVersion: %v", err)
		}
		dry := WriteOptions{DryRun: true}
		if i, err := c.Update(ctx, "a", "x", dry, func(o runtime.Object) (runtime.Object, error) { onNode("n2")(o.(*corev1.Pod)); return o, nil }); err != nil || i.Object().(*corev1.Pod).Spec.NodeName != "n2" {
			t.Errorf("dry-run: %v %v", i, err)
		}
		if i, _ := c.Get(ctx, "a", "x", ""); i.Object().(*corev1.Pod).Spec.NodeName != "n1" {
			t.Error("a dry-run was written")
		}

		uid := types.UID("other")
		_, err = c.Delete(ctx, "a", "x", WriteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}, nil)
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "Precondition failed: UID in precondition: other, UID in object meta: u1") {
			t.Errorf("delete of another: %v", err)
		}
		no := errors.New("no")
		if _, err := c.Delete(ctx, "a", "x", WriteOptions{}, func(runtime.Object) error { return no }); !errors.Is(err, no) {
			t.Errorf("delete against the check: %v", err)
		}
		gone, err := c.Delete(ctx, "a", "x", WriteOptions{}, nil)
		if err != nil || gone.Revision <= changed.Revision || gone.Object().(*corev1.Pod).Spec.NodeName != "n1" {
			t.Errorf("delete: %+v %v", gone, err)
		}
		if _, err := c.Get(ctx, "a", "x", ""); !apierrors.IsNotFound(err) || err.Error() != `pods "x" not found` {
			t.Errorf("get after delete: %v", err)
		}
		if _, err := c.Delete(ctx, "a", "x", WriteOptions{}, nil); !apierrors.IsNotFound(err) {
			t.Errorf("delete after delete: %v", err)
		}
		if _, err := c.Update(ctx, "a", "x", WriteOptions{}, func(o runtime.Object) (runtime.Object, error) { return o, nil }); !apierrors.IsNotFound(err) {
			t.Errorf("update after delete: %v", err)
		}
	})
}

func TestCustomResource(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{}, podResource)
		ctx := t.Context()
		s.Add(widgetResource) // while running
		c := s.Collection(widgetResource.GroupResource)
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": "w", "namespace": "a"}, "spec": map[string]any{"size": int64(3)},
		}}
		mustCreate(t, c, u)
		got, err := c.Get(ctx, "a", "w", "")
		if err != nil {
			t.Fatal(err)
		}
		if n, _, _ := unstructured.NestedInt64(got.Object().(*unstructured.Unstructured).Object, "spec", "size"); n != 3 {
			t.Errorf("got %v", got.Object())
		}
		kv, _, _ := b.Get(ctx, "/registry/example.com/widgets/a/w")
		if want := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"a"},"spec":{"size":3}}` + "\n"; string(kv.Value) != want {
			t.Errorf("stored %q, want %q", kv.Value, want)
		}
		w, err := c.Watch(ctx, WatchOptions{ResourceVersion: strconv.FormatInt(got.Revision, 10)})
		if err != nil {
			t.Fatal(err)
		}
		s.Remove(widgetResource.GroupResource)
		if _, err := w.Next(ctx); !apierrors.IsResourceExpired(err) {
			t.Errorf("watch of a removed kind: %v", err)
		}
	})
}

func TestList(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{}, podResource)
		c := s.Collection(podResource.GroupResource)
		for _, ns := range []string{"b", "a", "a-b"} {
			for i := range 3 {
				mustCreate(t, c, pod(ns, fmt.Sprint("p", i), onNode(fmt.Sprint("n", i)), labelled("i", fmt.Sprint(i))))
			}
		}
		sel := func(s string) labels.Selector { l, _ := labels.Parse(s); return l }
		node := fields.OneTermEqualSelector("spec.nodeName", "n1")
		for name, tc := range map[string]struct {
			o    ListOptions
			want []string
		}{
			"all in etcd's order": {ListOptions{}, []string{"a-b/p0", "a-b/p1", "a-b/p2", "a/p0", "a/p1", "a/p2", "b/p0", "b/p1", "b/p2"}},
			"namespace":           {ListOptions{Selection: Selection{Namespace: "a"}}, []string{"a/p0", "a/p1", "a/p2"}},
			"name":                {ListOptions{Selection: Selection{Namespace: "a", Name: "p1"}}, []string{"a/p1"}},
			"name field":          {ListOptions{Selection: Selection{Fields: fields.OneTermEqualSelector("metadata.name", "p1")}}, []string{"a-b/p1", "a/p1", "b/p1"}},
			"labels":              {ListOptions{Selection: Selection{Labels: sel("i in (0,2)"), Namespace: "b"}}, []string{"b/p0", "b/p2"}},
			"node":                {ListOptions{Selection: Selection{Fields: node}}, []string{"a-b/p1", "a/p1", "b/p1"}},
			"node in namespace":   {ListOptions{Selection: Selection{Fields: node, Namespace: "a"}}, []string{"a/p1"}},
			"no such node":        {ListOptions{Selection: Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", "none")}}, nil},
		} {
			for _, o := range []ListOptions{{}, {ResourceVersion: "0"}, {ResourceVersion: "0", Limit: 1}, {Limit: 9}, {Limit: 2}, {Limit: 1}} {
				o.Selection = tc.o.Selection
				var got []string
				for pages := 0; pages == 0 || o.Continue != ""; pages++ {
					page, err := c.List(t.Context(), o)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, names(page.Items)...)
					o.ResourceVersion, o.Continue = "", page.Continue
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("%s by %+v: got %v, want %v", name, o, got, tc.want)
				}
			}
			direct, err := c.listDirect(t.Context(), tc.o, 0, "")
			if err != nil || !slices.Equal(names(direct.Items), tc.want) {
				t.Errorf("%s from etcd: got %v %v, want %v", name, names(direct.Items), err, tc.want)
			}
		}
	})
}

func TestPages(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		for _, kept := range []bool{true, false} {
			s := runStore(t, b, Options{}, podResource)
			c := s.Collection(podResource.GroupResource)
			ns := fmt.Sprint("kept-", kept)
			for i := range 7 {
				mustCreate(t, c, pod(ns, fmt.Sprint("p", i), labelled("odd", fmt.Sprint(i%2 == 1))))
			}
			o := ListOptions{Selection: Selection{Namespace: ns}, Limit: 3}
			first, err := c.List(t.Context(), o)
			if err != nil || len(first.Items) != 3 || first.Remaining == nil || *first.Remaining != 4 {
				t.Fatalf("first page: %+v %v", first, err)
			}
			// What happens between pages must not show.
			mustUpdate(t, c, ns, "p4", onNode("n"))
			c.Delete(t.Context(), ns, "p5", WriteOptions{}, nil)
			mustCreate(t, c, pod(ns, "p44"))
			if err := c.fresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !kept {
				c.mu.Lock()
				c.kept = nil
				c.mu.Unlock()
			}
			var all []string
			o.Continue = first.Continue
			for o.Continue != "" {
				p, err := c.List(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				if p.Revision != first.Revision {
					t.Errorf("page at %d, the first was at %d", p.Revision, first.Revision)
				}
				all = append(all, names(p.Items)...)
				o.Continue = p.Continue
			}
			if want := []string{ns + "/p3", ns + "/p4", ns + "/p5", ns + "/p6"}; !slices.Equal(all, want) {
				t.Errorf("kept %v: other pages: %v", kept, all)
			}

			odd := o
			odd.Labels, _ = labels.Parse("odd=true")
			odd.Limit = 1
			p, err := c.List(t.Context(), odd)
			if err != nil || p.Continue == "" || p.Remaining != nil || !slices.Equal(names(p.Items), []string{ns + "/p1"}) {
				t.Errorf("page with selector: %+v %v", p, err)
			}
		}
	})
}

func TestOldRevisions(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{ReadTimeout: 1e8}, podResource)
		c := s.Collection(podResource.GroupResource)
		ctx := t.Context()
		one := mustCreate(t, c, pod("a", "x"))
		mustCreate(t, c, pod("a", "y"))
		last := mustCreate(t, c, pod("a", "z"))
		rv := func(n int64) string { return strconv.FormatInt(n, 10) }

		exact := ListOptions{ResourceVersion: rv(one.Revision), Match: metav1.ResourceVersionMatchExact}
		if p, err := c.List(ctx, exact); err != nil || len(p.Items) != 1 || p.Revision != one.Revision {
			t.Errorf("exact: %+v %v", p, err)
		}
		if p, err := c.List(ctx, ListOptions{ResourceVersion: rv(one.Revision), Match: metav1.ResourceVersionMatchNotOlderThan}); err != nil || p.Revision < one.Revision {
			t.Errorf("not older: %+v %v", p, err)
		}
		wantTooLarge := fmt.Sprintf("Too large resource version: %d, current: %d", last.Revision+100, last.Revision)
		for _, m := range []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan} {
			_, err := c.List(ctx, ListOptions{ResourceVersion: rv(last.Revision + 100), Match: m})
			if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || !strings.Contains(err.Error(), wantTooLarge) {
				t.Errorf("%s of the future: %v", m, err)
			}
			var status *apierrors.StatusError
			if errors.As(err, &status) && status.ErrStatus.Code != http.StatusGatewayTimeout {
				t.Errorf("code %d", status.ErrStatus.Code)
			}
		}
		if _, err := c.Get(ctx, "a", "x", "abc"); err == nil || err.Error() != `resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax` {
			t.Errorf("invalid resourceVersion: %v", err)
		}

		page, err := c.List(ctx, ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		mustUpdate(t, c, "a", "z", onNode("n"))
		c.fresh(ctx)
		c.mu.Lock()
		c.kept = nil
		c.mu.Unlock()
		rev, _ := b.Revision(ctx)
		if err := b.Compact(ctx, rev); err != nil {
			t.Fatal(err)
		}
		if _, err := c.List(ctx, exact); !apierrors.IsResourceExpired(err) {
			t.Errorf("exact, compacted: %v", err)
		}
		_, err = c.List(ctx, ListOptions{Limit: 1, Continue: page.Continue})
		var expired *apierrors.StatusError
		if !apierrors.IsResourceExpired(err) || !errors.As(err, &expired) || expired.ErrStatus.Continue == "" {
			t.Fatalf("continue, compacted: %v", err)
		}
		p, err := c.List(ctx, ListOptions{Continue: expired.ErrStatus.Continue})
		if err != nil || !slices.Equal(names(p.Items), []string{"a/y", "a/z"}) {
			t.Errorf("inconsistent continuation: %v %v", names(p.Items), err)
		}
		for _, bad := range []string{"!", token{Revision: 5, Start: "../x"}.encode(), token{Start: "x"}.encode(), token{Revision: 1}.encode()} {
			if _, err := c.List(ctx, ListOptions{Continue: bad}); !apierrors.IsBadRequest(err) {
				t.Errorf("token %q: %v", bad, err)
			}
		}
	})
}

// TestForeignWrites: a consistent read must not hang when etcd's revision moves
// without the watch telling.
func TestForeignWrites(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{}, podResource)
		c := s.Collection(podResource.GroupResource)
		mustCreate(t, c, pod("a", "x"))
		out, err := b.Put(t.Context(), "/elsewhere", nil, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.List(t.Context(), ListOptions{})
		if err != nil || p.Revision < out.Revision {
			t.Errorf("list: %+v %v, want revision %d", p, err, out.Revision)
		}
		if s.progress.Load() < out.Revision {
			t.Error("the read went past the cache")
		}
	})
}

// TestWithoutCache: a store that does not run still reads and writes.
func TestWithoutCache(t *testing.T) {
	s := New(newMemory(t), Options{ReadTimeout: 1})
	s.Add(podResource)
	c := s.Collection(podResource.GroupResource)
	mustCreate(t, c, pod("a", "x"))
	mustUpdate(t, c, "a", "x", onNode("n"))
	if i, err := c.Get(t.Context(), "a", "x", "0"); err != nil || i.Fields["spec.nodeName"] != "n" {
		t.Errorf("get: %v %v", i, err)
	}
	if p, err := c.List(t.Context(), ListOptions{}); err != nil || len(p.Items) != 1 {
		t.Errorf("list: %v %v", p, err)
	}
	if _, err := c.Watch(t.Context(), WatchOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("watch: %v", err)
	}
}

func TestSharedLeases(t *testing.T) {
	m := newMemory(t)
	s := runStore(t, m, Options{}, eventResource)
	c := s.Collection(eventResource.GroupResource)
	for i := range 50 {
		mustCreate(t, c, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint(i)}})
	}
	if n := len(m.attached); n != 1 {
		t.Errorf("%d leases for 50 events", n)
	}
}

func TestConcurrentUpdates(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := runStore(t, b, Options{}, podResource)
		c := s.Collection(podResource.GroupResource)
		mustCreate(t, c, pod("a", "x"))
		done := make(chan error)
		for range 10 {
			go func() {
				for range 10 {
					_, err := c.Update(context.Background(), "a", "x", WriteOptions{}, func(o runtime.Object) (runtime.Object, error) {
						p := o.(*corev1.Pod)
						n, _ := strconv.Atoi(p.Labels["n"])
						labelled("n", strconv.Itoa(n+1))(p)
						return p, nil
					})
					if err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if i, _ := c.Get(t.Context(), "a", "x", ""); i.Labels["n"] != "100" {
			t.Errorf("100 increments gave %s", i.Labels["n"])
		}
	})
}

// TestCorrupt: a value that cannot be read is an error for who asks for it, and
// no reason to withhold the others.
func TestCorrupt(t *testing.T) {
	m := newMemory(t)
	wrongVersion, err := (&Resource{Kind: podResource.Kind.GroupKind().WithVersion("v2")}).encode(pod("a", "old"))
	if err != nil {
		t.Fatal(err)
	}
	m.Put(t.Context(), "/registry/pods/a/broken", []byte("k8s\x00nonsense"), 0, 0)
	m.Put(t.Context(), "/registry/pods/a/old", wrongVersion, 0, 0)
	s := runStore(t, m, Options{Log: slog.New(slog.DiscardHandler)}, podResource)
	c := s.Collection(podResource.GroupResource)
	mustCreate(t, c, pod("a", "x"))
	for name, want := range map[string]string{"broken": "decode /registry/pods/a/broken", "old": "stored as v2 Pod, want v1 Pod"} {
		_, err := c.Get(t.Context(), "a", name, "")
		if apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError || !strings.Contains(err.Error(), want) {
			t.Errorf("get of %s: %v", name, err)
		}
	}
	w, err := c.Watch(t.Context(), WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	value, _ := podResource.encode(pod("a", "broken"))
	kv, _, _ := m.Get(t.Context(), "/registry/pods/a/broken")
	m.Put(t.Context(), kv.Key, value, kv.Mod, 0)
	kv, _, _ = m.Get(t.Context(), "/registry/pods/a/x")
	m.Put(t.Context(), kv.Key, []byte("junk"), kv.Mod, 0)
	if got, want := tell(next(t, w, 3)), []string{"ADDED a/x", "ADDED a/broken", "DELETED a/x"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := c.DeleteUnreadable(t.Context(), "a", "broken", false); !apierrors.IsConflict(err) {
		t.Errorf("one that can be read again: %v", err)
	}
	if err := c.DeleteUnreadable(t.Context(), "a", "x", false); err != nil {
		t.Errorf("one that cannot: %v", err)
	}
	if kv, _, _ := m.Get(t.Context(), "/registry/pods/a/x"); kv != nil {
		t.Error("it is still there")
	}
	if err := c.DeleteUnreadable(t.Context(), "a", "x", false); !apierrors.IsNotFound(err) {
		t.Errorf("one that is gone: %v", err)
	}
}

// TestOlder: a value of a version that is known is read as if it had been written
// today.
func TestOlder(t *testing.T) {
	r := podResource
	beta := r.Kind.GroupKind().WithVersion("v1beta1")
	r.Older = func(stored schema.GroupVersionKind) (Older, bool) {
		return Older{New: r.New, Convert: func(obj runtime.Object) (runtime.Object, error) { return obj, nil }}, stored == beta
	}
	r.Default = func(obj runtime.Object) { obj.(*corev1.Pod).Spec.SchedulerName = "defaulted" }
	m := newMemory(t)
	for name, kind := range map[string]schema.GroupVersionKind{"old": beta, "new": podResource.Kind} {
		value, err := (&Resource{Kind: kind}).encode(pod("a", name))
		if err != nil {
			t.Fatal(err)
		}
		m.Put(t.Context(), "/registry/pods/a/"+name, value, 0, 0)
	}
	c := runStore(t, m, Options{Log: slog.New(slog.DiscardHandler)}, r).Collection(r.GroupResource)
	for _, name := range []string{"old", "new"} {
		item, err := c.Get(t.Context(), "a", name, "")
		if err != nil {
			t.Fatal(err)
		}
		got := item.Object().(*corev1.Pod)
		if got.Spec.SchedulerName != "defaulted" || got.GroupVersionKind() != r.Kind {
			t.Errorf("%s: %s with scheduler %q", name, got.GroupVersionKind(), got.Spec.SchedulerName)
		}
	}
}

// TestExpiry: what a lease takes away, all in one revision, is an event each.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(NewMemory(), Options{CompactInterval: -1})
		s.Add(eventResource)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { s.Run(ctx) })
		c := s.Collection(eventResource.GroupResource)
		for i := range 3 {
			mustCreate(t, c, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint(i)}})
		}
		w, err := c.Watch(ctx, WatchOptions{SendInitial: no()})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		events, err := w.Next(ctx)
		if got, want := tell(events), []string{"DELETED a/0", "DELETED a/1", "DELETED a/2"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v %v, want %v", got, err, want)
		}
		if d := time.Since(start); d < time.Hour || d > time.Hour+2*time.Minute {
			t.Errorf("gone after %v", d)
		}
		if n := c.Count(); n != 0 {
			t.Errorf("%d objects left", n)
		}
	})
}
