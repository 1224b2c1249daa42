package storage

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// metrics are what a store tells of itself, under upstream's names.
type metrics struct {
	all []prometheus.Collector

	// Of requests to etcd.
	took             *prometheus.HistogramVec
	requests, failed *prometheus.CounterVec
	leased           prometheus.Histogram

	// Of the caches.
	received, unread            *prometheus.CounterVec
	loads, failedLoads          *prometheus.CounterVec
	loading, waits              *prometheus.HistogramVec
	initial, outrun, consistent *prometheus.CounterVec

	// Of lists.
	lists, fetched, evaluated, returned *prometheus.CounterVec
	listing                             *prometheus.HistogramVec
}

// of are the labels that metrics of one kind have.
func of(more ...string) []string { return append([]string{"group", "resource"}, more...) }

func newMetrics() *metrics {
	m := &metrics{}
	latencies := []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	m.took = m.histogram("etcd_request_duration_seconds", "Time that etcd took to answer.", latencies, of("operation"))
	m.requests = m.counter("etcd_requests_total", "Requests to etcd.", of("operation"))
	m.failed = m.counter("etcd_request_errors_total", "Requests to etcd that failed.", of("operation"))
	m.leased = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "etcd_lease_object_counts", Help: "Objects that share a lease.", Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000},
	})
	m.received = m.counter("apiserver_storage_events_received_total", "Changes that etcd told of.", of())
	m.unread = m.counter("apiserver_storage_decode_errors_total", "Stored objects that could not be read.", of())
	m.loads = m.counter("apiserver_watch_cache_initializations_total", "Times that the cache was filled.", of())
	m.failedLoads = m.counter("apiserver_watch_cache_initialization_errors_total", "Times that the cache could not be filled.", of())
	m.loading = m.histogram("apiserver_watch_cache_initialization_duration_seconds", "Time that filling the cache took.",
		[]float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600}, of())
	m.waits = m.histogram("apiserver_watch_cache_read_wait_seconds", "Time that readers waited until the cache was new enough.",
		[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3}, of())
	m.initial = m.counter("apiserver_init_events_total", "Objects sent to watchers before the first change.", of())
	m.outrun = m.counter("apiserver_terminated_watchers_total", "Watchers that were ended because they were too slow.", of())
	m.consistent = m.counter("apiserver_watch_cache_consistent_read_total", "Reads of the newest state from the cache.", of("success", "fallback"))
	m.lists = m.counter("apiserver_storage_list_total", "Lists, by where they were read.", of("storage", "index"))
	m.fetched = m.counter("apiserver_storage_list_fetched_objects_total", "Objects read for lists.", of("storage", "index"))
	m.evaluated = m.counter("apiserver_storage_list_evaluated_objects_total", "Objects that selections were tried on for lists.", of("storage"))
	m.returned = m.counter("apiserver_storage_list_returned_objects_total", "Objects that lists answered.", of("storage"))
	m.listing = m.histogram("apiserver_storage_list_duration_seconds", "Time that lists from etcd took, decoding included.", latencies, of("streamed"))
	m.all = append(m.all, m.leased)
	return m
}

func (m *metrics) counter(name, help string, labels []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *metrics) histogram(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.all = append(m.all, v)
	return v
}

// labels are the values of the labels of a metric of this kind.
func (c *Collection) labels(more ...string) []string {
	return append([]string{c.resource.Group, c.resource.Resource}, more...)
}

// count adds to a metric of this kind.
func (c *Collection) count(v *prometheus.CounterVec, n int, more ...string) {
	if n > 0 {
		v.WithLabelValues(c.labels(more...)...).Add(float64(n))
	}
}

// countList adds a list that was read from etcd or the cache.
func (c *Collection) countList(storage, index string, fetched, evaluated, returned int) {
	m := c.store.metrics
	c.count(m.lists, 1, storage, index)
	c.count(m.fetched, fetched, storage, index)
	c.count(m.evaluated, evaluated, storage)
	c.count(m.returned, returned, storage)
}

// observe notes how long something took.
func (c *Collection) observe(v *prometheus.HistogramVec, began time.Time, more ...string) {
	v.WithLabelValues(c.labels(more...)...).Observe(time.Since(began).Seconds())
}

// Collectors are the store's metrics.
func (s *Store) Collectors() []prometheus.Collector {
	all := append(slices.Clone(s.metrics.all), newCensus(s))
	if sized, ok := s.backend.Backend.(interface {
		Size(context.Context) (int64, error)
	}); ok {
		all = append(all, &databaseSize{sized.Size, prometheus.NewDesc("apiserver_storage_size_bytes", "Size of etcd's database file.", []string{"storage_cluster_id"}, nil)})
	}
	return all
}

