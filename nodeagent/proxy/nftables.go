package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Names and the mark are upstream's: see the package comment.
const (
	nftTable       = "kube-proxy"
	masqueradeMark = 0x4000
)

// nftables renders routes into one nftables table per family. A connection
// costs one lookup in a map by address, protocol and port, however many
// Services there are.
type nftables struct {
	tools       tools
	clusterCIDR map[Family]netip.Prefix
	applied     map[Family]*nftRules // nil: unknown, so replace all
}

func newNFTables(t tools, clusterCIDR map[Family]netip.Prefix) *nftables {
	return &nftables{tools: t, clusterCIDR: clusterCIDR, applied: map[Family]*nftRules{}}
}

func (n *nftables) name() string { return "nftables" }

// apply makes the kernel's rules those of the table, in one transaction.
func (n *nftables) apply(ctx context.Context, table Table) error {
	rules := nftRender(table, n.clusterCIDR[table.Family])
	text := rules.replace(table.Family)
	if old := n.applied[table.Family]; old != nil {
		text = rules.changes(table.Family, old)
	}
	if text == "" {
		return nil
	}
	n.applied[table.Family] = nil // unknown until it is known to have worked
	if _, err := n.tools.run(ctx, text, "nft", "-f", "-"); err != nil {
		return fmt.Errorf("program nftables: %w", err)
	}
	n.applied[table.Family] = rules
	return nil
}

// intact tells whether somebody has removed our rules.
func (n *nftables) intact(ctx context.Context) bool {
	for family, rules := range n.applied {
		if rules == nil {
			continue
		}
		if _, err := n.tools.run(ctx, "", "nft", "list", "chain", string(family), nftTable, "nat-prerouting"); err != nil {
			return false
		}
	}
	return true
}

// forget makes the next apply replace everything.
func (n *nftables) forget() { clear(n.applied) }

func (n *nftables) cleanup(ctx context.Context) error {
	n.forget()
	for _, family := range []Family{IPv4, IPv6} {
		// Adding first makes deleting succeed when there is none.
		text := fmt.Sprintf("add table %[1]s %[2]s\ndelete table %[1]s %[2]s\n", family, nftTable)
		if _, err := n.tools.run(ctx, text, "nft", "-f", "-"); err != nil {
			return fmt.Errorf("remove nftables rules: %w", err)
		}
	}
	return nil
}

// nftRender turns routes into sets and chains.
func nftRender(table Table, clusterCIDR netip.Prefix) *nftRules {
	b := &nftBuilder{rules: newNFTRules(), family: table.Family, cidr: clusterCIDR}
	b.frame()
	for i := range table.Routes {
		b.route(&table.Routes[i])
	}
	return b.rules
}

// nftBuilder collects the rules of one family.
type nftBuilder struct {
	rules  *nftRules
	family Family
	cidr   netip.Prefix
}

// frame is what does not depend on routes: the hooks, and the maps that routes
// fill in.
func (b *nftBuilder) frame() {
	ip, addr, loopback := string(b.family), "ipv4_addr", "127.0.0.0/8"
	if b.family == IPv6 {
		addr, loopback = "ipv6_addr", "::1"
	}
	byAddress := fmt.Sprintf("type %s . inet_proto . inet_service : verdict ;", addr)
	byPort := "type inet_proto . inet_service : verdict ;"
	b.rules.addSet("service-ips", true, byAddress)
	b.rules.addSet("service-nodeports", true, byPort)
	b.rules.addSet("no-endpoint-services", true, byAddress)
	b.rules.addSet("no-endpoint-nodeports", true, byPort)
	b.rules.addSet("cluster-ips", false, fmt.Sprintf("type %s ;", addr))
	b.rules.addSet("hairpin-connections", false, fmt.Sprintf("type %s . %s ;", addr, addr))

	toAddress := ip + " daddr . meta l4proto . th dport vmap @"
	toNode := fmt.Sprintf("fib daddr type local %s daddr != %s meta l4proto . th dport vmap @", ip, loopback)
	b.rules.addBase("nat-prerouting", "type nat hook prerouting priority -100 ;", "jump services")
	b.rules.addBase("nat-output", "type nat hook output priority -100 ;", "jump services")
	b.rules.addBase("nat-postrouting", "type nat hook postrouting priority 100 ;", "jump masquerading")
	for _, hook := range []string{"input", "forward", "output"} {
		b.rules.addBase("filter-"+hook, fmt.Sprintf("type filter hook %s priority 0 ;", hook), "ct state new jump refusals")
	}
	b.rules.addChain("services", toAddress+"service-ips", toNode+"service-nodeports")
	b.rules.addChain("mark-for-masquerade", fmt.Sprintf("meta mark set meta mark or %#x", masqueradeMark))
	b.rules.addChain("masquerading",
		fmt.Sprintf("ct status dnat %s saddr . %s daddr @hairpin-connections masquerade fully-random", ip, ip),
		fmt.Sprintf("meta mark and %#x == 0 return", masqueradeMark),
		fmt.Sprintf("meta mark set meta mark xor %#x", masqueradeMark),
		"masquerade fully-random")
	// What is addressed to a Service and was not redirected to an endpoint has
	// nowhere to go.
	b.rules.addChain("refusals", toAddress+"no-endpoint-services", toNode+"no-endpoint-nodeports", ip+" daddr @cluster-ips goto reject-chain")
	b.rules.addChain("reject-chain", "reject")
}

