package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// serviceProxyName on a Service hands it to another proxy.
const serviceProxyName = "service.kubernetes.io/service-proxy-name"

// Family is an IP version. Each has its own table of routes.
type Family string

// The two families, named as nft does.
const (
	IPv4 Family = "ip"
	IPv6 Family = "ip6"
)

func (f Family) has(a netip.Addr) bool { return a.Is4() == (f == IPv4) }

// Node is what routing must know of the node.
type Node struct {
	Name string
	Zone string
}

// Route is one port of one Service: where its traffic arrives and where it may
// go. Endpoint lists are sorted.
type Route struct {
	Namespace, Service, PortName string
	Protocol                     string // tcp, udp or sctp

	ClusterIP       netip.Addr
	Port            uint16
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr
	SourceRanges    []netip.Prefix // who may use LoadBalancerIPs; empty: anybody
	NodePort        uint16         // 0: none
	Affinity        time.Duration  // a client keeps its endpoint for so long; 0: no

	InternalLocal bool // traffic to ClusterIP stays on the node
	ExternalLocal bool // traffic from outside stays on the node, and keeps its source
	Cluster       []netip.AddrPort
	Local         []netip.AddrPort
	Reachable     bool // some endpoint exists somewhere: refuse silently, not loudly
}

// HealthPort is where a load balancer asks for a Service's local endpoints.
type HealthPort struct {
	Namespace, Service string
	Port               uint16
	LocalEndpoints     int
}

// Table is all routes of one family, sorted by name.
type Table struct {
	Family Family
	Routes []Route
	Health []HealthPort
}

// Name is the Service's key and the port's name, as upstream writes it in rules.
func (r *Route) Name() string {
	name := r.Namespace + "/" + r.Service
	if r.PortName != "" {
		name += ":" + r.PortName
	}
	return name
}

// Internal are the endpoints of traffic to the cluster address.
func (r *Route) Internal() []netip.AddrPort {
	if r.InternalLocal {
		return r.Local
	}
	return r.Cluster
}

// External are the endpoints of traffic that comes from outside of the cluster.
func (r *Route) External() []netip.AddrPort {
	if r.ExternalLocal {
		return r.Local
	}
	return r.Cluster
}

// outside are the addresses besides the cluster address.
func (r *Route) outside() []netip.Addr {
	return append(slices.Clone(r.ExternalIPs), r.LoadBalancerIPs...)
}

// Build computes the routes of one family. It changes none of its arguments.
func Build(family Family, node Node, services []*corev1.Service, all []*discoveryv1.EndpointSlice) Table {
	bySvc := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range all {
		name := s.Labels[discoveryv1.LabelServiceName]
		wanted := discoveryv1.AddressTypeIPv4
		if family == IPv6 {
			wanted = discoveryv1.AddressTypeIPv6
		}
		if name != "" && s.AddressType == wanted {
			bySvc[s.Namespace+"/"+name] = append(bySvc[s.Namespace+"/"+name], s)
		}
	}
	table := Table{Family: family}
	for _, svc := range services {
		clusterIP, ok := clusterIPOf(family, svc)
		if !ok {
			continue
		}
		base := routeOf(family, svc, clusterIP)
		slicesOf := bySvc[svc.Namespace+"/"+svc.Name]
		local := map[netip.Addr]bool{}
		for i := range svc.Spec.Ports {
			route := portRoute(base, &svc.Spec.Ports[i])
			chooseEndpoints(&route, node, slicesOf)
			for _, e := range route.Local {
				local[e.Addr()] = true
			}
			table.Routes = append(table.Routes, route)
		}
		if port := healthPort(svc); port != 0 {
			table.Health = append(table.Health, HealthPort{svc.Namespace, svc.Name, port, len(local)})
		}
	}
	slices.SortFunc(table.Routes, func(a, b Route) int {
		return cmp.Or(strings.Compare(a.Name(), b.Name()), cmp.Compare(a.Port, b.Port), strings.Compare(a.Protocol, b.Protocol))
	})
	slices.SortFunc(table.Health, func(a, b HealthPort) int { return cmp.Compare(a.Port, b.Port) })
	return table
}

// clusterIPOf is false for Services that have nothing to route: headless,
// ExternalName, of the other family, or another proxy's.
func clusterIPOf(family Family, svc *corev1.Service) (netip.Addr, bool) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return netip.Addr{}, false
	}
	if _, other := svc.Labels[serviceProxyName]; other {
		return netip.Addr{}, false
	}
	for _, text := range append(slices.Clone(svc.Spec.ClusterIPs), svc.Spec.ClusterIP) {
		if ip, err := netip.ParseAddr(text); err == nil && family.has(ip) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

func routeOf(family Family, svc *corev1.Service, clusterIP netip.Addr) Route {
	r := Route{Namespace: svc.Namespace, Service: svc.Name, ClusterIP: clusterIP}
	r.ExternalIPs = addrs(family, svc.Spec.ExternalIPs)
	for _, in := range svc.Status.LoadBalancer.Ingress {
		// In Proxy mode the balancer wants to see all traffic itself.
		if in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP {
			r.LoadBalancerIPs = append(r.LoadBalancerIPs, addrs(family, []string{in.IP})...)
		}
	}
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil && family.has(p.Addr()) {
			r.SourceRanges = append(r.SourceRanges, p.Masked())
		}
	}
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		r.Affinity = time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
		if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			r.Affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	r.InternalLocal = svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	r.ExternalLocal = svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	return r
}

func portRoute(r Route, p *corev1.ServicePort) Route {
	r.PortName, r.Port, r.NodePort = p.Name, uint16(p.Port), uint16(p.NodePort)
	r.Protocol = "tcp"
	if p.Protocol != "" {
		r.Protocol = strings.ToLower(string(p.Protocol))
	}
	return r
}

func healthPort(svc *corev1.Service) uint16 {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	return uint16(svc.Spec.HealthCheckNodePort)
}

func addrs(family Family, texts []string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil && family.has(a) {
			all = append(all, a)
		}
	}
	return all
}
