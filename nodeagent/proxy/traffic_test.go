package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// lab is a node with pods and a neighbour, each a network namespace.
type lab struct {
	t    *testing.T
	node ns.NetNS
	mode mode
}

func newNS(t *testing.T) ns.NetNS {
	t.Helper()
	made, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	in(t, made, func() error { return up("lo") })
	return made
}

func in(t *testing.T, where ns.NetNS, f func() error) {
	t.Helper()
	if err := where.Do(func(ns.NetNS) error { return f() }); err != nil {
		t.Fatal(err)
	}
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// join makes a namespace with one link to the node.
func (l lab) join(name, nodeAddr, addr string) ns.NetNS {
	l.t.Helper()
	other := newNS(l.t)
	in(l.t, l.node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(other.Fd())
		return errors.Join(netlink.LinkAdd(veth), address(name, nodeAddr), up(name))
	})
	in(l.t, other, func() error {
		gateway := netip.MustParsePrefix(nodeAddr).Addr().AsSlice()
		if err := errors.Join(address("eth0", addr), up("eth0")); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: gateway})
	})
	return other
}

func address(name, addr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, a)
}

// serve answers on TCP port 8080 and UDP port 5353 with its name and who asks.
func (l lab) serve(where ns.NetNS, name string) {
	l.t.Helper()
	in(l.t, where, func() error {
		listener, err := net.Listen("tcp4", ":8080")
		if err != nil {
			return err
		}
		packets, err := net.ListenPacket("udp4", ":5353")
		if err != nil {
			return err
		}
		l.t.Cleanup(func() { _ = listener.Close(); _ = packets.Close() })
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				fmt.Fprintf(c, "%s %s", name, host)
				_ = c.Close()
			}
		}()
		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := packets.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = packets.WriteTo([]byte(name), from)
			}
		}()
		return nil
	})
}

