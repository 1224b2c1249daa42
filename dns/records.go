package dns

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// below answers names under svc. labels end with the namespace:
//
//	[]                            svc itself
//	[namespace]
//	[service namespace]
//	[hostname service namespace]  one endpoint
//	[_port _proto service namespace]
func (z *zone) below(owner string, labels []string, qtype uint16, outside resolver) result {
	n := len(labels)
	if n == 0 {
		return result{exists: true}
	}
	namespace := labels[n-1]
	if n == 1 {
		return result{exists: z.seen.hasNamespace(namespace)}
	}
	svc := z.seen.service(namespace, labels[n-2])
	if svc == nil {
		return result{}
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		if n > 2 {
			return result{}
		}
		return z.external(owner, svc, qtype, outside)
	}
	want := selection{}
	switch n {
	case 2:
	case 3:
		want.hostname = labels[0]
	case 4:
		if !strings.HasPrefix(labels[0], "_") || !strings.HasPrefix(labels[1], "_") {
			return result{}
		}
		want.port, want.protocol = labels[0][1:], labels[1][1:]
	default:
		return result{}
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone || want.hostname != "" {
		return z.endpoints(owner, svc, want, qtype)
	}
	return z.service(owner, svc, want, qtype)
}

// selection narrows a Service down; its zero value is all of it.
type selection struct {
	hostname       string
	port, protocol string
}

func (s selection) takes(port string, protocol corev1.Protocol) bool {
	if s.port == "" {
		return true
	}
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return s.port == strings.ToLower(port) && strings.EqualFold(s.protocol, string(protocol))
}

func (z *zone) service(owner string, svc *corev1.Service, want selection, qtype uint16) result {
	var ports []corev1.ServicePort
	for _, p := range svc.Spec.Ports {
		if want.takes(p.Name, p.Protocol) {
			ports = append(ports, p)
		}
	}
	if want.port != "" && len(ports) == 0 {
		return result{}
	}
	found := result{exists: true}
	if qtype != dns.TypeSRV {
		found.records = z.addresses(owner, clusterIPs(svc), qtype)
		return found
	}
	target := z.serviceName(svc.Namespace, svc.Name)
	for _, p := range ports {
		found.records = append(found.records, z.srv(owner, target, uint16(p.Port), len(ports)))
	}
	found.extra = z.addresses(target, clusterIPs(svc), dns.TypeANY)
	return found
}

// endpoints answers from a Service's ready endpoints: for headless Services,
// and for one endpoint of any Service by its hostname. No ready endpoint means
// that there is no such name.
func (z *zone) endpoints(owner string, svc *corev1.Service, want selection, qtype uint16) result {
	type target struct {
		name string
		port uint16
	}
	var ips []string
	var targets []target
	extra := map[string][]string{}
	found := result{}
	for _, slice := range z.seen.slicesOf(svc.Namespace, svc.Name) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, ip := range e.Addresses {
				host := endpointHostname(e, ip)
				if want.hostname != "" && want.hostname != host {
					continue
				}
				name := host + "." + z.serviceName(svc.Namespace, svc.Name)
				matched := want.port == "" && len(slice.Ports) == 0
				for _, p := range slice.Ports {
					if p.Port != nil && want.takes(value(p.Name), corev1.Protocol(value((*string)(p.Protocol)))) {
						matched = true
						targets = append(targets, target{name, uint16(*p.Port)})
					}
				}
				if !matched {
					continue
				}
				found.exists = true
				if !slices.Contains(ips, ip) {
					ips = append(ips, ip)
				}
				if !slices.Contains(extra[name], ip) {
					extra[name] = append(extra[name], ip)
				}
			}
		}
	}
	if qtype != dns.TypeSRV {
		found.records = z.addresses(owner, ips, qtype)
		return found
	}
	unique := map[target]bool{}
	for _, t := range targets {
		if !unique[t] {
			unique[t] = true
			found.records = append(found.records, z.srv(owner, t.name, t.port, len(targets)))
		}
	}
	for name, ips := range extra {
		found.extra = append(found.extra, z.addresses(name, ips, dns.TypeANY)...)
	}
	return found
}

// endpointNames are the names of an address as an endpoint of Services.
func (z *zone) endpointNames(ip string) []string {
	var names []string
	for _, slice := range z.seen.slicesWith(ip) {
		service := slice.Labels[discoveryv1.LabelServiceName]
		if service == "" {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !slices.Contains(e.Addresses, ip) {
				continue
			}
			name := endpointHostname(e, ip) + "." + z.serviceName(slice.Namespace, service)
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// endpointHostname is the name that the endpoint's pod asked for, or else its
// address with dashes.
func endpointHostname(e *discoveryv1.Endpoint, ip string) string {
	if e.Hostname != nil && *e.Hostname != "" {
		return *e.Hostname
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(ip)
}

// external answers for an ExternalName Service with an alias, and with what the
// alias leads to, in this zone or outside, so that the client need not ask
// again.
func (z *zone) external(owner string, svc *corev1.Service, qtype uint16, outside resolver) result {
	target := svc.Spec.ExternalName
	if _, err := netip.ParseAddr(target); err == nil {
		return result{exists: true, records: z.addresses(owner, []string{target}, qtype)}
	}
	target = dns.Fqdn(target)
	found := result{exists: true, records: []dns.RR{&dns.CNAME{Hdr: z.header(owner, dns.TypeCNAME), Target: target}}}
	if qtype != dns.TypeA && qtype != dns.TypeAAAA {
		return found
	}
	lower := strings.ToLower(target)
	if !dns.IsSubDomain(z.origin, lower) {
		found.records = append(found.records, outside(target, qtype)...)
		return found
	}
	// One step within the zone, not more: aliases may form a ring.
	next := z.find(target, lower, qtype, func(string, uint16) []dns.RR { return nil })
	for _, rr := range next.records {
		if rr.Header().Rrtype != dns.TypeCNAME {
			found.records = append(found.records, rr)
		}
	}
	return found
}

// addresses makes A and AAAA records of those addresses that the query's type
// asks for, in random order: clients take the first.
func (z *zone) addresses(owner string, ips []string, qtype uint16) []dns.RR {
	var all []dns.RR
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		switch {
		case ip.Is4() && (qtype == dns.TypeA || qtype == dns.TypeANY):
			all = append(all, &dns.A{Hdr: z.header(owner, dns.TypeA), A: net.IP(ip.AsSlice())})
		case ip.Is6() && (qtype == dns.TypeAAAA || qtype == dns.TypeANY):
			all = append(all, &dns.AAAA{Hdr: z.header(owner, dns.TypeAAAA), AAAA: net.IP(ip.AsSlice())})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (z *zone) srv(owner, target string, port uint16, among int) dns.RR {
	return &dns.SRV{
		Hdr:    z.header(owner, dns.TypeSRV),
		Weight: uint16(max(1, 100/max(1, among))), Port: port, Target: target,
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
