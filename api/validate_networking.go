package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// IngressClassAnnotation is how an Ingress told its class before it had a field.
const IngressClassAnnotation = "kubernetes.io/ingress.class"

// ValidateIngress names the faults of an Ingress; secrets and patterns of hosts that
// were wrong before may be so still.
func ValidateIngress(i, old *networkingv1.Ingress) field.ErrorList {
	at, spec := specPath(), &i.Spec
	var before networkingv1.IngressSpec
	if old != nil {
		before = old.Spec
	}
	errs := refuse(len(spec.Rules) == 0 && spec.DefaultBackend == nil, at, spec.Rules, "either `defaultBackend` or `rules` must be specified")
	if spec.DefaultBackend != nil {
		errs = append(errs, validBackend(spec.DefaultBackend, at.Child("defaultBackend"))...)
	}
	isPattern := func(r networkingv1.IngressRule) bool { return strings.Contains(r.Host, "*") }
	keepPatterns := slices.ContainsFunc(before.Rules, func(r networkingv1.IngressRule) bool { return isPattern(r) && len(validPaths(r.HTTP, nil)) > 0 })
	for n, rule := range spec.Rules {
		here := at.Child("rules").Index(n)
		errs = append(errs, refuse(netutils.ParseIPSloppy(rule.Host) != nil, here.Child("host"), rule.Host, "must be a DNS name, not an IP address")...)
		errs = append(errs, validIfSet(rule.Host, here.Child("host"), hostOrPattern)...)
		if !keepPatterns || !isPattern(rule) {
			errs = append(errs, validPaths(rule.HTTP, here.Child("http"))...)
		}
	}
	keepSecrets := slices.ContainsFunc(before.TLS, func(t networkingv1.IngressTLS) bool { return len(validIfSet(t.SecretName, nil, subdomain)) > 0 })
	for n, tls := range spec.TLS {
		here := at.Child("tls").Index(n)
		for m, name := range tls.Hosts {
			errs = append(errs, invalid(here.Child("hosts").Index(m), name, hostOrPattern(name))...)
		}
		if !keepSecrets {
			errs = append(errs, validIfSet(tls.SecretName, here.Child("secretName"), subdomain)...)
		}
	}
	errs = append(errs, validPtr(spec.IngressClassName, at.Child("ingressClassName"), subdomain)...)
	class, ok := i.Annotations[IngressClassAnnotation]
	differs := old == nil && ok && spec.IngressClassName != nil && class != *spec.IngressClassName
	return append(errs, refuse(differs, field.NewPath("annotations", IngressClassAnnotation), class, "must match `ingressClassName` when both are specified")...)
}

func hostOrPattern(name string) []string {
	if strings.Contains(name, "*") {
		return validation.IsWildcardDNS1123Subdomain(name)
	}
	return subdomain(name)
}

func validPaths(http *networkingv1.HTTPIngressRuleValue, at *field.Path) field.ErrorList {
	if http == nil {
		return nil
	}
	errs := need(len(http.Paths) == 0, at.Child("paths"), "")
	for i := range http.Paths {
		errs = append(errs, validIngressPath(&http.Paths[i], at.Child("paths").Index(i))...)
	}
	return errs
}

func validIngressPath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	const exact, prefix, free = networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific
	here := at.Child("path")
	errs := among(*p.PathType, at.Child("pathType"), exact, free, prefix)
	strict := *p.PathType == exact || *p.PathType == prefix
	relative := !strings.HasPrefix(p.Path, "/") && (strict || *p.PathType == free && p.Path != "")
	errs = append(errs, refuse(relative, here, p.Path, "must be an absolute path")...)
	if strict {
		for _, bad := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			errs = append(errs, refuse(strings.Contains(p.Path, bad), here, p.Path, fmt.Sprintf("must not contain '%s'", bad))...)
		}
		for _, bad := range []string{"/..", "/."} {
			errs = append(errs, refuse(strings.HasSuffix(p.Path, bad), here, p.Path, fmt.Sprintf("cannot end with '%s'", bad))...)
		}
	}
	return append(errs, validBackend(&p.Backend, at.Child("backend"))...)
}

func validBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		r, here := b.Resource, at.Child("resource")
		errs := validPtr(r.APIGroup, here.Child("apiGroup"), subdomain)
		errs = append(errs, requiredValid(r.Kind, here.Child("kind"), content.IsPathSegmentName)...)
		return append(errs, requiredValid(r.Name, here.Child("name"), content.IsPathSegmentName)...)
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	errs := requiredValid(b.Service.Name, at.Child("service", "name"), label)
	port, here := b.Service.Port, at.Child("service", "port")
	switch {
	case port.Name != "" && port.Number != 0:
		return append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case port.Name != "":
		return append(errs, invalid(here.Child("name"), port.Name, validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		return append(errs, validPort(port.Number, here.Child("number"))...)
	}
	return append(errs, field.Required(at, "port name or number is required"))
}

// ValidateIngressClass names the faults of an IngressClass.
func ValidateIngressClass(c, old *networkingv1.IngressClass) field.ErrorList {
	const longest = 250
	at := specPath().Child("controller")
	var errs field.ErrorList
	if old != nil {
		errs = unchanged(c.Spec.Controller, old.Spec.Controller, at)
	}
	if len(c.Spec.Controller) > longest {
		errs = append(errs, field.TooLong(at, "", longest))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(at, c.Spec.Controller)...)
	p, here := c.Spec.Parameters, specPath().Child("parameters")
	if p == nil {
		return errs
	}
	errs = append(errs, validPtr(p.APIGroup, here.Child("apiGroup"), subdomain)...)
	errs = append(errs, validIfSet(p.Kind, here.Child("kind"), content.IsPathSegmentName)...)
	errs = append(errs, validIfSet(p.Name, here.Child("name"), content.IsPathSegmentName)...)
	errs = append(errs, validClassScope(p, here)...)
	return append(errs, requiredFields(here, "kind", p.Kind, "name", p.Name)...)
}

func validClassScope(p *networkingv1.IngressClassParametersReference, at *field.Path) field.ErrorList {
	const cluster, namespace = networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace
	if p.Scope == nil {
		return field.ErrorList{field.Required(at.Child("scope"), "")}
	}
	errs := among(*p.Scope, at.Child("scope"), cluster, namespace)
	switch *p.Scope {
	case namespace:
		errs = append(errs, need(p.Namespace == nil, at.Child("namespace"), "`parameters.scope` is set to 'Namespace'")...)
		errs = append(errs, validPtr(p.Namespace, at.Child("namespace"), label)...)
	case cluster:
		errs = append(errs, forbid(p.Namespace != nil, at.Child("namespace"), "`parameters.scope` is set to 'Cluster'")...)
	}
	return errs
}

// ValidateNetworkPolicy names the faults of a NetworkPolicy; ranges that it had may
// stay as they are.
func ValidateNetworkPolicy(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	at := specPath()
	c := policyCheck{}
	if old != nil {
		c.labels.AllowInvalidLabelValueInSelector = len(validLabels(&old.Spec.PodSelector, nil)) > 0
		for _, rule := range policyRules(&old.Spec, nil) {
			for _, peer := range rule.peers {
				if b := peer.IPBlock; b != nil {
					c.ranges = append(append(c.ranges, b.CIDR), b.Except...)
				}
			}
		}
	}
	errs := metavalidation.ValidateLabelSelector(&p.Spec.PodSelector, c.labels, at.Child("podSelector"))
	var missing field.ErrorList
	for _, rule := range policyRules(&p.Spec, at) {
		for i, port := range rule.ports {
			errs = append(errs, validPolicyPort(port, rule.at.Child("ports").Index(i))...)
		}
		for i, peer := range rule.peers {
			here := rule.at.Child(rule.side).Index(i)
			errs = append(errs, c.validPeer(peer, here)...)
			if peer.IPBlock != nil {
				missing = append(missing, required(peer.IPBlock.CIDR, here.Child("ipBlock", "cidr"))...)
			}
		}
	}
	if len(p.Spec.PolicyTypes) > 2 {
		errs = append(errs, field.Invalid(at.Child("policyTypes"), &p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
		return append(errs, missing...)
	}
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, among(t, at.Child("policyTypes").Index(i), networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return append(errs, missing...)
}

// policyCheck is what is let pass in a NetworkPolicy.
type policyCheck struct {
	labels metavalidation.LabelSelectorValidationOptions
	ranges []string
}

// policyRule is a rule, of traffic in or out.
type policyRule struct {
	ports []networkingv1.NetworkPolicyPort
	peers []networkingv1.NetworkPolicyPeer
	at    *field.Path
	side  string
}

func policyRules(spec *networkingv1.NetworkPolicySpec, at *field.Path) []policyRule {
	var rules []policyRule
	for i, r := range spec.Ingress {
		rules = append(rules, policyRule{r.Ports, r.From, at.Child("ingress").Index(i), "from"})
	}
	for i, r := range spec.Egress {
		rules = append(rules, policyRule{r.Ports, r.To, at.Child("egress").Index(i), "to"})
	}
	return rules
}

func validPolicyPort(p networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	errs := amongIfSet(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	end, here := p.EndPort, at.Child("endPort")
	switch {
	case p.Port == nil:
		return append(errs, refuse(end != nil, here, end, "may not be specified when `port` is not specified")...)
	case p.Port.Type == intstr.String:
		errs = append(errs, refuse(end != nil, here, end, "may not be specified when `port` is non-numeric")...)
	}
	errs = append(errs, validPortOrName(*p.Port, at.Child("port"))...)
	if end != nil && p.Port.Type == intstr.Int {
		errs = append(errs, refuse(*end < p.Port.IntVal, here, end, "must be greater than or equal to `port`")...)
		errs = append(errs, validPort(*end, here)...)
	}
	return errs
}

func (c *policyCheck) validPeer(p networkingv1.NetworkPolicyPeer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, metavalidation.ValidateLabelSelector(p.PodSelector, c.labels, at.Child("podSelector"))...)
	errs = append(errs, metavalidation.ValidateLabelSelector(p.NamespaceSelector, c.labels, at.Child("namespaceSelector"))...)
	if p.IPBlock != nil {
		errs = append(errs, c.validBlock(p.IPBlock, at.Child("ipBlock"))...)
	}
	picked := p.PodSelector != nil || p.NamespaceSelector != nil
	errs = append(errs, need(!picked && p.IPBlock == nil, at, "must specify a peer")...)
	return append(errs, forbid(picked && p.IPBlock != nil, at, "may not specify both ipBlock and another peer")...)
}

func (c *policyCheck) validBlock(b *networkingv1.IPBlock, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return nil // is complained about after all else
	}
	errs := validLegacyCIDR(b.CIDR, at.Child("cidr"), c.ranges)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	for i, except := range b.Except {
		here := at.Child("except").Index(i)
		errs = append(errs, validLegacyCIDR(except, here, c.ranges)...)
		_, part, err := netutils.ParseCIDRSloppy(except)
		if err != nil {
			continue
		}
		of, _ := whole.Mask.Size()
		size, _ := part.Mask.Size()
		errs = append(errs, refuse(!whole.Contains(part.IP) || of >= size, here, except, "must be a strict subset of `cidr`")...)
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
		return refuse(true, at, &networkingv1.ServiceCIDRSpec{CIDRs: cidrs}, "may only hold up to 2 values")
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDR(at.Index(i), cidr)...)
	}
	family := netutils.IPFamilyOfCIDRString(cidrs[0])
	same := len(cidrs) == 2 && family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(cidrs[1])
	return append(errs, refuse(same, at, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64")...)
}

// ValidateIPAddress names the faults of an IPAddress, which stays whose it is.
func ValidateIPAddress(ip, old *networkingv1.IPAddress) field.ErrorList {
	at, ref := specPath().Child("parentRef"), ip.Spec.ParentRef
	errs := need(ref == nil, at, "")
	if ref != nil {
		errs = append(errs, validIfSet(ref.Group, at.Child("group"), subdomain)...)
		for _, part := range []struct{ name, value string }{{"resource", ref.Resource}, {"name", ref.Name}, {"namespace", ref.Namespace}} {
			// What a new one lacks is said after all else.
			errs = append(errs, need(old != nil && part.value == "" && part.name != "namespace", at.Child(part.name), "")...)
			errs = append(errs, validIfSet(part.value, at.Child(part.name), content.IsPathSegmentName)...)
		}
	}
	switch {
	case old == nil && ref != nil:
		errs = append(errs, requiredFields(at, "resource", ref.Resource, "name", ref.Name)...)
	case old != nil && !equality.Semantic.DeepEqual(ref, old.Spec.ParentRef):
		errs = append(errs, changed(at)...)
	}
	return errs
}
