package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

type testFacts struct{ Facts }

func (testFacts) SelectorsOf(*corev1.Pod) labels.Selector { return nil }
func (testFacts) Namespace(string) *corev1.Namespace      { return nil }

func zoned(name, zone string, pods ...*corev1.Pod) *Node {
	n := NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, "disk": "ssd"}}})
	for _, p := range pods {
		n.Add(NewPod(p))
	}
	return n
}

func app(name, app string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}}}
	for _, c := range change {
		c(p)
	}
	return p
}

func awayFrom(value, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{affinityTerm(value, key)}}}
	}
}

func nearTo(value, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{affinityTerm(value, key)}}}
	}
}

func affinityTerm(value, key string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": value}}}
}

func spread(skew int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: skew, TopologyKey: corev1.LabelTopologyZone,
			WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}
	}
}

func port(n int32, ip string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: n, HostIP: ip}}}}
	}
}

// Each case asks which of the nodes a filter lets a pod onto.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		name   string
		plugin Plugin
		nodes  []*Node
		pod    *corev1.Pod
		want   string // names of the nodes that fit
	}{
		{"anti-affinity by host", interPodAffinity(), []*Node{zoned("a", "1", app("x", "web")), zoned("b", "1")},
			app("new", "web", awayFrom("web", corev1.LabelHostname)), "b"},
		{"anti-affinity by zone", interPodAffinity(), []*Node{zoned("a", "1", app("x", "web")), zoned("b", "1"), zoned("c", "2")},
			app("new", "web", awayFrom("web", corev1.LabelTopologyZone)), "c"},
		{"a running pod refuses", interPodAffinity(), []*Node{zoned("a", "1", app("x", "db", awayFrom("web", corev1.LabelHostname))), zoned("b", "1")},
			app("new", "web"), "b"},
		{"affinity", interPodAffinity(), []*Node{zoned("a", "1", app("x", "db")), zoned("b", "1"), zoned("c", "2")},
			app("new", "web", nearTo("db", corev1.LabelTopologyZone)), "ab"},
		{"affinity to nobody", interPodAffinity(), []*Node{zoned("a", "1")}, app("new", "web", nearTo("db", corev1.LabelTopologyZone)), ""},
		{"first of its own group", interPodAffinity(), []*Node{zoned("a", "1")}, app("new", "web", nearTo("web", corev1.LabelTopologyZone)), "a"},
		{"even spread", podTopologySpread(), []*Node{zoned("a", "1", app("x", "web")), zoned("b", "2")}, app("new", "web", spread(1)), "b"},
		{"spread with slack", podTopologySpread(), []*Node{zoned("a", "1", app("x", "web")), zoned("b", "2")}, app("new", "web", spread(2)), "ab"},
		{"host port taken", nodePorts(), []*Node{zoned("a", "1", app("x", "web", port(80, ""))), zoned("b", "1")}, app("new", "web", port(80, "10.0.0.1")), "b"},
		{"host port on another address", nodePorts(), []*Node{zoned("a", "1", app("x", "web", port(80, "10.0.0.2")))}, app("new", "web", port(80, "10.0.0.1")), "a"},
		{"node selector", nodeAffinity(), []*Node{zoned("a", "1"), zoned("b", "2")}, app("new", "web", func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "2"}
		}), "b"},
	} {
		snapshot := NewSnapshot(c.nodes, testFacts{})
		judge := c.plugin.Filter(snapshot, c.pod)
		got := ""
		for _, n := range c.nodes {
			if judge == nil || judge(n).Fits() {
				got += n.Name()
			}
		}
		if got != c.want {
			t.Errorf("%s: fits on %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNodeKeepsItsBooks(t *testing.T) {
	n := zoned("a", "1")
	p := app("x", "web", port(80, ""), awayFrom("web", corev1.LabelHostname))
	c := n.Clone()
	c.Add(NewPod(p))
	if len(n.Pods) != 0 || len(n.ports) != 0 || n.affinityPods != 0 {
		t.Error("a change of the clone shows in the original")
	}
	if !c.Remove(p) || c.Requested.Pods != 0 || len(c.ports) != 0 || c.affinityPods != 0 {
		t.Errorf("after removing its only pod the node still holds %+v", c.Requested)
	}
}