func (b *nftBuilder) route(r *Route) {
	id := nftID(r)
	b.rules.addElement("cluster-ips", r.ClusterIP.String(), "")
	internal := b.endpointsChain("service-"+id, r, r.Internal())
	b.lead("service-ips", "no-endpoint-services", b.key(r.ClusterIP, r.Protocol, r.Port), internal, r)

	outside := r.outside()
	if len(outside) == 0 && r.NodePort == 0 {
		return
	}
	external := b.externalChain(id, r)
	for _, ip := range r.ExternalIPs {
		b.lead("service-ips", "no-endpoint-services", b.key(ip, r.Protocol, r.Port), external, r)
	}
	balanced := external
	if external != "" && len(r.SourceRanges) > 0 {
		balanced = "firewall-" + id
		b.rules.addChain(balanced, fmt.Sprintf("%s saddr != { %s } drop", b.family, joined(r.SourceRanges)), "goto "+external)
	}
	for _, ip := range r.LoadBalancerIPs {
		b.lead("service-ips", "no-endpoint-services", b.key(ip, r.Protocol, r.Port), balanced, r)
	}
	if r.NodePort != 0 {
		b.lead("service-nodeports", "no-endpoint-nodeports", fmt.Sprintf("%s . %d", r.Protocol, r.NodePort), external, r)
	}
}

// lead enters a destination either among the served ones or among the refused.
func (b *nftBuilder) lead(served, refused, key, chain string, r *Route) {
	if chain != "" {
		b.rules.addElement(served, key, "goto "+chain)
		return
	}
	verdict := "goto reject-chain"
	if r.Reachable {
		verdict = "drop" // the policy keeps traffic on this node, and nothing is here
	}
	b.rules.addElement(refused, key, verdict)
}

func (b *nftBuilder) key(ip netip.Addr, protocol string, port uint16) string {
	return fmt.Sprintf("%s . %s . %d", ip, protocol, port)
}

// externalChain is where traffic to addresses outside of the cluster's own goes;
// "" when there is nowhere.
func (b *nftBuilder) externalChain(id string, r *Route) string {
	name := "external-" + id
	if !r.ExternalLocal {
		cluster := b.endpointsChain(clusterChain(id, r), r, r.Cluster)
		if cluster == "" {
			return ""
		}
		b.rules.addChain(name, "jump mark-for-masquerade", "goto "+cluster)
		return name
	}
	if !r.Reachable {
		return ""
	}
	// Pods and the node itself are not outside: they reach all endpoints.
	var rules []string
	if cluster := b.endpointsChain(clusterChain(id, r), r, r.Cluster); cluster != "" {
		if b.cidr.IsValid() {
			rules = append(rules, fmt.Sprintf("%s saddr %s goto %s", b.family, b.cidr, cluster))
		}
		rules = append(rules, "fib saddr type local jump mark-for-masquerade", "fib saddr type local goto "+cluster)
	}
	if local := b.endpointsChain("local-"+id, r, r.Local); local != "" {
		rules = append(rules, "goto "+local)
	} else {
		rules = append(rules, "drop")
	}
	b.rules.addChain(name, rules...)
	return name
}

