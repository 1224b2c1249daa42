package server

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics/legacyregistry"

	"orrery.dev/server/admission"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// metrics are what /metrics tells, under upstream's names where it has the same.
type metrics struct {
	registry *prometheus.Registry
	kinds    *registry.Table

	// Of all requests.
	requests, terminated       *prometheus.CounterVec
	duration, undelayed, sizes *prometheus.HistogramVec
	bodies, validated          *prometheus.HistogramVec
	long, olds                 *prometheus.GaugeVec

	// Of the logs of containers.
	logs       *prometheus.CounterVec
	distrusted prometheus.Counter

	// Of watches.
	events                *prometheus.CounterVec
	eventSizes, listTimes *prometheus.HistogramVec

	// Of who asks, and whether they may.
	users, authenticated, authorized  *prometheus.CounterVec
	authenticatedTime, authorizedTime *prometheus.HistogramVec
	certificateLives                  prometheus.Histogram
	handshakes                        prometheus.Counter
	plugins                           *prometheus.HistogramVec
}

func newMetrics(s *Server) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), kinds: s.Kinds}
	m.requestFamilies()
	m.accessFamilies()
	m.registry.MustRegister(
		constant("kubernetes_build_info", "The version, in labels; always 1.", buildInfo(s.Version)),
		constant("version_info", "The versions that this server is compatible with, in labels; always 1.", compatibility(s.Version)),
		&availability{s, prometheus.NewDesc("aggregator_unavailable_apiservice", "Whether an APIService cannot be asked (1).", []string{"name"}, nil)},
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

func (m *metrics) requestFamilies() {
	resource := []string{"group", "version", "resource"}
	request := append(resource, "subresource", "scope", "verb", "component")
	with := func(labels []string, more ...string) []string { return append(slices.Clone(labels), more...) }
	slow := []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	m.requests = m.counter("apiserver_request_total", "Requests, by verb, resource and HTTP response code.", with(request, "dry_run", "code"))
	m.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_request_duration_seconds",
		Help:    "Time that requests took, in seconds; watches are left out.",
		Buckets: append([]float64{0.005, 0.025}, slow...),
		// Those who ask for protobuf get native buckets too.
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}, with(request, "dry_run"))
	m.registry.MustRegister(m.duration)
	m.undelayed = m.histogram("apiserver_request_sli_duration_seconds", "Time that requests took, in seconds, without that in queues and in webhooks.", slow, request)
	m.validated = m.histogram("field_validation_request_duration_seconds", "Time that requests took, in seconds, by how unknown fields were to be treated.", slow, []string{"field_validation"})
	m.sizes = m.histogram("apiserver_response_sizes", "Sizes of the answers to reads, in bytes.", prometheus.ExponentialBuckets(1000, 10, 7), request)
	m.bodies = m.histogram("apiserver_request_body_size_bytes", "Sizes of what writes send, in bytes.", prometheus.LinearBuckets(50000, 100000, 31), []string{"group", "resource", "verb"})
	m.terminated = m.counter("apiserver_request_terminations_total", "Requests that were ended to protect the server.", with(request, "code"))
	m.long = m.gauge("apiserver_longrunning_requests", "Watches, proxied connections and logs in progress.", request)
	m.logs = m.counter("kube_apiserver_pod_logs_insecure_backend_total", "Logs, by whether the certificates of node agents had to be right.", []string{"usage"})
	m.distrusted = prometheus.NewCounter(prometheus.CounterOpts{Name: "kube_apiserver_pod_logs_backend_tls_failure_total", Help: "Logs of node agents whose certificates were wrong."})
	m.registry.MustRegister(m.distrusted)
	m.olds = m.gauge("apiserver_requested_deprecated_apis", "Deprecated versions of kinds that were asked for.", with(resource, "subresource", "removed_release"))
	m.events = m.counter("apiserver_watch_events_total", "Events sent to watchers.", resource)
	m.eventSizes = m.histogram("apiserver_watch_events_sizes", "Sizes of events sent to watchers, in bytes.", prometheus.ExponentialBuckets(1024, 2, 8), resource)
	m.listTimes = m.histogram("apiserver_watch_list_duration_seconds", "Time until watchers had what there was at first, in seconds.", append(slow, 90, 120, 180, 300), with(resource, "scope"))
}

