package admission

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newTestAddresses(t *testing.T, store *fakeStore, cidr string, ports PortRange) *Addresses {
	t.Helper()
	a, err := NewAddresses(store, store, []netip.Prefix{netip.MustParsePrefix(cidr)}, ports)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newService(name string, kind corev1.ServiceType, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: named("ns", name), Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP}}}}
	for _, f := range change {
		f(s)
	}
	return s
}

func (s *fakeStore) takenIPs() (names []string) {
	for k := range s.Objects {
		if k.Resource == ipResource() {
			names = append(names, k.Name)
		}
	}
	return names
}

func (a *Addresses) takenPorts(t *testing.T) (all []int) {
	t.Helper()
	err := a.ports.change(t.Context(), true, func(taken takenPorts) error {
		for p := taken.r.First; p <= taken.r.Last; p++ {
			if taken.has(p) {
				all = append(all, p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestOccupancy(t *testing.T) {
	store := newFakeStore()
	a := newTestAddresses(t, store, "10.96.0.0/24", PortRange{30000, 30099})
	wantError(t, run(t, a.plugin(), request(Create, "services", newService("s", corev1.ServiceTypeNodePort), nil)), "")
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[strings.TrimPrefix(f.GetName(), "kube_apiserver_")] = f.Metric[0].GetGauge().GetValue()
	}
	want := map[string]float64{
		"clusterip_allocator_allocated_ips": 1, "clusterip_allocator_available_ips": 253,
		"nodeport_allocator_allocated_ports": 1, "nodeport_allocator_available_ports": 99,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestServiceLife(t *testing.T) {
	store := newFakeStore()
	a := newTestAddresses(t, store, "10.96.0.0/12", PortRange{30000, 32767})
	p := a.plugin()
	s := newService("s", corev1.ServiceTypeNodePort)
	wantError(t, run(t, p, request(Create, "services", s, nil)), "")
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil || !netip.MustParsePrefix("10.96.0.0/12").Contains(ip) || ip.Less(netip.MustParseAddr("10.96.1.1")) {
		t.Errorf("cluster IP %q, want one of the upper band", s.Spec.ClusterIP)
	}
	if n := s.Spec.Ports[0].NodePort; n < 30086 || n > 32767 {
		t.Errorf("node port %d, want one of the upper band", n)
	}
	if *s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack || len(s.Spec.IPFamilies) != 1 || s.Spec.ClusterIPs[0] != s.Spec.ClusterIP {
		t.Errorf("families %+v", s.Spec)
	}

	// To ClusterIP: the port goes; to ExternalName: the address too.
	plain := s.DeepCopy()
	plain.Spec.Type, plain.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0
	wantError(t, run(t, p, request(Update, "services", plain, s)), "")
	if got := a.takenPorts(t); len(got) != 0 {
		t.Errorf("ports %v are still taken", got)
	}
	external := plain.DeepCopy()
	external.Spec.Type, external.Spec.ClusterIP, external.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "", nil
	wantError(t, run(t, p, request(Update, "services", external, plain)), "")
	if got := store.takenIPs(); len(got) != 0 {
		t.Errorf("addresses %v are still taken", got)
	}

	// And back, and away.
	back := external.DeepCopy()
	back.Spec.Type = corev1.ServiceTypeLoadBalancer
	wantError(t, run(t, p, request(Update, "services", back, external)), "")
	if len(store.takenIPs()) != 1 || len(a.takenPorts(t)) != 1 {
		t.Error("nothing was taken for the load balancer")
	}
	wantError(t, run(t, p, request(Delete, "services", nil, back)), "")
	if len(store.takenIPs()) != 0 || len(a.takenPorts(t)) != 0 {
		t.Error("a deleted service keeps what it had")
	}
}

func TestServiceRefusals(t *testing.T) {
	store := newFakeStore()
	a := newTestAddresses(t, store, "10.96.0.0/12", PortRange{30000, 32767})
	p := a.plugin()
	withIP := func(ip string) func(*corev1.Service) { return func(s *corev1.Service) { s.Spec.ClusterIP = ip } }
	withPort := func(n int32) func(*corev1.Service) { return func(s *corev1.Service) { s.Spec.Ports[0].NodePort = n } }
	wantError(t, run(t, p, request(Create, "services", newService("first", corev1.ServiceTypeNodePort, withIP("10.96.0.10"), withPort(30001)), nil)), "")
	for _, c := range []struct {
		name string
		s    *corev1.Service
		want string
	}{
		{"taken", newService("s", corev1.ServiceTypeClusterIP, withIP("10.96.0.10")), `Service "s" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated`},
		{"out of range", newService("s", corev1.ServiceTypeClusterIP, withIP("10.0.0.1")), `Service "s" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.1"]: failed to allocate IP 10.0.0.1: the provided IP (10.0.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/12`},
		{"port taken", newService("s", corev1.ServiceTypeNodePort, withPort(30001)), `Service "s" is invalid: spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated`},
		{"port out of range", newService("s", corev1.ServiceTypeNodePort, withPort(80)), `Service "s" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767`},
		{"dual stack", newService("s", corev1.ServiceTypeClusterIP, func(s *corev1.Service) {
			policy := corev1.IPFamilyPolicyRequireDualStack
			s.Spec.IPFamilyPolicy = &policy
		}), `Service "s" is invalid: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, run(t, p, request(Create, "services", c.s, nil)), c.want)
			if ips, ports := store.takenIPs(), a.takenPorts(t); len(ips) != 1 || len(ports) != 1 {
				t.Errorf("after the refusal taken: %v %v", ips, ports)
			}
		})
	}
}

func TestServiceSpecialCases(t *testing.T) {
	store := newFakeStore()
	a := newTestAddresses(t, store, "10.96.0.0/12", PortRange{30000, 32767})
	p := a.plugin()
	headless := newService("h", corev1.ServiceTypeClusterIP, func(s *corev1.Service) { s.Spec.ClusterIP = "None"; s.Spec.Selector = map[string]string{"a": "b"} })
	wantError(t, run(t, p, request(Create, "services", headless, nil)), "")
	if headless.Spec.ClusterIPs[0] != "None" || len(store.takenIPs()) != 0 {
		t.Errorf("headless: %v", headless.Spec.ClusterIPs)
	}
	dns := newService("dns", corev1.ServiceTypeNodePort, func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "u", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "t", Port: 53, Protocol: corev1.ProtocolTCP}, {Name: "m", Port: 9153, Protocol: corev1.ProtocolTCP}}
	})
	wantError(t, run(t, p, request(Create, "services", dns, nil)), "")
	if n := dns.Spec.Ports; n[0].NodePort != n[1].NodePort || n[2].NodePort == n[0].NodePort {
		t.Errorf("node ports %+v", n)
	}
	local := newService("lb", corev1.ServiceTypeLoadBalancer, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	wantError(t, run(t, p, request(Create, "services", local, nil)), "")
	if local.Spec.HealthCheckNodePort == 0 {
		t.Error("no health check port")
	}
	before := len(store.takenIPs())
	dry := request(Create, "services", newService("dry", corev1.ServiceTypeNodePort), nil)
	dry.DryRun = true
	wantError(t, run(t, p, dry), "")
	late := request(Create, "services", newService("out-of-range", corev1.ServiceTypeNodePort, func(s *corev1.Service) { s.Spec.Ports[0].NodePort = -1 }), nil)
	late.DryRun = true
	wantError(t, run(t, p, late), "") // validation has the word
	taken := newService("shared", corev1.ServiceTypeNodePort, func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "u", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "t", Port: 53, Protocol: corev1.ProtocolTCP, NodePort: dns.Spec.Ports[0].NodePort}}
	})
	wantError(t, run(t, p, request(Create, "services", taken, nil)), fmt.Sprintf(`Service "shared" is invalid: spec.ports[0].nodePort: Invalid value: %d: provided port is already allocated`, dns.Spec.Ports[0].NodePort))
	if s := dry.Object.(*corev1.Service); s.Spec.ClusterIP == "" || s.Spec.Ports[0].NodePort == 0 || len(store.takenIPs()) != before {
		t.Errorf("dry run: %+v", s.Spec)
	}
	// A write that is refused later gives back.
	r := request(Create, "services", newService("late", corev1.ServiceTypeNodePort), nil)
	if err := (Chain{p}).Mutate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	ports := len(a.takenPorts(t))
	r.Finish(t.Context(), nil)
	if len(store.takenIPs()) != before || len(a.takenPorts(t)) != ports-1 {
		t.Error("a failed write keeps what it took")
	}
}

func TestSmallRangeFillsUp(t *testing.T) {
	store := newFakeStore()
	a := newTestAddresses(t, store, "10.0.0.0/29", PortRange{30000, 30003})
	p := a.plugin()
	for i := range 6 {
		wantError(t, run(t, p, request(Create, "services", newService(fmt.Sprint(i), corev1.ServiceTypeClusterIP), nil)), "")
	}
	err := run(t, p, request(Create, "services", newService("x", corev1.ServiceTypeClusterIP), nil))
	if err == nil || !strings.Contains(err.Error(), "failed to allocate a serviceIP: range is full") {
		t.Error(err)
	}
	for _, ip := range []string{"10.0.0.0", "10.0.0.7"} {
		if _, err := store.Get(t.Context(), ipResource(), "", ip); err == nil {
			t.Errorf("%s was handed out", ip)
		}
	}
}

func TestStaticBand(t *testing.T) {
	for cidr, want := range map[string]uint64{"10.96.0.0/12": 256, "10.96.0.0/24": 16, "10.96.0.0/20": 255, "10.96.0.0/28": 0} {
		if got := staticBand(rangeSize(netip.MustParsePrefix(cidr))); got != want {
			t.Errorf("%s: %d, want %d", cidr, got, want)
		}
	}
}

func TestRepair(t *testing.T) {
	store := newFakeStore()
	a := newTestAddresses(t, store, "10.96.0.0/12", PortRange{30000, 32767})
	restored := newService("restored", corev1.ServiceTypeNodePort, func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Ports[0].NodePort = "10.96.0.1", []string{"10.96.0.1"}, 30007
	})
	lost := newIPAddress(netip.MustParseAddr("10.96.5.5"), newService("gone", corev1.ServiceTypeClusterIP))
	lost.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	young := newIPAddress(netip.MustParseAddr("10.96.5.6"), newService("coming", corev1.ServiceTypeClusterIP))
	store.with(core("services"), restored).with(ipResource(), lost, young)
	if err := a.ports.change(t.Context(), false, func(taken takenPorts) error { return taken.take(30009) }); err != nil {
		t.Fatal(err)
	}
	leaks := map[int]time.Time{}
	if err := a.repair(t.Context(), leaks); err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]bool{"10.96.0.1": true, "10.96.5.5": false, "10.96.5.6": true} {
		if _, err := store.Get(t.Context(), ipResource(), "", ip); (err == nil) != want {
			t.Errorf("%s: %v", ip, err)
		}
	}
	o, err := get[*networkingv1.ServiceCIDR](t.Context(), store, cidrResource(), "", "kubernetes")
	if err != nil || o.Spec.CIDRs[0] != "10.96.0.0/12" || !cidrReady(o) {
		t.Errorf("service CIDR %+v: %v", o, err)
	}
	if got := fmt.Sprint(a.takenPorts(t)); got != "[30007 30009]" {
		t.Errorf("after one round: %s", got)
	}
	leaks[30009] = time.Now().Add(-2 * portGrace)
	if err := a.repair(t.Context(), leaks); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(a.takenPorts(t)); got != "[30007]" {
		t.Errorf("after a while: %s", got)
	}
}

func TestNewAddressesRefuses(t *testing.T) {
	store := newFakeStore()
	two := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.1.0.0/24")}
	if _, err := NewAddresses(store, store, two, PortRange{1, 2}); err == nil {
		t.Error("two ranges of one family")
	}
	if _, err := NewAddresses(store, store, two[:1], PortRange{2, 1}); err == nil {
		t.Error("an empty port range")
	}
}
