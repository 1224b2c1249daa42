package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// taintNodesByCondition keeps pods off a new node until the node controller has
// seen it ready.
func taintNodesByCondition() Plugin {
	return Plugin{
		Name: "TaintNodesByCondition",
		On:   on("", "nodes", Create),
		Mutate: func(_ context.Context, r *Request) error {
			node, ok := r.Object.(*corev1.Node)
			if !ok {
				return nil
			}
			notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
			if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
				node.Spec.Taints = append(node.Spec.Taints, notReady)
			}
			return nil
		},
	}
}
