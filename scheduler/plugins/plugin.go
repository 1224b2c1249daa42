// Package plugins holds the rules by which the scheduler filters and scores
// nodes, one file each. A Plugin looks at a pod once and returns a function that
// judges one node: what is the same for all nodes is computed once per pod, and
// nothing is kept between pods. All lists them in running order.
//
// A plugin reads the Snapshot that it is given and nothing else, so an attempt
// can be explained afterwards, or run again on a changed snapshot (preemption).
package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// MaxScore is the best normalised score of a node.
const MaxScore int64 = 100

// Reason says why a node does not take a pod, in the words that users know from
// "0/3 nodes are available". The zero Reason means that the node fits.
type Reason struct {
	Text string
	// Final: evicting pods from the node would not help.
	Final bool
}

// Fits reports whether the reason is none.
func (r Reason) Fits() bool { return r.Text == "" }

var fits = Reason{}

// Change is something that happened in the cluster which may let a pod fit that
// did not before.
type Change string

// The changes that wake pods which a plugin refused.
const (
	NodeChanged     Change = "node"         // added, or its allocatable, labels, taints changed
	PodGone         Change = "pod gone"     // an assigned pod ended, shrank or was deleted
	PodAssigned     Change = "pod assigned" // an assigned pod appeared or changed its labels
	VolumesChanged  Change = "volumes"      // a claim, volume, class or CSI node changed
	PodItselfChange Change = "pod itself"   // the waiting pod was updated
	NamespaceChange Change = "namespace"    // labels of a namespace changed
)

// Plugin is one rule. A function that is nil, or that returns nil for a pod,
// means that the rule has nothing to say.
type Plugin struct {
	Name string
	// Filter judges whether a node can run the pod.
	Filter func(*Snapshot, *corev1.Pod) func(*Node) Reason
	// Score rates the nodes that fit, higher is better. Normalize, if set, maps
	// all raw scores of one pod to 0..MaxScore; else they are in that range.
	Score     func(*Snapshot, *corev1.Pod) func(*Node) int64
	Normalize func(scores []int64)
	Weight    int64
	// Prepare runs after a node is chosen and before the pod is bound to it; it
	// may wait for something outside (a volume). An error sends the pod back.
	Prepare func(context.Context, kubernetes.Interface, *Snapshot, *corev1.Pod, *Node) error
	// Wakes lists what may make a pod that this plugin refused fit.
	Wakes []Change
}

// All is every rule in running order: cheap and telling ones first. Weights are
// upstream's defaults.
func All() []Plugin {
	return []Plugin{
		nodeUnschedulable(),
		nodeName(),
		taintToleration(),
		nodeAffinity(),
		nodePorts(),
		nodeResources(),
		volumes(),
		podTopologySpread(),
		interPodAffinity(),
		balancedAllocation(),
		imageLocality(),
	}
}

// spreadOut maps scores so that the highest becomes MaxScore; reverse turns them
// round, so that the lowest raw score is best.
func spreadOut(scores []int64, reverse bool) {
	var top int64
	for _, s := range scores {
		top = max(top, s)
	}
	for i, s := range scores {
		if top > 0 {
			s = s * MaxScore / top
		}
		if reverse {
			s = MaxScore - s
		}
		scores[i] = s
	}
}
