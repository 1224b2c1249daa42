package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// Bridge joins the machines. This machine has the first address of their range
	// on it, and is their router.
	Bridge = "orrery0"
	// inside is the name of a machine's own interface.
	inside = "eth0"
	// table masquerades what the machines send to the world outside.
	table = "orrery-machines"
)

// Router is this machine's address in the machines' range.
func Router(network netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(network.Masked().Addr().Next(), network.Bits())
}

// SetUpNetwork makes the bridge, and lets the machines reach what this machine
// reaches. What is there already is left alone. Addresses of pods are known on
// all machines, so what goes to one keeps its source.
func SetUpNetwork(network, pods netip.Prefix) error {
	bridge, err := ensureBridge(Router(network).Addr())
	if err != nil {
		return fmt.Errorf("bridge %s: %w", Bridge, err)
	}
	if err := netlink.AddrReplace(bridge, &netlink.Addr{IPNet: ipNet(Router(network))}); err != nil {
		return fmt.Errorf("address %s of bridge %s: %w", Router(network), Bridge, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("bridge %s: %w", Bridge, err)
	}
	for name, value := range map[string]string{
		"ip_forward": "1",
		// Machines on the bridge are told nothing of shorter ways: their pods' packets
		// come back through it for a reason.
		"conf/" + Bridge + "/send_redirects": "0",
	} {
		path := "/proc/sys/net/ipv4/" + name
		if now, err := os.ReadFile(path); err == nil && string(now) == value+"\n" {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("kernel parameter net/ipv4/%s: %w", name, err)
		}
	}
	return masquerade(network, pods)
}

// ensureBridge makes the bridge with a hardware address of its own. Left alone it
// would take that of one of its links, and change it as machines come and go;
// the others would then send to nobody until they ask again.
func ensureBridge(router netip.Addr) (netlink.Link, error) {
	link, err := netlink.LinkByName(Bridge)
	if err == nil {
		return link, nil
	}
	if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = Bridge, append(net.HardwareAddr{0x0a, 0x58}, router.AsSlice()...)
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	return netlink.LinkByName(Bridge)
}

// masquerade gives what leaves the machines' range for the world outside this
// machine's address.
func masquerade(network, pods netip.Prefix) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	t := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	chain := conn.AddChain(&nftables.Chain{Table: t, Name: "postrouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	conn.FlushChain(chain)
	// Offsets of the addresses in an IPv4 header.
	const source, destination = 12, 16
	var rule []expr.Any
	rule = append(rule, address(source, network, expr.CmpOpEq)...)
	rule = append(rule, address(destination, network, expr.CmpOpNeq)...)
	rule = append(rule, address(destination, pods, expr.CmpOpNeq)...)
	conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: append(rule, &expr.Masq{FullyRandom: true})})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", table, err)
	}
	return nil
}

// address compares the address at an offset in the IPv4 header with a range.
func address(offset uint32, in netip.Prefix, op expr.CmpOp) []expr.Any {
	const register = unix.NFT_REG_1
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: net.CIDRMask(in.Bits(), 32), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: register, Data: in.Masked().Addr().AsSlice()},
	}
}

// RemoveNetwork undoes SetUpNetwork. The links of machines go with their
// namespaces.
func RemoveNetwork() error {
	if link, err := netlink.LinkByName(Bridge); err == nil {
		if err := netlink.LinkDel(link); err != nil {
			return fmt.Errorf("bridge %s: %w", Bridge, err)
		}
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("bridge %s: %w", Bridge, err)
	}
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("nftables table %s: %w", table, err)
	}
	return nil
}

// Connect links the machine whose first process has this id to the bridge. The
// interface appears in it complete: with address, up, and the way out.
func (m Machine) Connect(pid int, network netip.Prefix) error {
	if err := m.connect(pid, network); err != nil {
		return fmt.Errorf("network of machine %s: %w", m.Name, err)
	}
	return nil
}

func (m Machine) connect(pid int, network netip.Prefix) error {
	bridge, err := netlink.LinkByName(Bridge)
	if err != nil {
		return err
	}
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	there, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer there.Close()
	// One that was killed half-way may have left the link without its configuration.
	if _, err := there.LinkByName(inside); err == nil {
		return m.configure(there, network)
	}
	// The kernel takes the link of a machine that is gone away in its own time.
	if old, err := netlink.LinkByName(m.Link); err == nil {
		if err := netlink.LinkDel(old); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("interface %s: %w", m.Link, err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = m.Link, bridge.Attrs().Index
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = inside, netlink.NsFd(ns)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("interface %s: %w", m.Link, err)
	}
	return m.configure(there, network)
}

// configure sets both ends up; what is right already stays.
func (m Machine) configure(h *netlink.Handle, network netip.Prefix) error {
	here, err := netlink.LinkByName(m.Link)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(here); err != nil {
		return err
	}
	loopback, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(loopback); err != nil {
		return err
	}
	link, err := h.LinkByName(inside)
	if err != nil {
		return err
	}
	if err := h.AddrReplace(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(m.Addr, network.Bits()))}); err != nil {
		return err
	}
	if err := h.LinkSetUp(link); err != nil {
		return err
	}
	return h.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: Router(network).Addr().AsSlice()})
}

// AwaitNetwork waits in a machine until it is connected.
func AwaitNetwork(ctx context.Context) error {
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if routes, err := netlink.RouteList(nil, netlink.FAMILY_V4); err == nil && hasDefault(routes) {
			tick.Stop()
			return nil
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("nobody connected this machine to a network: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func hasDefault(routes []netlink.Route) bool {
	for _, r := range routes {
		if r.Gw != nil && (r.Dst == nil || r.Dst.IP.IsUnspecified()) {
			return true
		}
	}
	return false
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
