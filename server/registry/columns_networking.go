package registry

import (
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ingressColumns() []Column {
	return []Column{
		nameColumn,
		text("Class", "The class of the controller that serves it."),
		text("Hosts", "The host names that it answers to."),
		text("Address", "Where it is reached."),
		text("Ports", "On which ports."),
		ageColumn,
	}
}

func ingressRow(i *networkingv1.Ingress) []any {
	class := none
	if i.Spec.IngressClassName != nil {
		class = *i.Spec.IngressClassName
	}
	var hosts, addresses []string
	for _, rule := range i.Spec.Rules {
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	for _, in := range i.Status.LoadBalancer.Ingress {
		addresses = append(addresses, orElse(in.IP, in.Hostname))
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		i.Name, class, orElse(some(hosts), "*"), strings.Join(addresses, ","), ports, i.CreationTimestamp,
	}
}

func ingressClassColumns() []Column {
	return []Column{nameColumn, text("Controller", "Who serves the class."), text("Parameters", "Its parameters."), ageColumn}
}

func ingressClassRow(c *networkingv1.IngressClass) []any {
	params := none
	if p := c.Spec.Parameters; p != nil {
		params = p.Kind
		if p.APIGroup != nil {
			params += "." + *p.APIGroup
		}
		params += "/" + p.Name
	}
	return []any{c.Name, c.Spec.Controller, params, c.CreationTimestamp}
}

func networkPolicyColumns() []Column {
	return []Column{nameColumn, text("Pod-Selector", "The pods that it is about."), ageColumn}
}

func networkPolicyRow(p *networkingv1.NetworkPolicy) []any {
	return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), p.CreationTimestamp}
}

func ipAddressColumns() []Column {
	return []Column{nameColumn, text("ParentRef", "Whose address it is.")}
}

func ipAddressRow(ip *networkingv1.IPAddress) []any {
	ref := ip.Spec.ParentRef
	if ref == nil {
		return []any{ip.Name, none}
	}
	kind := ref.Resource
	if ref.Group != "" {
		kind += "." + ref.Group
	}
	parts := []string{kind}
	if ref.Namespace != "" {
		parts = append(parts, ref.Namespace)
	}
	return []any{ip.Name, strings.Join(append(parts, ref.Name), "/")}
}

func serviceCIDRColumns() []Column {
	return []Column{nameColumn, text("CIDRs", "The ranges of addresses."), ageColumn}
}

func serviceCIDRRow(c *networkingv1.ServiceCIDR) []any {
	return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), c.CreationTimestamp}
}

func endpointSliceColumns() []Column {
	return []Column{
		nameColumn,
		text("AddressType", "IPv4, IPv6 or FQDN."),
		text("Ports", "The ports of the endpoints."),
		text("Endpoints", "Their addresses."),
		ageColumn,
	}
}

func endpointSliceRow(s *discoveryv1.EndpointSlice) []any {
	var ports, addresses []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, itoa(*p.Port))
		case p.Name != nil:
			ports = append(ports, *p.Name)
		default:
			ports = append(ports, "*")
		}
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	return []any{
		s.Name, string(s.AddressType),
		orElse(some(ports), unset), orElse(some(addresses), unset), s.CreationTimestamp,
	}
}
