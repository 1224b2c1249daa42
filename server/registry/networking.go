package registry

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

func networkingKinds() []*Kind {
	gv := networkingv1.SchemeGroupVersion
	return []*Kind{
		ingressKind(gv), ingressClassKind(gv), networkPolicyKind(gv),
		kind[networkingv1.IPAddress, networkingv1.IPAddressList]{
			Plural: "ipaddresses", Singular: "ipaddress", Short: []string{"ip"}, Cluster: true,
			Validate: api.ValidateIPAddress,
			Columns:  ipAddressColumns(), Row: ipAddressRow,
			ValidName: validIPName, NamedByPrefix: true,
		}.erase(gv),
		serviceCIDRKind(gv),
	}
}

func ingressKind(gv schema.GroupVersion) *Kind {
	parts := halves[networkingv1.Ingress]{counted: true}
	return kind[networkingv1.Ingress, networkingv1.IngressList]{
		Plural: "ingresses", Singular: "ingress", Short: []string{"ing"}, Prefix: "ingress",
		Validate: api.ValidateIngress, Warn: api.WarnIngress,
		Columns: ingressColumns(), Row: ingressRow,
		Prepare: parts.prepare,
		Sub:     Sub{"status": warning(parts.sub(api.ValidateIngressStatus), api.WarnIngressStatus)},
	}.erase(gv)
}

func ingressClassKind(gv schema.GroupVersion) *Kind {
	parts := halves[networkingv1.IngressClass]{counted: true}
	return kind[networkingv1.IngressClass, networkingv1.IngressClassList]{
		Plural: "ingressclasses", Cluster: true, Prepare: parts.prepare,
		Validate: api.ValidateIngressClass,
		Columns:  ingressClassColumns(), Row: ingressClassRow,
		Default: api.DefaultIngressClass,
	}.erase(gv)
}

func networkPolicyKind(gv schema.GroupVersion) *Kind {
	parts := halves[networkingv1.NetworkPolicy]{counted: true}
	return kind[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList]{
		Plural: "networkpolicies", Short: []string{"netpol"}, Prepare: parts.prepare,
		Validate: api.ValidateNetworkPolicy, Warn: api.WarnNetworkPolicy,
		Columns: networkPolicyColumns(), Row: networkPolicyRow,
		Default: api.DefaultNetworkPolicy,
	}.erase(gv)
}

func serviceCIDRKind(gv schema.GroupVersion) *Kind {
	parts := halves[networkingv1.ServiceCIDR]{}
	return kind[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList]{
		Plural: "servicecidrs", Cluster: true,
		Validate: api.ValidateServiceCIDR,
		Columns:  serviceCIDRColumns(), Row: serviceCIDRRow,
		Prepare: parts.prepare,
		Sub:     Sub{"status": parts.pure(nil)},
	}.erase(gv)
}
