package registry

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

// podParts is the row's view of a pod's spec and status.
func podParts() halves[corev1.Pod] {
	return halves[corev1.Pod]{counted: true}
}

func podKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.Pod, corev1.PodList]{
		Plural: "pods", Short: []string{"po"}, In: []string{"all"},
		Validate: api.ValidatePod, Warn: api.WarnPod,
		Columns: podColumns(), Row: podRow, Marks: podMarks,
		Default:     api.DefaultPod,
		Sync:        api.SyncAppArmor,
		Prepare:     preparePod,
		GracePeriod: podGracePeriod,
		Fields:      podFields,
		Sub: Sub{
			"status":              warning(view(readWrite, preparePodStatus, api.ValidatePodStatus), api.WarnPodStatus),
			"resize":              view(readWrite, preparePodResize, api.ValidatePodResize),
			"ephemeralcontainers": view(readWrite, preparePodEphemeral, api.ValidatePodEphemeralContainers),
			"binding":             handled[corev1.Binding](gv.WithKind("Binding"), "create"),
			"eviction":            handled[policyv1.Eviction](policyv1.SchemeGroupVersion.WithKind("Eviction"), "create"),
			"exec":                handled[corev1.PodExecOptions](gv.WithKind("PodExecOptions"), streamVerbs...),
			"attach":              handled[corev1.PodAttachOptions](gv.WithKind("PodAttachOptions"), streamVerbs...),
			"portforward":         handled[corev1.PodPortForwardOptions](gv.WithKind("PodPortForwardOptions"), streamVerbs...),
			"proxy":               handled[corev1.PodProxyOptions](gv.WithKind("PodProxyOptions"), proxyVerbs...),
			"log":                 handled[corev1.PodLogOptions](schema.GroupVersionKind{}, "get"),
		},
	}.erase(gv)
}

// preparePod starts a pod as Pending with its class of service. The status
// belongs to /status from then on.
func preparePod(pod, old *corev1.Pod) {
	if old == nil {
		api.DefaultPodLevelResources(pod)
	} else {
		keepPodLevelResources(pod, old)
	}
	podParts().prepare(pod, old)
	if old == nil {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: api.QOSClass(pod)}
		if len(pod.Spec.SchedulingGates) > 0 {
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
				Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: metav1.Now(),
			}}
		}
	}
}

// preparePodStatus lets /status change the status, and neither the spec nor who
// owns the pod nor that it is being deleted. What older node agents do not know of
// stays as it is.
func preparePodStatus(pod, old *corev1.Pod) {
	podParts().keepSpec(pod, old)
	pod.OwnerReferences = old.OwnerReferences
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
	is, was := &pod.Status, &old.Status
	if is.QOSClass == "" {
		is.QOSClass = was.QOSClass
	}
	if is.ResourceClaimStatuses == nil {
		is.ResourceClaimStatuses = was.ResourceClaimStatuses
	}
	if is.ExtendedResourceClaimStatus == nil {
		is.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
	}
	keepObserved(is, was)
}

// keepObserved keeps the generations that a status was of, where a new one does not
// tell. There may be several conditions of a type.
func keepObserved(is, was *corev1.PodStatus) {
	if is.ObservedGeneration == 0 {
		is.ObservedGeneration = was.ObservedGeneration
	}
	known := map[corev1.PodConditionType][]int64{}
	for _, c := range was.Conditions {
		known[c.Type] = append(known[c.Type], c.ObservedGeneration)
	}
	for i := range is.Conditions {
		c := &is.Conditions[i]
		earlier := known[c.Type]
		if len(earlier) == 0 {
			continue
		}
		known[c.Type] = earlier[1:]
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = earlier[0]
		}
	}
}

// preparePodResize takes over the containers' resources only. That there are other
// containers is for validation to tell.
func preparePodResize(pod, old *corev1.Pod) {
	asked := pod.DeepCopy()
	*pod = *old.DeepCopy()
	copyResources(&pod.Spec.Containers, asked.Spec.Containers)
	copyResources(&pod.Spec.InitContainers, asked.Spec.InitContainers)
	pod.Spec.Resources = asked.Spec.Resources
	keepPodLevelResources(pod, old)
	api.DefaultPodLevelResources(pod)
	pod.ResourceVersion, pod.ManagedFields = asked.ResourceVersion, asked.ManagedFields
	podParts().prepare(pod, old)
}

// keepPodLevelResources of a pod for clients that do not know of them.
func keepPodLevelResources(pod, old *corev1.Pod) {
	if pod.Spec.Resources == nil {
		pod.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
}

func copyResources(to *[]corev1.Container, from []corev1.Container) {
	if !slices.EqualFunc(*to, from, func(a, b corev1.Container) bool { return a.Name == b.Name }) {
		*to = from
		return
	}
	for i := range from {
		(*to)[i].Resources, (*to)[i].ResizePolicy = from[i].Resources, from[i].ResizePolicy
	}
}

// preparePodEphemeral takes over the ephemeral containers only.
func preparePodEphemeral(pod, old *corev1.Pod) {
	asked := pod.DeepCopy()
	*pod = *old.DeepCopy()
	pod.Spec.EphemeralContainers = asked.Spec.EphemeralContainers
	pod.ResourceVersion, pod.ManagedFields = asked.ResourceVersion, asked.ManagedFields
	podParts().prepare(pod, old)
}

// podGracePeriod is how long a deleted pod may take to stop: nothing for one
// that runs nowhere or runs no more.
func podGracePeriod(pod *corev1.Pod, asked *int64) int64 {
	var grace int64
	switch {
	case asked != nil:
		grace = *asked
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return 0
	}
	if grace < 0 {
		return 1
	}
	return grace
}

func podFields(p *corev1.Pod) fields.Set {
	var ips string
	for i, ip := range p.Status.PodIPs {
		if i > 0 {
			ips += ","
		}
		ips += ip.IP
	}
	if len(p.Status.PodIPs) == 0 {
		ips = p.Status.PodIP
	}
	return fields.Set{
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             p.Status.PodIP,
		"status.podIPs":            ips,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

func itoa[N int32 | int64 | int](n N) string { return strconv.FormatInt(int64(n), 10) }