func (m *metrics) accessFamilies() {
	took := prometheus.ExponentialBuckets(0.001, 2, 15)
	result, quick := []string{"result"}, []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	m.users = m.counter("authenticated_user_requests", "Requests of users that are known, by sort of name.", []string{"username"})
	m.authenticated = m.counter("authentication_attempts", "Requests, by whether the user is known.", result)
	m.authenticatedTime = m.histogram("authentication_duration_seconds", "Time that it took to find out who asks, in seconds.", took, result)
	m.authorized = m.counter("authorization_attempts_total", "Requests, by whether they were allowed.", result)
	m.authorizedTime = m.histogram("authorization_duration_seconds", "Time that it took to find out whether a request is allowed, in seconds.", took, result)
	m.certificateLives = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "apiserver_client_certificate_expiration_seconds", Help: "How long the certificates of clients are still valid, in seconds.",
		Buckets: []float64{0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000},
	})
	m.handshakes = prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_tls_handshake_errors_total", Help: "Connections that failed before the first request."})
	m.registry.MustRegister(m.certificateLives, m.handshakes)
	m.plugins = m.histogram("apiserver_admission_controller_admission_duration_seconds", "Time that admission plugins took, in seconds.", quick, []string{"name", "operation", "type", "rejected"})
}

func (m *metrics) counter(name, help string, labels []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *metrics) gauge(name, help string, labels []string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *metrics) histogram(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
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
	labels := append(m.requestLabels(r, info), dryRunLabel(r))
	m.requests.WithLabelValues(append(labels, code)...).Inc()
	if verb := labels[5]; verb == "GET" || verb == "LIST" {
		m.sizes.WithLabelValues(labels[:7]...).Observe(float64(max(0, size)))
	}
	if info.longRunning() {
		return
	}
	m.duration.WithLabelValues(labels...).Observe(took.Seconds())
	m.validated.WithLabelValues(fieldValidationLabel(r)).Observe(took.Seconds())
	if labels[7] == "" {
		m.undelayed.WithLabelValues(labels[:7]...).Observe((took - delayOf(r.Context()).sum()).Seconds())
	}
}

// terminate counts a request that the server ends to protect itself.
func (m *metrics) terminate(r *http.Request, code int) {
	if info := infoFrom(r.Context()); info != nil {
		m.terminated.WithLabelValues(append(m.requestLabels(r, info), strconv.Itoa(code))...).Inc()
	}
}

// authenticate counts an attempt to find out who asks.
func (m *metrics) authenticate(r *http.Request, who *authenticator.Response, ok bool, err error, began time.Time) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		m.certificateLives.Observe(time.Until(r.TLS.PeerCertificates[0].NotAfter).Seconds())
	}
	result := "success"
	switch {
	case err != nil:
		result = "error"
	case !ok:
		result = "failure"
	default:
		m.users.WithLabelValues(sortOfUser(who.User.GetName())).Inc()
	}
	m.authenticated.WithLabelValues(result).Inc()
	m.authenticatedTime.WithLabelValues(result).Observe(time.Since(began).Seconds())
}

// sortOfUser is what the metrics tell of a user: names would be too many.
func sortOfUser(name string) string {
	switch {
	case slices.Contains([]string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}, name):
		return name
	case strings.Contains(name, "@"):
		return "email_id"
	}
	return "other"
}

// authorize counts an attempt to find out whether a request is allowed.
func (m *metrics) authorize(decision authorizer.Decision, err error, began time.Time) {
	result := "no-opinion"
	switch {
	case decision == authorizer.DecisionAllow:
		result = "allowed"
	case err != nil:
		result = "error"
	case decision == authorizer.DecisionDeny:
		result = "denied"
	}
	m.authorized.WithLabelValues(result).Inc()
	m.authorizedTime.WithLabelValues(result).Observe(time.Since(began).Seconds())
}

// delay is how long a request has waited for what is not this server's work: its
// turn, and webhooks. A request without one waits unnoticed.
type delay struct{ nanoseconds atomic.Int64 }

func delayOf(ctx context.Context) *delay {
	d, _ := ctx.Value(keyDelay).(*delay)
	return d
}

func (d *delay) add(took time.Duration) {
	if d != nil {
		d.nanoseconds.Add(int64(took))
	}
}

func (d *delay) sum() time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(d.nanoseconds.Load())
}

