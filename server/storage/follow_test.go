package storage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// afterList does something between a listing and its arrival.
type afterList struct {
	Backend
	do func()
}

func (a afterList) List(ctx context.Context, start, end string, revision, limit int64) (Range, error) {
	r, err := a.Backend.List(ctx, start, end, revision, limit)
	a.do()
	return r, err
}

// TestAddWhileWriting: what is written while a kind is being loaded is not lost.
func TestAddWhileWriting(t *testing.T) {
	m := newMemory(t)
	writer := New(m, Options{})
	writer.Add(podResource)
	pods := writer.Collection(podResource.GroupResource)
	mustCreate(t, pods, pod("a", "before"))
	mustCreate(t, pods, pod("a", "gone"))

	var s *Store
	n := 0
	s = New(afterList{m, func() {
		if n++; n > 1 {
			return
		}
		mustCreate(t, pods, pod("a", "during"))
		mustUpdate(t, pods, "a", "before", onNode("n"))
		last, err := pods.Delete(t.Context(), "a", "gone", WriteOptions{}, nil)
		if err != nil {
			t.Error(err)
			return
		}
		for s.progress.Load() < last.Revision {
			time.Sleep(time.Millisecond) // until the watch has brought it all
		}
	}}, Options{CompactInterval: -1})
	run(t, s)
	s.Add(podResource)
	c := s.Collection(podResource.GroupResource)
	if err := s.WaitLoaded(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := c.List(t.Context(), ListOptions{ResourceVersion: "0"})
	if want := []string{"a/before", "a/during"}; err != nil || !slices.Equal(names(p.Items), want) || p.Items[0].Fields["spec.nodeName"] != "n" {
		t.Errorf("got %v %v, want %v", names(p.Items), err, want)
	}
}

// wire is a connection to etcd that can be cut.
type wire struct {
	net.Listener
	to string

	mu    sync.Mutex // protects the fields below
	down  bool
	conns []net.Conn
}

// serve forwards connections until the listener is closed.
func (w *wire) serve() {
	var copying sync.WaitGroup
	defer copying.Wait()
	for {
		near, err := w.Accept()
		if err != nil {
			w.cut(true)
			return
		}
		far, err := net.Dial("tcp", w.to)
		w.mu.Lock()
		if w.down || err != nil {
			near.Close()
		}
		if err == nil && w.down {
			far.Close()
		} else if err == nil {
			w.conns = append(w.conns, near, far)
			copying.Go(func() { io.Copy(near, far); near.Close() })
			copying.Go(func() { io.Copy(far, near); far.Close() })
		}
		w.mu.Unlock()
	}
}

func (w *wire) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// TestEtcdAway: an etcd that goes away and comes back is no event for watchers,
// and its absence is a clear answer for everyone else.
func TestEtcdAway(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd")
	}
	m := newMember(t)
	e := m.start(t)
	defer e.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: m.client.Host}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer l.Close()
	serving.Go(w.serve)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + l.Addr().String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := New(NewEtcd(client), Options{Log: slog.New(slog.DiscardHandler), ReadTimeout: 100 * time.Millisecond})
	s.Add(podResource)
	run(t, s)
	c := s.Collection(podResource.GroupResource)
	mustCreate(t, c, pod("a", "x"))
	watcher := startWatch(t, c, WatchOptions{})
	next(t, watcher, 1)

	w.cut(true)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Ready(short); err == nil {
		t.Error("ready without etcd")
	}
	if _, err := c.Create(short, pod("a", "y"), WriteOptions{}); !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err) {
		t.Errorf("create without etcd: %v", err)
	}
	if i, err := c.Get(t.Context(), "a", "x", "0"); err != nil || i.Name != "x" {
		t.Errorf("any state of x without etcd: %v %v", i, err)
	}
	// What others write meanwhile is not missed.
	inside := v3client.New(e.Server)
	defer inside.Close()
	other := New(NewEtcd(inside), Options{ReadTimeout: 1})
	other.Add(podResource)
	mustUpdate(t, other.Collection(podResource.GroupResource), "a", "x", labelled("n", "1"))
	mustCreate(t, other.Collection(podResource.GroupResource), pod("a", "z"))

	w.cut(false)
	if got := tell(next(t, watcher, 2)); !slices.Equal(got, []string{"MODIFIED a/x", "ADDED a/z"}) {
		t.Errorf("watch afterwards: %v", got)
	}
	mustUpdate(t, c, "a", "x", labelled("n", "2"))
}

// TestManyKinds: an API server with all its kinds must be ready at once.
func TestManyKinds(t *testing.T) {
	backends(t, func(t *testing.T, b Backend) {
		s := New(b, Options{CompactInterval: -1})
		for i := range 80 {
			s.Add(Resource{
				GroupResource: schema.GroupResource{Group: "g", Resource: fmt.Sprint("kind", i)},
				Kind:          podResource.Kind, Prefix: fmt.Sprint("g/kind", i), Namespaced: true, New: podResource.New,
			})
		}
		start := time.Now()
		run(t, s)
		if err := s.WaitLoaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("80 kinds loaded in %v", time.Since(start))
		if time.Since(start) > 5*time.Second {
			t.Error("too slow")
		}
		mustCreate(t, s.Collection(schema.GroupResource{Group: "g", Resource: "kind7"}), &corev1.Pod{ObjectMeta: pod("a", "x").ObjectMeta})
	})
}
