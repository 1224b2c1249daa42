package dns

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func testStore(t testing.TB, synced bool) *store {
	t.Helper()
	s := newStore()
	for range 3 {
		s.has = append(s.has, func() bool { return synced })
	}
	add := func(into cache.Indexer, obj any) {
		if err := into.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"default", "kube-system", "empty"} {
		add(s.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	service := func(ns, name, ip string, spec corev1.ServiceSpec) {
		spec.ClusterIP = ip
		add(s.services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec})
	}
	web := []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	service("default", "web", "10.96.0.20", corev1.ServiceSpec{Ports: web})
	service("default", "dual", "10.96.0.21", corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.21", "fd00::21"}, Ports: web})
	service("kube-system", "kube-dns", "10.96.0.10", corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}})
	service("default", "db", corev1.ClusterIPNone, corev1.ServiceSpec{Ports: web})
	service("default", "idle", corev1.ClusterIPNone, corev1.ServiceSpec{Ports: web})
	service("default", "alias", "", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"})
	service("default", "inner", "", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "web.default.svc.cluster.local"})
	service("default", "ring", "", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "ring.default.svc.cluster.local"})
	slice := func(ns, svc string, endpoints ...discoveryv1.Endpoint) {
		add(s.slices, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: svc + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
			Endpoints:   endpoints,
		})
	}
	slice("default", "web", discoveryv1.Endpoint{Addresses: []string{"10.244.0.5"}})
	slice("default", "db",
		discoveryv1.Endpoint{Addresses: []string{"10.244.0.6"}, Hostname: ptr.To("db-0")},
		discoveryv1.Endpoint{Addresses: []string{"10.244.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
		discoveryv1.Endpoint{Addresses: []string{"10.244.0.8"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}})
	slice("default", "idle", discoveryv1.Endpoint{Addresses: []string{"10.244.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}})
	return s
}

// story is a reply in few words: code, then the records without their times.
func story(m *dns.Msg) string {
	words := []string{dns.RcodeToString[m.Rcode]}
	section := func(name string, rrs []dns.RR) {
		var lines []string
		for _, rr := range rrs {
			h := rr.Header()
			data := strings.Join(strings.Fields(strings.TrimPrefix(rr.String(), h.String())), " ")
			if h.Rrtype == dns.TypeSOA {
				data = "."
			}
			if h.Rrtype != dns.TypeOPT {
				lines = append(lines, fmt.Sprintf("%s %s %s", h.Name, dns.TypeToString[h.Rrtype], data))
			}
		}
		slices.Sort(lines)
		if len(lines) > 0 {
			words = append(words, name+"["+strings.Join(lines, "; ")+"]")
		}
	}
	section("", m.Answer)
	section("ns", m.Ns)
	section("extra", m.Extra)
	return strings.Join(words, " ")
}

func TestZone(t *testing.T) {
	const (
		nodata   = "NOERROR ns[cluster.local. SOA .]"
		nxdomain = "NXDOMAIN ns[cluster.local. SOA .]"
	)
	z := newZone("cluster.local", 30*time.Second, testStore(t, true))
	outside := func(name string, qtype uint16) []dns.RR {
		rr, err := dns.NewRR(name + " 5 IN A 93.184.216.34")
		if err != nil {
			t.Fatal(err)
		}
		return []dns.RR{rr}
	}
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"web.default.svc.cluster.local.", dns.TypeA, "NOERROR [web.default.svc.cluster.local. A 10.96.0.20]"},
		{"WEB.Default.svc.cluster.local.", dns.TypeA, "NOERROR [WEB.Default.svc.cluster.local. A 10.96.0.20]"},
		{"web.default.svc.cluster.local.", dns.TypeAAAA, nodata},
		{"web.default.svc.cluster.local.", dns.TypeMX, nodata},
		{"dual.default.svc.cluster.local.", dns.TypeAAAA, "NOERROR [dual.default.svc.cluster.local. AAAA fd00::21]"},
		{"nope.default.svc.cluster.local.", dns.TypeA, nxdomain},
		{"web.nowhere.svc.cluster.local.", dns.TypeA, nxdomain},
		{"default.svc.cluster.local.", dns.TypeA, nodata},
		{"nowhere.svc.cluster.local.", dns.TypeA, nxdomain},
		{"svc.cluster.local.", dns.TypeA, nodata},
		{"cluster.local.", dns.TypeA, nodata},
		{"cluster.local.", dns.TypeSOA, "NOERROR [cluster.local. SOA .]"},
		{"cluster.local.", dns.TypeNS, "NOERROR [cluster.local. NS ns.dns.cluster.local.] extra[ns.dns.cluster.local. A 10.96.0.10]"},
		{"a.b.cluster.local.", dns.TypeA, nxdomain},
		{"kubernetes.default.default.svc.cluster.local.", dns.TypeA, nxdomain},
		{"dns-version.cluster.local.", dns.TypeTXT, `NOERROR [dns-version.cluster.local. TXT "1.1.0"]`},
		// Ports.
		{"_http._tcp.web.default.svc.cluster.local.", dns.TypeSRV, "NOERROR [_http._tcp.web.default.svc.cluster.local. SRV 0 100 80 web.default.svc.cluster.local.] extra[web.default.svc.cluster.local. A 10.96.0.20]"},
		{"_http._udp.web.default.svc.cluster.local.", dns.TypeSRV, nxdomain},
		{"_https._tcp.web.default.svc.cluster.local.", dns.TypeSRV, nxdomain},
		{"http.tcp.web.default.svc.cluster.local.", dns.TypeSRV, nxdomain},
		{"_dns._udp.kube-dns.kube-system.svc.cluster.local.", dns.TypeSRV, "NOERROR [_dns._udp.kube-dns.kube-system.svc.cluster.local. SRV 0 100 53 kube-dns.kube-system.svc.cluster.local.] extra[kube-dns.kube-system.svc.cluster.local. A 10.96.0.10]"},
		// Headless: ready endpoints only.
		{"db.default.svc.cluster.local.", dns.TypeA, "NOERROR [db.default.svc.cluster.local. A 10.244.0.6; db.default.svc.cluster.local. A 10.244.0.7]"},
		{"db-0.db.default.svc.cluster.local.", dns.TypeA, "NOERROR [db-0.db.default.svc.cluster.local. A 10.244.0.6]"},
		{"10-244-0-7.db.default.svc.cluster.local.", dns.TypeA, "NOERROR [10-244-0-7.db.default.svc.cluster.local. A 10.244.0.7]"},
		{"10-244-0-8.db.default.svc.cluster.local.", dns.TypeA, nxdomain},
		{"db-0.db.default.svc.cluster.local.", dns.TypeAAAA, nodata},
		{"_http._tcp.db.default.svc.cluster.local.", dns.TypeSRV, "NOERROR [_http._tcp.db.default.svc.cluster.local. SRV 0 50 8080 10-244-0-7.db.default.svc.cluster.local.; _http._tcp.db.default.svc.cluster.local. SRV 0 50 8080 db-0.db.default.svc.cluster.local.] extra[10-244-0-7.db.default.svc.cluster.local. A 10.244.0.7; db-0.db.default.svc.cluster.local. A 10.244.0.6]"},
		{"idle.default.svc.cluster.local.", dns.TypeA, nxdomain},
		// Aliases.
		{"alias.default.svc.cluster.local.", dns.TypeCNAME, "NOERROR [alias.default.svc.cluster.local. CNAME example.org.]"},
		{"alias.default.svc.cluster.local.", dns.TypeA, "NOERROR [alias.default.svc.cluster.local. CNAME example.org.; example.org. A 93.184.216.34]"},
		{"inner.default.svc.cluster.local.", dns.TypeA, "NOERROR [inner.default.svc.cluster.local. CNAME web.default.svc.cluster.local.; web.default.svc.cluster.local. A 10.96.0.20]"},
		// Pods.
		{"10-244-0-5.default.pod.cluster.local.", dns.TypeA, "NOERROR [10-244-0-5.default.pod.cluster.local. A 10.244.0.5]"},
		{"10-244-0-5.default.pod.cluster.local.", dns.TypeAAAA, nodata},
		{"10-244-0-5.nowhere.pod.cluster.local.", dns.TypeA, nxdomain},
		{"x.default.pod.cluster.local.", dns.TypeA, nxdomain},
		{"default.pod.cluster.local.", dns.TypeA, nodata},
		// Addresses.
		{"20.0.96.10.in-addr.arpa.", dns.TypePTR, "NOERROR [20.0.96.10.in-addr.arpa. PTR web.default.svc.cluster.local.]"},
		{"6.0.244.10.in-addr.arpa.", dns.TypePTR, "NOERROR [6.0.244.10.in-addr.arpa. PTR db-0.db.default.svc.cluster.local.]"},
		{"5.0.244.10.in-addr.arpa.", dns.TypePTR, "NOERROR [5.0.244.10.in-addr.arpa. PTR 10-244-0-5.web.default.svc.cluster.local.]"},
		{"1.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", dns.TypePTR, "NOERROR [1.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. PTR dual.default.svc.cluster.local.]"},
		{"1.1.1.1.in-addr.arpa.", dns.TypePTR, "not ours"},
		{"example.org.", dns.TypeA, "not ours"},
	} {
		t.Run(c.name+dns.TypeToString[c.qtype], func(t *testing.T) {
			request := new(dns.Msg).SetQuestion(c.name, c.qtype)
			got := "not ours"
			if reply, ok := z.answer(request, strings.ToLower(c.name), outside); ok {
				got = story(reply)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnsyncedSaysTryAgain(t *testing.T) {
	z := newZone("cluster.local", 30*time.Second, testStore(t, false))
	for name, want := range map[string]string{
		"web.default.svc.cluster.local.":  "NOERROR [web.default.svc.cluster.local. A 10.96.0.20]",
		"soon.default.svc.cluster.local.": "SERVFAIL",
	} {
		reply, _ := z.answer(new(dns.Msg).SetQuestion(name, dns.TypeA), name, nil)
		if got := story(reply); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// serve runs a handler on loopback, UDP and TCP on one port.
func serve(t *testing.T, h dns.Handler) string {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: h}, {Listener: connections, Handler: h}} {
		started := make(chan struct{})
		ended := make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			_ = s.Shutdown()
			<-ended
		})
	}
	return packets.LocalAddr().String()
}

func testServer(t testing.TB, upstreams ...string) *server {
	m := newMetrics()
	return &server{zone: newZone("cluster.local", 30*time.Second, testStore(t, true)), outside: newForwarder(upstreams, m, slog.Default()), metrics: m, log: slog.Default()}
}

func ask(t *testing.T, network, addr, name string, qtype uint16) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: network, Timeout: 5 * time.Second}
	reply, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, qtype), addr)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestForwardsAndCaches(t *testing.T) {
	asked := make(chan string, 10)
	outside := serve(t, dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		asked <- r.Question[0].Name
		reply := new(dns.Msg).SetReply(r)
		if r.Question[0].Name == "big.example.org." {
			for i := range 60 {
				rr, _ := dns.NewRR(fmt.Sprintf("big.example.org. 60 IN A 192.0.2.%d", i))
				reply.Answer = append(reply.Answer, rr)
			}
			if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
				reply.Answer, reply.Truncated = nil, true
			}
		} else {
			rr, _ := dns.NewRR(r.Question[0].Name + " 60 IN A 192.0.2.1")
			reply.Answer = []dns.RR{rr}
		}
		_ = w.WriteMsg(reply)
	}))
	addr := serve(t, testServer(t, outside))
	for range 3 {
		if got := story(ask(t, "udp", addr, "example.org.", dns.TypeA)); got != "NOERROR [example.org. A 192.0.2.1]" {
			t.Fatal(got)
		}
	}
	if len(asked) != 1 {
		t.Errorf("upstream was asked %d times, want once", len(asked))
	}
	if reply := ask(t, "udp", addr, "big.example.org.", dns.TypeA); !reply.Truncated {
		t.Error("a large answer over UDP is not marked as truncated")
	}
	if reply := ask(t, "tcp", addr, "big.example.org.", dns.TypeA); len(reply.Answer) != 60 {
		t.Errorf("a large answer over TCP has %d records, want 60", len(reply.Answer))
	}
	if got := story(ask(t, "tcp", addr, "web.default.svc.cluster.local.", dns.TypeA)); got != "NOERROR [web.default.svc.cluster.local. A 10.96.0.20]" {
		t.Error(got)
	}
}

