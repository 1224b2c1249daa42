package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the one nftables table of this plugin. Read it with
// `nft list table ip orrery-pods`.
const tableName = "orrery-pods"

// Registers of 32 bits. A concatenated key lies in consecutive ones.
const (
	reg0 = unix.NFT_REG32_00 + iota
	reg1
	reg2
)

// rules is the table with its sets, as one netlink transaction sees it.
type rules struct {
	table   *nftables.Table
	ports   *nftables.Set // protocol . port -> pod . port, for every local address
	ipPorts *nftables.Set // address . protocol . port -> pod . port
	hairpin *nftables.Set // pod . pod: a pod that calls itself through a host port
}

func newRules() rules {
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName}
	target := nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)
	return rules{
		table: t,
		ports: &nftables.Set{Table: t, Name: "hostports", IsMap: true, Concatenation: true, DataType: target,
			KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)},
		ipPorts: &nftables.Set{Table: t, Name: "hostports-of-address", IsMap: true, Concatenation: true, DataType: target,
			KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService)},
		hairpin: &nftables.Set{Table: t, Name: "hairpin", Concatenation: true,
			KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr)},
	}
}

// programRules puts the table in place, whatever was there, and adds the pod's
// host ports: one transaction. Elements of the sets survive it.
func programRules(n *network, pod net.IP, hostIf string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	r := newRules()
	conn.AddTable(r.table)
	for _, s := range []*nftables.Set{r.ports, r.ipPorts, r.hairpin} {
		if err := conn.AddSet(s, nil); err != nil {
			return fmt.Errorf("nftables set %s: %w", s.Name, err)
		}
	}
	for _, c := range r.chains(n) {
		conn.AddChain(c.chain)
		conn.FlushChain(c.chain)
		for _, exprs := range c.rules {
			conn.AddRule(&nftables.Rule{Table: r.table, Chain: c.chain, Exprs: exprs})
		}
	}
	if err := r.addHostPorts(conn, n.RuntimeConfig.PortMappings, pod); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("program nftables (masquerading and host ports): %w", err)
	}
	if len(n.RuntimeConfig.PortMappings) == 0 {
		return nil
	}
	// Lets answers to 127.0.0.1:hostPort find their way back. The chain
	// "martians" keeps pods from reaching the node's loopback through it.
	return setSysctl("net/ipv4/conf/"+hostIf+"/route_localnet", "1")
}

type chainRules struct {
	chain *nftables.Chain
	rules [][]expr.Any
}

func (r rules) chains(n *network) []chainRules {
	hook := func(name string, typ nftables.ChainType, h *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{Table: r.table, Name: name, Type: typ, Hooknum: h, Priority: &priority}
	}
	toPod := [][]expr.Any{
		concat(addressTo(reg0), []expr.Any{protocol(reg1), portTo(reg2)}, dnat(r.ipPorts)),
		concat(toLocalAddress(), []expr.Any{protocol(reg0), portTo(reg1)}, dnat(r.ports)),
	}
	_, loopback, _ := net.ParseCIDR("127.0.0.0/8")
	_, multicast, _ := net.ParseCIDR("224.0.0.0/4")
	return []chainRules{
		{hook("martians", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw), [][]expr.Any{
			concat(notLoopbackInterface(expr.MetaKeyIIFNAME), match(destination, loopback, true), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}),
		}},
		{hook("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest-5), toPod},
		{hook("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, *nftables.ChainPriorityNATDest-5), toPod},
		{hook("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource), [][]expr.Any{
			concat(match(source, loopback, true), notLoopbackInterface(expr.MetaKeyOIFNAME), masquerade()),
			concat([]expr.Any{address(source, reg0), address(destination, reg1)}, in(r.hairpin), masquerade()),
			concat(match(source, n.pods, true), match(destination, n.cluster, false), match(destination, multicast, false), masquerade()),
		}},
	}
}

// Offsets of the addresses in an IPv4 header.
const (
	source      = 12
	destination = 16
)

func address(offset, reg uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}
}

func addressTo(reg uint32) []expr.Any { return []expr.Any{address(destination, reg)} }

func protocol(reg uint32) expr.Any { return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg} }

func portTo(reg uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

func toLocalAddress() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: reg0, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg0, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

func match(offset uint32, cidr *net.IPNet, inside bool) []expr.Any {
	op := expr.CmpOpEq
	if !inside {
		op = expr.CmpOpNeq
	}
	return []expr.Any{
		address(offset, reg0),
		&expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: 4, Mask: cidr.Mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: reg0, Data: cidr.IP.To4()},
	}
}

// notLoopbackInterface compares an interface's name, of which the kernel knows
// 16 bytes, with "lo".
func notLoopbackInterface(key expr.MetaKey) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, "lo")
	return []expr.Any{
		&expr.Meta{Key: key, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: name},
	}
}

func in(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg0, SetName: s.Name, SetID: s.ID}}
}

func dnat(s *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: reg0, DestRegister: reg0, IsDestRegSet: true, SetName: s.Name, SetID: s.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: reg0, RegProtoMin: reg1, Specified: true},
	}
}

// masquerade picks source ports at random, which keeps two pods that call the
// same place at the same moment from colliding.
func masquerade() []expr.Any { return []expr.Any{&expr.Masq{FullyRandom: true}} }

func concat(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// isMissing tells that a table or set is not there, which for removing is as
// good as removed.
func isMissing(err error) bool { return errors.Is(err, unix.ENOENT) }
