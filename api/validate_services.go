package api

import (
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// ValidateService names the faults of a Service.
func ValidateService(s, old *corev1.Service) field.ErrorList {
	path, spec := specPath(), &s.Spec
	var errs field.ErrorList
	before := &corev1.Service{}
	if old != nil {
		before = old
		errs = validServiceUpdate(s, old)
	}
	const hints, mode = corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode
	told, both := s.Annotations[hints]
	how, ok := s.Annotations[mode]
	errs = append(errs, refuse(both && ok && how != told, annotationPath(mode), how, "must match annotations["+hints+"] when both are specified")...)
	errs = append(errs, need(len(spec.Ports) == 0 && !isHeadless(s) && spec.Type != corev1.ServiceTypeExternalName, path.Child("ports"), "")...)
	errs = append(errs, validServiceType(s)...)
	errs = append(errs, validServicePorts(spec.Ports, path.Child("ports"))...)
	errs = append(errs, metavalidation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	errs = append(errs, validSessionAffinity(spec)...)
	errs = append(errs, ValidateClusterIPs(s, before.Spec.ClusterIPs)...)
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, validAddress(ip, path.Child("externalIPs").Index(i), before.Spec.ExternalIPs)...)
	}
	errs = append(errs, oneOf(spec.Type, path.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)...)
	errs = append(errs, validPortNumbers(spec, path.Child("ports"))...)
	errs = append(errs, validSourceRanges(s, before)...)
	balanced := spec.Type == corev1.ServiceTypeLoadBalancer
	errs = append(errs, forbid(spec.AllocateLoadBalancerNodePorts != nil && !balanced, path.Child("allocateLoadBalancerNodePorts"), onlyBalanced)...)
	errs = append(errs, need(spec.AllocateLoadBalancerNodePorts == nil && balanced, field.NewPath("allocateLoadBalancerNodePorts"), "")...)
	errs = append(errs, validBalancerClass(spec)...)
	return append(errs, validTrafficPolicies(s)...)
}

const (
	onlyBalanced = "may only be used when `type` is 'LoadBalancer'"
	setOnce      = "may not change once set"
)

func annotationPath(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }

func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func validServiceType(s *corev1.Service) field.ErrorList {
	path, spec := specPath(), &s.Spec
	if spec.Type != corev1.ServiceTypeExternalName {
		open := spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort
		return refuse(open && isHeadless(s), path.Child("clusterIPs").Index(0), corev1.ClusterIPNone, fmt.Sprintf("may not be set to 'None' for %s services", spec.Type))
	}
	const notOutside = "may not be set for ExternalName services"
	errs := forbid(len(spec.ClusterIPs) > 0, path.Child("clusterIPs"), notOutside)
	errs = append(errs, forbid(len(spec.IPFamilies) > 0, path.Child("ipFamilies"), notOutside)...)
	errs = append(errs, forbid(spec.IPFamilyPolicy != nil, path.Child("ipFamilyPolicy"), notOutside)...)
	return append(errs, requiredValid(strings.TrimSuffix(spec.ExternalName, "."), path.Child("externalName"), subdomain)...)
}

func validServicePorts(ports []corev1.ServicePort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		errs = append(errs, validPortLabel(p.Name, len(ports) > 1, at.Child("name"))...)
		if p.Name != "" && names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
		errs = append(errs, validPort(p.Port, at.Child("port"))...)
		errs = append(errs, validProtocol(p.Protocol, at.Child("protocol"))...)
		errs = append(errs, validPortOrName(p.TargetPort, at.Child("targetPort"))...)
		errs = append(errs, validPtr(p.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName)...)
	}
	return errs
}

// validPortLabel checks the name of a port, which it needs among others.
func validPortLabel(name string, needed bool, at *field.Path) field.ErrorList {
	return append(need(needed && name == "", at, ""), validIfSet(name, at, label)...)
}

