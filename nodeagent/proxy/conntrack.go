package proxy

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// udpFlows are the places at which UDP traffic to Services arrives, with the
// endpoints that may serve it.
type udpFlows struct {
	byAddress map[netip.AddrPort]map[netip.AddrPort]bool
	byPort    map[uint16]map[netip.AddrPort]bool
}

func udpFlowsOf(table Table) udpFlows {
	u := udpFlows{byAddress: map[netip.AddrPort]map[netip.AddrPort]bool{}, byPort: map[uint16]map[netip.AddrPort]bool{}}
	for i := range table.Routes {
		r := &table.Routes[i]
		if r.Protocol != "udp" {
			continue
		}
		serve := func(lists ...[]netip.AddrPort) map[netip.AddrPort]bool {
			set := map[netip.AddrPort]bool{}
			for _, list := range lists {
				for _, e := range list {
					set[e] = true
				}
			}
			return set
		}
		u.byAddress[netip.AddrPortFrom(r.ClusterIP, r.Port)] = serve(r.Internal())
		outside := serve(r.External(), r.Cluster)
		for _, ip := range r.outside() {
			u.byAddress[netip.AddrPortFrom(ip, r.Port)] = outside
		}
		if r.NodePort != 0 {
			u.byPort[r.NodePort] = outside
		}
	}
	return u
}

// stale tells whether a tracked connection goes where its Service leads no more.
// to is where the client sent it, from is who answers. One that was let through
// before there were rules for it is answered by its own destination, and is
// stale too once there is somewhere to go.
func (u udpFlows) stale(to, from netip.AddrPort, local bool) bool {
	serving, ok := u.byAddress[to]
	if !ok && local {
		serving, ok = u.byPort[to.Port()]
	}
	return ok && !serving[from]
}

// forgetStale drops tracked UDP connections whose endpoint is gone. UDP has no
// end of connection: a client that keeps sending from one port would be sent to
// a dead endpoint for as long as it does. It returns how many went.
func forgetStale(table Table) (uint, error) {
	u := udpFlowsOf(table)
	if len(u.byAddress) == 0 {
		return 0, nil
	}
	family, ipFamily := netlink.InetFamily(unix.AF_INET), netlink.FAMILY_V4
	if table.Family == IPv6 {
		family, ipFamily = netlink.InetFamily(unix.AF_INET6), netlink.FAMILY_V6
	}
	here, err := netlink.AddrList(nil, ipFamily)
	if err != nil {
		return 0, fmt.Errorf("list the node's addresses: %w", err)
	}
	local := map[netip.Addr]bool{}
	for _, a := range here {
		local[addrOf(a.IP)] = true
	}
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, staleFilter{u, local})
	if err != nil {
		return n, fmt.Errorf("forget stale UDP connections: %w", err)
	}
	return n, nil
}

// staleFilter is udpFlows in the form that netlink's library asks.
type staleFilter struct {
	flows udpFlows
	local map[netip.Addr]bool
}

func (f staleFilter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to := netip.AddrPortFrom(addrOf(flow.Forward.DstIP), flow.Forward.DstPort)
	from := netip.AddrPortFrom(addrOf(flow.Reverse.SrcIP), flow.Reverse.SrcPort)
	return f.flows.stale(to, from, f.local[to.Addr()])
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
