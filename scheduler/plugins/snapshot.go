package plugins

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Snapshot is the cluster as one scheduling attempt sees it. It does not change
// while the attempt runs.
type Snapshot struct {
	Nodes []*Node // in the order of their names
	Facts Facts
	// withAffinity are the nodes that run pods with required anti-affinity or
	// any (anti-)affinity: only they can object to a newcomer.
	withAffinity []*Node
}

// Facts are the other objects that plugins look at, from informers' caches.
type Facts interface {
	Namespace(name string) *corev1.Namespace
	Claim(namespace, name string) *corev1.PersistentVolumeClaim
	Volume(name string) *corev1.PersistentVolume
	Volumes() []*corev1.PersistentVolume
	Class(name string) *storagev1.StorageClass
	CSINode(name string) *storagev1.CSINode
	// SelectorsOf are the selectors of the Services, ReplicaSets,
	// StatefulSets and ReplicationControllers that the pod belongs to.
	SelectorsOf(pod *corev1.Pod) labels.Selector
}

// NewSnapshot is of nodes in the order of their names.
func NewSnapshot(nodes []*Node, facts Facts) *Snapshot {
	s := &Snapshot{Nodes: nodes, Facts: facts}
	for _, n := range nodes {
		if n.affinityPods > 0 {
			s.withAffinity = append(s.withAffinity, n)
		}
	}
	return s
}

// With returns a snapshot in which one node is replaced by another state of it.
func (s *Snapshot) With(changed *Node) *Snapshot {
	nodes := slices.Clone(s.Nodes)
	if i, found := FindNode(nodes, changed.Name()); found {
		nodes[i] = changed
	}
	return NewSnapshot(nodes, s.Facts)
}

// Node returns a node by name, or nil.
func (s *Snapshot) Node(name string) *Node {
	if i, found := FindNode(s.Nodes, name); found {
		return s.Nodes[i]
	}
	return nil
}

// FindNode tells where a node is among nodes in the order of their names, or would be.
func FindNode(nodes []*Node, name string) (index int, found bool) {
	return slices.BinarySearchFunc(nodes, name, func(n *Node, name string) int { return strings.Compare(n.Name(), name) })
}

// Node is a node with the pods that are assigned to it, bound or about to be.
type Node struct {
	Object      *corev1.Node
	Pods        []*Pod
	Requested   Resources
	Allocatable Resources
	ports       map[hostPort]int
	images      map[string]int64 // name to size
	// affinityPods counts pods with pod (anti-)affinity.
	affinityPods int
}

// Pod is an assigned pod with what the plugins would compute of it again and
// again.
type Pod struct {
	*corev1.Pod
	Requests     Resources
	affinity     []term // required
	antiAffinity []term // required
	preferred    []weightedTerm
}

// Resources are amounts of resources: CPU in thousandths of a core, the rest in
// their unit. NonZero amounts count a pod that asks for nothing as a small one,
// so that scores still spread such pods.
type Resources struct {
	MilliCPU, Memory, Ephemeral    int64
	Pods                           int64
	Scalar                         map[corev1.ResourceName]int64
	NonZeroMilliCPU, NonZeroMemory int64
}

// What scores assume of a container that names no request.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
)

// NewNode makes a node without pods.
func NewNode(object *corev1.Node) *Node {
	n := &Node{ports: map[hostPort]int{}}
	n.SetObject(object)
	return n
}

// SetObject replaces the API object.
func (n *Node) SetObject(object *corev1.Node) {
	n.Object = object
	n.Allocatable = fromList(object.Status.Allocatable)
	n.images = map[string]int64{}
	for _, image := range object.Status.Images {
		for _, name := range image.Names {
			n.images[name] = image.SizeBytes
		}
	}
}

// Name is the node's name.
func (n *Node) Name() string { return n.Object.Name }

// Clone copies the node so that pods can be added and removed.
func (n *Node) Clone() *Node {
	c := *n
	c.Pods = slices.Clone(n.Pods)
	c.Requested.Scalar = maps.Clone(n.Requested.Scalar)
	c.ports = make(map[hostPort]int, len(n.ports))
	for p, count := range n.ports {
		c.ports[p] = count
	}
	return &c
}

// NewPod computes what plugins need of an assigned pod.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{Pod: pod, Requests: PodRequests(pod)}
	if a := pod.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			p.affinity = newTerms(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.preferred = append(p.preferred, newWeightedTerms(pod, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1)...)
		}
		if a.PodAntiAffinity != nil {
			p.antiAffinity = newTerms(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			p.preferred = append(p.preferred, newWeightedTerms(pod, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1)...)
		}
	}
	return p
}

func (p *Pod) hasAffinity() bool {
	return len(p.affinity)+len(p.antiAffinity)+len(p.preferred) > 0
}

// Add puts a pod on the node.
func (n *Node) Add(p *Pod) {
	n.Pods = append(n.Pods, p)
	n.Requested.add(p.Requests, 1)
	for _, port := range hostPorts(p.Pod) {
		n.ports[port]++
	}
	if p.hasAffinity() {
		n.affinityPods++
	}
}

