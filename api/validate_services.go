package api

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateService names the faults of a Service.
func ValidateService(s, old *corev1.Service) field.ErrorList {
	path, spec := specPath(), &s.Spec
	var errs field.ErrorList
	headless := len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] == corev1.ClusterIPNone
	if len(spec.Ports) == 0 && !headless && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	errs = append(errs, oneOf(spec.Type, path.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)...)
	errs = append(errs, validServiceType(s, headless)...)
	errs = append(errs, validServicePorts(s, path.Child("ports"))...)
	errs = append(errs, metavalidation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	errs = append(errs, oneOf(spec.SessionAffinity, path.Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)...)
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		if t := *c.ClientIP.TimeoutSeconds; t <= 0 || t > 86400 {
			errs = append(errs, field.Invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), t, "must be greater than 0 and less than or equal to 86400"))
		}
	}
	errs = append(errs, validServiceAddresses(s)...)
	errs = append(errs, validTrafficPolicies(s)...)
	if old != nil {
		errs = append(errs, validServiceUpdate(s, old)...)
	}
	return errs
}

func validServiceType(s *corev1.Service, headless bool) field.ErrorList {
	path, spec := specPath(), &s.Spec
	var errs field.ErrorList
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if headless {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), spec.ClusterIPs[0], fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
		}
	case corev1.ServiceTypeExternalName:
		if len(spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(path.Child("clusterIPs"), "may not be set for ExternalName services"))
		}
		if spec.ExternalName == "" {
			return append(errs, field.Required(path.Child("externalName"), ""))
		}
		name := spec.ExternalName
		if n := len(name); n > 1 && name[n-1] == '.' {
			name = name[:n-1]
		}
		errs = append(errs, invalid(path.Child("externalName"), spec.ExternalName, validation.IsDNS1123Subdomain(name))...)
	}
	return errs
}

func validServicePorts(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, numbers, nodePorts := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, p := range s.Spec.Ports {
		at := path.Index(i)
		switch {
		case p.Name == "" && len(s.Spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.Name != "":
			errs = append(errs, invalid(at.Child("name"), p.Name, validation.IsDNS1123Label(p.Name))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, validPort(p.Port, at.Child("port"))...)
		errs = append(errs, oneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		errs = append(errs, validTargetPort(p.TargetPort, at.Child("targetPort"))...)
		key := fmt.Sprintf("%s/%d", p.Protocol, p.Port)
		if numbers[key] {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		numbers[key] = true
		if p.NodePort == 0 {
			continue
		}
		if s.Spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		node := fmt.Sprintf("%s/%d", p.Protocol, p.NodePort)
		if nodePorts[node] {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
		}
		nodePorts[node] = true
	}
	return errs
}

func validTargetPort(p intstr.IntOrString, path *field.Path) field.ErrorList {
	if p.Type == intstr.Int {
		return invalid(path, p.IntVal, validation.IsValidPortNum(int(p.IntVal)))
	}
	return invalid(path, p.StrVal, validation.IsValidPortName(p.StrVal))
}

func validServiceAddresses(s *corev1.Service) field.ErrorList {
	path, spec := specPath(), &s.Spec
	var errs field.ErrorList
	if spec.Type != corev1.ServiceTypeExternalName {
		if len(spec.ClusterIPs) > 0 && spec.ClusterIP != spec.ClusterIPs[0] {
			errs = append(errs, field.Invalid(path.Child("clusterIPs"), spec.ClusterIPs, "first value must match `clusterIP`"))
		}
		for i, ip := range spec.ClusterIPs {
			switch {
			case ip == corev1.ClusterIPNone && len(spec.ClusterIPs) > 1:
				errs = append(errs, field.Invalid(path.Child("clusterIPs"), spec.ClusterIPs, "must be unique and 'None' may only be set alone"))
			case ip != corev1.ClusterIPNone:
				errs = append(errs, validation.IsValidIPForLegacyField(path.Child("clusterIPs").Index(i), ip, false, nil)...)
			}
		}
		for i, f := range spec.IPFamilies {
			errs = append(errs, oneOf(f, path.Child("ipFamilies").Index(i), corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		}
		errs = append(errs, oneOfIfSet(spec.IPFamilyPolicy, path.Child("ipFamilyPolicy"), corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
	}
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("externalIPs").Index(i), ip, false, nil)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		if spec.Type != corev1.ServiceTypeLoadBalancer {
			errs = append(errs, field.Forbidden(path.Child("loadBalancerSourceRanges"), "may only be used when `type` is 'LoadBalancer'"))
			break
		}
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Child("loadBalancerSourceRanges").Index(i), cidr, false, nil)...)
	}
	if spec.AllocateLoadBalancerNodePorts != nil && spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'"))
	}
	if spec.LoadBalancerClass != nil && spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path.Child("loadBalancerClass"), "may only be used when `type` is 'LoadBalancer'"))
	}
	return errs
}

