package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	componentresource "k8s.io/component-helpers/resource"
)

// countedResources are those of which there are whole ones only.
var countedResources = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
	corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
}

// quotaResources are those without a domain that a quota may limit.
var quotaResources = append([]corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}, countedResources...)

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func isQuotaResource(name corev1.ResourceName) bool {
	return slices.Contains(quotaResources, name) || isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// isNative tells Kubernetes' own resources from those that nodes extend it with.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isExtended reports whether the name is one that a node's extension may have; with
// requests. in front of it, as quotas name it, it must be a name still.
func isExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// overcommittable resources may be promised more than once: all of the nodes' own
// but huge pages.
func overcommittable(name corev1.ResourceName) bool { return isNative(name) && !isHugePages(name) }

// validResourceName wants a name with a domain, or a known one.
func validResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if bad := validation.IsQualifiedName(string(name)); len(bad) > 0 {
		return invalid(at, name, bad)
	}
	plain := !strings.Contains(string(name), "/")
	return refuse(plain && name != corev1.ResourceStorage && !isQuotaResource(name), at, name, "must be a standard resource type or fully qualified")
}

// validContainerResource wants the name of something that a container can use.
func validContainerResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := validResourceName(name, at)
	if !strings.Contains(string(name), "/") {
		own := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || isHugePages(name)
		return append(errs, refuse(!own, at, name, "must be a standard resource for containers")...)
	}
	return append(errs, refuse(!isNative(name) && !isExtended(name), at, name, "doesn't follow extended resource name standard")...)
}

// validPodResource wants the name of something that a pod as a whole can be given.
func validPodResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := validResourceName(name, at); len(errs) > 0 {
		return errs
	}
	if componentresource.IsSupportedPodLevelResource(name) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, name, sets.List(componentresource.SupportedPodLevelResources()))}
}

// validQuantity wants an amount that is not negative, and a whole number where
// things are counted.
func validQuantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) field.ErrorList {
	errs := notNegativeQuantity(q, at)
	counted := slices.Contains(countedResources, name) || isExtended(name)
	return append(errs, refuse(counted && q.MilliValue()%1000 != 0, at, q, "must be an integer")...)
}

func notNegativeQuantity(q resource.Quantity, at *field.Path) field.ErrorList {
	return refuse(q.Sign() < 0, at, q.String(), notNegative)
}

func positiveQuantity(q resource.Quantity, at *field.Path) field.ErrorList {
	return refuse(q.Sign() <= 0, at, q.String(), "must be greater than zero")
}

// validQuantities wants amounts of what a container can have.
func validQuantities(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sortedKeys(list) {
		errs = append(errs, validContainerResource(name, at.Key(string(name)))...)
		errs = append(errs, validQuantity(name, list[name], at.Key(string(name)))...)
	}
	return errs
}

