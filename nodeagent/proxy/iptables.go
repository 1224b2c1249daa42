package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The chains of upstream's iptables mode.
const (
	iptServices    = "KUBE-SERVICES"
	iptNodePorts   = "KUBE-NODEPORTS"
	iptPostrouting = "KUBE-POSTROUTING"
	iptMark        = "KUBE-MARK-MASQ"
	iptForward     = "KUBE-FORWARD"
	iptFirewall    = "KUBE-PROXY-FIREWALL"
)

// iptJump is a rule in one of the kernel's chains that leads into ours.
type iptJump struct {
	table, from, to string
	args            []string
}

// iptJumps are all ways into our chains. Each is inserted at the top, so the last
// one is passed first: the firewall must be, for iptForward accepts. Only new
// connections need be looked at in the filter table.
func iptJumps() []iptJump {
	isNew := []string{"-m", "conntrack", "--ctstate", "NEW"}
	return []iptJump{
		{"nat", "PREROUTING", iptServices, nil},
		{"nat", "OUTPUT", iptServices, nil},
		{"nat", "POSTROUTING", iptPostrouting, nil},
		{"filter", "FORWARD", iptForward, nil},
		{"filter", "INPUT", iptServices, isNew},
		{"filter", "FORWARD", iptServices, isNew},
		{"filter", "OUTPUT", iptServices, isNew},
		{"filter", "INPUT", iptFirewall, isNew},
		{"filter", "FORWARD", iptFirewall, isNew},
		{"filter", "OUTPUT", iptFirewall, isNew},
	}
}

// iptables renders routes into upstream's chains: one for each Service port,
// one for each endpoint.
type iptables struct {
	tools       tools
	clusterCIDR map[Family]netip.Prefix
	applied     map[Family]iptRules
}

func newIPTables(t tools, clusterCIDR map[Family]netip.Prefix) *iptables {
	return &iptables{tools: t, clusterCIDR: clusterCIDR, applied: map[Family]iptRules{}}
}

func (i *iptables) name() string { return "iptables" }

func iptProgram(f Family) string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// apply makes the kernel's rules those of the table: one transaction for each
// of nat and filter.
func (i *iptables) apply(ctx context.Context, table Table) error {
	rules := iptRender(table, i.clusterCIDR[table.Family])
	old, known := i.applied[table.Family]
	program := iptProgram(table.Family)
	if !known {
		found, err := i.foreign(ctx, program)
		if err != nil {
			return err
		}
		old = found
	}
	delete(i.applied, table.Family)
	if text := rules.changes(old); text != "" {
		if _, err := i.tools.run(ctx, text, program+"-restore", "-w", "5", "--noflush"); err != nil {
			return fmt.Errorf("program iptables: %w", err)
		}
	}
	if !known {
		if err := i.hook(ctx, program); err != nil {
			return err
		}
	}
	i.applied[table.Family] = rules
	return nil
}

// foreign lists chains that an earlier proxy left, as chains of unknown content,
// so that those not wanted any more are removed and the others are rewritten.
func (i *iptables) foreign(ctx context.Context, program string) (iptRules, error) {
	old := newIPTRules()
	for name, chains := range old {
		listing, err := i.tools.run(ctx, "", program+"-save", "-t", name)
		if err != nil {
			return nil, fmt.Errorf("read iptables: %w", err)
		}
		for line := range strings.Lines(listing) {
			if chain, ok := strings.CutPrefix(strings.Fields(line + " .")[0], ":KUBE-"); ok && ours("KUBE-"+chain) {
				chains["KUBE-"+chain] = []string{"# unknown"}
			}
		}
	}
	return old, nil
}

// ours tells the proxy's chains from those that a node agent makes.
func ours(chain string) bool {
	for _, prefix := range []string{iptServices, iptNodePorts, iptPostrouting, iptMark, iptForward, iptFirewall, "KUBE-EXTERNAL-SERVICES", "KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-", "KUBE-XLB-"} {
		if strings.HasPrefix(chain, prefix) {
			return true
		}
	}
	return false
}