func validTrafficPolicies(s *corev1.Service) field.ErrorList {
	path, spec := specPath(), &s.Spec
	var errs field.ErrorList
	outside := spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
	switch {
	case spec.ExternalTrafficPolicy != "" && !outside:
		errs = append(errs, field.Invalid(path.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	case outside:
		errs = append(errs, oneOf(spec.ExternalTrafficPolicy, path.Child("externalTrafficPolicy"), corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	if spec.HealthCheckNodePort != 0 && (spec.Type != corev1.ServiceTypeLoadBalancer || spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal) {
		errs = append(errs, field.Invalid(path.Child("healthCheckNodePort"), spec.HealthCheckNodePort, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		if spec.InternalTrafficPolicy == nil {
			errs = append(errs, field.Required(path.Child("internalTrafficPolicy"), ""))
		}
		errs = append(errs, oneOfIfSet(spec.InternalTrafficPolicy, path.Child("internalTrafficPolicy"), corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if spec.TrafficDistribution != nil {
		errs = append(errs, oneOf(*spec.TrafficDistribution, path.Child("trafficDistribution"), corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

// validServiceUpdate keeps the address: clients have it in their caches.
func validServiceUpdate(s, old *corev1.Service) field.ErrorList {
	if s.Spec.Type == corev1.ServiceTypeExternalName || old.Spec.Type == corev1.ServiceTypeExternalName ||
		len(old.Spec.ClusterIPs) == 0 || old.Spec.ClusterIPs[0] == "" {
		return nil
	}
	path := specPath().Child("clusterIPs")
	if len(s.Spec.ClusterIPs) == 0 {
		return field.ErrorList{field.Invalid(path.Index(0), s.Spec.ClusterIPs, "primary clusterIP can not be unset")}
	}
	if s.Spec.ClusterIPs[0] != old.Spec.ClusterIPs[0] {
		return field.ErrorList{field.Invalid(path.Index(0), s.Spec.ClusterIPs, "may not change once set")}
	}
	return nil
}

// ValidateEndpoints names the faults of Endpoints.
func ValidateEndpoints(e, _ *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range s.Addresses {
			errs = append(errs, validEndpointIP(a.IP, at.Child("addresses").Index(j).Child("ip"))...)
		}
		for j, a := range s.NotReadyAddresses {
			errs = append(errs, validEndpointIP(a.IP, at.Child("notReadyAddresses").Index(j).Child("ip"))...)
		}
		for j, p := range s.Ports {
			here := at.Child("ports").Index(j)
			if p.Name == "" && len(s.Ports) > 1 {
				errs = append(errs, field.Required(here.Child("name"), ""))
			} else if p.Name != "" {
				errs = append(errs, invalid(here.Child("name"), p.Name, validation.IsDNS1123Label(p.Name))...)
			}
			errs = append(errs, validPort(p.Port, here.Child("port"))...)
			errs = append(errs, oneOf(p.Protocol, here.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		}
	}
	return errs
}

func validEndpointIP(ip string, path *field.Path) field.ErrorList {
	errs := validation.IsValidIPForLegacyField(path, ip, false, nil)
	if len(errs) == 0 {
		errs = invalid(path, ip, notSpecialIP(ip))
	}
	return errs
}

// ValidateEndpointSlice names the faults of an EndpointSlice.
func ValidateEndpointSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := oneOf(s.AddressType, field.NewPath("addressType"), discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	if old != nil {
		errs = append(errs, unchanged(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
	}
	const mostEndpoints, mostPorts, mostAddresses = 1000, 20000, 100
	if len(s.Endpoints) > mostEndpoints {
		errs = append(errs, field.TooMany(field.NewPath("endpoints"), len(s.Endpoints), mostEndpoints))
	}
	if len(s.Ports) > mostPorts {
		errs = append(errs, field.TooMany(field.NewPath("ports"), len(s.Ports), mostPorts))
	}
	for i, e := range s.Endpoints {
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		if len(e.Addresses) == 0 {
			errs = append(errs, field.Required(at, "must contain at least 1 address"))
		}
		if len(e.Addresses) > mostAddresses {
			errs = append(errs, field.TooMany(at, len(e.Addresses), mostAddresses))
		}
		for j, a := range e.Addresses {
			if s.AddressType == discoveryv1.AddressTypeFQDN {
				errs = append(errs, validation.IsFullyQualifiedDomainName(at.Index(j), a)...)
				continue
			}
			errs = append(errs, validEndpointIP(a, at.Index(j))...)
		}
	}
	names := map[string]bool{}
	for i, p := range s.Ports {
		at := field.NewPath("ports").Index(i)
		if p.Name != nil {
			if *p.Name != "" {
				errs = append(errs, invalid(at.Child("name"), *p.Name, validation.IsDNS1123Label(*p.Name))...)
			}
			if names[*p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), *p.Name))
			}
			names[*p.Name] = true
		}
		errs = append(errs, oneOfIfSet(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	return errs
}