// Remove takes a pod off the node; it reports whether it was there.
func (n *Node) Remove(pod *corev1.Pod) bool {
	i := slices.IndexFunc(n.Pods, func(p *Pod) bool { return p.UID == pod.UID })
	if i < 0 {
		return false
	}
	p := n.Pods[i]
	n.Pods = slices.Delete(n.Pods, i, i+1)
	n.Requested.add(p.Requests, -1)
	for _, port := range hostPorts(p.Pod) {
		if n.ports[port]--; n.ports[port] <= 0 {
			delete(n.ports, port)
		}
	}
	if p.hasAffinity() {
		n.affinityPods--
	}
	return true
}

func (r *Resources) add(o Resources, sign int64) {
	r.MilliCPU += sign * o.MilliCPU
	r.Memory += sign * o.Memory
	r.Ephemeral += sign * o.Ephemeral
	r.Pods += sign * o.Pods
	r.NonZeroMilliCPU += sign * o.NonZeroMilliCPU
	r.NonZeroMemory += sign * o.NonZeroMemory
	for name, amount := range o.Scalar {
		if r.Scalar == nil {
			r.Scalar = map[corev1.ResourceName]int64{}
		}
		r.Scalar[name] += sign * amount
	}
}

func fromList(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = q.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			r.Ephemeral = q.Value()
		case corev1.ResourcePods:
			r.Pods = q.Value()
		default:
			if r.Scalar == nil {
				r.Scalar = map[corev1.ResourceName]int64{}
			}
			r.Scalar[name] = q.Value()
		}
	}
	return r
}

// PodRequests adds up what a pod asks of a node.
func PodRequests(pod *corev1.Pod) Resources {
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	r := fromList(resourcehelper.PodRequests(pod, options))
	r.Pods = 1
	options.NonMissingContainerRequests = corev1.ResourceList{
		corev1.ResourceCPU:    *newMilli(defaultMilliCPU),
		corev1.ResourceMemory: *newBytes(defaultMemory),
	}
	nonZero := fromList(resourcehelper.PodRequests(pod, options))
	r.NonZeroMilliCPU, r.NonZeroMemory = nonZero.MilliCPU, nonZero.Memory
	return r
}

// selectsNamespace: an affinity term with neither names nor selector means the
// pod's own namespace.
type term struct {
	selector    labels.Selector
	namespaces  sets.Set[string]
	nsSelector  labels.Selector
	topologyKey string
}

type weightedTerm struct {
	term
	weight int64 // negative: keep away
}

func newTerms(pod *corev1.Pod, list []corev1.PodAffinityTerm) []term {
	var terms []term
	for i := range list {
		terms = append(terms, newTerm(pod, &list[i]))
	}
	return terms
}

func newWeightedTerms(pod *corev1.Pod, list []corev1.WeightedPodAffinityTerm, sign int64) []weightedTerm {
	var terms []weightedTerm
	for i := range list {
		terms = append(terms, weightedTerm{newTerm(pod, &list[i].PodAffinityTerm), sign * int64(list[i].Weight)})
	}
	return terms
}

func newTerm(pod *corev1.Pod, t *corev1.PodAffinityTerm) term {
	selector := selectorOf(t.LabelSelector)
	if !selector.Empty() || t.LabelSelector != nil {
		selector = withLabelKeys(selector, pod.Labels, t.MatchLabelKeys, t.MismatchLabelKeys)
	}
	out := term{selector: selector, namespaces: sets.New(t.Namespaces...), topologyKey: t.TopologyKey}
	if t.NamespaceSelector != nil {
		out.nsSelector = selectorOf(t.NamespaceSelector)
	} else if len(t.Namespaces) == 0 {
		out.namespaces = sets.New(pod.Namespace)
	}
	return out
}

// selectorOf follows the API: a nil selector selects nothing, an empty one all.
// A malformed one, which validation keeps out, selects nothing.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// matches reports whether a pod is one that the term is about.
func (t *term) matches(pod *corev1.Pod, facts Facts) bool {
	if !t.namespaces.Has(pod.Namespace) {
		if t.nsSelector == nil {
			return false
		}
		ns := facts.Namespace(pod.Namespace)
		if ns == nil || !t.nsSelector.Matches(labels.Set(ns.Labels)) {
			return false
		}
	}
	return t.selector.Matches(labels.Set(pod.Labels))
}

func withLabelKeys(selector labels.Selector, podLabels map[string]string, match, mismatch []string) labels.Selector {
	add := func(keys []string, op func(key, value string) (*labels.Requirement, error)) {
		for _, key := range keys {
			if value, ok := podLabels[key]; ok {
				if r, err := op(key, value); err == nil {
					selector = selector.Add(*r)
				}
			}
		}
	}
	add(match, func(k, v string) (*labels.Requirement, error) { return labels.NewRequirement(k, "in", []string{v}) })
	add(mismatch, func(k, v string) (*labels.Requirement, error) { return labels.NewRequirement(k, "notin", []string{v}) })
	return selector
}