// validPortNumbers wants each port to be told from the others, outside too.
func validPortNumbers(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range spec.Ports {
		errs = append(errs, forbid(p.NodePort != 0 && spec.Type == corev1.ServiceTypeClusterIP, path.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'")...)
	}
	seen := map[corev1.ServicePort]bool{}
	for i, p := range spec.Ports {
		key := corev1.ServicePort{Protocol: p.Protocol, NodePort: p.NodePort}
		if seen[key] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("nodePort"), p.NodePort))
		}
		seen[key] = p.NodePort != 0
	}
	for i, p := range spec.Ports {
		key := corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}
		if seen[key] {
			errs = append(errs, field.Duplicate(path.Index(i), shown(key)))
		}
		seen[key] = true
	}
	return errs
}

func validSessionAffinity(spec *corev1.ServiceSpec) field.ErrorList {
	path, config := specPath().Child("sessionAffinityConfig"), spec.SessionAffinityConfig
	errs := oneOf(spec.SessionAffinity, specPath().Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	const when = "when session affinity type is ClientIP"
	switch {
	case spec.SessionAffinity == corev1.ServiceAffinityNone:
		return append(errs, forbid(config != nil, path, "must not be set when session affinity is None")...)
	case spec.SessionAffinity != corev1.ServiceAffinityClientIP:
		return errs
	case config == nil:
		return append(errs, field.Required(path, when))
	case config.ClientIP == nil:
		return append(errs, field.Required(path.Child("clientIP"), when))
	}
	const longest = 86400
	at, timeout := path.Child("clientIP", "timeoutSeconds"), config.ClientIP.TimeoutSeconds
	errs = append(errs, need(timeout == nil, at, when)...)
	return append(errs, refuse(timeout != nil && (*timeout <= 0 || *timeout > longest), at, timeout, fmt.Sprintf("must be greater than 0 and less than %d", longest))...)
}

// ValidateClusterIPs checks the addresses of a Service and their families; those that
// it had may be of an older form.
func ValidateClusterIPs(s *corev1.Service, old []string) field.ErrorList {
	spec, path, families := &s.Spec, specPath().Child("clusterIPs"), specPath().Child("ipFamilies")
	ips := spec.ClusterIPs
	errs := need(spec.ClusterIP != "" && len(ips) == 0, path, "")
	errs = append(errs, refuse(spec.ClusterIP != "" && len(ips) > 0 && ips[0] != spec.ClusterIP, path, ips, "first value must match `clusterIP`")...)
	errs = append(errs, refuse(spec.ClusterIP == "" && len(ips) > 0, path, ips, "must be empty when `clusterIP` is not specified")...)
	for i, f := range spec.IPFamilies {
		errs = append(errs, among(f, families.Index(i), corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if slices.Contains(spec.IPFamilies[:i], f) {
			errs = append(errs, field.Duplicate(families.Index(i), f))
		}
	}
	errs = append(errs, amongIfSet(spec.IPFamilyPolicy, specPath().Child("ipFamilyPolicy"), corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	var bad field.ErrorList
	for i, ip := range ips {
		if i == 0 && ip == corev1.ClusterIPNone {
			bad = refuse(len(ips) > 1, path, ips, "'None' must be the first and only value")
			continue
		}
		bad = append(bad, validLegacyIP(ip, path.Index(i), old)...)
	}
	errs = append(errs, bad...)
	errs = append(errs, refuse(len(ips) > 2, path, ips, "may only hold up to 2 values")...)
	if len(bad) > 0 || isHeadless(s) {
		return errs
	}
	dual, _ := netutils.IsDualStackIPStrings(ips) // all of them are addresses
	errs = append(errs, refuse(len(ips) > 1 && !dual, path, ips, "may specify no more than one IP for each IP family")...)
	for i := range min(len(ips), len(spec.IPFamilies)) {
		six, family := netutils.IsIPv6String(ips[i]), spec.IPFamilies[i]
		wrong := family == corev1.IPv4Protocol && six || family == corev1.IPv6Protocol && !six
		errs = append(errs, refuse(wrong, path.Index(i), ips[i], fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", family, i))...)
	}
	return errs
}

// validAddress checks an address that others are to reach something at.
func validAddress(ip string, at *field.Path, old []string) field.ErrorList {
	if errs := validLegacyIP(ip, at, old); len(errs) > 0 {
		return errs
	}
	return validReachable(ip, at)
}

// validReachable wants an address that is not only of the machine itself.
func validReachable(address string, at *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		return field.ErrorList{field.Invalid(at, address, "must be a valid IP address")}
	}
	errs := refuse(ip.IsUnspecified(), at, address, fmt.Sprintf("may not be unspecified (%s)", address))
	for _, r := range []struct {
		has bool
		of  string
	}{
		{ip.IsLoopback(), "loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		errs = append(errs, refuse(r.has, at, address, "may not be in the "+r.of)...)
	}
	return errs
}

// validSourceRanges checks who may reach a load balancer: in the field, or else in
// the annotation that was before it, and where spaces may stand around a range.
func validSourceRanges(s, old *corev1.Service) field.ErrorList {
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	const key = corev1.AnnotationLoadBalancerSourceRangesKey
	told, ok := s.Annotations[key]
	if ranges := s.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		at := specPath().Child("LoadBalancerSourceRanges")
		errs := forbid(!balanced, at, onlyBalanced)
		var before []string
		for _, r := range old.Spec.LoadBalancerSourceRanges {
			before = append(before, strings.TrimSpace(r))
		}
		for i, r := range ranges {
			errs = append(errs, validLegacyCIDR(strings.TrimSpace(r), at.Index(i), before)...)
		}
		return errs
	}
	if !ok {
		return nil
	}
	errs := forbid(!balanced, annotationPath(key), onlyBalanced)
	if before, had := old.Annotations[key]; had && before == told || strings.TrimSpace(told) == "" {
		return errs
	}
	for _, r := range strings.Split(told, ",") {
		errs = append(errs, validLegacyCIDR(strings.TrimSpace(r), annotationPath(key), nil)...)
	}
	return errs
}

func validBalancerClass(spec *corev1.ServiceSpec) field.ErrorList {
	at := specPath().Child("loadBalancerClass")
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return forbid(spec.LoadBalancerClass != nil, at, onlyBalanced)
	}
	return validPtr(spec.LoadBalancerClass, at, validation.IsQualifiedName)
}

// healthChecked tells if a load balancer asks nodes whether they have endpoints.
func healthChecked(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func validTrafficPolicies(s *corev1.Service) field.ErrorList {
	path, spec := specPath(), &s.Spec
	var errs field.ErrorList
	at := path.Child("externalTrafficPolicy")
	if spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0 {
		errs = oneOf(spec.ExternalTrafficPolicy, at, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	} else {
		errs = refuse(spec.ExternalTrafficPolicy != "", at, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services")
	}
	at = path.Child("healthCheckNodePort")
	switch {
	case !healthChecked(spec):
		errs = append(errs, refuse(spec.HealthCheckNodePort != 0, at, spec.HealthCheckNodePort, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")...)
	case spec.HealthCheckNodePort == 0:
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, validPort(spec.HealthCheckNodePort, at)...)
	}
	at = path.Child("internalTrafficPolicy")
	inside := spec.Type == corev1.ServiceTypeClusterIP || spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	errs = append(errs, need(spec.InternalTrafficPolicy == nil && inside, at, "")...)
	errs = append(errs, amongIfSet(spec.InternalTrafficPolicy, at, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	return append(errs, amongIfSet(spec.TrafficDistribution, path.Child("trafficDistribution"), corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)...)
}

// validServiceUpdate keeps the addresses: clients have them in their caches.
func validServiceUpdate(s, old *corev1.Service) field.ErrorList {
	is, was := &s.Spec, &old.Spec
	var errs field.ErrorList
	if is.Type != corev1.ServiceTypeExternalName && was.Type != corev1.ServiceTypeExternalName {
		if !isHeadless(s) || !isHeadless(old) {
			errs = keptClusterIPs(is, was)
		}
		if !isHeadless(s) && !isHeadless(old) {
			errs = append(errs, keptFamilies(is, was)...)
		}
	}
	class := specPath().Child("loadBalancerClass")
	if is.Type == corev1.ServiceTypeLoadBalancer && was.Type == is.Type && !equality.Semantic.DeepEqual(is.LoadBalancerClass, was.LoadBalancerClass) {
		errs = append(errs, field.Invalid(class, is.LoadBalancerClass, setOnce))
	}
	errs = append(errs, validBalancerClass(is)...)
	moved := healthChecked(is) && healthChecked(was) && is.HealthCheckNodePort != was.HealthCheckNodePort
	return append(errs, forbid(moved, specPath().Child("healthCheckNodePort"), immutable)...)
}

// keptClusterIPs lets a second address come and go, but none change.
func keptClusterIPs(is, was *corev1.ServiceSpec) field.ErrorList {
	path, now, before := specPath().Child("clusterIPs"), is.ClusterIPs, was.ClusterIPs
	var errs field.ErrorList
	switch {
	case len(now) == len(before):
		for i := range now {
			errs = append(errs, refuse(now[i] != before[i], path.Index(i), now, setOnce)...)
		}
	case len(now) == 0:
		return refuse(true, path.Index(0), now, "primary clusterIP can not be unset")
	case len(before) > 0:
		errs = refuse(now[0] != before[0], path.Index(0), now, setOnce)
		if len(now) < len(before) && len(now) == 1 {
			errs = append(errs, singleStack(is, "clusterIP")...)
		}
	}
	return errs
}

func singleStack(is *corev1.ServiceSpec, released string) field.ErrorList {
	p := is.IPFamilyPolicy
	return refuse(p == nil || *p != corev1.IPFamilyPolicySingleStack, specPath().Child("ipFamilyPolicy"), p, "must be set to 'SingleStack' when releasing the secondary "+released)
}

// keptFamilies is the same for the families of the addresses.
func keptFamilies(is, was *corev1.ServiceSpec) field.ErrorList {
	at, now, before := specPath().Child("ipFamilies").Index(0), is.IPFamilies, was.IPFamilies
	var errs field.ErrorList
	if len(now) == len(before) {
		for i := range now {
			errs = append(errs, refuse(now[i] != before[i], at, now, setOnce)...)
		}
		return errs
	}
	errs = refuse(len(before) > len(now) && len(is.ClusterIPs) == 0, at, now, "primary ipFamily can not be unset")
	changed := len(now) > 0 && len(before) > 0 && now[0] != before[0]
	errs = append(errs, refuse(changed, at, is.ClusterIPs, setOnce)...)
	if len(before) > len(now) && len(now) == 1 {
		errs = append(errs, singleStack(is, "ipFamily")...)
	}
	return errs
}

// ValidateEndpoints names the faults of Endpoints; those of before are kept.
func ValidateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	if old != nil && equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil
	}
	var errs field.ErrorList
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		errs = append(errs, need(len(s.Addresses)+len(s.NotReadyAddresses) == 0, at, "must specify `addresses` or `notReadyAddresses`")...)
		errs = append(errs, validEndpointAddresses(s.Addresses, at.Child("addresses"))...)
		errs = append(errs, validEndpointAddresses(s.NotReadyAddresses, at.Child("notReadyAddresses"))...)
		for j, p := range s.Ports {
			here := at.Child("ports").Index(j)
			errs = append(errs, validPortLabel(p.Name, len(s.Ports) > 1, here.Child("name"))...)
			errs = append(errs, validPort(p.Port, here.Child("port"))...)
			errs = append(errs, validProtocol(p.Protocol, here.Child("protocol"))...)
			errs = append(errs, validPtr(p.AppProtocol, here.Child("appProtocol"), validation.IsQualifiedName)...)
		}
	}
	return errs
}

func validEndpointAddresses(addresses []corev1.EndpointAddress, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range addresses {
		here := at.Index(i)
		errs = append(errs, validLegacyIP(a.IP, here.Child("ip"), nil)...)
		errs = append(errs, validIfSet(a.Hostname, here.Child("hostname"), label)...)
		errs = append(errs, validPtr(a.NodeName, here.Child("nodeName"), subdomain)...)
		errs = append(errs, validReachable(a.IP, here.Child("ip"))...)
	}
	return errs
}

// ValidateEndpointSlice names the faults of an EndpointSlice.
func ValidateEndpointSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	at := field.NewPath("addressType")
	known := oneOf(s.AddressType, at, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	var errs field.ErrorList
	if old != nil && s.AddressType != "" {
		errs, known = known, nil
	}
	errs = append(errs, validSlicePorts(s.Ports, field.NewPath("ports"))...)
	same := old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints)
	if !same {
		errs = append(errs, validSliceEndpoints(s, field.NewPath("endpoints"))...)
	}
	errs = append(errs, known...)
	if old != nil && s.AddressType != old.AddressType {
		errs = append(errs, changed(at)...)
	}
	if same || len(s.Endpoints) > mostEndpoints {
		return errs
	}
	for i, e := range s.Endpoints {
		at, n := field.NewPath("endpoints").Index(i).Child("addresses"), len(e.Addresses)
		errs = append(errs, need(n == 0, at, "")...)
		if n > mostAddresses {
			errs = append(errs, field.TooMany(at, n, mostAddresses))
		}
	}
	return errs
}

const mostEndpoints, mostAddresses = 1000, 100

// changed refuses a change without telling to what.
func changed(at *field.Path) field.ErrorList { return refuse(true, at, nil, immutable) }

func validSlicePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	const most = 20000
	if len(ports) > most {
		return field.ErrorList{field.TooMany(path, len(ports), most)}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != nil { // as it is after defaulting
			errs = append(errs, validIfSet(*p.Name, at.Child("name"), label)...)
			if names[*p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), *p.Name))
			}
			names[*p.Name] = true
		}
		errs = append(errs, need(p.Protocol == nil, at.Child("protocol"), "")...)
		errs = append(errs, amongIfSet(p.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		errs = append(errs, validPtr(p.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName)...)
	}
	return errs
}

func validSliceEndpoints(s *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if len(s.Endpoints) > mostEndpoints {
		return field.ErrorList{field.TooMany(path, len(s.Endpoints), mostEndpoints)}
	}
	const mostTopology = 16
	var errs field.ErrorList
	for i, e := range s.Endpoints {
		at := path.Index(i)
		for j, a := range e.Addresses {
			errs = append(errs, validSliceAddress(s.AddressType, a, at.Child("addresses"), j)...)
		}
		errs = append(errs, validPtr(e.NodeName, at.Child("nodeName"), subdomain)...)
		topology := at.Child("deprecatedTopology")
		if n := len(e.DeprecatedTopology); n > mostTopology {
			errs = append(errs, field.TooMany(topology, n, mostTopology))
		}
		errs = append(errs, metavalidation.ValidateLabels(e.DeprecatedTopology, topology)...)
		errs = append(errs, validPtr(e.Hostname, at.Child("hostname"), label)...)
		if e.Hints != nil {
			errs = append(errs, validHints(e.Hints, at.Child("hints"))...)
		}
	}
	return errs
}

func validSliceAddress(kind discoveryv1.AddressType, address string, path *field.Path, i int) field.ErrorList {
	at := path.Index(i)
	var errs field.ErrorList
	var rightFamily func(net.IP) bool
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		errs, rightFamily = validLegacyIP(address, at, nil), netutils.IsIPv4
	case discoveryv1.AddressTypeIPv6:
		errs, rightFamily = validation.IsValidIP(at, address), netutils.IsIPv6
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(at, address)
	}
	if rightFamily == nil || len(errs) > 0 {
		return errs
	}
	errs = refuse(!rightFamily(netutils.ParseIPSloppy(address)), path, address, fmt.Sprintf("must be an %s address", kind))
	return append(errs, validReachable(address, at)...)
}

func validHints(h *discoveryv1.EndpointHints, at *field.Path) field.ErrorList {
	var zones, nodes []string
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	const most = 8
	var errs field.ErrorList
	for _, list := range []struct {
		name  string
		of    []string
		check func(string) []string
	}{{"forZones", zones, validation.IsValidLabelValue}, {"forNodes", nodes, subdomain}} {
		here := at.Child(list.name)
		if len(list.of) > most {
			return append(errs, field.TooMany(here, len(list.of), most))
		}
		for i, name := range list.of {
			if slices.Contains(list.of[:i], name) {
				errs = append(errs, field.Duplicate(here.Index(i).Child("name"), name))
			}
			errs = append(errs, invalid(here.Index(i).Child("name"), name, list.check(name))...)
		}
	}
	return errs
}
