package storage

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
)

func fill(b *testing.B, c *Collection, pods, nodes int) {
	b.Helper()
	for i := range pods {
		mustCreate(b, c, pod(fmt.Sprint("ns", i%100), fmt.Sprint("p", i), onNode(fmt.Sprint("n", i%nodes))))
	}
	if err := c.fresh(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkList(b *testing.B) {
	s := runStore(b, newMemory(b), Options{}, podResource)
	c := s.Collection(podResource.GroupResource)
	fill(b, c, 10_000, 500)
	for name, o := range map[string]ListOptions{
		"all":       {},
		"namespace": {Selection: Selection{Namespace: "ns7"}},
		"node":      {Selection: Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", "n7")}},
		"page":      {Limit: 500},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.List(b.Context(), o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFanOut is one update of a pod with many watchers: those of all pods,
// who each get it, or those of one node each, of whom one does.
func BenchmarkFanOut(b *testing.B) {
	for _, tc := range []struct {
		name     string
		watchers int
		byNode   bool
	}{{"all-1000", 1000, false}, {"node-5000", 5000, true}} {
		b.Run(tc.name, func(b *testing.B) {
			s := runStore(b, newMemory(b), Options{}, podResource)
			c := s.Collection(podResource.GroupResource)
			fill(b, c, 100, 100)
			ctx, cancel := context.WithCancel(context.Background())
			var watching, seen sync.WaitGroup
			for n := range tc.watchers {
				o := WatchOptions{SendInitial: no()}
				if tc.byNode {
					o.Fields = fields.OneTermEqualSelector("spec.nodeName", fmt.Sprint("n", n))
				}
				w, err := c.Watch(ctx, o)
				if err != nil {
					b.Fatal(err)
				}
				watching.Go(func() {
					for {
						events, err := w.Next(ctx)
						if err != nil {
							return
						}
						for range events {
							seen.Done()
						}
					}
				})
			}
			i := 0
			for b.Loop() {
				if seen.Add(1); !tc.byNode {
					seen.Add(tc.watchers - 1)
				}
				i++
				mustUpdate(b, c, "ns7", "p7", func(p *corev1.Pod) { labelled("i", fmt.Sprint(i))(p) })
				seen.Wait()
			}
			cancel()
			watching.Wait()
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	backend := newMemory(b)
	s := runStore(b, backend, Options{}, podResource)
	c := s.Collection(podResource.GroupResource)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		mustCreate(b, c, pod("a", fmt.Sprint(i)))
	}
}

// BenchmarkEtcd is what one client sees of a real etcd, in this process or over
// the wire: a consistent read, and one right after a write.
func BenchmarkEtcd(b *testing.B) {
	inside, remote := startEtcd(b)
	for name, backend := range map[string]Backend{"inside": inside, "remote": remote} {
		s := runStore(b, backend, Options{}, podResource)
		c := s.Collection(podResource.GroupResource)
		mustCreate(b, c, pod(name, "x"))
		b.Run("get-"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Get(b.Context(), name, "x", ""); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("get-parallel-"+name, func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.Get(b.Context(), name, "x", ""); err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run("update-get-"+name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				i++
				mustUpdate(b, c, name, "x", labelled("i", fmt.Sprint(i)))
				if _, err := c.Get(b.Context(), name, "x", ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