// validResources names the faults of requests and limits.
func (c *podCheck) validResources(r *corev1.ResourceRequirements, validName func(corev1.ResourceName, *field.Path) field.ErrorList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	huge, ordinary := false, false
	look := func(name corev1.ResourceName) {
		huge = huge || isHugePages(name)
		ordinary = ordinary || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	limits, requests := at.Child("limits"), at.Child("requests")
	for _, name := range sortedKeys(r.Limits) {
		q, here := r.Limits[name], limits.Key(string(name))
		errs = append(errs, validName(name, here)...)
		errs = append(errs, validQuantity(name, q, here)...)
		errs = append(errs, c.validPages(name, q, here)...)
		look(name)
	}
	for _, name := range sortedKeys(r.Requests) {
		q, here := r.Requests[name], requests.Key(string(name))
		errs = append(errs, validName(name, here)...)
		errs = append(errs, validQuantity(name, q, here)...)
		limit, limited := r.Limits[name]
		switch {
		case limited && q.Cmp(limit) != 0 && !overcommittable(name):
			errs = append(errs, field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && q.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && !overcommittable(name):
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		}
		errs = append(errs, c.validPages(name, q, here)...)
		look(name)
	}
	errs = append(errs, forbid(huge && !ordinary, at, "HugePages require cpu or memory")...)
	return append(errs, c.validClaimNames(r.Claims, at.Child("claims"))...)
}

// validPages wants whole huge pages.
func (c *podCheck) validPages(name corev1.ResourceName, q resource.Quantity, at *field.Path) field.ErrorList {
	if !isHugePages(name) {
		return nil
	}
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	whole := err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
	return c.old("huge pages", refuse(!whole, at, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
}

// validClaimNames wants claims that the pod has, each of them, or of their
// requests, once.
func (c *podCheck) validClaimNames(claims []corev1.ResourceClaim, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, claim := range claims {
		here := at.Index(i)
		if claim.Name == "" {
			errs = append(errs, field.Required(here, ""))
			continue
		}
		errs = append(errs, repeatedClaim(claim, seen, here)...)
		if !slices.ContainsFunc(c.spec.ResourceClaims, func(r corev1.PodResourceClaim) bool { return r.Name == claim.Name }) {
			err := field.NotFound(here, claim.Name)
			err.Detail = "must be one of the names in pod.spec.resourceClaims" + c.claimList()
			errs = append(errs, err)
		}
	}
	return errs
}

// repeatedClaim notes a claim, and complains if it, or one of its requests, was
// noted before.
func repeatedClaim(claim corev1.ResourceClaim, seen map[string]bool, at *field.Path) field.ErrorList {
	if seen[claim.Name] {
		return field.ErrorList{field.Duplicate(at, claim.Name)}
	}
	var errs field.ErrorList
	key := claim.Name
	if claim.Request != "" {
		errs = invalid(at.Child("request"), claim.Request, label(claim.Request))
		key += "/" + claim.Request
	}
	switch {
	case seen[key]:
		errs = append(errs, field.Duplicate(at, key))
	case claim.Request == "":
		for other := range seen {
			if strings.HasPrefix(other, claim.Name+"/") {
				errs = append(errs, field.Duplicate(at, claim.Name))
			}
		}
	}
	seen[key] = true
	return errs
}

func (c *podCheck) claimList() string {
	var names []string
	for _, r := range c.spec.ResourceClaims {
		if r.Name != "" {
			names = append(names, r.Name)
		}
	}
	if len(names) == 0 {
		return " which is empty"
	}
	slices.Sort(names)
	return ": " + strings.Join(slices.Compact(names), ", ")
}

// validPodResources names the faults of what the pod as a whole is given.
func (c *podCheck) validPodResources(at *field.Path) field.ErrorList {
	r := c.spec.Resources
	if r == nil {
		return nil
	}
	if c.isWindows() {
		return field.ErrorList{field.Forbidden(at, "may not be set for a windows pod")}
	}
	errs := forbid(r.Claims != nil, at.Child("claims"), "claims may not be set for Resources at pod-level")
	errs = append(errs, c.validResources(r, validPodResource, at)...)
	pod := &corev1.Pod{Spec: *c.spec}
	sum := componentresource.AggregateContainerRequests(pod, componentresource.PodResourcesOptions{})
	for _, name := range sortedKeys(sum) {
		all := sum[name]
		if q, ok := r.Requests[name]; ok && all.Cmp(q) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), q.String(), "must be greater than or equal to aggregate container requests of "+all.String()))
		}
	}
	limits := componentresource.AggregateContainerLimits(pod, componentresource.PodResourcesOptions{})
	for _, name := range sortedKeys(limits) {
		all := limits[name]
		if q, ok := r.Limits[name]; ok && isHugePages(name) && all.Cmp(q) > 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), q.String(), "must be greater than or equal to aggregate container limits of "+all.String()))
		}
	}
	for i := range c.spec.Containers {
		own := c.spec.Containers[i].Resources.Limits
		for _, name := range sortedKeys(own) {
			limit := own[name]
			if q, ok := r.Limits[name]; ok && limit.Cmp(q) > 0 {
				here := at.Child("containers").Index(i).Key(string(name)).Child("limits")
				errs = append(errs, field.Invalid(here, limit.String(), "must be less than or equal to pod limits of "+q.String()))
			}
		}
	}
	return errs
}
