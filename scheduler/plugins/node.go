package plugins

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// nodeUnschedulable respects `kubectl cordon`.
func nodeUnschedulable() Plugin {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return Plugin{
		Name: "NodeUnschedulable",
		Filter: func(_ *Snapshot, pod *corev1.Pod) func(*Node) Reason {
			if schedulinghelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &taint, true) {
				return nil
			}
			return func(n *Node) Reason {
				if n.Object.Spec.Unschedulable {
					return Reason{Text: "node(s) were unschedulable", Final: true}
				}
				return fits
			}
		},
		Wakes: []Change{NodeChanged, PodItselfChange},
	}
}

// nodeName is for pods that name their node and still come by the scheduler.
func nodeName() Plugin {
	return Plugin{
		Name: "NodeName",
		Filter: func(_ *Snapshot, pod *corev1.Pod) func(*Node) Reason {
			if pod.Spec.NodeName == "" {
				return nil
			}
			return func(n *Node) Reason {
				if n.Name() != pod.Spec.NodeName {
					return Reason{Text: "node(s) didn't match the requested node name", Final: true}
				}
				return fits
			}
		},
		Wakes: []Change{NodeChanged},
	}
}

// Untolerated is the reason of nodes with taints that keep a pod off.
const Untolerated = "node(s) had untolerated taint(s)"

// UntoleratedTaint is the first taint that keeps a pod off a node, or nil.
func UntoleratedTaint(n *Node, pod *corev1.Pod) *corev1.Taint {
	taint, found := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), n.Object.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, true)
	if !found {
		return nil
	}
	return &taint
}

// taintToleration keeps pods off nodes whose NoSchedule and NoExecute taints they
// do not tolerate, and prefers nodes with few PreferNoSchedule taints.
func taintToleration() Plugin {
	return Plugin{
		Name: "TaintToleration",
		Filter: func(_ *Snapshot, pod *corev1.Pod) func(*Node) Reason {
			return func(n *Node) Reason {
				if UntoleratedTaint(n, pod) == nil {
					return fits
				}
				return Reason{Text: Untolerated, Final: true}
			}
		},
		Score: func(_ *Snapshot, pod *corev1.Pod) func(*Node) int64 {
			return func(n *Node) int64 {
				var intolerable int64
				for i := range n.Object.Spec.Taints {
					t := &n.Object.Spec.Taints[i]
					if t.Effect == corev1.TaintEffectPreferNoSchedule && !schedulinghelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, t, true) {
						intolerable++
					}
				}
				return intolerable
			}
		},
		Normalize: func(scores []int64) { spreadOut(scores, true) },
		Weight:    3,
		Wakes:     []Change{NodeChanged, PodItselfChange},
	}
}

// nodeAffinity matches nodeSelector and required node affinity, and prefers by
// preferred node affinity.
func nodeAffinity() Plugin {
	return Plugin{
		Name: "NodeAffinity",
		Filter: func(_ *Snapshot, pod *corev1.Pod) func(*Node) Reason {
			affinity := pod.Spec.Affinity
			if len(pod.Spec.NodeSelector) == 0 && (affinity == nil || affinity.NodeAffinity == nil) {
				return nil
			}
			required := nodeaffinity.GetRequiredNodeAffinity(pod)
			return func(n *Node) Reason {
				if match, err := required.Match(n.Object); err != nil || !match {
					return Reason{Text: "node(s) didn't match Pod's node affinity/selector", Final: true}
				}
				return fits
			}
		},
		Score: func(_ *Snapshot, pod *corev1.Pod) func(*Node) int64 {
			if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
				return nil
			}
			preferred := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
			terms, err := nodeaffinity.NewPreferredSchedulingTerms(preferred)
			if err != nil || len(preferred) == 0 {
				return nil
			}
			return func(n *Node) int64 { return terms.Score(n.Object) }
		},
		Normalize: func(scores []int64) { spreadOut(scores, false) },
		Weight:    2,
		Wakes:     []Change{NodeChanged, PodItselfChange},
	}
}

type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var ports []hostPort
	collect := func(containers []corev1.Container) {
		for i := range containers {
			for _, p := range containers[i].Ports {
				if p.HostPort <= 0 {
					continue
				}
				port := hostPort{p.HostIP, p.Protocol, p.HostPort}
				if port.ip == "" {
					port.ip = "0.0.0.0"
				}
				if port.protocol == "" {
					port.protocol = corev1.ProtocolTCP
				}
				ports = append(ports, port)
			}
		}
	}
	collect(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		if r := pod.Spec.InitContainers[i].RestartPolicy; r != nil && *r == corev1.ContainerRestartPolicyAlways {
			collect(pod.Spec.InitContainers[i : i+1])
		}
	}
	return ports
}

// conflicts: the wildcard address collides with every address.
func (p hostPort) conflicts(q hostPort) bool {
	return p.port == q.port && p.protocol == q.protocol && (p.ip == q.ip || p.ip == "0.0.0.0" || q.ip == "0.0.0.0")
}

// nodePorts keeps two pods from wanting the same port of a node (the articles'
// PodFitsHostPorts).
func nodePorts() Plugin {
	return Plugin{
		Name: "NodePorts",
		Filter: func(_ *Snapshot, pod *corev1.Pod) func(*Node) Reason {
			want := hostPorts(pod)
			if len(want) == 0 {
				return nil
			}
			return func(n *Node) Reason {
				for used := range n.ports {
					for _, p := range want {
						if p.conflicts(used) {
							return Reason{Text: "node(s) didn't have free ports for the requested pod ports"}
						}
					}
				}
				return fits
			}
		},
		Wakes: []Change{PodGone, NodeChanged},
	}
}

// imageLocality prefers nodes that have the pod's large images already. An image
// that few nodes have counts less, so that one node does not attract all pods.
func imageLocality() Plugin {
	const least, most = 23 << 20, 1000 << 20 // bytes per container
	return Plugin{
		Name: "ImageLocality",
		Score: func(s *Snapshot, pod *corev1.Pod) func(*Node) int64 {
			var names []string
			for i := range pod.Spec.Containers {
				names = append(names, normalImage(pod.Spec.Containers[i].Image))
			}
			share := map[string]float64{} // of nodes that have the image
			for _, n := range s.Nodes {
				for _, name := range names {
					if _, ok := n.images[name]; ok {
						share[name] += 1 / float64(len(s.Nodes))
					}
				}
			}
			if len(share) == 0 {
				return nil
			}
			top := int64(most * len(names))
			return func(n *Node) int64 {
				var sum int64
				for _, name := range names {
					sum += int64(float64(n.images[name]) * share[name])
				}
				return MaxScore * (min(max(sum, least), top) - least) / (top - least)
			}
		},
		Weight: 1,
	}
}

// normalImage adds the tag that an image without one means.
func normalImage(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		name += ":latest"
	}
	return name
}
