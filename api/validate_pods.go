package api

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePod names the faults of a pod.
func ValidatePod(pod, old *corev1.Pod) field.ErrorList {
	path := specPath()
	errs := ValidatePodSpec(&pod.Spec, path)
	if old == nil {
		if len(pod.Spec.EphemeralContainers) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
		}
		if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
			errs = append(errs, field.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
		}
		return errs
	}
	return append(errs, validPodUpdate(pod, old)...)
}

// ValidatePodResize names the faults of new resources for a running pod.
func ValidatePodResize(pod, old *corev1.Pod) field.ErrorList {
	errs := ValidatePodSpec(&pod.Spec, specPath())
	if len(errs) == 0 && QOSClass(pod) != PodQOS(old) {
		errs = append(errs, field.Invalid(specPath(), PodQOS(old), "Pod QOS Class may not change as a result of resizing"))
	}
	return errs
}

// ValidatePodEphemeralContainers names the faults of a change to the ephemeral
// containers: they may be added, never changed or taken away.
func ValidatePodEphemeralContainers(pod, old *corev1.Pod) field.ErrorList {
	path := specPath().Child("ephemeralContainers")
	errs := ValidatePodSpec(&pod.Spec, specPath())
	for i := range old.Spec.EphemeralContainers {
		before := &old.Spec.EphemeralContainers[i]
		found := false
		for j := range pod.Spec.EphemeralContainers {
			now := &pod.Spec.EphemeralContainers[j]
			if now.Name != before.Name {
				continue
			}
			found = true
			if !equality.Semantic.DeepEqual(now, before) {
				errs = append(errs, field.Forbidden(path.Index(i), fmt.Sprintf("existing ephemeral containers %q may not be changed\n", before.Name)))
			}
		}
		if !found {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", before.Name)))
		}
	}
	return errs
}

// validPodUpdate lets few fields of a pod change.
func validPodUpdate(pod, old *corev1.Pod) field.ErrorList {
	path := specPath()
	var errs field.ErrorList
	if len(pod.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(path.Child("containers"), "pod updates may not add or remove containers"))
	}
	if len(pod.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(path.Child("initContainers"), "pod updates may not add or remove containers"))
	}
	errs = append(errs, validDeadlineUpdate(pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))...)
	errs = append(errs, validTolerationUpdate(pod, old, path.Child("tolerations"))...)
	errs = append(errs, validGateUpdate(pod, old, path.Child("schedulingGates"))...)
	if len(errs) > 0 {
		return errs
	}
	asBefore := allowedChangesUndone(pod, old)
	if !equality.Semantic.DeepEqual(asBefore, old.Spec) {
		errs = append(errs, field.Forbidden(path, "pod updates may not change fields other than "+
			"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"+
			"`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"+
			diff.Diff(old.Spec, asBefore)))
	}
	return errs
}

