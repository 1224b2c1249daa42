package api

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
)

// QuotaUsage is what an object uses of the ResourceQuotas of its namespace, beyond
// being one more of its kind. Admission counts up by it, the controller anew.
func QuotaUsage(obj runtime.Object) corev1.ResourceList {
	switch o := obj.(type) {
	case *corev1.Pod:
		return podUse(o)
	case *corev1.Service:
		return serviceUse(o)
	case *corev1.PersistentVolumeClaim:
		return claimUse(o)
	case *resourcev1.ResourceClaim:
		return ClaimedDevices(o)
	}
	return corev1.ResourceList{}
}

func podUse(pod *corev1.Pod) corev1.ResourceList {
	usage := corev1.ResourceList{corev1.ResourcePods: one()}
	for name, q := range PodRequests(pod) {
		usage["requests."+name] = q
		if plainInQuota(name) {
			usage[name] = q
		}
	}
	for name, q := range PodLimits(pod) {
		if slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}, name) {
			usage["limits."+name] = q
		}
	}
	return usage
}

// plainInQuota: a quota on "cpu" is one on "requests.cpu"; extended resources
// have no such short form.
func plainInQuota(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func serviceUse(s *corev1.Service) corev1.ResourceList {
	usage := corev1.ResourceList{}
	nodePorts := 0
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		nodePorts = len(s.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		usage[corev1.ResourceServicesLoadBalancers] = one()
		nodePorts = len(s.Spec.Ports)
		if a := s.Spec.AllocateLoadBalancerNodePorts; a != nil && !*a {
			nodePorts = 0
			for _, p := range s.Spec.Ports {
				if p.NodePort != 0 {
					nodePorts++
				}
			}
		}
	}
	if nodePorts > 0 {
		usage[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(int64(nodePorts), resource.DecimalSI)
	}
	return usage
}

func claimUse(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
	usage := corev1.ResourceList{}
	class := c.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" && c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	ofClass := func(name string) corev1.ResourceName {
		return corev1.ResourceName(class + ".storageclass.storage.k8s.io/" + name)
	}
	if class != "" {
		usage[ofClass("persistentvolumeclaims")] = one()
	}
	size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated, grown := c.Status.AllocatedResources[corev1.ResourceStorage]; grown && allocated.Cmp(size) > 0 {
		size = allocated
	}
	if ok {
		usage[corev1.ResourceRequestsStorage] = size
		if class != "" {
			usage[ofClass("requests.storage")] = size
		}
	}
	return usage
}

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

// InQuotaScopes reports whether a quota is about an object: one without scopes is
// about all.
func InQuotaScopes(quota *corev1.ResourceQuota, obj runtime.Object) bool {
	for _, s := range QuotaScopes(quota) {
		if !InQuotaScope(obj, s) {
			return false
		}
	}
	return true
}

// QuotaScopes are a quota's scopes, in both forms that they are written in.
func QuotaScopes(quota *corev1.ResourceQuota) (all []corev1.ScopedResourceSelectorRequirement) {
	for _, s := range quota.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if quota.Spec.ScopeSelector != nil {
		all = append(all, quota.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// InQuotaScope reports whether an object is in one scope.
func InQuotaScope(obj runtime.Object, s corev1.ScopedResourceSelectorRequirement) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		return podInScope(o, s)
	case *corev1.PersistentVolumeClaim:
		return claimInScope(o, s)
	}
	return false
}

func podInScope(pod *corev1.Pod, s corev1.ScopedResourceSelectorRequirement) bool {
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return PodQOS(pod) == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return PodQOS(pod) != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(s, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return reachesOut(pod.Spec.Affinity)
	}
	return false
}

func claimInScope(c *corev1.PersistentVolumeClaim, s corev1.ScopedResourceSelectorRequirement) bool {
	if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass || c.Spec.VolumeAttributesClassName == nil {
		return false
	}
	return selects(s, *c.Spec.VolumeAttributesClassName)
}

// selects matches a value (empty: none) against a scope's expression.
func selects(s corev1.ScopedResourceSelectorRequirement, value string) bool {
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	const key = "value"
	requirement, err := labels.NewRequirement(key, operators[s.Operator], s.Values)
	if err != nil {
		return false
	}
	set := labels.Set{}
	if value != "" {
		set[key] = value
	}
	return requirement.Matches(set)
}

// reachesOut reports whether an affinity looks at pods of other namespaces.
func reachesOut(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, p := range preferred {
			terms = append(terms, p.PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		add(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