// clusterChain names the chain that leads to all endpoints. It is the Service's
// own unless that one keeps to the node.
func clusterChain(id string, r *Route) string {
	if r.InternalLocal {
		return "cluster-" + id
	}
	return "service-" + id
}

// endpointsChain spreads connections evenly over endpoints; "" without any.
func (b *nftBuilder) endpointsChain(name string, r *Route, endpoints []netip.AddrPort) string {
	if len(endpoints) == 0 {
		return ""
	}
	if b.rules.hasChain(name) {
		return name
	}
	var rules []string
	if b.cidr.IsValid() {
		// Who calls from outside the pods' network would not be answered
		// through this node.
		rules = append(rules, fmt.Sprintf("%s daddr %s %s saddr != %s jump mark-for-masquerade", b.family, r.ClusterIP, b.family, b.cidr))
	}
	for _, e := range endpoints {
		b.rules.addElement("hairpin-connections", fmt.Sprintf("%s . %s", e.Addr(), e.Addr()), "")
	}
	if r.Affinity > 0 {
		rules = append(rules, b.sticky(r, endpoints)...)
	} else {
		rules = append(rules, b.spread(r, endpoints))
	}
	b.rules.addChain(name, rules...)
	return name
}

func (b *nftBuilder) spread(r *Route, endpoints []netip.AddrPort) string {
	if len(endpoints) == 1 {
		return fmt.Sprintf("meta l4proto %s dnat to %s", r.Protocol, endpoints[0])
	}
	var choices []string
	for i, e := range endpoints {
		choices = append(choices, fmt.Sprintf("%d : %s . %d", i, e.Addr(), e.Port()))
	}
	return fmt.Sprintf("meta l4proto %s dnat %s addr . port to numgen random mod %d map { %s }",
		r.Protocol, b.family, len(endpoints), strings.Join(choices, ", "))
}

// sticky keeps a client at its endpoint: each endpoint has a set of the clients
// that it served lately.
func (b *nftBuilder) sticky(r *Route, endpoints []netip.AddrPort) []string {
	addr := "ipv4_addr"
	if b.family == IPv6 {
		addr = "ipv6_addr"
	}
	var again, choices []string
	for i, e := range endpoints {
		id := nftEndpointID(r, e)
		clients, chain := "affinity-"+id, "endpoint-"+id
		if !b.rules.hasChain(chain) {
			b.rules.addSet(clients, false, fmt.Sprintf("type %s ; flags dynamic,timeout ; timeout %ds ;", addr, int(r.Affinity/time.Second)))
			b.rules.addChain(chain,
				fmt.Sprintf("update @%s { %s saddr }", clients, b.family),
				fmt.Sprintf("meta l4proto %s dnat to %s", r.Protocol, e))
		}
		again = append(again, fmt.Sprintf("%s saddr @%s goto %s", b.family, clients, chain))
		choices = append(choices, fmt.Sprintf("%d : goto %s", i, chain))
	}
	return append(again, fmt.Sprintf("numgen random mod %d vmap { %s }", len(endpoints), strings.Join(choices, ", ")))
}

func joined(prefixes []netip.Prefix) string {
	var all []string
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return strings.Join(all, ", ")
}

// nftID names a route in chains: a hash that makes it unique, and words that
// make it readable, cut to what the kernel allows.
func nftID(r *Route) string {
	return cut(hashed(r.Name(), r.Protocol)[:8] + "/" + r.Namespace + "/" + r.Service + "/" + r.Protocol + "/" + r.PortName)
}

func nftEndpointID(r *Route, e netip.AddrPort) string {
	at := strings.NewReplacer(":", ".", "[", "", "]", "").Replace(e.String())
	return cut(hashed(r.Name(), r.Protocol, e.String())[:8] + "/" + r.Namespace + "/" + r.Service + "/" + r.Protocol + "/" + r.PortName + "/" + at)
}

func cut(name string) string { return name[:min(len(name), 100)] }

// hashed gives 52 letters and digits. Parts are kept apart, so that no two lists
// of parts run together.
func hashed(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
}
