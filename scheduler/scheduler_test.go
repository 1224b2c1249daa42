package scheduler

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/scheduler/plugins"
)

func node(name, cpu string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}},
	}
}

func pod(name, cpu string, priority int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
	}
}

func on(node string, p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeName = node
	return p
}

func newTest(nodes []*corev1.Node, pods ...*corev1.Pod) *scheduler {
	s := &scheduler{plugins: plugins.All(), cache: newCache()}
	s.queue = newQueue(s.plugins)
	for _, n := range nodes {
		s.cache.setNode(n)
	}
	for _, p := range pods {
		s.cache.setPod(p)
	}
	return s
}

// noFacts is a cluster with nothing but nodes and pods.
type noFacts struct{ plugins.Facts }

func TestAttemptSaysWhyNoNodeFits(t *testing.T) {
	tainted := node("tainted", "4")
	tainted.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	cordoned := node("cordoned", "4")
	cordoned.Spec.Unschedulable = true
	s := newTest([]*corev1.Node{tainted, cordoned, node("small", "1"), node("full", "4")}, on("full", pod("running", "3", 0)))
	got := s.attempt(context.Background(), s.cache.snapshot(noSelectors{}), pod("new", "2", 0))
	const want = "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu."
	if got.node != nil || got.explain() != want {
		t.Errorf("got  %q\nwant %q", got.explain(), want)
	}
}

type noSelectors struct{ noFacts }

func (noSelectors) SelectorsOf(*corev1.Pod) labels.Selector { return nil }

func TestAttemptPrefersTheEmptierNode(t *testing.T) {
	s := newTest([]*corev1.Node{node("busy", "4"), node("idle", "4")}, on("busy", pod("running", "3", 0)))
	got := s.attempt(context.Background(), s.cache.snapshot(noSelectors{}), pod("new", "500m", 0))
	if got.node == nil || got.node.Name() != "idle" {
		t.Errorf("chose %v, want idle; scores %v", got.node, got.scores)
	}
}

func TestAssumedPodsTakeUpRoom(t *testing.T) {
	s := newTest([]*corev1.Node{node("only", "2")})
	first := on("only", pod("first", "1500m", 0))
	s.cache.assume(first)
	if got := s.attempt(context.Background(), s.cache.snapshot(noSelectors{}), pod("second", "1", 0)); got.node != nil {
		t.Error("the node took more than it has while a binding was under way")
	}
	s.cache.forget(first.UID)
	if got := s.attempt(context.Background(), s.cache.snapshot(noSelectors{}), pod("second", "1", 0)); got.node == nil {
		t.Errorf("no node after the binding failed: %s", got.explain())
	}
}

func TestMakeRoomSparesWhatItCan(t *testing.T) {
	s := newTest([]*corev1.Node{node("n", "4")},
		on("n", pod("dear", "1", 50)), on("n", pod("cheap", "1", 1)), on("n", pod("mid", "2", 10)))
	snapshot := s.cache.snapshot(noSelectors{})
	for _, c := range []struct {
		cpu  string
		want string
	}{
		{"1", "[cheap]"},
		{"2", "[mid]"},
		{"3", "[mid cheap]"},
		{"5", "none"},
	} {
		got := "none"
		if room := s.makeRoom(snapshot, pod("vip", c.cpu, 100), snapshot.Node("n"), nil); room != nil {
			var names []string
			for _, v := range room.victims {
				names = append(names, v.Name)
			}
			got = fmt.Sprint(names)
		}
		if got != c.want {
			t.Errorf("cpu %s: victims %s, want %s", c.cpu, got, c.want)
		}
	}
}

func TestQueueOrderAndWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(plugins.All())
		go q.run(ctx)
		q.add(pod("low", "1", 0))
		q.add(pod("high", "1", 9))
		w, first, _ := q.pop(ctx)
		if first.Name != "high" {
			t.Errorf("first is %s, want the one of higher priority", first.Name)
		}
		q.refuse(w, []string{"NodeResourcesFit"}, "")
		lw, low, _ := q.pop(ctx)
		if low.Name != "low" {
			t.Fatalf("second is %s", low.Name)
		}
		q.done(lw)

		q.changed(plugins.NamespaceChange) // of no concern to NodeResourcesFit
		time.Sleep(3 * time.Second)
		if ready, _, refused := q.counts(); ready != 0 || refused != 1 {
			t.Errorf("an unrelated change woke the pod: ready %d", ready)
		}
		q.changed(plugins.PodGone)
		if _, again, _ := q.pop(ctx); again.Name != "high" {
			t.Errorf("woke %s", again.Name)
		}
		cancel()
		synctest.Wait()
	})
}

