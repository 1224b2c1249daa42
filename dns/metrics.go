package dns

import (
	"net"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"orrery.dev/client"
)

// metrics are named as CoreDNS names them.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	responses   *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	forwards    *prometheus.CounterVec
	cacheHits   prometheus.Counter
	cacheMisses prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coredns_dns_requests_total", Help: "Queries, by protocol, family and type.",
		}, []string{"server", "zone", "proto", "family", "type"}),
		responses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coredns_dns_responses_total", Help: "Answers, by response code.",
		}, []string{"server", "zone", "rcode"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coredns_dns_request_duration_seconds", Help: "Time from query to answer.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 10),
		}, []string{"server", "zone"}),
		forwards: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coredns_forward_requests_total", Help: "Queries sent to each upstream.",
		}, []string{"to"}),
		cacheHits:   prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_hits_total", Help: "Answers from the cache."}),
		cacheMisses: prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_cache_misses_total", Help: "Questions not in the cache."}),
	}
	m.registry.MustRegister(m.requests, m.responses, m.durations, m.forwards, m.cacheHits, m.cacheMisses)
	return m
}

func (m *metrics) observe(request, answer *dns.Msg, w dns.ResponseWriter, took time.Duration) {
	const server, zone = "dns://:53", "."
	proto, family := "tcp", "1"
	var ip net.IP
	switch a := w.RemoteAddr().(type) {
	case *net.UDPAddr:
		proto, ip = "udp", a.IP
	case *net.TCPAddr:
		ip = a.IP
	}
	if ip.To4() == nil {
		family = "2"
	}
	qtype, ok := dns.TypeToString[request.Question[0].Qtype]
	if !ok {
		qtype = "other" // clients may send any number; labels must stay few
	}
	m.requests.WithLabelValues(server, zone, proto, family, qtype).Inc()
	m.responses.WithLabelValues(server, zone, dns.RcodeToString[answer.Rcode]).Inc()
	m.durations.WithLabelValues(server, zone).Observe(took.Seconds())
}

// all are also those that the libraries keep.
func (m *metrics) all() prometheus.Gatherer { return client.Measured(nil, m.registry) }
