package api

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateIngress names the faults of an Ingress.
func ValidateIngress(i, _ *networkingv1.Ingress) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if len(i.Spec.Rules) == 0 && i.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(at, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, validBackend(i.Spec.DefaultBackend, at.Child("defaultBackend"))...)
	}
	if i.Spec.IngressClassName != nil {
		errs = append(errs, invalid(at.Child("ingressClassName"), *i.Spec.IngressClassName, validation.IsDNS1123Subdomain(*i.Spec.IngressClassName))...)
	}
	for n, rule := range i.Spec.Rules {
		here := at.Child("rules").Index(n)
		errs = append(errs, validHost(rule.Host, here.Child("host"))...)
		if rule.HTTP == nil {
			continue
		}
		if len(rule.HTTP.Paths) == 0 {
			errs = append(errs, field.Required(here.Child("http", "paths"), ""))
		}
		for m := range rule.HTTP.Paths {
			errs = append(errs, validIngressPath(&rule.HTTP.Paths[m], here.Child("http", "paths").Index(m))...)
		}
	}
	for n, tls := range i.Spec.TLS {
		for m, host := range tls.Hosts {
			errs = append(errs, validHost(host, at.Child("tls").Index(n).Child("hosts").Index(m))...)
		}
	}
	return errs
}

func validHost(host string, at *field.Path) field.ErrorList {
	switch {
	case host == "":
		return nil
	case strings.HasPrefix(host, "*"):
		return invalid(at, host, validation.IsWildcardDNS1123Subdomain(host))
	case len(validation.IsValidIP(at, host)) == 0:
		return field.ErrorList{field.Invalid(at, host, "must be a DNS name, not an IP address")}
	}
	return invalid(at, host, validation.IsDNS1123Subdomain(host))
}

func validIngressPath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.PathType == nil {
		errs = append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
	} else {
		errs = append(errs, oneOf(*p.PathType, at.Child("pathType"), networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific)...)
		if *p.PathType != networkingv1.PathTypeImplementationSpecific {
			if !strings.HasPrefix(p.Path, "/") {
				errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
			}
			for _, bad := range []string{"//", "/./", "/../", "%2f", "%2F"} {
				if strings.Contains(p.Path, bad) {
					errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("must not contain '%s'", bad)))
				}
			}
		}
	}
	return append(errs, validBackend(&p.Backend, at.Child("backend"))...)
}

func validBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		errs := required(b.Resource.Kind, at.Child("resource", "kind"))
		return append(errs, required(b.Resource.Name, at.Child("resource", "name"))...)
	case b.Service == nil:
		return field.ErrorList{field.Required(at, "resource or service backend is required")}
	}
	var errs field.ErrorList
	if b.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("service", "name"), ""))
	} else {
		errs = append(errs, invalid(at.Child("service", "name"), b.Service.Name, validation.IsDNS1035Label(b.Service.Name))...)
	}
	port := b.Service.Port
	switch {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, invalid(at.Child("service", "port", "name"), port.Name, validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, validPort(port.Number, at.Child("service", "port", "number"))...)
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

// ValidateIngressClass names the faults of an IngressClass.
func ValidateIngressClass(c, old *networkingv1.IngressClass) field.ErrorList {
	at := specPath().Child("controller")
	if old != nil {
		return unchanged(c.Spec.Controller, old.Spec.Controller, at)
	}
	if len(c.Spec.Controller) > 250 {
		return field.ErrorList{field.TooLong(at, c.Spec.Controller, 250)}
	}
	return validation.IsDomainPrefixedPath(at, c.Spec.Controller)
}

// ValidateNetworkPolicy names the faults of a NetworkPolicy.
func ValidateNetworkPolicy(p, _ *networkingv1.NetworkPolicy) field.ErrorList {
	at := specPath()
	errs := metavalidation.ValidateLabelSelector(&p.Spec.PodSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("podSelector"))
	for i, rule := range p.Spec.Ingress {
		here := at.Child("ingress").Index(i)
		errs = append(errs, validPolicyPorts(rule.Ports, here.Child("ports"))...)
		errs = append(errs, validPeers(rule.From, here.Child("from"))...)
	}
	for i, rule := range p.Spec.Egress {
		here := at.Child("egress").Index(i)
		errs = append(errs, validPolicyPorts(rule.Ports, here.Child("ports"))...)
		errs = append(errs, validPeers(rule.To, here.Child("to"))...)
	}
	if len(p.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(at.Child("policyTypes"), &p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, oneOf(t, at.Child("policyTypes").Index(i), networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

func validPolicyPorts(ports []networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		here := at.Index(i)
		errs = append(errs, oneOfIfSet(p.Protocol, here.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		if p.Port != nil {
			errs = append(errs, validPortOrName(*p.Port, here.Child("port"))...)
		}
		if p.EndPort == nil {
			continue
		}
		switch {
		case p.Port == nil:
			errs = append(errs, field.Required(here.Child("port"), "must be specified when `endPort` is specified"))
		case p.Port.StrVal != "":
			errs = append(errs, field.Invalid(here.Child("endPort"), *p.EndPort, "may not be specified when `port` is non-numeric"))
		case *p.EndPort < p.Port.IntVal:
			errs = append(errs, field.Invalid(here.Child("endPort"), *p.EndPort, "must be greater than or equal to `port`"))
		}
	}
	return errs
}

func validPeers(peers []networkingv1.NetworkPolicyPeer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range peers {
		here := at.Index(i)
		switch {
		case p.PodSelector == nil && p.NamespaceSelector == nil && p.IPBlock == nil:
			errs = append(errs, field.Required(here, "must specify a peer"))
		case p.IPBlock != nil && (p.PodSelector != nil || p.NamespaceSelector != nil):
			errs = append(errs, field.Forbidden(here, "may not specify both ipBlock and another peer"))
		case p.IPBlock != nil:
			errs = append(errs, validation.IsValidCIDRForLegacyField(here.Child("ipBlock", "cidr"), p.IPBlock.CIDR, false, nil)...)
			for j, except := range p.IPBlock.Except {
				errs = append(errs, validation.IsValidCIDRForLegacyField(here.Child("ipBlock", "except").Index(j), except, false, nil)...)
			}
		}
		errs = append(errs, metavalidation.ValidateLabelSelector(p.PodSelector, metavalidation.LabelSelectorValidationOptions{}, here.Child("podSelector"))...)
		errs = append(errs, metavalidation.ValidateLabelSelector(p.NamespaceSelector, metavalidation.LabelSelectorValidationOptions{}, here.Child("namespaceSelector"))...)
	}
	return errs
}

// ValidateServiceCIDR names the faults of a ServiceCIDR.
func ValidateServiceCIDR(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	at := specPath().Child("cidrs")
	if old == nil {
		return validServiceCIDRs(c.Spec.CIDRs, at)
	}
	now, before := c.Spec.CIDRs, old.Spec.CIDRs
	switch {
	case len(now) == len(before):
		var errs field.ErrorList
		for i := range now {
			errs = append(errs, unchanged(now[i], before[i], at.Index(i))...)
		}
		return errs
	case len(before) == 1 && len(now) == 2: // another family may join
		return append(unchanged(now[0], before[0], at.Index(0)), validServiceCIDRs(now, at)...)
	}
	return unchanged(now, before, at)
}

func validServiceCIDRs(cidrs []string, at *field.Path) field.ErrorList {
	switch {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	case len(cidrs) > 2:
		return field.ErrorList{field.Invalid(at, &networkingv1.ServiceCIDRSpec{CIDRs: cidrs}, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDR(at.Index(i), cidr)...)
	}
	if len(errs) == 0 && len(cidrs) == 2 && strings.Contains(cidrs[0], ":") == strings.Contains(cidrs[1], ":") {
		errs = append(errs, field.Invalid(at, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}

// ValidateIPAddress names the faults of an IPAddress.
func ValidateIPAddress(ip, old *networkingv1.IPAddress) field.ErrorList {
	at := specPath().Child("parentRef")
	if ip.Spec.ParentRef == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := required(ip.Spec.ParentRef.Resource, at.Child("resource"))
	errs = append(errs, required(ip.Spec.ParentRef.Name, at.Child("name"))...)
	if old != nil {
		errs = append(errs, unchanged(ip.Spec.ParentRef, old.Spec.ParentRef, at)...)
	}
	return errs
}
