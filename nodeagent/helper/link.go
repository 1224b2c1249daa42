package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// pair is a pod's link to its node. The pod end has the pod's address alone
// (/32) and sends everything to the gateway; the host end has the gateway's
// address, which all host ends share, and a route to the pod.
type pair struct {
	host, pod      string // interface names
	netns          string // path of the pod's network namespace
	podIP, gateway net.IP
	mtu            int
}

// hostInterface names the host end after the pod, so that it is found again
// without any record.
func hostInterface(container, ifName string) string {
	sum := sha256.Sum256([]byte(container + "\x00" + ifName))
	return "veth" + hex.EncodeToString(sum[:4])
}

// hardwareAddress derives a locally administered address from an IP address, so
// that both ends know each other's without asking.
func hardwareAddress(ip net.IP) net.HardwareAddr {
	return append(net.HardwareAddr{0x0a, 0x58}, ip.To4()...)
}

// create makes the pair with its far end already inside the pod's namespace and
// brings both ends up. All of it is netlink on two sockets; no thread changes
// its namespace.
func (p pair) create() ([]*current.Interface, error) {
	ns, err := netns.GetFromPath(p.netns)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", p.netns, err)
	}
	defer ns.Close()
	inPod, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink in %s: %w", p.netns, err)
	}
	defer inPod.Close()

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = p.host, p.mtu, hardwareAddress(p.gateway)
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = p.pod, netlink.NsFd(ns)
	veth.PeerMTU, veth.PeerHardwareAddr = uint32(p.mtu), hardwareAddress(p.podIP)
	if err := netlink.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("create interface %s: %w", p.host, err)
	}
	if err := p.configure(inPod); err != nil {
		return nil, errors.Join(err, deleteLink(p.host))
	}
	return []*current.Interface{
		{Name: p.host, Mac: hardwareAddress(p.gateway).String()},
		{Name: p.pod, Mac: hardwareAddress(p.podIP).String(), Sandbox: p.netns},
	}, nil
}

func (p pair) configure(inPod *netlink.Handle) error {
	loopback, err := inPod.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the pod's loopback: %w", err)
	}
	if err := inPod.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("bring up the pod's loopback: %w", err)
	}
	host, err := netlink.LinkByName(p.host)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", p.host, err)
	}
	pod, err := inPod.LinkByName(p.pod)
	if err != nil {
		return fmt.Errorf("find interface %s in the pod: %w", p.pod, err)
	}
	// The pod end first: a route on the host must not lead to an interface that
	// is not up.
	if err := p.configurePod(inPod, pod); err != nil {
		return fmt.Errorf("configure interface %s in the pod: %w", p.pod, err)
	}
	if err := p.configureHost(host); err != nil {
		return fmt.Errorf("configure interface %s: %w", p.host, err)
	}
	return nil
}

func (p pair) configurePod(h *netlink.Handle, link netlink.Link) error {
	index := link.Attrs().Index
	if err := h.AddrAdd(link, &netlink.Addr{IPNet: single(p.podIP)}); err != nil {
		return err
	}
	if err := h.LinkSetUp(link); err != nil {
		return err
	}
	if err := h.NeighSet(neighbour(index, p.gateway)); err != nil {
		return err
	}
	if err := h.RouteAdd(&netlink.Route{LinkIndex: index, Dst: single(p.gateway), Scope: netlink.SCOPE_LINK}); err != nil {
		return err
	}
	return h.RouteAdd(&netlink.Route{LinkIndex: index, Gw: p.gateway})
}

func (p pair) configureHost(link netlink.Link) error {
	index := link.Attrs().Index
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: single(p.gateway), Flags: unix.IFA_F_NOPREFIXROUTE}); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	if err := netlink.NeighSet(neighbour(index, p.podIP)); err != nil {
		return err
	}
	// Replace, not add: a route left over from an earlier owner of this address
	// must not win.
	return netlink.RouteReplace(&netlink.Route{LinkIndex: index, Dst: single(p.podIP), Scope: netlink.SCOPE_LINK, Src: p.gateway})
}

func single(ip net.IP) *net.IPNet { return &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)} }

func neighbour(index int, ip net.IP) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: hardwareAddress(ip)}
}

// deleteLink removes an interface, and with it its peer and its routes.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

// checkPair verifies that both ends exist and that the pod holds its address.
func checkPair(host, nsPath, ifName string, want net.IP) error {
	if _, err := netlink.LinkByName(host); err != nil {
		return fmt.Errorf("interface %s: %w", host, err)
	}
	ns, err := netns.GetFromPath(nsPath)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", nsPath, err)
	}
	defer ns.Close()
	inPod, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in %s: %w", nsPath, err)
	}
	defer inPod.Close()
	link, err := inPod.LinkByName(ifName)
	if err != nil {
		return fmt.Errorf("interface %s in the pod: %w", ifName, err)
	}
	addrs, err := inPod.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("addresses of %s in the pod: %w", ifName, err)
	}
	for _, a := range addrs {
		if a.IP.Equal(want) {
			return nil
		}
	}
	return fmt.Errorf("interface %s in the pod does not have the address %s", ifName, want)
}

func enableForwarding() error { return setSysctl("net/ipv4/ip_forward", "1") }

// setSysctl writes only what differs, since /proc/sys may be read-only with the
// right value already in it.
func setSysctl(name, value string) error {
	path := filepath.Join("/proc/sys", name)
	have, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(have)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl %s: %w", name, err)
	}
	return nil
}
