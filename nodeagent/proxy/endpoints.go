package proxy

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is one address of a Service's port, with what choosing needs.
type endpoint struct {
	addr     netip.AddrPort
	ready    bool
	draining bool // serves still, though its pod is on its way out
	local    bool
	zones    []string // hints: whose clients it is meant for
	nodes    []string
}

// chooseEndpoints fills in a route's endpoint lists.
//
// Ready endpoints are taken; where there are none, those that still serve while
// they terminate, so that the last pods of a rollout lose no connection. The
// cluster-wide list is narrowed by the hints for topology; the node's own list
// is not.
func chooseEndpoints(r *Route, node Node, all []*discoveryv1.EndpointSlice) {
	endpoints := endpointsOf(r, node, all)
	ready := filter(endpoints, func(e endpoint) bool { return e.ready })
	r.Cluster = addresses(nearest(ready, node))
	if len(ready) == 0 {
		r.Cluster = addresses(filter(endpoints, func(e endpoint) bool { return e.draining }))
	}
	r.Reachable = len(r.Cluster) > 0
	r.Local = addresses(filter(ready, func(e endpoint) bool { return e.local }))
	if len(r.Local) == 0 {
		r.Local = addresses(filter(endpoints, func(e endpoint) bool { return e.draining && e.local }))
	}
	r.Reachable = r.Reachable || len(r.Local) > 0
}

func endpointsOf(r *Route, node Node, all []*discoveryv1.EndpointSlice) []endpoint {
	var found []endpoint
	for _, slice := range all {
		for _, port := range slice.Ports {
			name := ""
			if port.Name != nil {
				name = *port.Name
			}
			if name != r.PortName || port.Port == nil || *port.Port == 0 {
				continue
			}
			for i := range slice.Endpoints {
				if e, ok := endpointOf(&slice.Endpoints[i], uint16(*port.Port), node); ok {
					found = append(found, e)
				}
			}
		}
	}
	return found
}

func endpointOf(e *discoveryv1.Endpoint, port uint16, node Node) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		return endpoint{}, false
	}
	// More than the first address has no meaning in the API.
	ip, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return endpoint{}, false
	}
	c := e.Conditions
	ready := c.Ready == nil || *c.Ready
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	out := endpoint{
		addr:     netip.AddrPortFrom(ip, port),
		ready:    ready,
		draining: serving && c.Terminating != nil && *c.Terminating,
		local:    e.NodeName != nil && *e.NodeName == node.Name,
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.zones = append(out.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.nodes = append(out.nodes, n.Name)
		}
	}
	return out, true
}

// nearest follows the hints: endpoints for this node, else for this zone. Hints
// count only when every endpoint has one and some are for us: half a set of
// hints is one that is being written.
func nearest(ready []endpoint, node Node) []endpoint {
	if near := hinted(ready, node.Name, func(e endpoint) []string { return e.nodes }); near != nil {
		return near
	}
	if near := hinted(ready, node.Zone, func(e endpoint) []string { return e.zones }); near != nil {
		return near
	}
	return ready
}

func hinted(ready []endpoint, here string, hints func(endpoint) []string) []endpoint {
	if here == "" || slices.ContainsFunc(ready, func(e endpoint) bool { return len(hints(e)) == 0 }) {
		return nil
	}
	return filter(ready, func(e endpoint) bool { return slices.Contains(hints(e), here) })
}

func filter(all []endpoint, keep func(endpoint) bool) []endpoint {
	var kept []endpoint
	for _, e := range all {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// addresses sorts, and drops what two slices say both.
func addresses(all []endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range all {
		out = append(out, e.addr)
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}
