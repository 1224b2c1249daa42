package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are upstream's names, for the dashboards that people have.
type metrics struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newMetrics registers with r, unless that is nil. A scheduler that leads for
// the second time in a process takes over the metrics of the first.
func newMetrics(r prometheus.Registerer, q *queue) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total", Help: "Number of attempts to schedule pods, by the result."}, []string{"result", "profile"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Scheduling attempt latency in seconds (scheduling algorithm and binding).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}, []string{"result", "profile"}),
	}
	if r == nil {
		return m
	}
	pending := func(place string, count func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "scheduler_pending_pods", Help: "Number of pending pods, by the queue type.",
			ConstLabels: prometheus.Labels{"queue": place}}, func() float64 { return float64(count()) })
	}
	for _, c := range []prometheus.Collector{m.attempts, m.duration,
		pending("active", func() int { n, _, _ := q.counts(); return n }),
		pending("backoff", func() int { _, n, _ := q.counts(); return n }),
		pending("unschedulable", func() int { _, _, n := q.counts(); return n }),
	} {
		r.Unregister(c)
		r.MustRegister(c)
	}
	return m
}

func (m *metrics) observe(result string, took time.Duration) {
	m.attempts.WithLabelValues(result, "default-scheduler").Inc()
	m.duration.WithLabelValues(result, "default-scheduler").Observe(took.Seconds())
}
