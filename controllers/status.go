package controllers

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// Status is what one controller has been doing.
type Status struct {
	Name      string    `json:"name"`
	Writes    []string  `json:"writes,omitempty"`
	Depth     int       `json:"depth"` // keys that wait in its queue
	Syncs     uint64    `json:"syncs"`
	Failures  uint64    `json:"failures"`
	LastKey   string    `json:"lastKey,omitempty"`
	LastSync  time.Time `json:"lastSync,omitzero"`
	LastError string    `json:"lastError,omitempty"`
	FailedKey string    `json:"failedKey,omitempty"`
	FailedAt  time.Time `json:"failedAt,omitzero"`
}

// Board holds the state of the controllers that run in this process, for the
// faces and for health checks. Its zero value is ready; give its address to Run.
type Board struct {
	mu    sync.Mutex // protects the fields below
	order []string
	rows  map[string]*Status
	depth map[string]func() int
}

// Snapshot returns the present state, in the order of the list of controllers;
// nothing while another instance leads.
func (b *Board) Snapshot() []Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Status, 0, len(b.order))
	for _, name := range b.order {
		row := *b.rows[name]
		row.Depth = b.depth[name]()
		out = append(out, row)
	}
	return out
}

func (b *Board) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order, b.rows, b.depth = nil, map[string]*Status{}, map[string]func() int{}
}

func (b *Board) add(name string, writes []string, depth func() int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows == nil {
		b.rows, b.depth = map[string]*Status{}, map[string]func() int{}
	}
	b.order = append(b.order, name)
	b.rows[name] = &Status{Name: name, Writes: writes}
	b.depth[name] = depth
}

func (b *Board) synced(name, key string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.rows[name]
	row.Syncs++
	row.LastKey, row.LastSync = key, time.Now()
	if err != nil {
		row.Failures++
		row.LastError, row.FailedKey, row.FailedAt = err.Error(), key, row.LastSync
	}
}

// queueMetrics gives the work queues upstream's metrics.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	waited, worked             *prometheus.HistogramVec
}

// newQueueMetrics registers the metrics of work queues; one registry can serve
// several runs.
func newQueueMetrics(reg prometheus.Registerer) *queueMetrics {
	label := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return registered(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, label))
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return registered(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, label))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return registered(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-5, 10, 8),
		}, label))
	}
	return &queueMetrics{
		depth:      gauge("depth", "Keys that wait in the queue."),
		unfinished: gauge("unfinished_work_seconds", "Time spent on keys that are being worked on."),
		longest:    gauge("longest_running_processor_seconds", "Time of the longest sync that has not ended."),
		adds:       counter("adds_total", "Keys added to the queue."),
		retries:    counter("retries_total", "Keys queued again after an error."),
		waited:     histogram("queue_duration_seconds", "Time that a key waits before it is worked on."),
		worked:     histogram("work_duration_seconds", "Time that one sync takes."),
	}
}

func registered[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	if earlier, ok := err.(prometheus.AlreadyRegisteredError); ok { //nolint:errorlint // returned unwrapped
		if same, ok := earlier.ExistingCollector.(C); ok {
			return same
		}
	}
	return c
}

func (m *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}
func (m *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}
func (m *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.waited.WithLabelValues(name)
}
func (m *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.worked.WithLabelValues(name)
}
func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}
func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}
func (m *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
