package storage

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// fakeSeal marks values with the number of a key and the name of their place.
type fakeSeal struct {
	key    atomic.Value // string
	broken atomic.Bool
}

func newFakeSeal() *fakeSeal {
	f := &fakeSeal{}
	f.key.Store("1")
	return f
}

func (f *fakeSeal) TransformerForResource(schema.GroupResource) value.Transformer { return f }

func (f *fakeSeal) TransformToStorage(_ context.Context, data []byte, where value.Context) ([]byte, error) {
	if f.broken.Load() {
		return nil, errors.New("nobody keeps the key")
	}
	return slices.Concat([]byte("k8s:enc:fake:"+f.key.Load().(string)+":"), where.AuthenticatedData(), []byte(":"), data), nil
}

func (f *fakeSeal) TransformFromStorage(_ context.Context, data []byte, where value.Context) ([]byte, bool, error) {
	if f.broken.Load() {
		return nil, false, errors.New("nobody keeps the key")
	}
	parts := bytes.SplitN(data, []byte(":"), 6)
	if len(parts) != 6 || !bytes.Equal(parts[4], where.AuthenticatedData()) {
		return nil, false, errors.New("no such seal")
	}
	return parts[5], string(parts[3]) != f.key.Load().(string), nil
}

func sealedStore(t *testing.T, b Backend) (*Collection, *fakeSeal) {
	seal := newFakeSeal()
	s := runStore(t, b, Options{Transformers: seal, Log: slog.New(slog.DiscardHandler)}, podResource)
	return s.Collection(podResource.GroupResource), seal
}

func same(current runtime.Object) (runtime.Object, error) { return current, nil }

func TestSeal(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		c, seal := sealedStore(t, b)
		first := mustCreate(t, c, pod("a", "x"))
		key := "/registry/pods/a/x"
		stored := func() string {
			kv, _, err := b.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return string(kv.Value)
		}
		if got := stored(); !strings.HasPrefix(got, "k8s:enc:fake:1:"+key+":k8s\x00") {
			t.Fatalf("stored as %q", got)
		}
		item, err := c.Update(t.Context(), "a", "x", WriteOptions{}, same)
		if err != nil || item.Revision != first.Revision {
			t.Errorf("an update without a change: %v %v", item, err)
		}
		seal.key.Store("2")
		item, err = c.Update(t.Context(), "a", "x", WriteOptions{DryRun: true}, same)
		if err != nil || !strings.HasPrefix(stored(), "k8s:enc:fake:1:") {
			t.Errorf("dry run: %v %v", item, err)
		}
		item, err = c.Update(t.Context(), "a", "x", WriteOptions{}, same)
		if err != nil || item.Revision == first.Revision || !strings.HasPrefix(stored(), "k8s:enc:fake:2:") {
			t.Errorf("an update without a change, after the key has changed: %v %v", item, err)
		}
		// A value in another's place is not believed.
		b.Put(t.Context(), "/registry/pods/a/y", []byte(stored()), 0, 0)
		if _, err := c.Get(t.Context(), "a", "y", ""); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `unable to transform key "/registry/pods/a/y": no such seal`) {
			t.Errorf("a value in the wrong place: %v", err)
		}
	})
}

// TestUnsealable: what cannot be unsealed for a while is not taken for deleted;
// watchers, from whom it was kept, must list again.
func TestUnsealable(t *testing.T) {
	m := newMemory(t)
	c, seal := sealedStore(t, m)
	mustCreate(t, c, pod("a", "x"))
	w, err := c.Watch(t.Context(), WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := tell(next(t, w, 1)); got[0] != "ADDED a/x" {
		t.Fatal(got)
	}
	plain, err := podResource.encode(pod("a", "x", labelled("by", "another server")))
	if err != nil {
		t.Fatal(err)
	}
	key := "/registry/pods/a/x"
	sealed, _ := seal.TransformToStorage(t.Context(), plain, value.DefaultContext(key))
	seal.broken.Store(true)
	kv, _, _ := m.Get(t.Context(), key)
	if out, err := m.Put(t.Context(), key, sealed, kv.Mod, 0); err != nil || !out.Done {
		t.Fatal(out, err)
	}
	for _, get := range []func() error{
		func() error { _, err := c.Get(t.Context(), "a", "x", ""); return err },
		func() error { _, err := c.List(t.Context(), ListOptions{}); return err },
		func() error { _, err := c.Create(t.Context(), pod("a", "y"), WriteOptions{}); return err },
	} {
		if err := get(); !apierrors.IsInternalError(err) {
			t.Errorf("while nobody keeps the key: %v", err)
		}
	}
	seal.broken.Store(false)
	if events, err := w.Next(t.Context()); !apierrors.IsResourceExpired(err) {
		t.Errorf("the watch went on: %v %v", tell(events), err)
	}
	if item, err := c.Get(t.Context(), "a", "x", ""); err != nil || item.Labels["by"] != "another server" {
		t.Errorf("afterwards: %v %v", item, err)
	}
}

// TestSealedStart: a server that starts without the key serves as soon as it has
// it, and does not wait for the cache until then.
func TestSealedStart(t *testing.T) {
	m := newMemory(t)
	c, _ := sealedStore(t, m)
	mustCreate(t, c, pod("a", "x"))
	seal := newFakeSeal()
	seal.broken.Store(true)
	s := runStore(t, m, Options{Transformers: seal, Log: slog.New(slog.DiscardHandler)})
	s.Add(podResource)
	c = s.Collection(podResource.GroupResource)
	if _, err := c.Get(t.Context(), "a", "x", ""); !apierrors.IsInternalError(err) {
		t.Errorf("without the key: %v", err)
	}
	seal.broken.Store(false)
	if err := s.WaitLoaded(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "a", "x", "0"); err != nil {
		t.Error(err)
	}
}