func TestLoopIsFound(t *testing.T) {
	var s *server
	known := make(chan struct{}) // its own address, which it has before there is a server
	addr := serve(t, dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { <-known; s.ServeDNS(w, r) }))
	s = testServer(t, addr)
	close(known)
	if err := s.outside.detectLoops(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.outside.usable()) != 0 {
		t.Error("an upstream that is this server itself is still used")
	}
	if got := story(ask(t, "udp", addr, "example.org.", dns.TypeA)); got != "SERVFAIL" {
		t.Error(got)
	}
}

func TestCacheLifetimes(t *testing.T) {
	c := newAnswerCache()
	request := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
	reply := new(dns.Msg).SetReply(request)
	rr, err := dns.NewRR("a.example. 10 IN A 192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	reply.Answer = []dns.RR{rr}
	now := time.Unix(1000, 0)
	c.put(keyOf(request), reply, now)
	if got := c.get(keyOf(request), now.Add(4*time.Second)); got == nil || got.Answer[0].Header().Ttl != 6 {
		t.Errorf("after 4 of 10 seconds: %v", got)
	}
	if got := c.get(keyOf(request), now.Add(10*time.Second)); got != nil {
		t.Errorf("after its time: %v", got)
	}
}

func BenchmarkService(b *testing.B) {
	z := newZone("cluster.local", 30*time.Second, testStore(b, true))
	request := new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
	for b.Loop() {
		z.answer(request, "web.default.svc.cluster.local.", nil)
	}
}