// measured is a Backend that is timed.
type measured struct {
	Backend
	*metrics
	find func(key string) *Collection
}

// Get reads one key.
func (b *measured) Get(ctx context.Context, key string) (kv *KV, revision int64, err error) {
	defer b.time("get", key, time.Now(), &err)
	return b.Backend.Get(ctx, key)
}

// List reads a range.
func (b *measured) List(ctx context.Context, start, end string, revision, limit int64) (_ Range, err error) {
	defer b.time("list", start, time.Now(), &err)
	return b.Backend.List(ctx, start, end, revision, limit)
}

// Put writes a key if it is unchanged.
func (b *measured) Put(ctx context.Context, key string, value []byte, guard, lease int64) (_ Outcome, err error) {
	operation := "update"
	if guard == 0 {
		operation = "create"
	}
	defer b.time(operation, key, time.Now(), &err)
	return b.Backend.Put(ctx, key, value, guard, lease)
}

// Delete removes a key if it is unchanged.
func (b *measured) Delete(ctx context.Context, key string, guard int64) (_ Outcome, err error) {
	defer b.time("delete", key, time.Now(), &err)
	return b.Backend.Delete(ctx, key, guard)
}

// Revision is the current revision. It is asked for on behalf of all kinds.
func (b *measured) Revision(ctx context.Context) (_ int64, err error) {
	defer b.note("getCurrentResourceVersion", schema.GroupResource{}, time.Now(), &err)
	return b.Backend.Revision(ctx)
}

func (b *measured) time(operation, key string, began time.Time, err *error) {
	if c := b.find(key); c != nil {
		b.note(operation, c.resource.GroupResource, began, err)
	}
}

func (m *metrics) note(operation string, gr schema.GroupResource, began time.Time, err *error) {
	m.took.WithLabelValues(gr.Group, gr.Resource, operation).Observe(time.Since(began).Seconds())
	m.requests.WithLabelValues(gr.Group, gr.Resource, operation).Inc()
	if *err != nil {
		m.failed.WithLabelValues(gr.Group, gr.Resource, operation).Inc()
	}
}

// databaseSize asks etcd when it is asked itself.
type databaseSize struct {
	size func(context.Context) (int64, error)
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (d *databaseSize) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Collect implements prometheus.Collector.
func (d *databaseSize) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if size, err := d.size(ctx); err == nil {
		ch <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, float64(size), "etcd-0")
	}
}

// census counts what the caches hold when it is asked: kinds come and go.
type census struct {
	store                                              *Store
	objects, bytes, received, sent, capacity, revision *prometheus.Desc
	grown                                              *prometheus.Desc
}

func newCensus(s *Store) *census {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, of(), nil) }
	return &census{
		store:    s,
		objects:  desc("apiserver_resource_objects", "Objects in storage."),
		bytes:    desc("apiserver_resource_size_estimate_bytes", "Size of the objects in storage."),
		received: desc("apiserver_watch_cache_events_received_total", "Changes that the cache took in."),
		sent:     desc("apiserver_watch_cache_events_dispatched_total", "Changes that watchers were told of."),
		capacity: desc("watch_cache_capacity", "Changes that the cache has room for."),
		grown:    desc("watch_cache_capacity_increase_total", "Times that the cache made room for more changes."),
		revision: desc("apiserver_watch_cache_resource_version", "Revision that the cache is at, its last 15 digits."),
	}
}

// Describe implements prometheus.Collector.
func (e *census) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(e, ch) }

// Collect implements prometheus.Collector.
func (e *census) Collect(ch chan<- prometheus.Metric) {
	for _, c := range e.store.all() {
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, kind, value, c.labels()...)
		}
		c.mu.RLock()
		objects, bytes, rev, window := c.tree.Len(), c.bytes, c.at(), &c.window
		changes, capacity, grown := window.next-firstNumber, len(window.slots), window.grew
		c.mu.RUnlock()
		send(e.objects, prometheus.GaugeValue, float64(objects))
		send(e.bytes, prometheus.GaugeValue, float64(bytes))
		send(e.received, prometheus.CounterValue, float64(changes))
		send(e.sent, prometheus.CounterValue, float64(changes))
		send(e.capacity, prometheus.GaugeValue, float64(capacity))
		send(e.grown, prometheus.CounterValue, float64(grown))
		send(e.revision, prometheus.GaugeValue, float64(rev%1e15))
	}
}
