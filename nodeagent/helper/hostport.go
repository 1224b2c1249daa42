package main

import (
	"bytes"
	"fmt"
	"net"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hostPort is one entry of the CNI capability "portMappings".
type hostPort struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

func protocolNumber(name string) (byte, error) {
	switch strings.ToLower(name) {
	case "", "tcp":
		return unix.IPPROTO_TCP, nil
	case "udp":
		return unix.IPPROTO_UDP, nil
	case "sctp":
		return unix.IPPROTO_SCTP, nil
	}
	return 0, fmt.Errorf("host port: unknown protocol %q", name)
}

// word pads a value to the 32 bits that it takes in a concatenation.
func word(b ...byte) []byte { return append(b, make([]byte, 4-len(b))...) }

func port(p uint16) []byte { return word(binaryutil.BigEndian.PutUint16(p)...) }

// elements are what a pod's host ports put into the sets.
func (r rules) elements(ports []hostPort, pod net.IP) (map[*nftables.Set][]nftables.SetElement, error) {
	all := map[*nftables.Set][]nftables.SetElement{}
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		proto, err := protocolNumber(p.Protocol)
		if err != nil {
			return nil, err
		}
		key := bytes.Join([][]byte{word(proto), port(p.HostPort)}, nil)
		set := r.ports
		if p.HostIP != "" {
			ip := net.ParseIP(p.HostIP)
			if ip == nil {
				return nil, fmt.Errorf("host port: %q is not an IP address", p.HostIP)
			}
			if ip.To4() == nil {
				continue // pods have IPv4 addresses only, so there is nothing to map to
			}
			if !ip.IsUnspecified() {
				set, key = r.ipPorts, append(bytes.Clone(ip.To4()), key...)
			}
		}
		all[set] = append(all[set], nftables.SetElement{Key: key, Val: append(bytes.Clone(pod), port(p.ContainerPort)...)})
	}
	if len(all) > 0 {
		all[r.hairpin] = []nftables.SetElement{{Key: append(bytes.Clone(pod), pod...)}}
	}
	return all, nil
}

func (r rules) addHostPorts(conn *nftables.Conn, ports []hostPort, pod net.IP) error {
	all, err := r.elements(ports, pod)
	if err != nil {
		return err
	}
	for set, elements := range all {
		if err := conn.SetAddElements(set, elements); err != nil {
			return fmt.Errorf("nftables set %s: %w", set.Name, err)
		}
	}
	return nil
}

// removeHostPorts removes whatever leads to a pod's address. It reads the sets
// rather than the pod's port list, which may have got lost.
func removeHostPorts(pod net.IP) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	r := newRules()
	found := false
	for _, set := range []*nftables.Set{r.ports, r.ipPorts, r.hairpin} {
		elements, err := conn.GetSetElements(set)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read nftables set %s: %w", set.Name, err)
		}
		var mine []nftables.SetElement
		for _, e := range elements {
			leads := e.Val
			if set == r.hairpin {
				leads = e.Key
			}
			if bytes.HasPrefix(leads, pod) {
				mine = append(mine, e)
			}
		}
		if len(mine) == 0 {
			continue
		}
		found = true
		if err := conn.SetDeleteElements(set, mine); err != nil {
			return fmt.Errorf("nftables set %s: %w", set.Name, err)
		}
	}
	if !found {
		return nil
	}
	if err := conn.Flush(); err != nil && !isMissing(err) {
		return fmt.Errorf("remove host ports: %w", err)
	}
	return forgetConnections(pod)
}

// forgetConnections drops the tracked UDP connections that lead to the pod.
// Without it a client that keeps sending would go on being sent to an address
// which nobody, or somebody else, has now.
func forgetConnections(pod net.IP) error {
	filter := &netlink.ConntrackFilter{}
	if err := filter.AddProtocol(unix.IPPROTO_UDP); err != nil {
		return err
	}
	if err := filter.AddIP(netlink.ConntrackReplySrcIP, pod); err != nil {
		return err
	}
	if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter); err != nil {
		return fmt.Errorf("forget UDP connections to %s: %w", pod, err)
	}
	return nil
}
