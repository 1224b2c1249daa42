package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/metrics/legacyregistry"

	"orrery.dev/server/admission"
)

// metrics are what /metrics tells, under upstream's names where it has the same.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	events   *prometheus.CounterVec
	long     *prometheus.GaugeVec
	sizes    *prometheus.HistogramVec
	olds     *prometheus.GaugeVec
	plugins  *prometheus.HistogramVec
}

func newMetrics(s *Server) *metrics {
	resource := []string{"group", "version", "resource"}
	request := append(resource, "subresource", "scope", "verb", "component")
	with := func(labels []string, more ...string) []string { return append(slices.Clone(labels), more...) }
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests, by verb, resource and HTTP response code.",
		}, with(request, "dry_run", "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time that requests took, in seconds; watches are left out.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
			// Those who ask for protobuf get native buckets too.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, with(request, "dry_run")),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total",
			Help: "Events sent to watchers.",
		}, resource),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Watches, proxied connections and logs in progress.",
		}, request),
	}
	m.sizes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_response_sizes",
		Help:    "Sizes of the answers to reads, in bytes.",
		Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
	}, request)
	m.olds = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_requested_deprecated_apis",
		Help: "Deprecated versions of kinds that were asked for.",
	}, with(resource, "subresource", "removed_release"))
	m.plugins = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_admission_controller_admission_duration_seconds",
		Help:    "Time that admission plugins took, in seconds.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5},
	}, []string{"name", "operation", "type", "rejected"})
	m.registry.MustRegister(m.requests, m.duration, m.events, m.long, m.sizes, m.olds, m.plugins,
		buildInfo(s.Version), &availability{s, prometheus.NewDesc("aggregator_unavailable_apiservice", "Whether an APIService cannot be asked (1).", []string{"name"}, nil)},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.registry.MustRegister(s.Store.Collectors()...)
	m.registry.MustRegister(s.Metrics...)
	if s.flow != nil {
		m.registry.MustRegister(s.flow.Collectors()...)
	} else {
		m.registry.MustRegister(inflight("readOnly", s.reads), inflight("mutating", s.writes))
	}
	if s.Audit != nil {
		m.registry.MustRegister(s.Audit.Collectors()...)
	}
	return m
}

func inflight(kind string, slots chan struct{}) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "apiserver_current_inflight_requests", Help: "Requests in flight.", ConstLabels: prometheus.Labels{"request_kind": kind},
	}, func() float64 { return float64(len(slots)) })
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

// observe counts a request that is over. Most paths outside the API share one set
// of labels, since anyone can make them up.
func (m *metrics) observe(r *http.Request, info *requestInfo, code string, size int, took time.Duration) {
	if code == "404" && info.Resource {
		info = &requestInfo{} // whatever was asked for does not exist
	}
	labels := append(requestLabels(r, info), dryRunLabel(r))
	m.requests.WithLabelValues(append(labels, code)...).Inc()
	if verb := labels[5]; verb == "GET" || verb == "LIST" {
		m.sizes.WithLabelValues(labels[:7]...).Observe(float64(max(0, size)))
	}
	if !info.longRunning() {
		m.duration.WithLabelValues(labels...).Observe(took.Seconds())
	}
}

// begin counts a request that goes on for long until done is called.
func (m *metrics) begin(r *http.Request, info *requestInfo) (done func()) {
	gauge := m.long.WithLabelValues(requestLabels(r, info)...)
	gauge.Inc()
	return gauge.Dec
}

// observePlugin counts a half of an admission plugin that is over.
func (m *metrics) observePlugin(plugin, half string, r *admission.Request, took time.Duration, err error) {
	m.plugins.WithLabelValues(plugin, string(r.Operation), half, strconv.FormatBool(err != nil)).Observe(took.Seconds())
}

// documentLabels are the subresources that requests for documents and health are
// counted as.
var documentLabels = map[string]string{"/healthz": "/healthz", "/livez": "/livez", "/readyz": "/readyz", "/openapi/v2": "openapi/v2", "/openapi/v3": "openapi/v3"}

func requestLabels(r *http.Request, info *requestInfo) []string {
	if label := documentLabels[info.Path]; label != "" {
		return []string{"", "", "", label, "", "GET", ""}
	}
	scope := ""
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
	return []string{info.GVR.Group, info.GVR.Version, info.GVR.Resource, info.Subresource, scope, verbLabel(r, info), "apiserver"}
}

// verbLabel is the word that metrics have for what a request does: mostly HTTP's.
func verbLabel(r *http.Request, info *requestInfo) string {
	if info.longRunning() && info.Verb != "watch" && info.Subresource != "log" {
		return "CONNECT"
	}
	switch info.Verb {
	case "get", "list", "watch", "delete", "deletecollection", "post", "put":
		return strings.ToUpper(info.Verb)
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "patch":
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
			return "APPLY"
		}
		return http.MethodPatch
	}
	return "other"
}

func dryRunLabel(r *http.Request) string {
	switch r.URL.Query().Get("dryRun") {
	case "":
		return ""
	case metav1.DryRunAll:
		return metav1.DryRunAll
	}
	return "invalid"
}

func (s *Server) serveMetrics(c *gin.Context) {
	promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}).ServeHTTP(c.Writer, c.Request)
}

// buildInfo tells the version, in labels.
func buildInfo(v version.Info) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "The version, in labels; always 1.",
		ConstLabels: prometheus.Labels{
			"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
			"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
		},
	})
	g.Set(1)
	return g
}

// availability tells which APIServices cannot be asked.
type availability struct {
	s    *Server
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (a *availability) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements prometheus.Collector.
func (a *availability) Collect(ch chan<- prometheus.Metric) {
	down := map[string]float64{}
	for _, gv := range a.s.Kinds.Versions() {
		down[gv.Version+"."+gv.Group] = 0
	}
	a.s.remotes.mu.RLock()
	for _, r := range a.s.remotes.known {
		if down[r.from.Name] = 1; r.available {
			down[r.from.Name] = 0
		}
	}
	a.s.remotes.mu.RUnlock()
	for name, value := range down {
		ch <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, value, name)
	}
}
