package api

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// ValidatePodStatus names the faults of a pod's new status, which is that of the same
// spec.
func ValidatePodStatus(pod, old *corev1.Pod) field.ErrorList {
	at, is, was := statusPath(), &pod.Status, &old.Status
	errs := newPodCheck(pod, old).validAnnotationUpdate(pod.Annotations, old.Annotations, field.NewPath("metadata", "annotations"))
	errs = append(errs, validPodConditions(is.Conditions, at.Child("conditions"))...)
	errs = append(errs, validNomination(pod, old, at.Child("nominatedNodeName"))...)
	errs = append(errs, wholeNumber(is.ObservedGeneration, at.Child("observedGeneration"))...)
	errs = append(errs, unchanged(is.QOSClass, was.QOSClass, at.Child("qosClass"))...)
	lists := containerLists(pod, old)
	for _, l := range lists {
		errs = append(errs, l.stayEnded(&pod.Spec)...)
	}
	errs = append(errs, validClaimStatuses(is.ResourceClaimStatuses, pod.Spec.ResourceClaims, at.Child("resourceClaimStatuses"))...)
	errs = append(errs, validExtendedClaim(is.ExtendedResourceClaimStatus, &pod.Spec, at.Child("extendedResourceClaimStatus"))...)
	errs = append(errs, validPodIPs(is, was, at.Child("podIPs"))...)
	errs = append(errs, validHostIPs(is, was, at.Child("hostIPs"))...)
	for _, l := range lists {
		errs = append(errs, l.users(pod.Spec.OS)...)
	}
	for _, l := range lists {
		errs = append(errs, l.devices(is.ExtendedResourceClaimStatus)...)
	}
	return errs
}

func wholeNumber(n int64, at *field.Path) field.ErrorList {
	return refuse(n < 0, at, n, "must be a non-negative integer")
}

func validPodConditions(conditions []corev1.PodCondition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range conditions {
		errs = append(errs, wholeNumber(c.ObservedGeneration, at.Index(i).Child("observedGeneration"))...)
		errs = append(errs, invalid(at.Index(i).Child("Type"), string(c.Type), validation.IsQualifiedName(string(c.Type)))...)
	}
	return errs
}

// validNomination checks a node that the scheduler has in mind for a pod: once the
// pod is on one there is no other.
func validNomination(pod, old *corev1.Pod, at *field.Path) field.ErrorList {
	name := pod.Status.NominatedNodeName
	if name == "" || name == old.Status.NominatedNodeName {
		return nil
	}
	errs := invalid(at, name, apivalidation.NameIsDNSSubdomain(name, false))
	return append(errs, forbid(old.Spec.NodeName != "", at, "may not be set on pods that are already bound to a node")...)
}

// containerList is what a status says of one sort of containers. Ephemeral ones never
// start again, and have no resources.
type containerList struct {
	at         *field.Path
	is, was    []corev1.ContainerStatus
	containers []corev1.Container
	ephemeral  bool
}

func containerLists(pod, old *corev1.Pod) []containerList {
	at, is, was := statusPath(), &pod.Status, &old.Status
	return []containerList{
		{at.Child("containerStatuses"), is.ContainerStatuses, was.ContainerStatuses, pod.Spec.Containers, false},
		{at.Child("initContainerStatuses"), is.InitContainerStatuses, was.InitContainerStatuses, pod.Spec.InitContainers, false},
		{at.Child("ephemeralContainerStatuses"), is.EphemeralContainerStatuses, was.EphemeralContainerStatuses, nil, true},
	}
}

func (l containerList) container(name string) *corev1.Container {
	return find(l.containers, func(c *corev1.Container) bool { return c.Name == name })
}

