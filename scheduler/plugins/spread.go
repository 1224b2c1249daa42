package plugins

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// spreadRule is one topology spread constraint of a pod, ready to use.
type spreadRule struct {
	key        string
	maxSkew    int64
	minDomains int64
	selects    func(*corev1.Pod) bool
	self       int64 // 1 if the pod itself is one of those that are spread
	affinity   *nodeaffinity.RequiredNodeAffinity
	taints     bool
	soft       bool
}

// podTopologySpread spreads pods over zones, nodes or what else a label names.
// Pods without constraints of their own are spread softly by the controller or
// service that they belong to (the articles' SelectorSpread).
func podTopologySpread() Plugin {
	return Plugin{
		Name:      "PodTopologySpread",
		Filter:    filterSpread,
		Score:     scoreSpread,
		Normalize: normalizeSpread,
		Weight:    2,
		Wakes:     []Change{PodAssigned, PodGone, NodeChanged, PodItselfChange},
	}
}

func spreadRules(s *Snapshot, pod *corev1.Pod, hard bool) []spreadRule {
	var rules []spreadRule
	constraints := pod.Spec.TopologySpreadConstraints
	for i := range constraints {
		c := &constraints[i]
		if (c.WhenUnsatisfiable == corev1.DoNotSchedule) != hard {
			continue
		}
		selector := withLabelKeys(selectorOf(c.LabelSelector), pod.Labels, c.MatchLabelKeys, nil)
		rule := spreadRule{key: c.TopologyKey, maxSkew: int64(c.MaxSkew), minDomains: 1, selects: podSelector(selector, pod.Namespace)}
		if c.MinDomains != nil {
			rule.minDomains = int64(*c.MinDomains)
		}
		if rule.selects(pod) {
			rule.self = 1
		}
		if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
			required := nodeaffinity.GetRequiredNodeAffinity(pod)
			rule.affinity = &required
		}
		rule.taints = c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
		rules = append(rules, rule)
	}
	if len(constraints) > 0 || hard {
		return rules
	}
	selector := s.Facts.SelectorsOf(pod)
	if selector == nil || selector.Empty() {
		return nil
	}
	for key, skew := range map[string]int64{corev1.LabelHostname: 3, corev1.LabelTopologyZone: 5} {
		rules = append(rules, spreadRule{key: key, maxSkew: skew, minDomains: 1, self: 1, selects: podSelector(selector, pod.Namespace), soft: true})
	}
	return rules
}

// counts says whether a node's pods count for the rule, by its policies.
func (r *spreadRule) counts(n *Node, pod *corev1.Pod) bool {
	if r.affinity != nil {
		if match, err := r.affinity.Match(n.Object); err != nil || !match {
			return false
		}
	}
	if r.taints {
		_, found := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), n.Object.Spec.Taints, pod.Spec.Tolerations,
			func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, true)
		return !found
	}
	return true
}

// count is the matching pods per value of the rule's key, over the nodes that
// have all keys of all rules.
func (r *spreadRule) count(s *Snapshot, pod *corev1.Pod, rules []spreadRule) map[string]int64 {
	counts := map[string]int64{}
	for _, n := range s.Nodes {
		value, ok := n.Object.Labels[r.key]
		if !ok || !r.soft && !hasKeys(n, rules) || !r.counts(n, pod) {
			continue
		}
		counts[value] += r.on(n)
	}
	return counts
}

func hasKeys(n *Node, rules []spreadRule) bool {
	for i := range rules {
		if _, ok := n.Object.Labels[rules[i].key]; !ok {
			return false
		}
	}
	return true
}

func filterSpread(s *Snapshot, pod *corev1.Pod) func(*Node) Reason {
	rules := spreadRules(s, pod, true)
	if len(rules) == 0 {
		return nil
	}
	counts := make([]map[string]int64, len(rules))
	lowest := make([]int64, len(rules))
	for i := range rules {
		counts[i] = rules[i].count(s, pod, rules)
		lowest[i] = lowestCount(counts[i], rules[i].minDomains)
	}
	return func(n *Node) Reason {
		for i := range rules {
			value, ok := n.Object.Labels[rules[i].key]
			if !ok {
				return Reason{Text: "node(s) didn't match pod topology spread constraints (missing required label)", Final: true}
			}
			if counts[i][value]+rules[i].self-lowest[i] > rules[i].maxSkew {
				return Reason{Text: "node(s) didn't match pod topology spread constraints"}
			}
		}
		return fits
	}
}

// lowestCount is the global minimum; with fewer domains than asked for it is 0.
func lowestCount(counts map[string]int64, minDomains int64) int64 {
	if int64(len(counts)) < minDomains || len(counts) == 0 {
		return 0
	}
	lowest := int64(math.MaxInt64)
	for _, c := range counts {
		lowest = min(lowest, c)
	}
	return lowest
}

// scoreSpread rates a node by how many matching pods its domains hold: fewer is
// better; a key with many domains counts a little more.
func scoreSpread(s *Snapshot, pod *corev1.Pod) func(*Node) int64 {
	rules := spreadRules(s, pod, false)
	if len(rules) == 0 {
		return nil
	}
	matching := make([]func(*Node) int64, len(rules))
	weights := make([]float64, len(rules))
	for i := range rules {
		var domains int
		matching[i], domains = rules[i].matching(s, pod, rules)
		weights[i] = math.Log(float64(domains + 2))
	}
	return func(n *Node) int64 {
		var sum float64
		for i := range rules {
			if _, ok := n.Object.Labels[rules[i].key]; ok {
				sum += float64(matching[i](n))*weights[i] + float64(rules[i].maxSkew-1)
			}
		}
		return int64(math.Round(sum))
	}
}

// matching tells how many matching pods the domain of a node holds, and how many
// domains there are. A domain that is a node is counted only when it is asked for:
// of a large cluster that is a small share.
func (r *spreadRule) matching(s *Snapshot, pod *corev1.Pod, rules []spreadRule) (func(*Node) int64, int) {
	if r.key == corev1.LabelHostname {
		return func(n *Node) int64 {
			if !r.soft && !hasKeys(n, rules) || !r.counts(n, pod) {
				return 0
			}
			return r.on(n)
		}, len(s.Nodes)
	}
	counts := r.count(s, pod, rules)
	return func(n *Node) int64 { return counts[n.Object.Labels[r.key]] }, len(counts)
}

// on counts the matching pods of a node.
func (r *spreadRule) on(n *Node) (pods int64) {
	for _, p := range n.Pods {
		if r.selects(p.Pod) {
			pods++
		}
	}
	return pods
}

// normalizeSpread makes the fewest pods the best score.
func normalizeSpread(scores []int64) {
	low, high := scores[0], scores[0]
	for _, s := range scores {
		low, high = min(low, s), max(high, s)
	}
	for i, s := range scores {
		if high == 0 {
			scores[i] = MaxScore
			continue
		}
		scores[i] = MaxScore * (high + low - s) / high
	}
}