// allowedChangesUndone is the new spec with the fields that may change as they
// were.
func allowedChangesUndone(pod, old *corev1.Pod) corev1.PodSpec {
	spec := *pod.Spec.DeepCopy()
	for i := range spec.Containers {
		spec.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range spec.InitContainers {
		spec.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	spec.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	spec.Tolerations = old.Spec.Tolerations
	if g := old.Spec.TerminationGracePeriodSeconds; g != nil && *g < 0 && spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 1 {
		spec.TerminationGracePeriodSeconds = g
	}
	spec.SchedulingGates = old.Spec.SchedulingGates
	if len(old.Spec.SchedulingGates) > 0 {
		// A gated pod may still be narrowed down to fewer nodes.
		spec.NodeSelector, spec.Affinity = old.Spec.NodeSelector, old.Spec.Affinity
	}
	return spec
}

func validDeadlineUpdate(now, before *int64, path *field.Path) field.ErrorList {
	switch {
	case now != nil && (*now < 0 || *now > math.MaxInt32):
		return invalid(path, *now, validation.IsInRange(int(*now), 0, math.MaxInt32))
	case now != nil && before != nil && *now > *before:
		return field.ErrorList{field.Invalid(path, *now, fmt.Sprintf("must be less than or equal to previous value %d", *before))}
	case now == nil && before != nil:
		return field.ErrorList{field.Invalid(path, now, "must not update from a positive integer to nil value")}
	}
	return nil
}

func validTolerationUpdate(pod, old *corev1.Pod, path *field.Path) field.ErrorList {
	for _, before := range old.Spec.Tolerations {
		kept := false
		for _, now := range pod.Spec.Tolerations {
			// How long a taint is tolerated may change.
			now.TolerationSeconds, before.TolerationSeconds = nil, nil
			kept = kept || equality.Semantic.DeepEqual(now, before)
		}
		if !kept {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

func validGateUpdate(pod, old *corev1.Pod, path *field.Path) field.ErrorList {
	had := map[string]bool{}
	for _, g := range old.Spec.SchedulingGates {
		had[g.Name] = true
	}
	var errs field.ErrorList
	for i, g := range pod.Spec.SchedulingGates {
		if !had[g.Name] {
			errs = append(errs, field.Forbidden(path.Index(i), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name)))
		}
	}
	return errs
}

// ValidatePodSpec names the faults of the spec of a pod or of a template.
func ValidatePodSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	volumes, errs := validVolumes(spec.Volumes, path.Child("volumes"))
	errs = append(errs, validContainers(spec, volumes, path)...)
	errs = append(errs, oneOf(spec.RestartPolicy, path.Child("restartPolicy"), corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, oneOf(spec.DNSPolicy, path.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validHostNetwork(spec, path.Child("containers"))...)
	errs = append(errs, validDNSConfig(spec, path.Child("dnsConfig"))...)
	errs = append(errs, validTolerations(spec.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, validAffinity(spec.Affinity, path.Child("affinity"))...)
	errs = append(errs, validSpread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	errs = append(errs, subdomainIfSet(spec.ServiceAccountName, path.Child("serviceAccountName"))...)
	errs = append(errs, subdomainIfSet(spec.NodeName, path.Child("nodeName"))...)
	errs = append(errs, subdomainIfSet(spec.PriorityClassName, path.Child("priorityClassName"))...)
	if spec.RuntimeClassName != nil {
		errs = append(errs, invalid(path.Child("runtimeClassName"), *spec.RuntimeClassName, validation.IsDNS1123Subdomain(*spec.RuntimeClassName))...)
	}
	errs = append(errs, nonNegativePtr(spec.TerminationGracePeriodSeconds, path.Child("terminationGracePeriodSeconds"))...)
	if d := spec.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	for name, value := range map[string]string{"hostname": spec.Hostname, "subdomain": spec.Subdomain} {
		if value != "" {
			errs = append(errs, invalid(path.Child(name), value, validation.IsDNS1123Label(value))...)
		}
	}
	errs = append(errs, validHostnameOverride(spec, path.Child("hostnameOverride"))...)
	for i, alias := range spec.HostAliases {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("hostAliases").Index(i).Child("ip"), alias.IP, false, nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, invalid(path.Child("hostAliases").Index(i).Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, invalid(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	errs = append(errs, validGates(spec.SchedulingGates, path.Child("schedulingGates"))...)
	return append(errs, validPodSecurity(spec, path.Child("securityContext"))...)
}

// validHostnameOverride wants a name the kernel takes, and no second rule
// about the pod's host name beside it.
func validHostnameOverride(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.HostnameOverride == nil {
		return nil
	}
	var errs field.ErrorList
	if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
		errs = append(errs, field.Forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
	}
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(path, "may not be specified when hostNetwork is true"))
	}
	const longest = 64 // sethostname(2)
	if len(*spec.HostnameOverride) > longest {
		errs = append(errs, field.TooLong(path, "", longest))
	}
	return append(errs, invalid(path, *spec.HostnameOverride, validation.IsDNS1123Subdomain(*spec.HostnameOverride))...)
}

func validGates(gates []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, g := range gates {
		errs = append(errs, invalid(path.Index(i).Child("name"), g.Name, validation.IsQualifiedName(g.Name))...)
		if seen[g.Name] {
			errs = append(errs, field.Duplicate(path.Index(i), g.Name))
		}
		seen[g.Name] = true
	}
	return errs
}

// validHostNetwork wants host ports that are the container's own: there is
// nothing to map.
func validHostNetwork(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	used := map[string]bool{}
	for i, c := range spec.Containers {
		for j, p := range c.Ports {
			at := path.Index(i).Child("ports").Index(j)
			if spec.HostNetwork && p.HostPort != 0 && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(path.Index(i).Child("ports").Index(j).Child("containerPort"), p.ContainerPort, "must match `hostPort` when `hostNetwork` is true"))
			}
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if used[key] {
				errs = append(errs, field.Duplicate(at.Child("hostPort"), key))
			}
			used[key] = true
		}
	}
	return errs
}

func validDNSConfig(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	config := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone {
		if config == nil {
			return append(errs, field.Required(path, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone)))
		}
		if len(config.Nameservers) == 0 {
			return append(errs, field.Required(path.Child("nameservers"), fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone)))
		}
	}
	if config == nil {
		return nil
	}
	if len(config.Nameservers) > 3 {
		errs = append(errs, field.Invalid(path.Child("nameservers"), config.Nameservers, "must not have more than 3 nameservers"))
	}
	for i, ns := range config.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), ns, false, nil)...)
	}
	if len(config.Searches) > 32 {
		errs = append(errs, field.Invalid(path.Child("searches"), config.Searches, "must not have more than 32 search paths"))
	}
	for i, o := range config.Options {
		errs = append(errs, required(o.Name, path.Child("options").Index(i))...)
	}
	return errs
}

func validTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, invalid(at.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value))...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t, "value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(t.Effect, at.Child("effect"), corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

func validAffinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := path.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			errs = append(errs, ValidateNodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, at.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
		}
		for i, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			here := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			errs = append(errs, validWeight(p.Weight, here.Child("weight"))...)
			errs = append(errs, validNodeSelectorTerm(p.Preference, here.Child("preference"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, validPodAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, validPodAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

func validWeight(weight int32, path *field.Path) field.ErrorList {
	if weight <= 0 || weight > 100 {
		return field.ErrorList{field.Invalid(path, weight, "must be in the range 1-100")}
	}
	return nil
}

// ValidateNodeSelector names the faults of a node selector.
func ValidateNodeSelector(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	at := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(at, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i, term := range s.NodeSelectorTerms {
		errs = append(errs, validNodeSelectorTerm(term, at.Index(i))...)
	}
	return errs
}

func validNodeSelectorTerm(term corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				errs = append(errs, field.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				errs = append(errs, field.Required(at.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		errs = append(errs, metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
	}
	for i, r := range term.MatchFields {
		at := path.Child("matchFields").Index(i)
		if r.Key != metav1.ObjectNameField {
			errs = append(errs, field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
		}
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	}
	return errs
}

func validPodAffinity(must []corev1.PodAffinityTerm, may []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range must {
		errs = append(errs, validPodAffinityTerm(t, path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))...)
	}
	for i, t := range may {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, validWeight(t.Weight, at.Child("weight"))...)
		errs = append(errs, validPodAffinityTerm(t.PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func validPodAffinityTerm(t corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelSelector(t.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, path.Child("labelSelector"))
	errs = append(errs, metavalidation.ValidateLabelSelector(t.NamespaceSelector, metavalidation.LabelSelectorValidationOptions{}, path.Child("namespaceSelector"))...)
	for i, ns := range t.Namespaces {
		errs = append(errs, invalid(path.Child("namespaces").Index(i), ns, validation.IsDNS1123Label(ns))...)
	}
	if t.TopologyKey == "" {
		return append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(t.TopologyKey, path.Child("topologyKey"))...)
}

func validSpread(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range constraints {
		at := path.Index(i)
		errs = append(errs, positiveNumber(int64(c.MaxSkew), at.Child("maxSkew"))...)
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, oneOf(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		if c.MinDomains != nil {
			errs = append(errs, positiveNumber(int64(*c.MinDomains), at.Child("minDomains"))...)
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, oneOfIfSet(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, oneOfIfSet(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, metavalidation.ValidateLabelSelector(c.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
	return errs
}

func validPodSecurity(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	s := spec.SecurityContext
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	for name, id := range map[string]*int64{"runAsUser": s.RunAsUser, "runAsGroup": s.RunAsGroup, "fsGroup": s.FSGroup} {
		if id != nil {
			errs = append(errs, invalid(path.Child(name), *id, validation.IsValidUserID(*id))...)
		}
	}
	for i, id := range s.SupplementalGroups {
		errs = append(errs, invalid(path.Child("supplementalGroups").Index(i), id, validation.IsValidGroupID(id))...)
	}
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), *spec.ShareProcessNamespace, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	seen := map[string]bool{}
	for i, sysctl := range s.Sysctls {
		at := path.Child("sysctls").Index(i)
		switch {
		case sysctl.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case !validSysctl(sysctl.Name):
			errs = append(errs, field.Invalid(at.Child("name"), sysctl.Name, fmt.Sprintf("must have at most %d characters and match regex %s", 253, sysctlPattern)))
		case seen[sysctl.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), sysctl.Name))
		}
		seen[sysctl.Name] = true
	}
	return errs
}

const sysctlPattern = `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`

// validSysctl checks a name like net.ipv4.tcp_syncookies or net/ipv4/x.y, part
// by part: each begins and ends with a letter or digit.
func validSysctl(name string) bool {
	if len(name) > 253 {
		return false
	}
	for _, part := range strings.FieldsFunc(name+".", func(r rune) bool { return r == '.' || r == '/' }) {
		if !alphanumeric(part[0]) || !alphanumeric(part[len(part)-1]) || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return !strings.Contains(name, "..") && !strings.Contains(name, "//") && alphanumeric(name[0]) && alphanumeric(name[len(name)-1])
}

func alphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
