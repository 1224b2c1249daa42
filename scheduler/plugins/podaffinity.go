package plugins

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// domain is a place in the cluster as pod affinity sees it: all nodes that have
// the same value of a label.
type domain struct{ key, value string }

// interPodAffinity places pods near to, or away from, other pods. Required
// anti-affinity holds both ways: a pod on a node may refuse the newcomer.
func interPodAffinity() Plugin {
	return Plugin{
		Name:      "InterPodAffinity",
		Filter:    filterPodAffinity,
		Score:     scorePodAffinity,
		Normalize: normalizeRange,
		Weight:    2,
		Wakes:     []Change{PodAssigned, PodGone, NodeChanged, NamespaceChange, PodItselfChange},
	}
}

func filterPodAffinity(s *Snapshot, pod *corev1.Pod) func(*Node) Reason {
	own := NewPod(pod)
	refused := refusedDomains(s, pod)
	if len(refused) == 0 && len(own.affinity) == 0 && len(own.antiAffinity) == 0 {
		return nil
	}
	near := make([]map[string]int, len(own.affinity)) // per term: domain value to matching pods
	far := map[domain]bool{}
	for i := range near {
		near[i] = map[string]int{}
	}
	anyNear := false
	if len(own.affinity)+len(own.antiAffinity) > 0 {
		for _, n := range s.Nodes {
			for _, p := range n.Pods {
				if countNear(own, n, p, near, s.Facts) {
					anyNear = true
				}
				for i := range own.antiAffinity {
					t := &own.antiAffinity[i]
					if value, ok := n.Object.Labels[t.topologyKey]; ok && t.matches(p.Pod, s.Facts) {
						far[domain{t.topologyKey, value}] = true
					}
				}
			}
		}
	}
	// The first pod of a group that wants to be near itself may start anywhere.
	first := !anyNear && matchesAll(own.affinity, pod, s.Facts)
	return func(n *Node) Reason {
		for i := range own.affinity {
			value, ok := n.Object.Labels[own.affinity[i].topologyKey]
			if !ok || near[i][value] == 0 && !first {
				return Reason{Text: "node(s) didn't match pod affinity rules", Final: true}
			}
		}
		for i := range own.antiAffinity {
			key := own.antiAffinity[i].topologyKey
			if value, ok := n.Object.Labels[key]; ok && far[domain{key, value}] {
				return Reason{Text: "node(s) didn't match pod anti-affinity rules"}
			}
		}
		for d := range refused {
			if value, ok := n.Object.Labels[d.key]; ok && value == d.value {
				return Reason{Text: "node(s) didn't satisfy existing pods anti-affinity rules"}
			}
		}
		return fits
	}
}

// countNear counts p for the newcomer's affinity: only a pod that all terms
// match counts, for each term in its own domain.
func countNear(own *Pod, n *Node, p *Pod, near []map[string]int, facts Facts) bool {
	if len(own.affinity) == 0 || !matchesAll(own.affinity, p.Pod, facts) {
		return false
	}
	for i := range own.affinity {
		if value, ok := n.Object.Labels[own.affinity[i].topologyKey]; ok {
			near[i][value]++
		}
	}
	return true
}

func matchesAll(terms []term, pod *corev1.Pod, facts Facts) bool {
	for i := range terms {
		if !terms[i].matches(pod, facts) {
			return false
		}
	}
	return len(terms) > 0
}

// refusedDomains are those in which a running pod's anti-affinity refuses the
// newcomer.
func refusedDomains(s *Snapshot, pod *corev1.Pod) map[domain]bool {
	refused := map[domain]bool{}
	for _, n := range s.withAffinity {
		for _, p := range n.Pods {
			for i := range p.antiAffinity {
				t := &p.antiAffinity[i]
				if value, ok := n.Object.Labels[t.topologyKey]; ok && t.matches(pod, s.Facts) {
					refused[domain{t.topologyKey, value}] = true
				}
			}
		}
	}
	return refused
}

// scorePodAffinity adds up, per domain, the newcomer's preferences for the pods
// there and their preferences for it. A running pod's required affinity to the
// newcomer counts as a preference of weight 1.
func scorePodAffinity(s *Snapshot, pod *corev1.Pod) func(*Node) int64 {
	own := NewPod(pod)
	nodes := s.withAffinity
	if len(own.preferred) > 0 {
		nodes = s.Nodes
	}
	scores := map[domain]int64{}
	add := func(n *Node, key string, weight int64) {
		if value, ok := n.Object.Labels[key]; ok {
			scores[domain{key, value}] += weight
		}
	}
	for _, n := range nodes {
		for _, p := range n.Pods {
			for i := range own.preferred {
				if t := &own.preferred[i]; t.matches(p.Pod, s.Facts) {
					add(n, t.topologyKey, t.weight)
				}
			}
			for i := range p.preferred {
				if t := &p.preferred[i]; t.matches(pod, s.Facts) {
					add(n, t.topologyKey, t.weight)
				}
			}
			for i := range p.affinity {
				if t := &p.affinity[i]; t.matches(pod, s.Facts) {
					add(n, t.topologyKey, 1)
				}
			}
		}
	}
	if len(scores) == 0 {
		return nil
	}
	return func(n *Node) int64 {
		var sum int64
		for d, weight := range scores {
			if value, ok := n.Object.Labels[d.key]; ok && value == d.value {
				sum += weight
			}
		}
		return sum
	}
}

// normalizeRange maps the lowest score to 0 and the highest to MaxScore; scores
// may be negative.
func normalizeRange(scores []int64) {
	low, high := scores[0], scores[0]
	for _, s := range scores {
		low, high = min(low, s), max(high, s)
	}
	for i, s := range scores {
		scores[i] = 0
		if high > low {
			scores[i] = MaxScore * (s - low) / (high - low)
		}
	}
}

// podSelector selects what the labels say, within one namespace.
func podSelector(selector labels.Selector, namespace string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return p.Namespace == namespace && p.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Labels))
	}
}