// hook leads the kernel's chains into ours, before what others have put there.
func (i *iptables) hook(ctx context.Context, program string) error {
	for _, j := range iptJumps() {
		rule := append(append([]string{}, j.args...), "-m", "comment", "--comment", "kubernetes service routing", "-j", j.to)
		if _, err := i.tools.run(ctx, "", program, slices.Concat([]string{"-w", "5", "-t", j.table, "-C", j.from}, rule)...); err == nil {
			continue
		}
		if _, err := i.tools.run(ctx, "", program, slices.Concat([]string{"-w", "5", "-t", j.table, "-I", j.from}, rule)...); err != nil {
			return fmt.Errorf("hook into %s: %w", j.from, err)
		}
	}
	return nil
}

func (i *iptables) intact(ctx context.Context) bool {
	for family := range i.applied {
		for _, j := range iptJumps()[:2] {
			rule := append(append([]string{"-w", "5", "-t", j.table, "-C", j.from}, j.args...), "-m", "comment", "--comment", "kubernetes service routing", "-j", j.to)
			if _, err := i.tools.run(ctx, "", iptProgram(family), rule...); err != nil {
				return false
			}
		}
	}
	return true
}

func (i *iptables) forget() { clear(i.applied) }

func (i *iptables) cleanup(ctx context.Context) error {
	i.forget()
	for _, family := range []Family{IPv4, IPv6} {
		program := iptProgram(family)
		if !i.tools.has(program) {
			continue
		}
		old, err := i.foreign(ctx, program)
		if err != nil {
			return fmt.Errorf("remove iptables rules: %w", err)
		}
		for _, j := range iptJumps() {
			if _, there := old[j.table][j.to]; !there {
				continue
			}
			rule := append(append([]string{"-w", "5", "-t", j.table, "-D", j.from}, j.args...), "-m", "comment", "--comment", "kubernetes service routing", "-j", j.to)
			// It may not be there; deleting the chain would then succeed, and
			// else say why not.
			_, _ = i.tools.run(ctx, "", program, rule...)
		}
		if text := newIPTRules().changes(old); text != "" {
			if _, err := i.tools.run(ctx, text, program+"-restore", "-w", "5", "--noflush"); err != nil {
				return fmt.Errorf("remove iptables rules: %w", err)
			}
		}
	}
	return nil
}

// iptRules is the content of our chains, by table and chain.
type iptRules map[string]map[string][]string

func newIPTRules() iptRules {
	return iptRules{"nat": {}, "filter": {}}
}

func (r iptRules) add(table, chain string, format string, args ...any) {
	if rule := fmt.Sprintf(format, args...); rule != "" {
		r[table][chain] = append(r[table][chain], rule)
	} else if r[table][chain] == nil {
		r[table][chain] = []string{}
	}
}

// changes is the input to iptables-restore that leads from old to r. Naming a
// chain empties it, so chains without changes are not named.
func (r iptRules) changes(old iptRules) string {
	var out strings.Builder
	for _, table := range []string{"nat", "filter"} {
		var names, body, gone strings.Builder
		for _, chain := range sorted(r[table]) {
			before, was := old[table][chain]
			if was && slices.Equal(before, r[table][chain]) {
				continue
			}
			fmt.Fprintf(&names, ":%s - [0:0]\n", chain)
			for _, rule := range r[table][chain] {
				fmt.Fprintf(&body, "-A %s %s\n", chain, rule)
			}
		}
		for _, chain := range sorted(old[table]) {
			if _, still := r[table][chain]; !still {
				fmt.Fprintf(&names, ":%s - [0:0]\n", chain)
				fmt.Fprintf(&gone, "-X %s\n", chain)
			}
		}
		if names.Len() > 0 {
			fmt.Fprintf(&out, "*%s\n%s%s%sCOMMIT\n", table, names.String(), body.String(), gone.String())
		}
	}
	return out.String()
}

// iptRender turns routes into chains.
func iptRender(table Table, clusterCIDR netip.Prefix) iptRules {
	b := &iptBuilder{rules: newIPTRules(), cidr: clusterCIDR}
	b.frame()
	for i := range table.Routes {
		b.route(&table.Routes[i])
	}
	loopback := "127.0.0.0/8"
	if table.Family == IPv6 {
		loopback = "::1/128"
	}
	for _, t := range []string{"nat", "filter"} {
		b.rules.add(t, iptServices, `-m comment --comment "node ports; must be the last rule" ! -d %s -m addrtype --dst-type LOCAL -j %s`, loopback, iptNodePorts)
	}
	return b.rules
}

