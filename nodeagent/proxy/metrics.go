package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are named as upstream's kube-proxy names them.
type metrics struct {
	registry  *prometheus.Registry
	durations prometheus.Histogram
	failures  prometheus.Counter
	last      prometheus.Gauge
	services  prometheus.Gauge
	endpoints prometheus.Gauge
	forgotten prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubeproxy_sync_proxy_rules_duration_seconds", Help: "Time of one sync of the rules.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubeproxy_sync_proxy_rules_failures_total", Help: "Syncs that did not work."}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds", Help: "When rules were last synced.",
		}),
		services:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeproxy_service_ports", Help: "Ports of Services that are routed."}),
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeproxy_endpoints", Help: "Endpoints that they are routed to."}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubeproxy_conntrack_reconciler_deleted_entries_total", Help: "Stale UDP connections that were removed.",
		}),
	}
	m.registry.MustRegister(m.durations, m.failures, m.last, m.services, m.endpoints, m.forgotten)
	return m
}

func (m *metrics) observe(tables []Table, took time.Duration, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	services, endpoints := 0, 0
	for _, t := range tables {
		services += len(t.Routes)
		for i := range t.Routes {
			endpoints += len(t.Routes[i].Cluster)
		}
	}
	m.durations.Observe(took.Seconds())
	m.last.SetToCurrentTime()
	m.services.Set(float64(services))
	m.endpoints.Set(float64(endpoints))
}