// stayEnded wants containers that have ended, and are not to start again, not to run.
func (l containerList) stayEnded(spec *corev1.PodSpec) field.ErrorList {
	if !l.ephemeral && mayRestartAll(spec) {
		return nil
	}
	var errs field.ErrorList
	for i, was := range l.was {
		is := ContainerStatus(l.is, was.Name)
		if was.State.Terminated == nil || is == nil || is.State.Terminated != nil {
			continue
		}
		c := l.container(was.Name)
		restarts := c != nil && mayRestart(c, spec.RestartPolicy, was.State.Terminated.ExitCode)
		errs = append(errs, forbid(!restarts, l.at.Index(i).Child("state"), "may not be transitioned to non-terminated state")...)
	}
	return errs
}

// mayRestartAll says whether the end of one container may make all begin anew.
func mayRestartAll(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// mayRestart says whether a container may run again after it ended with exit.
func mayRestart(c *corev1.Container, policy corev1.RestartPolicy, exit int32) bool {
	if c.RestartPolicy != nil {
		if RestartRule(c, exit) != nil {
			return true
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exit != 0
	}
	return true
}

// users checks as whom containers run.
func (l containerList) users(os *corev1.PodOS) field.ErrorList {
	var errs field.ErrorList
	for i, c := range l.is {
		if c.User == nil || c.User.Linux == nil {
			continue
		}
		u, at := c.User.Linux, l.at.Index(i).Child("user", "linux")
		if os != nil && os.Name == corev1.Windows {
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
			continue
		}
		errs = append(errs, refuse(u.UID < 0 || u.UID > math.MaxUint32, at.Child("uid"), u.UID, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32)))...)
		errs = append(errs, invalid(at.Child("gid"), u.GID, validation.IsValidGroupID(u.GID))...)
		for j, gid := range u.SupplementalGroups {
			errs = append(errs, invalid(at.Child("supplementalGroups").Index(j), gid, validation.IsValidGroupID(gid))...)
		}
	}
	return errs
}

// devices checks how the devices of containers are, by what the containers ask for.
func (l containerList) devices(extended *corev1.PodExtendedResourceClaimStatus) field.ErrorList {
	var errs field.ErrorList
	for i, status := range l.is {
		at := l.at.Index(i).Child("allocatedResourcesStatus")
		if l.ephemeral {
			errs = append(errs, forbid(len(status.AllocatedResourcesStatus) > 0, at, "must not be specified in container status")...)
			continue
		}
		c := l.container(status.Name)
		for j, r := range status.AllocatedResourcesStatus {
			if c != nil {
				errs = append(errs, validDeviceOf(c, r.Name, extended, at.Index(j).Child("name"))...)
			}
			errs = append(errs, validHealth(r.Resources, at.Index(j).Child("resources"))...)
		}
	}
	return errs
}

// validDeviceOf wants something that a container asks for: by its name, or by a claim.
func validDeviceOf(c *corev1.Container, name corev1.ResourceName, extended *corev1.PodExtendedResourceClaimStatus, at *field.Path) field.ErrorList {
	named, ok := strings.CutPrefix(string(name), "claim:")
	if !ok {
		_, ok := c.Resources.Requests[name]
		return refuse(!ok, at, name, "must match one of the container's resource requests")
	}
	known := slices.ContainsFunc(c.Resources.Claims, func(claim corev1.ResourceClaim) bool {
		return named == claim.Name && claim.Request == "" || claim.Request != "" && named == claim.Name+"/"+claim.Request
	})
	return refuse(!known && !asExtended(c, named, extended), at, name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")
}

// asExtended tells if a request of a claim stands for a resource that a container asks
// for.
func asExtended(c *corev1.Container, named string, extended *corev1.PodExtendedResourceClaimStatus) bool {
	claim, request, _ := strings.Cut(named, "/")
	if extended == nil || request == "" || claim != extended.ResourceClaimName {
		return false
	}
	return slices.ContainsFunc(extended.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		q := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		return m.ContainerName == c.Name && m.RequestName == request && !q.IsZero()
	})
}