type iptBuilder struct {
	rules iptRules
	cidr  netip.Prefix
}

func (b *iptBuilder) frame() {
	nat, filter := "nat", "filter"
	for _, chain := range []string{iptServices, iptNodePorts} {
		b.rules.add(nat, chain, "")
		b.rules.add(filter, chain, "")
	}
	b.rules.add(filter, iptFirewall, "")
	b.rules.add(nat, iptMark, "-j MARK --or-mark %#x", masqueradeMark)
	b.rules.add(nat, iptPostrouting, "-m mark ! --mark %#[1]x/%#[1]x -j RETURN", masqueradeMark)
	b.rules.add(nat, iptPostrouting, "-j MARK --xor-mark %#x", masqueradeMark)
	b.rules.add(nat, iptPostrouting, "-j MASQUERADE --random-fully")
	b.rules.add(filter, iptForward, "-m conntrack --ctstate INVALID -j DROP")
	b.rules.add(filter, iptForward, `-m comment --comment "kubernetes forwarding rules" -m mark --mark %#[1]x/%#[1]x -j ACCEPT`, masqueradeMark)
	b.rules.add(filter, iptForward, `-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`)
}

// iptPath is where one kind of traffic of a route goes: a chain, or a verdict.
type iptPath struct{ chain, refuse string }

func (b *iptBuilder) route(r *Route) {
	id := hashed(r.Name(), r.Protocol)[:16]
	internal := b.path(r, b.endpointsChain("KUBE-SVC-", id, r, r.Cluster))
	if r.InternalLocal {
		internal = b.path(r, b.endpointsChain("KUBE-SVL-", id, r, r.Local))
	}
	b.arrive(r, r.ClusterIP, "cluster IP", internal)

	if len(r.outside()) == 0 && r.NodePort == 0 {
		return
	}
	external := b.path(r, b.externalChain(id, r))
	for _, ip := range r.ExternalIPs {
		b.arrive(r, ip, "external IP", external)
	}
	for _, ip := range r.LoadBalancerIPs {
		b.arrive(r, ip, "loadbalancer IP", external)
		b.firewall(r, ip)
	}
	if r.NodePort == 0 {
		return
	}
	match := fmt.Sprintf(`-m comment --comment "%s" -p %s -m %s --dport %d`, r.Name(), r.Protocol, r.Protocol, r.NodePort)
	if external.chain != "" {
		b.rules.add("nat", iptNodePorts, "%s -j %s", match, external.chain)
	} else {
		b.rules.add("filter", iptNodePorts, "%s -j %s", match, external.refuse)
	}
}

func (b *iptBuilder) path(r *Route, chain string) iptPath {
	if chain != "" {
		return iptPath{chain: chain}
	}
	if r.Reachable {
		return iptPath{refuse: "DROP"}
	}
	return iptPath{refuse: "REJECT"}
}

func (b *iptBuilder) single(ip netip.Addr) string { return netip.PrefixFrom(ip, ip.BitLen()).String() }

func (b *iptBuilder) arrive(r *Route, ip netip.Addr, what string, to iptPath) {
	match := fmt.Sprintf(`-m comment --comment "%s %s" -d %s -p %s -m %s --dport %d`, r.Name(), what, b.single(ip), r.Protocol, r.Protocol, r.Port)
	if to.chain == "" {
		b.rules.add("filter", iptServices, "%s -j %s", match, to.refuse)
		return
	}
	b.rules.add("nat", iptServices, "%s -j %s", match, to.chain)
}

// firewall drops what may not use a load balancer's address. It looks at the
// destination as the client gave it, which conntrack remembers.
func (b *iptBuilder) firewall(r *Route, ip netip.Addr) {
	if len(r.SourceRanges) == 0 {
		return
	}
	id := "KUBE-FW-" + hashed(r.Name(), r.Protocol)[:16]
	if _, made := b.rules["filter"][id]; !made {
		for _, p := range r.SourceRanges {
			b.rules.add("filter", id, "-s %s -j RETURN", p)
		}
		b.rules.add("filter", id, "-j DROP")
	}
	b.rules.add("filter", iptFirewall, `-m comment --comment "%s loadbalancer IP" -p %s -m conntrack --ctorigdst %s --ctorigdstport %d -j %s`,
		r.Name(), r.Protocol, ip, r.Port, id)
}

