package api

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// PodRequests is what a pod asks of a node in all: its containers at once, or
// its hungriest init container, with overhead and pod-level resources. The
// scheduler, quota and the node agent add up in this one way.
func PodRequests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
}

// PodLimits is the same for limits; a resource that some container does not
// limit is the sum of the others, as upstream counts.
func PodLimits(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodLimits(pod, resource.PodResourcesOptions{UseStatusResources: true})
}

// QOSClass is the pod's class of service. Only cpu and memory count: Guaranteed
// when every container limits both and requests what it limits, BestEffort when
// none asks for anything, else Burstable.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	if r := pod.Spec.Resources; r != nil && (len(r.Requests) > 0 || len(r.Limits) > 0) {
		return qosOf([]corev1.ResourceRequirements{*r})
	}
	var all []corev1.ResourceRequirements
	for i := range pod.Spec.Containers {
		all = append(all, pod.Spec.Containers[i].Resources)
	}
	for i := range pod.Spec.InitContainers {
		all = append(all, pod.Spec.InitContainers[i].Resources)
	}
	return qosOf(all)
}

func qosOf(all []corev1.ResourceRequirements) corev1.PodQOSClass {
	asksNothing, guaranteed := true, true
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := positive(r.Limits, name)
			request, requested := positive(r.Requests, name)
			if limited || requested {
				asksNothing = false
			}
			if !limited || requested && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case asksNothing:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func positive(list corev1.ResourceList, name corev1.ResourceName) (apiresource.Quantity, bool) {
	q, ok := list[name]
	return q, ok && q.Sign() > 0
}

// PodQOS is the recorded class, or the computed one while none is recorded.
func PodQOS(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return QOSClass(pod)
}

// PodCondition finds a condition of a pod, or nil.
func PodCondition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	return find(pod.Status.Conditions, func(c *corev1.PodCondition) bool { return c.Type == t })
}

// NodeCondition finds a condition of a node, or nil.
func NodeCondition(node *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	return find(node.Status.Conditions, func(c *corev1.NodeCondition) bool { return c.Type == t })
}

// find is the first of all that is wanted, or nil.
func find[T any](all []T, wanted func(*T) bool) *T {
	for i := range all {
		if wanted(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// IsPodReady reports whether the pod's Ready condition is true.
func IsPodReady(pod *corev1.Pod) bool {
	c := PodCondition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// NewlyReady are the uids of the pods that a slice did not send traffic to before
// (nil: it was not there).
func NewlyReady(before, after *discoveryv1.EndpointSlice) []string {
	was := map[string]bool{}
	for uid := range readyPods(before) {
		was[uid] = true
	}
	var added []string
	for uid := range readyPods(after) {
		if !was[uid] {
			added = append(added, uid)
		}
	}
	return added
}

func readyPods(slice *discoveryv1.EndpointSlice) iter.Seq[string] {
	return func(yield func(string) bool) {
		if slice == nil {
			return
		}
		for _, e := range slice.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			if ready && e.TargetRef != nil && e.TargetRef.Kind == "Pod" && !yield(string(e.TargetRef.UID)) {
				return
			}
		}
	}
}

// IsNodeReady reports whether the node's Ready condition is true.
func IsNodeReady(node *corev1.Node) bool {
	c := NodeCondition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// IsPodTerminal reports whether the pod's containers have ended for good.
func IsPodTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// IsPodActive reports whether a pod counts as a replica: it has not ended and
// is not being deleted.
func IsPodActive(pod *corev1.Pod) bool {
	return !IsPodTerminal(pod) && pod.DeletionTimestamp == nil
}

// IsSidecar reports whether an init container keeps running beside the others.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// IsMirror reports whether a node made the pod known, rather than the other way
// round.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// ContainerStatus finds a container's status by name among those given, or nil.
func ContainerStatus(all []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	return find(all, func(c *corev1.ContainerStatus) bool { return c.Name == name })
}

// eachContainer calls f with every container of a pod; init, main and
// ephemeral ones.
func eachContainer(spec *corev1.PodSpec, f func(*corev1.Container)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		f(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		f(&c)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
}

// RestartRule is the first of a container's restart rules that fits an exit code.
func RestartRule(c *corev1.Container, exit int32) *corev1.ContainerRestartRule {
	return find(c.RestartPolicyRules, func(r *corev1.ContainerRestartRule) bool {
		on := r.ExitCodes
		return on != nil && slices.Contains(on.Values, exit) == (on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
	})
}
