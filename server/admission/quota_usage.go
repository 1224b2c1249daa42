package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	podresource "k8s.io/component-helpers/resource"

	"orrery.dev/api"
)

// quotaDelta is what a write adds to what a namespace uses.
func quotaDelta(r *Request) corev1.ResourceList {
	switch {
	case r.Operation == Create && r.Subresource == "":
		usage := quotaUsage(r.Object)
		usage[objectCount(r)] = one()
		if old, ok := plainCounts[r.Resource.Resource]; ok && r.Resource.Group == "" {
			usage[old] = one()
		}
		return usage
	case r.Is("", "pods/resize"), r.Is("", "services"), r.Is("", "persistentvolumeclaims"), r.Is(resourcev1.GroupName, "resourceclaims"):
		return subtract(quotaUsage(r.Object), quotaUsage(r.Old))
	}
	return nil
}

// entered is what an update adds to a quota that the object was not in before,
// and is now that it has a deadline, or none: all that it uses.
func entered(r *Request) corev1.ResourceList {
	pod, ok1 := r.Object.(*corev1.Pod)
	old, ok2 := r.Old.(*corev1.Pod)
	if r.Operation != Update || r.Subresource != "" || !ok1 || !ok2 || (pod.Spec.ActiveDeadlineSeconds == nil) == (old.Spec.ActiveDeadlineSeconds == nil) {
		return nil
	}
	usage := podUsage(pod)
	usage[corev1.ResourcePods] = one()
	return usage
}

// plainCounts are the kinds that had a name in quotas before count/ came.
var plainCounts = map[string]corev1.ResourceName{
	"pods":                   corev1.ResourcePods,
	"services":               corev1.ResourceServices,
	"configmaps":             corev1.ResourceConfigMaps,
	"secrets":                corev1.ResourceSecrets,
	"resourcequotas":         corev1.ResourceQuotas,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
	"persistentvolumeclaims": corev1.ResourcePersistentVolumeClaims,
}

func objectCount(r *Request) corev1.ResourceName {
	name := "count/" + r.Resource.Resource
	if r.Resource.Group != "" {
		name += "." + r.Resource.Group
	}
	return corev1.ResourceName(name)
}

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

func subtract(a, b corev1.ResourceList) corev1.ResourceList {
	rest := corev1.ResourceList{}
	for name, q := range a {
		q = q.DeepCopy()
		q.Sub(b[name])
		rest[name] = q
	}
	for name, q := range b {
		if _, ok := a[name]; !ok {
			q = q.DeepCopy()
			q.Neg()
			rest[name] = q
		}
	}
	for name, q := range rest {
		if q.IsZero() {
			delete(rest, name)
		}
	}
	return rest
}

// quotaUsage is what an object uses beyond being one more of its kind.
func quotaUsage(obj runtime.Object) corev1.ResourceList {
	switch o := obj.(type) {
	case *corev1.Pod:
		return podUsage(o)
	case *corev1.Service:
		return serviceUsage(o)
	case *corev1.PersistentVolumeClaim:
		return claimUsage(o)
	case *resourcev1.ResourceClaim:
		return api.ClaimedDevices(o)
	}
	return corev1.ResourceList{}
}

func podUsage(pod *corev1.Pod) corev1.ResourceList {
	usage := corev1.ResourceList{}
	options := podresource.PodResourcesOptions{UseStatusResources: true}
	for name, q := range podresource.PodRequests(pod, options) {
		usage["requests."+name] = q
		if plainInQuota(name) {
			usage[name] = q
		}
	}
	for name, q := range podresource.PodLimits(pod, options) {
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

func serviceUsage(s *corev1.Service) corev1.ResourceList {
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

func claimUsage(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
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

// mustSpecify: under a quota on cpu or memory each container must say what it
// needs, or the sum would mean nothing.
func mustSpecify(pod *corev1.Pod, hard corev1.ResourceList) error {
	missing := map[string]sets.Set[string]{}
	for _, c := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
		for _, name := range []corev1.ResourceName{"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"} {
			if _, limited := hard[name]; !limited {
				continue
			}
			list, bare := c.Resources.Requests, strings.TrimPrefix(string(name), "requests.")
			podLevel := podLevelResources(pod).Requests
			if rest, ok := strings.CutPrefix(string(name), "limits."); ok {
				list, bare, podLevel = c.Resources.Limits, rest, podLevelResources(pod).Limits
			}
			_, said := list[corev1.ResourceName(bare)]
			_, saidForAll := podLevel[corev1.ResourceName(bare)]
			if said || saidForAll {
				continue
			}
			if missing[string(name)] == nil {
				missing[string(name)] = sets.New[string]()
			}
			missing[string(name)].Insert(c.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for _, name := range sets.List(sets.KeySet(missing)) {
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(sets.List(missing[name]), ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

func podLevelResources(pod *corev1.Pod) corev1.ResourceRequirements {
	if pod.Spec.Resources == nil {
		return corev1.ResourceRequirements{}
	}
	return *pod.Spec.Resources
}

// inScopes reports whether a quota is about an object: one without scopes is
// about all.
func inScopes(quota *corev1.ResourceQuota, obj runtime.Object) bool {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, s := range quota.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if quota.Spec.ScopeSelector != nil {
		all = append(all, quota.Spec.ScopeSelector.MatchExpressions...)
	}
	for _, s := range all {
		in := false
		switch o := obj.(type) {
		case *corev1.Pod:
			in = podInScope(o, s)
		case *corev1.PersistentVolumeClaim:
			in = claimInScope(o, s)
		}
		if !in {
			return false
		}
	}
	return true
}

func podInScope(pod *corev1.Pod, s corev1.ScopedResourceSelectorRequirement) bool {
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
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

func bestEffort(pod *corev1.Pod) bool {
	r := podLevelResources(pod)
	if len(r.Requests)+len(r.Limits) > 0 {
		return false
	}
	for _, c := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
		for _, l := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			cpu, memory := l[corev1.ResourceCPU], l[corev1.ResourceMemory]
			if !cpu.IsZero() || !memory.IsZero() {
				return false
			}
		}
	}
	return true
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

func sortedStrings(s []string) []string {
	slices.Sort(s)
	return s
}