// Backing off is for the good of others: a pod that has none waits no longer
// than its change, unless what failed was its binding.
func TestBackoffHoldsBackOnlyBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(plugins.All())
		go q.run(ctx)
		q.add(pod("vip", "1", 9))
		vip, _, _ := q.pop(ctx)
		q.refuse(vip, []string{"NodeResourcesFit"}, "")
		q.add(pod("other", "1", 0))
		q.changed(plugins.PodGone)
		began := time.Now()
		other, first, _ := q.pop(ctx)
		if first.Name != "other" {
			t.Errorf("%s first: it should back off", first.Name)
		}
		if _, second, _ := q.pop(ctx); second.Name != "vip" || time.Since(began) > 0 {
			t.Errorf("%s after %s, want vip at once", second.Name, time.Since(began))
		}
		q.retry(other)
		if _, third, _ := q.pop(ctx); third.Name != "other" || time.Since(began) < firstBackoff {
			t.Errorf("%s after %s, want other after a rest", third.Name, time.Since(began))
		}
		cancel()
		synctest.Wait()
	})
}

// A change that comes while a pod is being tried must not be lost on it.
func TestChangeDuringAnAttemptWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(plugins.All())
		go q.run(ctx)
		q.add(pod("p", "1", 0))
		w, _, _ := q.pop(ctx)
		q.changed(plugins.NodeChanged)
		q.refuse(w, []string{"NodeAffinity"}, "")
		began := time.Now()
		q.pop(ctx)
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("tried again only after %s", waited)
		}
		cancel()
		synctest.Wait()
	})
}

func TestPodsAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, newQueue(plugins.All()))
	m.bound(&waiting{attempts: 2, added: time.Now().Add(-time.Minute)})
	m.bound(&waiting{attempts: 20, added: time.Now()})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				got[f.GetName()+" "+l.GetValue()] = m.GetHistogram().GetSampleSum()
			}
			if len(m.Label) == 0 {
				got[f.GetName()] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	const waits = "scheduler_pod_scheduling_sli_duration_seconds"
	if got["scheduler_pod_scheduling_attempts"] != 22 || got[waits+" 2"] < 60 || got[waits+" 15+"] > 30 {
		t.Errorf("%v", got)
	}
}

// owned is a cluster where all pods are of one ReplicaSet.
type owned struct{ noFacts }

func (owned) SelectorsOf(*corev1.Pod) labels.Selector {
	return labels.SelectorFromSet(labels.Set{"app": "web"})
}

// BenchmarkAttempt places pods of one owner, one after the other, in clusters of
// several sizes: each attempt sees the one before.
func BenchmarkAttempt(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			s := newTest(nil)
			for i := range nodes {
				s.cache.setNode(node(fmt.Sprintf("node-%d", i), "64"))
			}
			for i := 0; b.Loop(); i++ {
				p := pod(fmt.Sprintf("web-%d", i), "1m", 0)
				p.Labels = map[string]string{"app": "web"}
				r := s.attempt(b.Context(), s.cache.snapshot(owned{}), p)
				if r.node == nil {
					b.Fatal("no node for ", p.Name)
				}
				s.cache.assume(on(r.node.Name(), p))
			}
		})
	}
}

func TestSnapshotKeepsItsNodes(t *testing.T) {
	s := newTest([]*corev1.Node{node("b", "1"), node("a", "1"), node("c", "1")}, on("b", pod("first", "100m", 0)))
	before := s.cache.snapshot(noFacts{})
	s.cache.assume(on("b", pod("second", "100m", 0)))
	s.cache.removeNode("a")
	after := s.cache.snapshot(noFacts{})
	if len(before.Nodes) != 3 || len(before.Node("b").Pods) != 1 || before.Node("a") == nil {
		t.Errorf("a snapshot changed: %d nodes, %d pods on b", len(before.Nodes), len(before.Node("b").Pods))
	}
	if len(after.Nodes) != 2 || len(after.Node("b").Pods) != 2 || after.Node("a") != nil {
		t.Errorf("the next one has %d nodes, %d pods on b", len(after.Nodes), len(after.Node("b").Pods))
	}
}
