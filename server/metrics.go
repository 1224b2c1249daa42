package server

import (
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/legacyregistry"
)

// metrics are what /metrics tells, under upstream's names where it has the same.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	events   *prometheus.CounterVec
	watches  prometheus.Gauge
}

func newMetrics(s *Server) *metrics {
	resource := []string{"group", "version", "resource"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests, by verb, resource and HTTP response code.",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time that requests took, in seconds; watches are left out.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, []string{"verb", "group", "version", "resource", "subresource", "scope"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total",
			Help: "Events sent to watchers.",
		}, resource),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Watches in progress.",
		}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.events, m.watches,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&objectCounts{s, prometheus.NewDesc("apiserver_storage_objects", "Objects in storage, by resource.", []string{"group", "resource"}, nil)},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests in flight.", ConstLabels: prometheus.Labels{"request_kind": "readOnly"},
		}, func() float64 { return float64(len(s.reads)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests in flight.", ConstLabels: prometheus.Labels{"request_kind": "mutating"},
		}, func() float64 { return float64(len(s.writes)) }),
	)
	m.registry.MustRegister(s.Metrics...)
	if s.Audit != nil {
		m.registry.MustRegister(s.Audit.Collectors()...)
	}
	return m
}

// Gather implements prometheus.Gatherer: our metrics, and those that the
// Kubernetes libraries keep by themselves.
func (m *metrics) Gather() ([]*dto.MetricFamily, error) {
	all, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, family := range all {
		known[family.GetName()] = true
	}
	libraries, err := legacyregistry.DefaultGatherer.Gather()
	for _, family := range libraries {
		if !known[family.GetName()] {
			all = append(all, family)
		}
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, err
}

// observe counts a request. Paths outside the API share one set of labels, since
// anyone can make them up.
func (m *metrics) observe(info *requestInfo, code string, took time.Duration) {
	scope := ""
	verb := info.Verb
	if info.Resource {
		switch {
		case info.Name != "":
			scope = "resource"
		case info.Namespace != "":
			scope = "namespace"
		default:
			scope = "cluster"
		}
	}
	switch verb {
	case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection":
	default:
		verb = "other"
	}
	if code == "404" && info.Resource {
		info = &requestInfo{} // whatever was asked for does not exist
	}
	labels := []string{verb, info.GVR.Group, info.GVR.Version, info.GVR.Resource, info.Subresource, scope}
	m.requests.WithLabelValues(append(labels, code)...).Inc()
	if !info.longRunning() {
		m.duration.WithLabelValues(labels...).Observe(took.Seconds())
	}
}

func (s *Server) serveMetrics(c *gin.Context) {
	promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}).ServeHTTP(c.Writer, c.Request)
}

// objectCounts asks storage when it is asked itself: kinds come and go.
type objectCounts struct {
	s    *Server
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (o *objectCounts) Describe(ch chan<- *prometheus.Desc) { ch <- o.desc }

// Collect implements prometheus.Collector.
func (o *objectCounts) Collect(ch chan<- prometheus.Metric) {
	seen := map[schema.GroupResource]bool{}
	for _, k := range o.s.Kinds.Kinds() {
		gr := k.Stored().GroupResource()
		col := o.s.Store.Collection(gr)
		if col == nil || seen[gr] {
			continue
		}
		seen[gr] = true
		ch <- prometheus.MustNewConstMetric(o.desc, prometheus.GaugeValue, float64(col.Count()), gr.Group, gr.Resource)
	}
}