// call returns who answered, whom he saw, and what went wrong.
func (l lab) call(from ns.NetNS, to string) (who, seen string, err error) {
	l.t.Helper()
	in(l.t, from, func() error {
		var c net.Conn
		if c, err = net.DialTimeout("tcp4", to, 1500*time.Millisecond); err != nil {
			return nil
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		var text []byte
		if text, err = io.ReadAll(c); err == nil {
			who, seen, _ = strings.Cut(string(text), " ")
		}
		return nil
	})
	return who, seen, err
}

func (l lab) expect(story string, from ns.NetNS, to, who, seen string) {
	l.t.Helper()
	gotWho, gotSeen, err := l.call(from, to)
	if err != nil || gotWho != who || (seen != "" && gotSeen != seen) {
		l.t.Errorf("%s: %s answered %q seeing %q (%v), want %q seeing %q", story, to, gotWho, gotSeen, err, who, seen)
	}
}

func (l lab) apply(services []*corev1.Service, slices ...*discoveryv1.EndpointSlice) Table {
	l.t.Helper()
	table := Build(IPv4, Node{Name: "n1"}, services, slices)
	in(l.t, l.node, func() error { return l.mode.apply(context.Background(), table) })
	return table
}

func TestTraffic(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	cidr := map[Family]netip.Prefix{IPv4: netip.MustParsePrefix("10.244.0.0/16")}
	for _, m := range []mode{newNFTables(tools{}, cidr), newIPTables(tools{}, cidr)} {
		t.Run(m.name(), func(t *testing.T) {
			if program := map[string]string{"nftables": "nft", "iptables": "iptables-restore"}[m.name()]; !(tools{}).has(program) {
				t.Skip("needs " + program)
			}
			l := lab{t: t, node: newNS(t), mode: m}
			in(t, l.node, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
			testTraffic(t, l)
		})
	}
}

func testTraffic(t *testing.T, l lab) {
	a := l.join("a", "10.244.0.1/30", "10.244.0.2/30")
	b := l.join("b", "10.244.0.5/30", "10.244.0.6/30")
	client := l.join("c", "10.244.0.9/30", "10.244.0.10/30")
	outside := l.join("out", "192.168.77.1/24", "192.168.77.2/24")
	// The default route leads elsewhere, as it would; back to the client, and the
	// node would send redirects.
	l.join("world", "192.168.78.1/24", "192.168.78.2/24")
	in(t, l.node, func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 168, 78, 2)}) })
	l.serve(a, "a")
	l.serve(b, "b")

	node := func(port int32) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.Ports[0].NodePort = port }
	}
	services := []*corev1.Service{
		service("both", "10.96.0.10", node(30010)),
		service("self", "10.96.0.11", nil),
		service("empty", "10.96.0.12", node(30012)),
		service("sticky", "10.96.0.13", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
		service("near", "10.96.0.14", func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort = 30014
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.ExternalIPs = []string{"198.51.100.7"}
		}),
		service("far", "10.96.0.15", func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort = 30015
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}),
		service("closed", "10.96.0.16", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.8"}}
		}),
		service("open", "10.96.0.17", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"192.168.77.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.9"}}
		}),
		service("dns", "10.96.0.18", func(s *corev1.Service) {
			s.Spec.Ports[0] = corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolUDP, Port: 53}
		}),
	}
	on := func(svc string, endpoints ...string) *discoveryv1.EndpointSlice {
		return slice(svc, 8080, endpoints...)
	}
	const podA, podB = "10.244.0.2", "10.244.0.6"
	dns := func(pod string) *discoveryv1.EndpointSlice { return slice("dns", 5353, pod) }
	slices := []*discoveryv1.EndpointSlice{
		on("both", podA, podB), on("self", podA), on("sticky", podA, podB), on("near", podA+" here"), on("far", podB),
		on("closed", podA), on("open", podA),
	}
	l.apply(services, append(slices, dns(podA))...)

	t.Run("balance", func(t *testing.T) {
		count := map[string]int{}
		for range 60 {
			who, seen, err := l.call(client, "10.96.0.10:80")
			if err != nil || seen != "10.244.0.10" {
				t.Fatalf("answered by %q seeing %q: %v", who, seen, err)
			}
			count[who]++
		}
		if count["a"] < 15 || count["b"] < 15 {
			t.Errorf("60 connections went %v", count)
		}
	})
	t.Run("cluster address", func(t *testing.T) {
		l := lab{t, l.node, l.mode}
		l.expect("from the node", l.node, "10.96.0.11:80", "a", "")
		l.expect("from the pod itself", a, "10.96.0.11:80", "a", "")
		l.expect("from outside, through this node", outside, "10.96.0.11:80", "a", "10.244.0.1")
	})
	t.Run("node port", func(t *testing.T) {
		l := lab{t, l.node, l.mode}
		for name, from := range map[string]ns.NetNS{"outside": outside, "node": l.node, "pod": client} {
			if who, seen, err := l.call(from, "192.168.77.1:30010"); err != nil || seen == "192.168.77.2" {
				t.Errorf("from %s: answered by %q seeing %q: %v", name, who, seen, err)
			}
		}
		l.expect("on another address of the node", client, "10.244.0.9:30014", "a", "")
		l.expect("local policy keeps the source", outside, "192.168.77.1:30014", "a", "192.168.77.2")
		l.expect("external address", outside, "198.51.100.7:80", "a", "192.168.77.2")
		l.expect("local policy, pod here", client, "192.168.77.1:30015", "b", "10.244.0.10")
		l.expect("local policy, node itself", l.node, "192.168.77.1:30015", "b", "")
		if _, _, err := l.call(outside, "192.168.77.1:30015"); err == nil || !err.(net.Error).Timeout() {
			t.Errorf("local policy without local endpoints: %v, want silence", err)
		}
	})
	t.Run("no endpoints", func(t *testing.T) {
		for _, to := range []string{"10.96.0.12:80", "192.168.77.1:30012"} {
			for _, from := range []ns.NetNS{client, l.node, outside} {
				if _, _, err := l.call(from, to); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s: %v, want refused", to, err)
				}
			}
		}
	})
	t.Run("source ranges", func(t *testing.T) {
		l := lab{t, l.node, l.mode}
		l.expect("allowed", outside, "198.51.100.9:80", "a", "")
		if _, _, err := l.call(outside, "198.51.100.8:80"); err == nil || !err.(net.Error).Timeout() {
			t.Errorf("not allowed: %v, want silence", err)
		}
	})
	t.Run("affinity", func(t *testing.T) {
		first, _, err := l.call(client, "10.96.0.13:80")
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			if who, _, err := l.call(client, "10.96.0.13:80"); who != first {
				t.Fatalf("first %s, then %s (%v)", first, who, err)
			}
		}
	})
	t.Run("change", func(t *testing.T) {
		l := lab{t, l.node, l.mode}
		var conn net.Conn
		in(t, client, func() (err error) {
			conn, err = net.Dial("udp4", "10.96.0.18:53")
			return err
		})
		defer conn.Close()
		if got := ping(t, conn); got != "a" {
			t.Errorf("UDP answered by %q, want a", got)
		}
		slices[0] = on("both", podB)
		slices[2] = on("sticky", podB)
		table := l.apply(services[1:], append(slices[1:], dns(podB))...)
		in(t, l.node, func() error {
			n, err := forgetStale(table)
			if n != 1 {
				t.Errorf("%d stale UDP connections forgotten, want 1", n)
			}
			return err
		})
		if got := ping(t, conn); got != "b" {
			t.Errorf("UDP answered by %q after its endpoint went, want b", got)
		}
		l.expect("sticky, but its endpoint is gone", client, "10.96.0.13:80", "b", "")
		if _, _, err := l.call(client, "10.96.0.10:80"); err == nil {
			t.Error("a deleted Service still answers")
		}
		in(t, l.node, func() error {
			if !l.mode.intact(t.Context()) {
				t.Error("rules count as removed")
			}
			// A new proxy knows nothing of what is there.
			l.mode.forget()
			return nil
		})
		l.apply(services, append(slices, dns(podB))...)
		l.expect("after a restart", client, "10.96.0.10:80", "b", "")
	})
	t.Run("cleanup", func(t *testing.T) {
		in(t, l.node, func() error {
			if err := l.mode.cleanup(t.Context()); err != nil {
				return err
			}
			for _, list := range [][]string{{"nft", "list", "ruleset"}, {"iptables-save"}} {
				out, err := exec.Command(list[0], list[1:]...).Output()
				if err == nil && strings.Contains(strings.ToLower(string(out)), "kube-") {
					t.Errorf("%v still has:\n%s", list, out)
				}
			}
			return nil
		})
	})
}

func ping(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := conn.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	if err != nil {
		t.Error(err)
	}
	return string(buf[:n])
}
