package plugins

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func newMilli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }
func newBytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// nodeResources keeps a node from taking more than it has (the articles'
// PodFitsResources), and prefers nodes with much left (LeastRequested).
func nodeResources() Plugin {
	return Plugin{
		Name: "NodeResourcesFit",
		Filter: func(_ *Snapshot, pod *corev1.Pod) func(*Node) Reason {
			want := PodRequests(pod)
			return func(n *Node) Reason { return insufficient(want, n) }
		},
		Score: func(_ *Snapshot, pod *corev1.Pod) func(*Node) int64 {
			want := PodRequests(pod)
			return func(n *Node) int64 {
				return (leastRequested(n.Requested.NonZeroMilliCPU+want.NonZeroMilliCPU, n.Allocatable.MilliCPU) +
					leastRequested(n.Requested.NonZeroMemory+want.NonZeroMemory, n.Allocatable.Memory)) / 2
			}
		},
		Weight: 1,
		Wakes:  []Change{PodGone, NodeChanged, PodItselfChange},
	}
}

// insufficient names the first resources that run out, in upstream's words. Too
// much for even the empty node is final.
func insufficient(want Resources, n *Node) Reason {
	have, used := n.Allocatable, n.Requested
	var texts []string
	final := true
	short := func(name string, want, used, have int64) {
		if want > 0 && want > have-used {
			texts = append(texts, "Insufficient "+name)
			final = final && want > have
		}
	}
	if used.Pods+1 > have.Pods {
		texts = append(texts, "Too many pods")
		final = final && have.Pods == 0
	}
	short("cpu", want.MilliCPU, used.MilliCPU, have.MilliCPU)
	short("memory", want.Memory, used.Memory, have.Memory)
	short("ephemeral-storage", want.Ephemeral, used.Ephemeral, have.Ephemeral)
	for name, amount := range want.Scalar {
		short(string(name), amount, used.Scalar[name], have.Scalar[name])
	}
	if len(texts) == 0 {
		return fits
	}
	slices.Sort(texts)
	return Reason{Text: join(texts), Final: final}
}

// join keeps several reasons of one node apart; the failure message splits them
// again and counts each.
func join(texts []string) string {
	out := texts[0]
	for _, t := range texts[1:] {
		out += Separator + t
	}
	return out
}

// Separator is between several texts in one Reason.
const Separator = "\x00"

func leastRequested(requested, capacity int64) int64 {
	if capacity == 0 || requested > capacity {
		return 0
	}
	return (capacity - requested) * MaxScore / capacity
}

// balancedAllocation prefers nodes whose CPU and memory would be used to the
// same degree, so that neither runs out while much of the other is left.
func balancedAllocation() Plugin {
	return Plugin{
		Name: "NodeResourcesBalancedAllocation",
		Score: func(_ *Snapshot, pod *corev1.Pod) func(*Node) int64 {
			want := PodRequests(pod)
			if want.MilliCPU == 0 && want.Memory == 0 {
				return nil // best effort: nothing to balance
			}
			return func(n *Node) int64 {
				cpu := fraction(n.Requested.MilliCPU+want.MilliCPU, n.Allocatable.MilliCPU)
				memory := fraction(n.Requested.Memory+want.Memory, n.Allocatable.Memory)
				return int64((1 - math.Abs(cpu-memory)/2) * float64(MaxScore))
			}
		},
		Weight: 1,
	}
}

func fraction(used, capacity int64) float64 {
	if capacity == 0 {
		return 1
	}
	return min(float64(used)/float64(capacity), 1)
}
