package controllers

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// podUsage is what a pod uses of a resource of a quota.
func podUsage(pod *corev1.Pod, name corev1.ResourceName, now time.Time) resource.Quantity {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	if name == "count/pods" {
		return one // the object counts, whatever its state
	}
	if podFinished(pod) || overdue(pod, now) {
		return resource.Quantity{}
	}
	if name == corev1.ResourcePods {
		return one
	}
	if limit, ok := strings.CutPrefix(string(name), "limits."); ok {
		return podresource.PodLimits(pod, podresource.PodResourcesOptions{})[corev1.ResourceName(limit)]
	}
	request := corev1.ResourceName(strings.TrimPrefix(string(name), "requests."))
	return podresource.PodRequests(pod, podresource.PodResourcesOptions{})[request]
}

// overdue says whether a deleted pod has outstayed its grace period: its node is
// probably lost, and the namespace shall not pay for that.
func overdue(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

// inScope says whether a quota is about a pod.
func inScope(quota *corev1.ResourceQuota, pod *corev1.Pod) bool {
	requirements := make([]corev1.ScopedResourceSelectorRequirement, 0, len(quota.Spec.Scopes))
	for _, scope := range quota.Spec.Scopes {
		requirements = append(requirements, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if quota.Spec.ScopeSelector != nil {
		requirements = append(requirements, quota.Spec.ScopeSelector.MatchExpressions...)
	}
	return !slices.ContainsFunc(requirements, func(r corev1.ScopedResourceSelectorRequirement) bool { return !inOneScope(r, pod) })
}

func inOneScope(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		switch class := pod.Spec.PriorityClassName; r.Operator {
		case corev1.ScopeSelectorOpIn:
			return class != "" && slices.Contains(r.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(r.Values, class)
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		}
		return pod.Spec.PriorityClassName != ""
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod)
	}
	return false
}

func bestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	none := func(c corev1.Container) bool { return len(c.Resources.Requests)+len(c.Resources.Limits) == 0 }
	some := func(c corev1.Container) bool { return !none(c) }
	return !slices.ContainsFunc(pod.Spec.Containers, some) && !slices.ContainsFunc(pod.Spec.InitContainers, some)
}

func crossesNamespaces(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	if a.PodAffinity != nil {
		terms = append(terms, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		for _, w := range a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	if a.PodAntiAffinity != nil {
		terms = append(terms, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		for _, w := range a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