func validHealth(devices []corev1.ResourceHealth, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceID]bool{}
	for i, d := range devices {
		here := at.Index(i)
		errs = append(errs, among(d.Health, here.Child("health"), corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
		if m := d.Message; m != nil {
			errs = append(errs, need(*m == "", here.Child("message"), "must be non-empty if specified")...)
			if len(*m) > corev1.ResourceHealthMessageMaxLength {
				errs = append(errs, field.TooLong(here.Child("message"), *m, corev1.ResourceHealthMessageMaxLength))
			}
		}
		if seen[d.ResourceID] {
			errs = append(errs, field.Duplicate(here.Child("resourceID"), d.ResourceID))
		}
		seen[d.ResourceID] = true
	}
	return errs
}

// validClaimStatuses checks which claims were made for those that the pod asks for.
func validClaimStatuses(statuses []corev1.PodResourceClaimStatus, claims []corev1.PodResourceClaim, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, s := range statuses {
		here := at.Index(i)
		known := slices.ContainsFunc(claims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name })
		errs = append(errs, refuse(!known, here.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`")...)
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), s.Name))
		}
		seen[s.Name] = true
		errs = append(errs, validPtr(s.ResourceClaimName, here.Child("resourceClaimName"), subdomain)...)
	}
	return errs
}

// validExtendedClaim checks the claim that was made for resources that devices stand
// for.
func validExtendedClaim(s *corev1.PodExtendedResourceClaimStatus, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	const within = "spec.initContainers.%s or spec.containers.%[1]s"
	mappings := at.Child("requestMappings")
	errs := need(len(s.RequestMappings) == 0, mappings, "at least one request mapping is required")
	containers := containerList{containers: slices.Concat(spec.Containers, spec.InitContainers)}
	for i, m := range s.RequestMappings {
		here := mappings.Index(i)
		if c := containers.container(m.ContainerName); c == nil {
			errs = append(errs, field.Invalid(here.Child("containerName"), m.ContainerName, "must match the name of an entry in "+fmt.Sprintf(within, "name")))
		} else if _, ok := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			errs = append(errs, field.Invalid(here.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in "+fmt.Sprintf(within, "resources.requests")))
		}
		errs = append(errs, invalid(at.Child("requestName"), m.RequestName, label(m.RequestName))...)
		if slices.Contains(s.RequestMappings[:i], m) {
			errs = append(errs, field.Duplicate(here.Child("containerName"), m.ContainerName), field.Duplicate(here.Child("resourceName"), m.ResourceName), field.Duplicate(here.Child("requestName"), m.RequestName))
		}
	}
	return append(errs, requiredValid(s.ResourceClaimName, at.Child("resourceClaimName"), subdomain)...)
}

func validPodIPs(is, was *corev1.PodStatus, at *field.Path) field.ErrorList {
	var now, before []string
	for _, ip := range is.PodIPs {
		now = append(now, ip.IP)
	}
	for _, ip := range was.PodIPs {
		before = append(before, ip.IP)
	}
	errs := validIPs(now, before, is.PodIPs, at)
	if (is.PodIP == "") != (len(now) == 0) {
		return append(errs, refuse(true, at, is.PodIPs, "podIP and podIPs must either both be set or both be unset")...)
	}
	return append(errs, refuse(len(now) > 0 && now[0] != is.PodIP, at.Index(0).Child("ip"), firstOf(now), "must be equal to `podIP`")...)
}

func validHostIPs(is, was *corev1.PodStatus, at *field.Path) field.ErrorList {
	var now, before []string
	for _, ip := range is.HostIPs {
		now = append(now, ip.IP)
	}
	for _, ip := range was.HostIPs {
		before = append(before, ip.IP)
	}
	errs := refuse(len(now) > 0 && now[0] != is.HostIP, at.Index(0).Child("ip"), firstOf(now), "must be equal to `hostIP`")
	return append(errs, validIPs(now, before, is.HostIPs, at)...)
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// validIPs wants addresses, one of each family. Those that were there before may
// stay as they are.
func validIPs(ips, before []string, as any, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range ips {
		errs = append(errs, validLegacyIP(ip, at.Index(i), before)...)
	}
	if len(ips) < 2 {
		return errs
	}
	both, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		errs = append(errs, field.InternalError(at, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	return append(errs, refuse(!both || len(ips) > 2, at, as, "may specify no more than one IP for each IP family")...)
}