// begin counts a request that goes on for long until done is called.
func (m *metrics) begin(r *http.Request, info *requestInfo) (done func()) {
	gauge := m.long.WithLabelValues(m.requestLabels(r, info)...)
	gauge.Inc()
	return gauge.Dec
}

// ofWatch counts what a watch has sent.
func (m *metrics) ofWatch(r *http.Request, info *requestInfo) func(*frames, []storage.Event) {
	gvr := []string{info.GVR.Group, info.GVR.Version, info.GVR.Resource}
	count, sizes := m.events.WithLabelValues(gvr...), m.eventSizes.WithLabelValues(gvr...)
	received, _ := r.Context().Value(keyReceived).(time.Time)
	return func(batch *frames, events []storage.Event) {
		count.Add(float64(len(batch.ends)))
		begin := 0
		for _, end := range batch.ends {
			sizes.Observe(float64(end - begin))
			begin = end
		}
		if slices.ContainsFunc(events, func(e storage.Event) bool { return e.InitialEnd }) {
			m.listTimes.WithLabelValues(append(gvr, scopeLabel(info))...).Observe(time.Since(received).Seconds())
		}
	}
}

// observePlugin counts a half of an admission plugin that is over.
func (m *metrics) observePlugin(ctx context.Context, plugin, half string, r *admission.Request, took time.Duration, err error) {
	if strings.HasSuffix(plugin, "AdmissionWebhook") {
		delayOf(ctx).add(took)
	}
	m.plugins.WithLabelValues(plugin, string(r.Operation), half, strconv.FormatBool(err != nil)).Observe(took.Seconds())
}

// ErrorLog is where the HTTP server that serves the handler tells of connections
// that went wrong.
func (s *Server) ErrorLog() *log.Logger {
	return log.New(connectionErrors{s.metrics.handshakes, slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug).Writer()}, "", 0)
}

// connectionErrors counts those of TLS.
type connectionErrors struct {
	handshakes prometheus.Counter
	io.Writer
}

// Write implements io.Writer.
func (c connectionErrors) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error from")) {
		c.handshakes.Inc()
	}
	return c.Writer.Write(line)
}

// documentLabels are the subresources that requests for documents and health are
// counted as.
var documentLabels = map[string]string{"/healthz": "/healthz", "/livez": "/livez", "/readyz": "/readyz", "/openapi/v2": "openapi/v2", "/openapi/v3": "openapi/v3"}

func (m *metrics) requestLabels(r *http.Request, info *requestInfo) []string {
	if label := documentLabels[info.Path]; label != "" {
		return []string{"", "", "", label, "", "GET", ""}
	}
	if info.Resource && !m.known(info) {
		return []string{"", "", "", "", "", verbLabel(r, info), "apiserver"}
	}
	return []string{info.GVR.Group, info.GVR.Version, info.GVR.Resource, info.Subresource, scopeLabel(info), verbLabel(r, info), "apiserver"}
}

// known says whether there is what a request is about. Anybody can make up what
// there is not, even without a name of his own, and no metric may grow of that.
func (m *metrics) known(info *requestInfo) bool {
	k := m.kinds.Find(info.GVR)
	if k == nil || info.Subresource == "" {
		return k != nil
	}
	_, found := k.Sub[info.Subresource]
	return found
}

func scopeLabel(info *requestInfo) string {
	switch {
	case !info.Resource:
		return ""
	case info.Name != "":
		return "resource"
	case info.Namespace != "":
		return "namespace"
	}
	return "cluster"
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

func fieldValidationLabel(r *http.Request) string {
	switch text := r.URL.Query().Get("fieldValidation"); text {
	case "", metav1.FieldValidationStrict, metav1.FieldValidationWarn, metav1.FieldValidationIgnore:
		return text
	}
	return "invalid"
}

func (s *Server) serveMetrics(c *gin.Context) {
	promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}).ServeHTTP(c.Writer, c.Request)
}

// constant tells something in labels.
func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	g.Set(1)
	return g
}

func buildInfo(v version.Info) prometheus.Labels {
	return prometheus.Labels{
		"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
		"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
	}
}

// compatibility is with this release alone.
func compatibility(v version.Info) prometheus.Labels {
	minor := v.Major + "." + v.Minor
	return prometheus.Labels{"component": "kube", "binary": minor, "emulation": minor, "min_compat": minor}
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
