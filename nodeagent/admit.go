package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"orrery.dev/api"
)

// admit decides whether a pod may run here. A pod that already runs, or that a
// former agent accepted, was admitted before.
func (w *worker) admit(ctx context.Context, pod *corev1.Pod, h have) *stop {
	if len(h.sandboxes) > 0 || pod.Status.StartTime != nil {
		return nil
	}
	refuse := func(reason, message string) *stop {
		message = "Pod was rejected: " + message
		w.event(pod, corev1.EventTypeWarning, reason, message)
		return &stop{phase: corev1.PodFailed, reason: reason, message: message}
	}
	if isStatic(pod) {
		return nil
	}
	if reason := w.a.pressure.refuses(pod); reason != "" {
		return refuse("Evicted", reason)
	}
	if reason, message := w.a.misfit(ctx, pod); reason != "" {
		return refuse(reason, message)
	}
	if ctl := w.a.forbiddenSysctl(pod); ctl != "" {
		return refuse("SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q not allowlisted", ctl))
	}
	w.a.rooms.Lock()
	defer w.a.rooms.Unlock()
	reason, message := w.room(pod)
	if reason != "" {
		return refuse(reason, message)
	}
	w.mu.Lock()
	w.promised = pod // counts for others from now on
	w.mu.Unlock()
	return nil
}

// misfit says why a pod may not be on this node. What was last seen of the node
// may be older than what the scheduler went by, so no pod is refused without a
// fresh look.
func (a *Agent) misfit(ctx context.Context, pod *corev1.Pod) (reason, message string) {
	node := a.node.Load()
	if node == nil {
		node = &corev1.Node{}
		node.Labels = a.nodeLabels()
	}
	reason, message = misfit(pod, node)
	if reason == "" || a.clients == nil {
		return reason, message
	}
	fresh, err := a.clients.CoreV1().Nodes().Get(ctx, a.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return reason, message
	}
	a.node.Store(fresh)
	return misfit(pod, fresh)
}

// misfit says why a pod may not be on a node.
func misfit(pod *corev1.Pod, node *corev1.Node) (reason, message string) {
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err == nil && !fits {
		return "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
	}
	if os := pod.Labels[corev1.LabelOSStable]; os != "" && os != "linux" {
		return "PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
	}
	if isWindows(pod) {
		return "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
	}
	if s := pod.Spec.SecurityContext; s != nil && s.SupplementalGroupsPolicy != nil && *s.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		if f := node.Status.Features; f == nil || !isTrue(f.SupplementalGroupsPolicy) {
			return "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"
		}
	}
	if _, intolerable := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute
	}, true); intolerable {
		return "TaintToleration", "Predicate TaintToleration failed: node(s) had untolerated taint(s)"
	}
	return "", ""
}

// room says why a pod does not fit beside those that are here already.
func (w *worker) room(pod *corev1.Pod) (reason, message string) {
	allocatable := w.a.offered()
	used := corev1.ResourceList{}
	count := int64(0)
	var taken []hostPort
	for _, other := range w.a.pods.all() {
		// Whoever chose this node for the pod has seen others end, maybe before
		// their workers have looked at that.
		latest := other.wanted()
		if other == w || other.isFinished() || api.IsPodTerminal(latest) || other.born.After(w.born) && latest.Status.StartTime == nil {
			continue
		}
		op := other.counted()
		count++
		for name, q := range podresources.PodRequests(op, podresources.PodResourcesOptions{}) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
		taken = append(taken, hostPorts(op)...)
	}
	if limit := allocatable[corev1.ResourcePods]; count+1 > limit.Value() {
		return "OutOfpods", fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", count, limit.Value())
	}
	for name, q := range podresources.PodRequests(pod, podresources.PodResourcesOptions{}) {
		capacity, known := allocatable[name]
		if q.IsZero() || !known && (isExtended(name) || name == corev1.ResourceEphemeralStorage) {
			continue // of extended resources, those count elsewhere that the node has not
		}
		sum := used[name]
		requested, usedNow, total := q.Value(), sum.Value(), capacity.Value()
		if name == corev1.ResourceCPU {
			requested, usedNow, total = q.MilliValue(), sum.MilliValue(), capacity.MilliValue()
		}
		if requested+usedNow > total {
			return "OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, usedNow, total)
		}
	}
	for _, p := range hostPorts(pod) {
		if slices.ContainsFunc(taken, p.clashes) {
			return "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
		}
	}
	return "", ""
}

// offered is what the node has for pods, with the extended resources that others
// wrote into its status. A simulated node does not follow its object, and leaves
// those to the scheduler.
func (a *Agent) offered() corev1.ResourceList {
	out := a.allocatable()
	if node := a.node.Load(); node != nil && !a.cfg.Simulated {
		for name, q := range node.Status.Allocatable {
			if isExtended(name) {
				out[name] = q
			}
		}
	}
	return out
}

// isExtended tells the resources that are not Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// forbiddenSysctl is the first of the pod's sysctls that could harm its
// neighbours and was not allowed by the configuration.
func (a *Agent) forbiddenSysctl(pod *corev1.Pod) string {
	if pod.Spec.SecurityContext == nil {
		return ""
	}
	safe := []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
	}
	for _, ctl := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(ctl.Name, "/", ".")
		allowed := slices.Contains(safe, name) || slices.ContainsFunc(a.cfg.Kubelet.AllowedUnsafeSysctls, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, "*")
			return wild && strings.HasPrefix(name, prefix) || pattern == name
		})
		if !allowed || pod.Spec.HostNetwork && strings.HasPrefix(name, "net.") || pod.Spec.HostIPC && strings.HasPrefix(name, "kernel.") {
			return ctl.Name
		}
	}
	return ""
}

// hostPort is a port of the machine that a pod takes.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

// clashes says whether two can't be had at the same time: without an address,
// a port is taken on all of them.
func (p hostPort) clashes(q hostPort) bool {
	const all = "0.0.0.0"
	return p.port == q.port && p.protocol == q.protocol && (p.ip == q.ip || p.ip == all || q.ip == all)
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var out []hostPort
	for _, c := range containersOf(pod) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, hostPort{cmp.Or(p.HostIP, "0.0.0.0"), cmp.Or(p.Protocol, corev1.ProtocolTCP), p.HostPort})
			}
		}
	}
	return out
}

// counted is the pod as it counts when there has to be room for another: with
// what it was promised.
func (w *worker) counted() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.promised != nil {
		return w.promised
	}
	return w.pod
}

func (w *worker) isFinished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished
}

// err is the reason as an error; nil: nothing stops the pod.
func (s *stop) err() error {
	if s == nil {
		return nil
	}
	return errors.New(s.reason + ": " + s.message)
}
