package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are upstream's names, for the dashboards that people have.
type metrics struct {
	attempts        *prometheus.CounterVec
	duration, waits *prometheus.HistogramVec
	thinking, tries prometheus.Histogram
	preemptions     prometheus.Counter
	victims         prometheus.Histogram
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
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_sli_duration_seconds", Help: "Time from a pod's entering the queue until it has a node, by the number of attempts.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20)}, []string{"attempts"}),
		thinking: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_algorithm_duration_seconds", Help: "Time that finding a node takes, without binding.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
		tries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_attempts", Help: "Attempts that it took to find a node for a pod.", Buckets: prometheus.ExponentialBuckets(1, 2, 5)}),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{Name: "scheduler_preemption_attempts_total", Help: "Attempts to make room for a pod."}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_preemption_victims", Help: "Pods that had to leave for one.", Buckets: prometheus.ExponentialBuckets(1, 2, 7)}),
	}
	if r == nil {
		return m
	}
	pending := func(place string, count func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "scheduler_pending_pods", Help: "Number of pending pods, by the queue type.",
			ConstLabels: prometheus.Labels{"queue": place}}, func() float64 { return float64(count()) })
	}
	for _, c := range []prometheus.Collector{m.attempts, m.duration, m.waits, m.thinking, m.tries, m.preemptions, m.victims,
		pending("active", func() int { n, _, _ := q.counts(); return n }),
		pending("backoff", func() int { _, n, _ := q.counts(); return n }),
		pending("unschedulable", func() int { _, _, n := q.counts(); return n }),
	} {
		r.Unregister(c)
		r.MustRegister(c)
	}
	return m
}

// bound counts a pod that has its node.
func (m *metrics) bound(w *waiting) {
	attempts := strconv.Itoa(w.attempts)
	if w.attempts >= 15 {
		attempts = "15+"
	}
	m.tries.Observe(float64(w.attempts))
	m.waits.WithLabelValues(attempts).Observe(time.Since(w.added).Seconds())
}

func (m *metrics) observe(result string, took time.Duration) {
	m.attempts.WithLabelValues(result, "default-scheduler").Inc()
	m.duration.WithLabelValues(result, "default-scheduler").Observe(took.Seconds())
}
