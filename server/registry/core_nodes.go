package registry

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

func nodeKind(gv schema.GroupVersion) *Kind {
	parts := halves[corev1.Node]{}
	return kind[corev1.Node, corev1.NodeList]{
		Plural: "nodes", Short: []string{"no"}, Cluster: true, Prefix: "minions",
		Validate: api.ValidateNode, Warn: api.WarnNode,
		Columns: nodeColumns(), Row: nodeRow,
		Default: api.DefaultNode,
		// A node registers itself with its status, so create keeps it.
		Prepare: func(n, old *corev1.Node) {
			if old != nil {
				parts.prepare(n, old)
			}
		},
		Fields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		},
		Sub: Sub{
			"status": parts.sub(api.ValidateNodeStatus),
			"proxy":  handled[corev1.NodeProxyOptions](gv.WithKind("NodeProxyOptions"), proxyVerbs...),
		},
	}.erase(gv)
}
