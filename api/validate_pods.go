package api

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podCheck checks the spec of a pod or of a template.
type podCheck struct {
	spec    *corev1.PodSpec
	meta    *metav1.ObjectMeta // nil: it is a template
	before  *corev1.PodSpec    // nil on create
	volumes map[string]*corev1.Volume
	lenient map[*field.Error]string // faults that an update may keep, and by which rule
}

// old marks faults of a rule that is younger than some objects: what broke it before
// may go on to.
func (c *podCheck) old(rule string, errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		if c.lenient == nil {
			c.lenient = map[*field.Error]string{}
		}
		c.lenient[e] = rule
	}
	return errs
}

// faults names all of the spec's, without those that it had before and may keep.
func (c *podCheck) faults(at *field.Path) field.ErrorList {
	errs := c.check(at)
	if len(c.lenient) == 0 || c.before == nil {
		return errs
	}
	earlier := &podCheck{spec: c.before, meta: c.meta}
	earlier.check(at)
	broken := map[string]bool{}
	for _, rule := range earlier.lenient {
		broken[rule] = true
	}
	return slices.DeleteFunc(errs, func(e *field.Error) bool { return broken[c.lenient[e]] })
}

// each calls f with every container and its path.
func (c *podCheck) each(at *field.Path, f func(*corev1.Container, *field.Path)) {
	for i := range c.spec.InitContainers {
		f(&c.spec.InitContainers[i], at.Child("initContainers").Index(i))
	}
	for i := range c.spec.Containers {
		f(&c.spec.Containers[i], at.Child("containers").Index(i))
	}
	for i := range c.spec.EphemeralContainers {
		one := corev1.Container(c.spec.EphemeralContainers[i].EphemeralContainerCommon)
		f(&one, at.Child("ephemeralContainers").Index(i))
	}
}

