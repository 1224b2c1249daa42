package proxy

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func service(name, ip string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

// ep describes an endpoint in words: "10.244.0.5 here ready", and any of gone,
// draining, zone=a, node=n.
func ep(words string) discoveryv1.Endpoint {
	fields := strings.Fields(words)
	e := discoveryv1.Endpoint{Addresses: fields[:1], NodeName: ptr.To("elsewhere"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)}}
	for _, w := range fields[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "here":
			e.NodeName = ptr.To("n1")
		case "draining":
			e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
		case "gone":
			e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false), Terminating: ptr.To(false)}
		case "zone":
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: value}}}
		case "node":
			e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: value}}}
		}
	}
	return e
}

func slice(svc string, port int32, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: svc + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(port), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, words := range endpoints {
		s.Endpoints = append(s.Endpoints, ep(words))
	}
	return s
}

func TestEndpointChoice(t *testing.T) {
	for _, c := range []struct {
		name           string
		endpoints      []string
		cluster, local string
		reachable      bool
	}{
		{"ready ones only", []string{"10.0.0.1", "10.0.0.2 gone", "10.0.0.3 draining"}, "10.0.0.1:8080", "", true},
		{"draining when none is ready", []string{"10.0.0.2 gone", "10.0.0.3 draining here"}, "10.0.0.3:8080", "10.0.0.3:8080", true},
		{"nothing", []string{"10.0.0.2 gone"}, "", "", false},
		{"local", []string{"10.0.0.1 here", "10.0.0.2"}, "10.0.0.1:8080 10.0.0.2:8080", "10.0.0.1:8080", true},
		{"local draining beside ready elsewhere", []string{"10.0.0.1 here draining", "10.0.0.2"}, "10.0.0.2:8080", "10.0.0.1:8080", true},
		{"own zone", []string{"10.0.0.1 zone=a", "10.0.0.2 zone=b"}, "10.0.0.1:8080", "", true},
		{"hints incomplete", []string{"10.0.0.1 zone=a", "10.0.0.2"}, "10.0.0.1:8080 10.0.0.2:8080", "", true},
		{"no hint for this zone", []string{"10.0.0.1 zone=c", "10.0.0.2 zone=b"}, "10.0.0.1:8080 10.0.0.2:8080", "", true},
		{"own node", []string{"10.0.0.1 node=n1", "10.0.0.2 node=n2"}, "10.0.0.1:8080", "", true},
		{"hints do not narrow the local list", []string{"10.0.0.1 here zone=b", "10.0.0.2 zone=a"}, "10.0.0.2:8080", "10.0.0.1:8080", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := Build(IPv4, Node{"n1", "a"}, []*corev1.Service{service("web", "10.96.0.9", nil)}, []*discoveryv1.EndpointSlice{slice("web", 8080, c.endpoints...)})
			r := table.Routes[0]
			got := []any{texts(r.Cluster), texts(r.Local), r.Reachable}
			if diff := cmp.Diff([]any{c.cluster, c.local, c.reachable}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func texts(all []netip.AddrPort) string { return strings.Trim(fmt.Sprint(all), "[]") }

func TestServicesLeftOut(t *testing.T) {
	services := []*corev1.Service{
		service("headless", corev1.ClusterIPNone, nil),
		service("pending", "", nil),
		service("elsewhere", "", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }),
		service("others", "10.96.0.5", func(s *corev1.Service) { s.Labels = map[string]string{serviceProxyName: "x"} }),
		service("six", "fd00::5", nil),
	}
	if got := Build(IPv4, Node{Name: "n1"}, services, nil).Routes; len(got) != 0 {
		t.Errorf("IPv4 routes: %v", got)
	}
	if got := Build(IPv6, Node{Name: "n1"}, services, nil).Routes; len(got) != 1 || got[0].Name() != "default/six:http" {
		t.Errorf("IPv6 routes: %v", got)
	}
}

// exampleTable has one Service of each sort.
func exampleTable(without ...string) Table {
	local := corev1.ServiceInternalTrafficPolicyLocal
	services := []*corev1.Service{
		service("plain", "10.96.0.10", nil),
		service("single", "10.96.0.11", nil),
		service("empty", "10.96.0.12", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30012 }),
		service("sticky", "10.96.0.13", func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](60)}}
		}),
		service("node", "10.96.0.14", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30014 }),
		service("balanced", "10.96.0.15", func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort = 30015
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.HealthCheckNodePort = 30999
			s.Spec.ExternalIPs = []string{"198.51.100.7"}
			s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "192.0.2.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.8"}, {IP: "198.51.100.9", IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)}}
		}),
		service("here", "10.96.0.16", func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = &local
			s.Spec.Ports[0].NodePort = 30016
		}),
	}
	services = slices.DeleteFunc(services, func(s *corev1.Service) bool { return slices.Contains(without, s.Name) })
	return Build(IPv4, Node{Name: "n1"}, services, []*discoveryv1.EndpointSlice{
		slice("plain", 8080, "10.244.0.5 here", "10.244.1.5", "10.244.2.5"),
		slice("single", 8080, "10.244.0.5 here"),
		slice("sticky", 8080, "10.244.0.5 here", "10.244.1.5"),
		slice("node", 8080, "10.244.1.5"),
		slice("balanced", 8080, "10.244.0.6 here", "10.244.1.6"),
		slice("here", 8080, "10.244.1.5"),
	})
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", path, diff)
	}
}

func TestNFTablesText(t *testing.T) {
	cidr := netip.MustParsePrefix("10.244.0.0/16")
	all := nftRender(exampleTable(), cidr)
	golden(t, "nftables-all.txt", all.replace(IPv4))
	less := nftRender(exampleTable("sticky", "balanced"), cidr)
	golden(t, "nftables-less.txt", less.changes(IPv4, all))
	if text := all.changes(IPv4, nftRender(exampleTable(), cidr)); text != "" {
		t.Errorf("no change, but: %s", text)
	}
}

func TestIPTablesText(t *testing.T) {
	cidr := netip.MustParsePrefix("10.244.0.0/16")
	all := iptRender(exampleTable(), cidr)
	golden(t, "iptables-all.txt", all.changes(newIPTRules()))
	less := iptRender(exampleTable("sticky", "balanced"), cidr)
	golden(t, "iptables-less.txt", less.changes(all))
	if text := all.changes(iptRender(exampleTable(), cidr)); text != "" {
		t.Errorf("no change, but: %s", text)
	}
}

func TestStaleUDP(t *testing.T) {
	svc := service("dns", "10.96.0.10", func(s *corev1.Service) {
		s.Spec.Ports[0] = corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053}
	})
	u := udpFlowsOf(Build(IPv4, Node{Name: "n1"}, []*corev1.Service{svc}, []*discoveryv1.EndpointSlice{slice("dns", 53, "10.244.0.5")}))
	for _, c := range []struct {
		to, from string
		local    bool
		want     bool
	}{
		{"10.96.0.10:53", "10.244.0.5:53", false, false},
		{"10.96.0.10:53", "10.244.0.6:53", false, true},
		{"10.96.0.10:53", "10.96.0.10:53", false, true}, // never redirected
		{"192.0.2.1:30053", "10.244.0.6:53", true, true},
		{"192.0.2.1:30053", "10.244.0.6:53", false, false}, // somebody else's port
		{"192.0.2.1:123", "192.0.2.1:123", true, false},
	} {
		if got := u.stale(netip.MustParseAddrPort(c.to), netip.MustParseAddrPort(c.from), c.local); got != c.want {
			t.Errorf("%s answered by %s: stale %v, want %v", c.to, c.from, got, c.want)
		}
	}
}