func (b *iptBuilder) externalChain(id string, r *Route) string {
	if !r.Reachable {
		return ""
	}
	name := "KUBE-EXT-" + id
	if !r.ExternalLocal {
		cluster := b.endpointsChain("KUBE-SVC-", id, r, r.Cluster)
		if cluster == "" {
			return ""
		}
		b.rules.add("nat", name, "-j %s", iptMark)
		b.rules.add("nat", name, "-j %s", cluster)
		return name
	}
	b.rules.add("nat", name, "")
	if cluster := b.endpointsChain("KUBE-SVC-", id, r, r.Cluster); cluster != "" {
		if b.cidr.IsValid() {
			b.rules.add("nat", name, `-m comment --comment "pod traffic for %s external destinations" -s %s -j %s`, r.Name(), b.cidr, cluster)
		}
		b.rules.add("nat", name, "-m addrtype --src-type LOCAL -j %s", iptMark)
		b.rules.add("nat", name, "-m addrtype --src-type LOCAL -j %s", cluster)
	}
	if local := b.endpointsChain("KUBE-SVL-", id, r, r.Local); local != "" {
		b.rules.add("nat", name, "-j %s", local)
		return name
	}
	// Nothing here for those from outside: what falls through is dropped, not
	// answered.
	for _, ip := range r.outside() {
		b.rules.add("filter", iptServices, `-m comment --comment "%s has no local endpoints" -d %s -p %s -m %s --dport %d -j DROP`, r.Name(), b.single(ip), r.Protocol, r.Protocol, r.Port)
	}
	if r.NodePort != 0 {
		b.rules.add("filter", iptNodePorts, `-m comment --comment "%s has no local endpoints" -p %s -m %s --dport %d -j DROP`, r.Name(), r.Protocol, r.Protocol, r.NodePort)
	}
	return name
}

func (b *iptBuilder) endpointsChain(prefix, id string, r *Route, endpoints []netip.AddrPort) string {
	name := prefix + id
	if len(endpoints) == 0 {
		return ""
	}
	if _, made := b.rules["nat"][name]; made {
		return name
	}
	if b.cidr.IsValid() {
		b.rules.add("nat", name, `-m comment --comment "%s cluster IP" ! -s %s -d %s -p %s -m %s --dport %d -j %s`,
			r.Name(), b.cidr, b.single(r.ClusterIP), r.Protocol, r.Protocol, r.Port, iptMark)
	}
	chains := make([]string, len(endpoints))
	for n, e := range endpoints {
		chains[n] = b.endpointChain(r, e)
		if r.Affinity > 0 {
			b.rules.add("nat", name, `-m comment --comment "%s -> %s" -m recent --name %s --rcheck --seconds %d --reap -j %s`,
				r.Name(), e, chains[n], int(r.Affinity/time.Second), chains[n])
		}
	}
	for n, e := range endpoints {
		chance := ""
		if left := len(endpoints) - n; left > 1 {
			// Of those left, so that all come out even.
			chance = fmt.Sprintf("-m statistic --mode random --probability %.10f ", 1/float64(left))
		}
		b.rules.add("nat", name, `-m comment --comment "%s -> %s" %s-j %s`, r.Name(), e, chance, chains[n])
	}
	return name
}

func (b *iptBuilder) endpointChain(r *Route, e netip.AddrPort) string {
	name := "KUBE-SEP-" + hashed(r.Name(), r.Protocol, e.String())[:16]
	if _, made := b.rules["nat"][name]; made {
		return name
	}
	comment := fmt.Sprintf(`-m comment --comment "%s"`, r.Name())
	b.rules.add("nat", name, "%s -s %s -j %s", comment, b.single(e.Addr()), iptMark)
	remember := ""
	if r.Affinity > 0 {
		remember = fmt.Sprintf("-m recent --name %s --set ", name)
	}
	b.rules.add("nat", name, "%s %s-p %s -m %s -j DNAT --to-destination %s", comment, remember, r.Protocol, r.Protocol, e)
	return name
}
