package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestBackend holds every Backend to what the interface says.
func TestBackend(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		ctx := t.Context()
		put := func(key, value string, guard int64) int64 {
			t.Helper()
			out, err := b.Put(ctx, key, []byte(value), guard, 0)
			if err != nil || !out.Done {
				t.Fatalf("put %s: %+v %v", key, out, err)
			}
			return out.Revision
		}

		before, err := b.Revision(ctx)
		if err != nil {
			t.Fatal(err)
		}
		a := put("/registry/x/a", "1", 0)
		if a != before+1 {
			t.Errorf("revision went from %d to %d", before, a)
		}
		out, err := b.Put(ctx, "/registry/x/a", []byte("2"), 0, 0)
		if err != nil || out.Done || out.Current == nil || out.Current.Mod != a || string(out.Current.Value) != "1" {
			t.Errorf("create of what is there: %+v %v", out, err)
		}
		a2 := put("/registry/x/a", "2", a)
		out, err = b.Delete(ctx, "/registry/x/a", a)
		if err != nil || out.Done || out.Current.Mod != a2 || out.Current.Create != a {
			t.Errorf("delete with an old guard: %+v %v", out, err)
		}
		put("/registry/x/b", "3", 0)
		put("/registry/y/c", "4", 0)
		last := put("/registry/x/c", "5", 0)

		r, err := b.List(ctx, "/registry/x/", after("/registry/x/"), 0, 2)
		if err != nil || len(r.KVs) != 2 || r.Count != 3 || r.Revision != last || r.KVs[0].Key != "/registry/x/a" {
			t.Errorf("list: %+v %v", r, err)
		}
		r, err = b.List(ctx, "/registry/x/", after("/registry/x/"), a, 0)
		if err != nil || len(r.KVs) != 1 || string(r.KVs[0].Value) != "1" || r.Revision != a {
			t.Errorf("list of the past: %+v %v", r, err)
		}
		if _, err := b.List(ctx, "/registry/x/", after("/registry/x/"), last+100, 0); !errors.Is(err, ErrFuture) {
			t.Errorf("list of the future: %v", err)
		}
		kv, rev, err := b.Get(ctx, "/registry/x/none")
		if kv != nil || rev != last || err != nil {
			t.Errorf("get of nothing: %v %d %v", kv, rev, err)
		}
		out, err = b.Delete(ctx, "/registry/x/none", 7)
		if err != nil || out.Done || out.Current != nil {
			t.Errorf("delete of nothing: %+v %v", out, err)
		}

		got := watchUntil(t, b, "/registry/x/", a+1, last)
		want := []string{fmt.Sprintf("put a %d", a2), fmt.Sprintf("put b %d", a2+1), fmt.Sprintf("put c %d", last)}
		if !slices.Equal(got, want) {
			t.Errorf("watch: got %v, want %v", got, want)
		}
		out, err = b.Delete(ctx, "/registry/x/a", a2)
		if err != nil || !out.Done || out.Revision != last+1 {
			t.Errorf("delete: %+v %v", out, err)
		}
		// Progress must reach a revision that the watched prefix knows nothing of.
		foreign := put("/other", "6", 0)
		got = watchUntil(t, b, "/registry/x/", last+1, foreign)
		if want := []string{fmt.Sprintf("delete a %d", last+1)}; !slices.Equal(got, want) {
			t.Errorf("watch: got %v, want %v", got, want)
		}

		if err := b.Compact(ctx, last); err != nil {
			t.Fatal(err)
		}
		if _, err := b.List(ctx, "/registry/x/", after("/registry/x/"), a, 0); !errors.Is(err, ErrCompacted) {
			t.Errorf("list of the compacted past: %v", err)
		}
		if err := b.Watch(ctx, "/registry/x/", a, func([]Change, int64) {}); !errors.Is(err, ErrCompacted) {
			t.Errorf("watch of the compacted past: %v", err)
		}
		r, err = b.List(ctx, "/registry/x/", after("/registry/x/"), last, 0)
		if err != nil || len(r.KVs) != 3 {
			t.Errorf("list at the compacted revision: %+v %v", r, err)
		}

		lease, err := b.Grant(ctx, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		leased, err := b.Put(ctx, "/registry/x/short", []byte("7"), 0, lease)
		if err != nil {
			t.Fatal(err)
		}
		got = watchUntil(t, b, "/registry/x/", leased.Revision+1, leased.Revision+1)
		if want := []string{fmt.Sprintf("delete short %d", leased.Revision+1)}; !slices.Equal(got, want) {
			t.Errorf("lease: got %v, want %v", got, want)
		}
	})
}

// watchUntil tells what a watch brings until it has got to a revision.
func watchUntil(t *testing.T, b Backend, prefix string, from, until int64) (got []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		for ctx.Err() == nil {
			b.RequestProgress(ctx)
			sleep(ctx, 10*time.Millisecond)
		}
	}()
	err := b.Watch(ctx, prefix, from, func(changes []Change, rev int64) {
		for _, ch := range changes {
			verb := "put"
			if ch.Deleted {
				verb = "delete"
			}
			got = append(got, fmt.Sprintf("%s %s %d", verb, ch.Key[len(prefix):], ch.Mod))
		}
		if rev >= until {
			cancel()
		}
	})
	<-asking
	if !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
	return got
}