// check goes through the spec in upstream's order, which answers show.
func (c *podCheck) check(at *field.Path) field.ErrorList {
	s := c.spec
	errs := need(s.TerminationGracePeriodSeconds == nil, at.Child("terminationGracePeriodSeconds"), "")
	errs = append(errs, c.validVolumes(at.Child("volumes"))...)
	errs = append(errs, c.validClaims(at.Child("resourceClaims"))...)
	errs = append(errs, c.validContainers(at.Child("containers"))...)
	errs = append(errs, c.validInitContainers(at.Child("initContainers"))...)
	errs = append(errs, c.validEphemeral(at.Child("ephemeralContainers"))...)
	errs = append(errs, c.validPodResources(at.Child("resources"))...)
	errs = append(errs, c.validHostNetwork(at.Child("containers"))...)
	errs = append(errs, requiredAmong(s.RestartPolicy, at.Child("restartPolicy"), corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, requiredAmong(s.DNSPolicy, at.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	errs = append(errs, c.validPodSecurity(at.Child("securityContext"))...)
	shared := s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID
	errs = append(errs, refuse(shared, at.Child("shareProcessNamespace"), s.ShareProcessNamespace, "ShareProcessNamespace and HostPID cannot both be enabled")...)
	errs = append(errs, c.validAffinity(at.Child("affinity"))...)
	errs = append(errs, validDNSConfig(s, at.Child("dnsConfig"))...)
	for i, gate := range s.ReadinessGates {
		errs = append(errs, invalid(at.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	errs = append(errs, validGates(s.SchedulingGates, at.Child("schedulingGates"))...)
	errs = append(errs, c.validSpread(at.Child("topologySpreadConstraints"))...)
	errs = append(errs, c.validHostProcess(at)...)
	errs = append(errs, c.validHostUsers(at)...)
	errs = append(errs, validHostnameOverride(s, at.Child("hostnameOverride"))...)
	errs = append(errs, validIfSet(s.ServiceAccountName, at.Child("serviceAccountName"), subdomain)...)
	errs = append(errs, refuse(s.DeprecatedServiceAccount != s.ServiceAccountName, at.Child("deprecatedServiceAccount"), s.DeprecatedServiceAccount, fmt.Sprintf("must be the same as serviceAccountName: %q", s.ServiceAccountName))...)
	errs = append(errs, validIfSet(s.NodeName, at.Child("nodeName"), subdomain)...)
	if d := s.ActiveDeadlineSeconds; d != nil {
		errs = append(errs, inRange(*d, 1, math.MaxInt32, at.Child("activeDeadlineSeconds"))...)
	}
	errs = append(errs, validIfSet(s.Hostname, at.Child("hostname"), label)...)
	errs = append(errs, validIfSet(s.Subdomain, at.Child("subdomain"), label)...)
	errs = append(errs, validTolerations(s.Tolerations, at.Child("tolerations"))...)
	errs = append(errs, validHostAliases(s.HostAliases, at.Child("hostAliases"))...)
	errs = append(errs, validIfSet(s.PriorityClassName, at.Child("priorityClassName"), subdomain)...)
	errs = append(errs, validPtr(s.RuntimeClassName, at.Child("runtimeClassName"), subdomain)...)
	if p := s.PreemptionPolicy; p != nil {
		errs = append(errs, requiredAmong(*p, at.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	if s.Overhead != nil {
		errs = append(errs, c.validResources(&corev1.ResourceRequirements{Limits: s.Overhead}, validContainerResource, at.Child("overhead"))...)
	}
	errs = append(errs, c.validOS(at)...)
	return append(errs, c.validFileVariables(at)...)
}

// validTemplate checks a template of pods.
func validTemplate(t, before *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	c := &podCheck{spec: &t.Spec}
	if before != nil {
		c.before = &before.Spec
	}
	errs := metavalidation.ValidateLabels(t.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
	errs = append(errs, c.validAnnotations(t.Annotations, at.Child("annotations"))...)
	errs = append(errs, c.faults(at.Child("spec"))...)
	errs = append(errs, c.validProfilesAgree(t.Annotations, at.Child("spec"))...)
	return append(errs, forbid(len(t.Spec.EphemeralContainers) > 0, at.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template")...)
}

// validAnnotations checks those annotations of a pod that mean something.
func (c *podCheck) validAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	mirror, isMirror := annotations[corev1.MirrorPodAnnotationKey]
	errs := refuse(isMirror && c.spec.NodeName == "", at.Key(corev1.MirrorPodAnnotationKey), mirror, "must set spec.nodeName if mirror pod annotation is set")
	if cost, ok := annotations[corev1.PodDeletionCost]; ok {
		_, err := strconv.ParseInt(cost, 10, 32)
		padded := cost != "" && (cost[0] == '+' || cost[0] == '0' && len(cost) > 1)
		errs = append(errs, refuse(err != nil || padded, at.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer")...)
	}
	return append(errs, c.validProfileAnnotations(annotations, at)...)
}

// ValidatePod names the faults of a pod.
func ValidatePod(pod, old *corev1.Pod) field.ErrorList {
	c := newPodCheck(pod, old)
	errs := c.validPod(pod)
	if old != nil {
		return append(errs, c.validUpdate(pod, old)...)
	}
	at := specPath()
	errs = append(errs, forbid(len(pod.Spec.EphemeralContainers) > 0, at.Child("ephemeralContainers"), "cannot be set on create")...)
	gated := pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0
	errs = append(errs, forbid(gated, at.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")...)
	return append(errs, c.validProfilesAgree(pod.Annotations, at)...)
}

func newPodCheck(pod, old *corev1.Pod) *podCheck {
	c := &podCheck{spec: &pod.Spec, meta: &pod.ObjectMeta}
	if old != nil {
		c.before = &old.Spec
	}
	return c
}

// validPod checks what a pod must be at all times.
func (c *podCheck) validPod(pod *corev1.Pod) field.ErrorList {
	at := specPath()
	errs := c.validAnnotations(pod.Annotations, field.NewPath("metadata", "annotations"))
	errs = append(errs, c.faults(at)...)
	for i := range pod.Spec.Volumes {
		if p := pod.Spec.Volumes[i].Projected; p != nil && pod.Spec.ServiceAccountName == "" {
			for j := range p.Sources {
				here := at.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken")
				errs = append(errs, forbid(p.Sources[j].ServiceAccountToken != nil, here, "must not be specified when serviceAccountName is not set")...)
			}
		}
	}
	errs = append(errs, nonNegativePtr(pod.Spec.TerminationGracePeriodSeconds, at.Child("terminationGracePeriodSeconds"))...)
	for i := range pod.Spec.Containers {
		errs = append(errs, validImageSpace(&pod.Spec.Containers[i], at.Child("containers").Index(i))...)
	}
	for i := range pod.Spec.InitContainers {
		errs = append(errs, validImageSpace(&pod.Spec.InitContainers[i], at.Child("initContainers").Index(i))...)
	}
	return errs
}

// validClaims checks the devices that a pod claims.
func (c *podCheck) validClaims(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, claim := range c.spec.ResourceClaims {
		if c.meta != nil && metav1.HasAnnotation(*c.meta, corev1.MirrorPodAnnotationKey) {
			errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support resource claims"))
			continue
		}
		here := at.Index(i)
		if names[claim.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), claim.Name))
		} else {
			errs = append(errs, requiredValid(claim.Name, here.Child("name"), label)...)
		}
		names[claim.Name] = claim.Name != ""
		name, template := claim.ResourceClaimName, claim.ResourceClaimTemplateName
		errs = append(errs, refuse(name != nil && template != nil, here, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")...)
		errs = append(errs, refuse(name == nil && template == nil, here, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")...)
		errs = append(errs, validPtr(name, here.Child("resourceClaimName"), subdomain)...)
		errs = append(errs, validPtr(template, here.Child("resourceClaimTemplateName"), subdomain)...)
	}
	return errs
}

// validFileVariables wants variables that are read from files to name a volume that
// containers can write them to.
func (c *podCheck) validFileVariables(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	c.each(at, func(one *corev1.Container, here *field.Path) {
		for i, e := range one.Env {
			if e.ValueFrom == nil || e.ValueFrom.FileKeyRef == nil {
				continue
			}
			name, here := e.ValueFrom.FileKeyRef.VolumeName, here.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			found := slices.IndexFunc(c.spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
			if found < 0 {
				errs = append(errs, field.NotFound(here, name))
			} else {
				errs = append(errs, refuse(c.spec.Volumes[found].EmptyDir == nil, here, name, "referenced volume must be of type emptyDir")...)
			}
		}
	})
	return errs
}

// validHostnameOverride wants a name the kernel takes, and no second rule
// about the pod's host name beside it.
func validHostnameOverride(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if spec.HostnameOverride == nil {
		return nil
	}
	const longest = 64 // sethostname(2)
	errs := forbid(spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN, at, "may not be specified when setHostnameAsFQDN is true")
	errs = append(errs, forbid(spec.HostNetwork, at, "may not be specified when hostNetwork is true")...)
	if len(*spec.HostnameOverride) > longest {
		errs = append(errs, field.TooLong(at, "", longest))
	}
	return append(errs, validPtr(spec.HostnameOverride, at, subdomain)...)
}

func validGates(gates []corev1.PodSchedulingGate, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, g := range gates {
		errs = append(errs, invalid(at.Index(i), g.Name, validation.IsQualifiedName(g.Name))...)
		if seen[g.Name] {
			errs = append(errs, field.Duplicate(at.Index(i), g.Name))
		}
		seen[g.Name] = true
	}
	return errs
}

// validHostNetwork wants host ports that are the container's own: there is
// nothing to map. A template may leave them open.
func (c *podCheck) validHostNetwork(at *field.Path) field.ErrorList {
	if !c.spec.HostNetwork {
		return nil
	}
	var errs field.ErrorList
	for i, one := range c.spec.Containers {
		for j, p := range one.Ports {
			wrong := p.HostPort != p.ContainerPort && (p.HostPort != 0 || c.meta != nil)
			errs = append(errs, refuse(wrong, at.Index(i).Child("ports").Index(j).Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true")...)
		}
	}
	return errs
}

func validDNSConfig(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	const mostServers, mostSearches, longestSearches = 3, 32, 2048
	config := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone {
		if config == nil {
			return field.ErrorList{field.Required(at, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))}
		}
		if len(config.Nameservers) == 0 {
			return field.ErrorList{field.Required(at.Child("nameservers"), fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))}
		}
	}
	if config == nil {
		return nil
	}
	servers, searches := at.Child("nameservers"), at.Child("searches")
	errs := refuse(len(config.Nameservers) > mostServers, servers, config.Nameservers, fmt.Sprintf("must not have more than %v nameservers", mostServers))
	for i, server := range config.Nameservers {
		errs = append(errs, validLegacyIP(server, servers.Index(i), nil)...)
	}
	errs = append(errs, refuse(len(config.Searches) > mostSearches, searches, config.Searches, fmt.Sprintf("must not have more than %v search paths", mostSearches))...)
	errs = append(errs, refuse(len(strings.Join(config.Searches, " ")) > longestSearches, searches, config.Searches,
		fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", longestSearches))...)
	for i, search := range config.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			errs = append(errs, invalid(searches.Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search))...)
		}
	}
	for i, o := range config.Options {
		errs = append(errs, need(o.Name == "", at.Child("options").Index(i), "must not be empty")...)
	}
	return errs
}

// validLegacyIP and validLegacyCIDR check fields in which addresses and ranges were
// once written in more ways than now; those of old stay.
func validLegacyIP(ip string, at *field.Path, old []string) field.ErrorList {
	return validation.IsValidIPForLegacyField(at, ip, true, old)
}

func validLegacyCIDR(cidr string, at *field.Path, old []string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(at, cidr, true, old)
}

func validHostAliases(aliases []corev1.HostAlias, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, alias := range aliases {
		errs = append(errs, validLegacyIP(alias.IP, at.Index(i).Child("ip"), nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, invalid(at.Index(i).Child("hostnames").Index(j), name, subdomain(name))...)
		}
	}
	return errs
}

// ValidateTolerations checks tolerations that are not a pod's.
func ValidateTolerations(tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	return validTolerations(tolerations, at)
}

func validTolerations(tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		here := at.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, here.Child("key"))...)
		}
		errs = append(errs, refuse(t.Key == "" && t.Operator != corev1.TolerationOpExists, here.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")...)
		errs = append(errs, refuse(t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute, here.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")...)
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			bad := validation.IsValidLabelValue(t.Value)
			errs = append(errs, refuse(len(bad) > 0, here.Child("operator"), t.Value, strings.Join(bad, ";"))...)
		case corev1.TolerationOpExists:
			errs = append(errs, refuse(t.Value != "", here.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'")...)
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			errs = append(errs, field.NotSupported(here.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}))
		default:
			errs = append(errs, field.NotSupported(here.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(errs, validTaintEffect(t.Effect, here.Child("effect"))...)
		}
	}
	return errs
}

func validTaintEffect(e corev1.TaintEffect, at *field.Path) field.ErrorList {
	return requiredAmong(e, at, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func (c *podCheck) validAffinity(at *field.Path) field.ErrorList {
	a := c.spec.Affinity
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	const must, may = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	if n := a.NodeAffinity; n != nil {
		at := at.Child("nodeAffinity")
		if s := n.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
			errs = append(errs, validNodeSelector(s, at.Child(must), c.old)...)
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			p, here := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child(may).Index(i)
			errs = append(errs, validWeight(p.Weight, here.Child("weight"))...)
			errs = append(errs, validNodeSelectorTerm(&p.Preference, here.Child("preference"), nil)...)
		}
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, c.validPodAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, c.validPodAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))...)
	}
	return errs
}

func validWeight(weight int32, at *field.Path) field.ErrorList {
	return refuse(weight <= 0 || weight > 100, at, weight, "must be in the range 1-100")
}

// ValidateNodeSelector names the faults of a node selector.
func ValidateNodeSelector(s *corev1.NodeSelector, at *field.Path) field.ErrorList {
	return validNodeSelector(s, at, func(_ string, errs field.ErrorList) field.ErrorList { return errs })
}

// validNodeSelector checks a selector; old is asked whether values that are no
// labels may stay.
func validNodeSelector(s *corev1.NodeSelector, at *field.Path, old func(string, field.ErrorList) field.ErrorList) field.ErrorList {
	at = at.Child("nodeSelectorTerms")
	errs := need(len(s.NodeSelectorTerms) == 0, at, "must have at least one node selector term")
	for i := range s.NodeSelectorTerms {
		errs = append(errs, validNodeSelectorTerm(&s.NodeSelectorTerms[i], at.Index(i), old)...)
	}
	return errs
}

// validNodeSelectorTerm does not look at the values if there is no old: preferences
// may name any.
func validNodeSelectorTerm(term *corev1.NodeSelectorTerm, at *field.Path, old func(string, field.ErrorList) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	for i, r := range term.MatchExpressions {
		here := at.Child("matchExpressions").Index(i)
		values := here.Child("values")
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			errs = append(errs, need(len(r.Values) == 0, values, "must be specified when `operator` is 'In' or 'NotIn'")...)
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			errs = append(errs, forbid(len(r.Values) > 0, values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")...)
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			errs = append(errs, need(len(r.Values) != 1, values, "must be specified single value when `operator` is 'Lt' or 'Gt'")...)
		default:
			errs = append(errs, field.Invalid(here.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		errs = append(errs, metavalidation.ValidateLabelName(r.Key, here.Child("key"))...)
		for j, value := range r.Values {
			if old != nil {
				errs = append(errs, old("node labels", invalid(values.Index(j), value, validation.IsValidLabelValue(value)))...)
			}
		}
	}
	for i, r := range term.MatchFields {
		here := at.Child("matchFields").Index(i)
		if r.Operator == corev1.NodeSelectorOpIn || r.Operator == corev1.NodeSelectorOpNotIn {
			errs = append(errs, need(len(r.Values) != 1, here.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")...)
		} else {
			errs = append(errs, field.Invalid(here.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		if r.Key != metav1.ObjectNameField {
			errs = append(errs, field.Invalid(here.Child("key"), r.Key, "not a valid field selector key"))
			continue
		}
		for j, value := range r.Values {
			errs = append(errs, invalid(here.Child("values").Index(j), value, subdomain(value))...)
		}
	}
	return errs
}

func (c *podCheck) validPodAffinity(must []corev1.PodAffinityTerm, may []corev1.WeightedPodAffinityTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range must {
		errs = append(errs, c.validPodAffinityTerm(&must[i], at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))...)
	}
	for i := range may {
		here := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validWeight(may[i].Weight, here.Child("weight"))...)
		errs = append(errs, c.validPodAffinityTerm(&may[i].PodAffinityTerm, here.Child("podAffinityTerm"))...)
	}
	return errs
}

func (c *podCheck) validPodAffinityTerm(t *corev1.PodAffinityTerm, at *field.Path) field.ErrorList {
	errs := c.old("affinity labels", validLabels(t.LabelSelector, at.Child("labelSelector")))
	errs = append(errs, c.old("affinity labels", validLabels(t.NamespaceSelector, at.Child("namespaceSelector")))...)
	for _, ns := range t.Namespaces {
		errs = append(errs, invalid(at.Child("namespace"), ns, label(ns))...)
	}
	errs = append(errs, validLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)...)
	errs = append(errs, need(t.TopologyKey == "", at.Child("topologyKey"), "can not be empty")...)
	return append(errs, metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
}

// validLabels checks a label selector.
func validLabels(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

// validLabelKeys checks the keys whose values in the pod join the selector. The
// server has joined them already: one that is there twice was there before.
func validLabelKeys(match, mismatch []string, s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		here := at.Child(list.name)
		if s == nil {
			errs = append(errs, forbid(len(list.keys) > 0, here, "must not be specified when labelSelector is not set")...)
			continue
		}
		for i, key := range list.keys {
			errs = append(errs, metavalidation.ValidateLabelName(key, here.Index(i))...)
		}
	}
	if s != nil {
		selected := map[string]bool{}
		for key := range s.MatchLabels {
			selected[key] = true
		}
		for _, e := range s.MatchExpressions {
			i := slices.Index(match, e.Key)
			errs = append(errs, refuse(i >= 0 && selected[e.Key], at.Index(max(i, 0)), e.Key, "exists in both matchLabelKeys and labelSelector")...)
			selected[e.Key] = true
		}
	}
	for i, key := range match {
		errs = append(errs, refuse(slices.Contains(mismatch, key), at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")...)
	}
	return errs
}

func (c *podCheck) validSpread(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	constraints := c.spec.TopologySpreadConstraints
	for i, s := range constraints {
		here := at.Index(i)
		errs = append(errs, positive64(int64(s.MaxSkew), here.Child("maxSkew"))...)
		errs = append(errs, need(s.TopologyKey == "", here.Child("topologyKey"), "can not be empty")...)
		errs = append(errs, among(s.WhenUnsatisfiable, here.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		again := func(o corev1.TopologySpreadConstraint) bool {
			return o.TopologyKey == s.TopologyKey && o.WhenUnsatisfiable == s.WhenUnsatisfiable
		}
		if slices.ContainsFunc(constraints[i+1:], again) {
			errs = append(errs, field.Duplicate(here.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable)))
		}
		if s.MinDomains != nil {
			errs = append(errs, positive64(int64(*s.MinDomains), here.Child("minDomains"))...)
			errs = append(errs, refuse(s.WhenUnsatisfiable != corev1.DoNotSchedule, here.Child("minDomains"), s.MinDomains,
				fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable))...)
		}
		errs = append(errs, amongIfSet(s.NodeAffinityPolicy, here.Child("nodeAffinityPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, amongIfSet(s.NodeTaintsPolicy, here.Child("nodeTaintsPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, c.old("spread keys", validLabelKeys(s.MatchLabelKeys, nil, s.LabelSelector, here))...)
		errs = append(errs, c.old("spread labels", validLabels(s.LabelSelector, here.Child("labelSelector")))...)
	}
	return errs
}

// positive64 wants more than nothing.
func positive64(n int64, at *field.Path) field.ErrorList {
	return refuse(n <= 0, at, n, "must be greater than zero")
}
