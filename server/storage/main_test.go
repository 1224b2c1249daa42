package storage

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by package inits of etcd's and Kubernetes' libraries.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/pkg/v3/schedule.(*fifo).run"),
	)
}

// startEtcd runs a member on a loopback port that lasts as long as the test. It
// returns a client inside the process and one that goes over the wire.
func startEtcd(t testing.TB) (inside, remote *Etcd) {
	t.Helper()
	member := newMember(t)
	e := member.start(t)
	t.Cleanup(e.Close)
	in := v3client.New(e.Server)
	t.Cleanup(func() { in.Close() })
	out, err := clientv3.New(clientv3.Config{Endpoints: []string{member.client.String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return NewEtcd(in), NewEtcd(out)
}

// member is an etcd that can be stopped and started again.
type member struct {
	dir          string
	client, peer url.URL
}

func newMember(t testing.TB) member { return member{t.TempDir(), freeURL(t), freeURL(t)} }

func (m member) start(t testing.TB) *embed.Etcd {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = m.dir
	cfg.LogLevel = "panic"
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100 // elects itself sooner
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{m.client}, []url.URL{m.client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{m.peer}, []url.URL{m.peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd did not become ready")
	}
	return e
}

func freeURL(t testing.TB) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

func newMemory(t testing.TB) *Memory {
	m := NewMemory()
	t.Cleanup(m.Close)
	return m
}

// backends runs a test over both kinds of Backend.
func backends(t *testing.T, test func(t *testing.T, b Backend)) {
	t.Run("memory", func(t *testing.T) { test(t, newMemory(t)) })
	t.Run("etcd", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts an etcd")
		}
		inside, _ := startEtcd(t)
		test(t, inside)
	})
	t.Run("remote etcd", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts an etcd")
		}
		_, remote := startEtcd(t)
		test(t, remote)
	})
}

var (
	podResource = Resource{
		GroupResource: schema.GroupResource{Resource: "pods"},
		Kind:          schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Prefix:        "pods", Namespaced: true,
		New: func() runtime.Object { return &corev1.Pod{} },
		Fields: func(o runtime.Object) fields.Set {
			p := o.(*corev1.Pod)
			return fields.Set{"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName}
		},
	}
	nodeResource = Resource{
		GroupResource: schema.GroupResource{Resource: "nodes"},
		Kind:          schema.GroupVersionKind{Version: "v1", Kind: "Node"},
		Prefix:        "minions", New: func() runtime.Object { return &corev1.Node{} },
	}
	eventResource = Resource{
		GroupResource: schema.GroupResource{Resource: "events"},
		Kind:          schema.GroupVersionKind{Version: "v1", Kind: "Event"},
		Prefix:        "events", Namespaced: true, TTL: time.Hour,
		New: func() runtime.Object { return &corev1.Event{} },
	}
	widgetResource = Resource{
		GroupResource: schema.GroupResource{Group: "example.com", Resource: "widgets"},
		Kind:          schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		Prefix:        "example.com/widgets", Namespaced: true, JSON: true,
		New: func() runtime.Object { return &unstructured.Unstructured{} },
	}
)

// runStore runs a store of some kinds until the test ends.
func runStore(t testing.TB, b Backend, o Options, resources ...Resource) *Store {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	}
	if o.CompactInterval == 0 {
		o.CompactInterval = -1
	}
	s := New(b, o)
	for _, r := range resources {
		s.Add(r)
	}
	run(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.WaitLoaded(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t testing.TB, s *Store) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func pod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, c := range change {
		c(p)
	}
	return p
}

func onNode(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func labelled(kv ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			p.Labels[kv[i]] = kv[i+1]
		}
	}
}

func mustCreate(t testing.TB, c *Collection, obj runtime.Object) *Item {
	t.Helper()
	i, err := c.Create(t.Context(), obj, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func mustUpdate(t testing.TB, c *Collection, namespace, name string, change func(*corev1.Pod)) *Item {
	t.Helper()
	i, err := c.Update(t.Context(), namespace, name, WriteOptions{}, func(o runtime.Object) (runtime.Object, error) {
		change(o.(*corev1.Pod))
		return o, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func names(items []*Item) (all []string) {
	for _, i := range items {
		all = append(all, i.Namespace+"/"+i.Name)
	}
	return all
}

// tell writes events as short as can be: "ADDED a/x@5".
func tell(events []Event) (all []string) {
	for _, e := range events {
		switch {
		case e.InitialEnd:
			all = append(all, "INITIAL-END")
		case e.Type == Bookmark:
			all = append(all, string(e.Type))
		default:
			all = append(all, fmt.Sprintf("%s %s/%s", e.Type, e.Item.Namespace, e.Item.Name))
		}
	}
	return all
}

// next reads until it has n events.
func next(t testing.TB, w *Watcher, n int) (all []Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(all) < n {
		events, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", tell(all), err)
		}
		all = append(all, events...)
	}
	return all
}
