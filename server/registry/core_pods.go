package registry

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

// podParts is the row's view of a pod's spec and status.
func podParts() halves[corev1.Pod, corev1.PodSpec, corev1.PodStatus] {
	return halves[corev1.Pod, corev1.PodSpec, corev1.PodStatus]{
		spec:    func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec },
		status:  func(p *corev1.Pod) *corev1.PodStatus { return &p.Status },
		counted: true,
	}
}

func podKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.Pod, corev1.PodList]{
		Plural: "pods", Short: []string{"po"}, In: []string{"all"},
		Validate: api.ValidatePod, Warn: api.WarnPod,
		Columns: podColumns(), Row: podRow,
		Default:     api.DefaultPod,
		Prepare:     preparePod,
		GracePeriod: podGracePeriod,
		Fields:      podFields,
		Sub: Sub{
			"status":              view(readWrite, preparePodStatus, nil),
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
// owns the pod nor that it is being deleted.
func preparePodStatus(pod, old *corev1.Pod) {
	podParts().keepSpec(pod, old)
	pod.OwnerReferences = old.OwnerReferences
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
	pod.Status.QOSClass = old.Status.QOSClass
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = api.QOSClass(pod)
	}
	pod.Status.HostIPs = syncIPs(pod.Status.HostIP, pod.Status.HostIPs, func(ip string) corev1.HostIP { return corev1.HostIP{IP: ip} })
	pod.Status.PodIPs = syncIPs(pod.Status.PodIP, pod.Status.PodIPs, func(ip string) corev1.PodIP { return corev1.PodIP{IP: ip} })
}

// syncIPs makes the list agree with the older single field, for writers that
// know only that one.
func syncIPs[T comparable](first string, all []T, of func(string) T) []T {
	switch {
	case first == "":
		return nil
	case len(all) == 0 || all[0] != of(first):
		return []T{of(first)}
	}
	return all
}

// preparePodResize takes over the containers' resources only.
func preparePodResize(pod, old *corev1.Pod) {
	asked := pod.DeepCopy()
	*pod = *old.DeepCopy()
	copyResources(pod.Spec.Containers, asked.Spec.Containers)
	copyResources(pod.Spec.InitContainers, asked.Spec.InitContainers)
	pod.Spec.Resources = asked.Spec.Resources
	pod.ResourceVersion, pod.ManagedFields = asked.ResourceVersion, asked.ManagedFields
	podParts().prepare(pod, old)
}

func copyResources(to, from []corev1.Container) {
	for i := range to {
		for j := range from {
			if to[i].Name == from[j].Name {
				to[i].Resources, to[i].ResizePolicy = from[j].Resources, from[j].ResizePolicy
			}
		}
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
