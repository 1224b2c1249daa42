package dns

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// specVersion is the version of the Kubernetes DNS specification that is
// answered by, as the name dns-version tells.
const specVersion = "1.1.0"

// zone answers for the cluster's domain and for the addresses in it.
type zone struct {
	origin string // "cluster.local."
	labels int    // in origin
	ttl    uint32 // seconds
	seen   *store
}

func newZone(domain string, ttl time.Duration, seen *store) *zone {
	origin := dns.Fqdn(strings.ToLower(domain))
	return &zone{origin: origin, labels: dns.CountLabel(origin), ttl: uint32(ttl / time.Second), seen: seen}
}

// resolver looks a name up outside of the cluster, for the target of an
// ExternalName.
type resolver func(name string, qtype uint16) []dns.RR

// result is what was found under a name. exists without records is "NODATA".
type result struct {
	exists  bool
	records []dns.RR
	extra   []dns.RR
}

// answer replies to what is the zone's business. The second value is false for
// every other name. name is the lower-case form of the one asked for.
func (z *zone) answer(request *dns.Msg, name string, outside resolver) (*dns.Msg, bool) {
	q := request.Question[0]
	if dns.IsSubDomain("in-addr.arpa.", name) || dns.IsSubDomain("ip6.arpa.", name) {
		found := z.reverse(q.Name, name)
		// An address that is none of ours may well have a name elsewhere.
		if !found.exists {
			return nil, false
		}
		return z.reply(request, found), true
	}
	if !dns.IsSubDomain(z.origin, name) {
		return nil, false
	}
	return z.reply(request, z.find(q.Name, name, q.Qtype, outside)), true
}

func (z *zone) reply(request *dns.Msg, found result) *dns.Msg {
	reply := new(dns.Msg).SetReply(request)
	reply.Authoritative = true
	reply.RecursionAvailable = true
	reply.Answer, reply.Extra = found.records, found.extra
	switch {
	case len(found.records) > 0:
	case found.exists:
		reply.Ns = []dns.RR{z.soa()}
	case !z.seen.synced():
		reply.Rcode = dns.RcodeServerFailure
		reply.Authoritative = false
	default:
		reply.Rcode = dns.RcodeNameError
		reply.Ns = []dns.RR{z.soa()}
	}
	return reply
}

func (z *zone) soa() dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: z.origin, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: z.ttl},
		Ns:  "ns.dns." + z.origin, Mbox: "hostmaster." + z.origin,
		Serial: uint32(time.Now().Unix()), Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: z.ttl,
	}
}

// find looks a name of the zone up. The labels before the origin are read from
// the right: svc or pod, namespace, Service, and what the Service has below it.
func (z *zone) find(owner, name string, qtype uint16, outside resolver) result {
	labels := dns.SplitDomainName(name)
	labels = labels[:len(labels)-z.labels]
	n := len(labels)
	switch {
	case n == 0:
		return z.apex(qtype)
	case n == 1 && labels[0] == "dns-version":
		return z.version(owner, qtype)
	case n <= 2 && labels[n-1] == "dns":
		return z.nameserver(owner, labels, qtype)
	case labels[n-1] == "svc":
		return z.below(owner, labels[:n-1], qtype, outside)
	case labels[n-1] == "pod":
		return z.pod(owner, labels[:n-1], qtype)
	}
	return result{}
}

func (z *zone) apex(qtype uint16) result {
	switch qtype {
	case dns.TypeSOA:
		return result{exists: true, records: []dns.RR{z.soa()}}
	case dns.TypeNS:
		target := "ns.dns." + z.origin
		ns := &dns.NS{Hdr: z.header(z.origin, dns.TypeNS), Ns: target}
		return result{exists: true, records: []dns.RR{ns}, extra: z.nameserver(target, []string{"ns", "dns"}, dns.TypeA).records}
	}
	return result{exists: true}
}

func (z *zone) version(owner string, qtype uint16) result {
	if qtype != dns.TypeTXT && qtype != dns.TypeANY {
		return result{exists: true}
	}
	return result{exists: true, records: []dns.RR{&dns.TXT{Hdr: z.header(owner, dns.TypeTXT), Txt: []string{specVersion}}}}
}

// nameserver is this server's own name, ns.dns: the addresses of the cluster
// DNS Service.
func (z *zone) nameserver(owner string, labels []string, qtype uint16) result {
	if len(labels) == 1 {
		return result{exists: true}
	}
	if labels[0] != "ns" {
		return result{}
	}
	svc := z.seen.service("kube-system", "kube-dns")
	if svc == nil {
		return result{exists: true}
	}
	return result{exists: true, records: z.addresses(owner, clusterIPs(svc), qtype)}
}

// pod answers a-b-c-d.namespace.pod with the address in the name. Whether such a
// pod exists is not checked, for which every node agent would have to be asked;
// the namespace is.
func (z *zone) pod(owner string, labels []string, qtype uint16) result {
	n := len(labels)
	if n == 0 {
		return result{exists: true}
	}
	if n > 2 || !z.seen.hasNamespace(labels[n-1]) {
		return result{}
	}
	if n == 1 {
		return result{exists: true}
	}
	ip, ok := dashedIP(labels[0])
	if !ok {
		return result{}
	}
	return result{exists: true, records: z.addresses(owner, []string{ip.String()}, qtype)}
}

// dashedIP reads an address whose dots or colons are dashes.
func dashedIP(label string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ".")); err == nil {
		return ip, true
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ":"))
	return ip, err == nil
}

// reverse finds the names of an address: the Service that has it, else the
// endpoints that have it.
func (z *zone) reverse(owner, name string) result {
	ip, ok := arpaIP(name)
	if !ok {
		return result{}
	}
	var targets []string
	if svc := z.seen.serviceWith(ip.String()); svc != nil {
		targets = []string{z.serviceName(svc.Namespace, svc.Name)}
	} else {
		targets = z.endpointNames(ip.String())
	}
	if len(targets) == 0 {
		return result{}
	}
	found := result{exists: true}
	for _, t := range targets {
		found.records = append(found.records, &dns.PTR{Hdr: z.header(owner, dns.TypePTR), Ptr: t})
	}
	return found
}

// arpaIP turns 4.3.2.1.in-addr.arpa. into 1.2.3.4, and the nibbles of ip6.arpa.
// likewise.
func arpaIP(name string) (netip.Addr, bool) {
	labels := dns.SplitDomainName(name)
	labels = labels[:len(labels)-2]
	var text strings.Builder
	separator, every := byte('.'), 1
	switch {
	case strings.HasSuffix(name, ".in-addr.arpa.") && len(labels) == 4:
	case strings.HasSuffix(name, ".ip6.arpa.") && len(labels) == 32:
		separator, every = ':', 4
	default:
		return netip.Addr{}, false
	}
	for i := range labels {
		if i > 0 && i%every == 0 {
			text.WriteByte(separator)
		}
		text.WriteString(labels[len(labels)-1-i])
	}
	ip, err := netip.ParseAddr(text.String())
	return ip, err == nil
}

func (z *zone) header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: z.ttl}
}

func (z *zone) serviceName(namespace, name string) string {
	return name + "." + namespace + ".svc." + z.origin
}
