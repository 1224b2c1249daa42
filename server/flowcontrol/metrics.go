package flowcontrol

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const prefix = "apiserver_flowcontrol_"

// metrics are upstream's, by its names. Numbers that are known anyway are read
// when they are asked for.
type metrics struct {
	c                                            *Controller
	wait, serve, length, width, watchers         *prometheus.HistogramVec
	dispatched, refused, tooWide                 *prometheus.Desc
	waiting, seatsWaiting, executing, seats      *prometheus.Desc
	seatUse, requestUse, demand, readsVersusRest *prometheus.Desc
	inflight, inqueue, fair                      *prometheus.Desc
	perLevel                                     []levelGauge
	kinds                                        kinds
}

// levelGauge is a number that a level has.
type levelGauge struct {
	desc  *prometheus.Desc
	value func(*level) float64
}

func newMetrics(c *Controller) *metrics {
	both := []string{"priority_level", "flow_schema"}
	with := func(more string) []string { return append(slices.Clone(both), more) }
	seconds := []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	histogram := func(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	gauge := func(name, help string, value func(*level) float64) levelGauge {
		return levelGauge{desc(name, help, "priority_level"), value}
	}
	kind := []string{"request_kind"}
	return &metrics{
		c:            c,
		wait:         histogram("request_wait_duration_seconds", "Time that requests waited for a seat.", seconds, with("execute")),
		serve:        histogram("request_execution_seconds", "Time that requests had a seat: of watches, until they had begun.", seconds, with("type")),
		length:       histogram("request_queue_length_after_enqueue", "Requests in the queue that a request has joined.", []float64{0, 10, 25, 50, 100, 250, 500, 1000}, both),
		width:        histogram("work_estimated_seats", "Most seats that a request takes at a time.", []float64{1, 2, 4, 8, 16, 32, 64, 100}, both),
		watchers:     histogram("watch_count_samples", "Watches that may hear of a write.", []float64{0, 1, 10, 100, 1000, 10000}, both),
		dispatched:   desc("dispatched_requests_total", "Requests that were served.", both...),
		refused:      desc("rejected_requests_total", "Requests that were refused.", with("reason")...),
		tooWide:      desc("request_dispatch_no_accommodation_total", "Requests whose turn had come, but too few seats were free.", both...),
		waiting:      desc("current_inqueue_requests", "Requests that wait.", both...),
		seatsWaiting: desc("current_inqueue_seats", "Seats that are waited for.", both...),
		executing:    desc("current_executing_requests", "Requests that are being served.", both...),
		seats:        desc("current_executing_seats", "Seats that are taken.", both...),
		seatUse: prometheus.NewDesc(prefix+"priority_level_seat_utilization", "Part of a level's seats that is taken, over time.",
			[]string{"priority_level"}, prometheus.Labels{"phase": "executing"}),
		requestUse:      desc("priority_level_request_utilization", "Requests at a level, as a part of its limit, over time.", "phase", "priority_level"),
		demand:          desc("demand_seats", "Seats that a level could use, as a part of its limit, over time.", "priority_level"),
		readsVersusRest: desc("read_vs_write_current_requests", "Requests, as a part of the limit of all, over time.", "phase", "request_kind"),
		inflight:        prometheus.NewDesc("apiserver_current_inflight_requests", "Requests in flight.", kind, nil),
		inqueue:         prometheus.NewDesc("apiserver_current_inqueue_requests", "Requests that wait.", kind, nil),
		fair:            desc("seat_fair_frac", "Fraction of the seats that levels would like to have which they get."),
		perLevel: []levelGauge{
			gauge("nominal_limit_seats", "Seats of a level by its share.", func(l *level) float64 { return float64(l.bounds.nominal) }),
			gauge("lower_limit_seats", "Seats that are never lent.", func(l *level) float64 { return float64(l.bounds.least) }),
			gauge("upper_limit_seats", "Seats with all that may be borrowed.", func(l *level) float64 { return float64(l.bounds.most) }),
			gauge("current_limit_seats", "Seats with what is lent and borrowed now.", func(l *level) float64 { return float64(l.limit) }),
			gauge("demand_seats_high_watermark", "Most seats that were asked for in the last ten seconds.", func(l *level) float64 { return float64(l.demand.high) }),
			gauge("demand_seats_average", "Seats that were asked for, on average over ten seconds.", func(l *level) float64 { return l.demand.average }),
			gauge("demand_seats_stdev", "Standard deviation of that.", func(l *level) float64 { return l.demand.deviation }),
			gauge("demand_seats_smoothed", "Seats that were asked for, as what falls slowly.", func(l *level) float64 { return l.demand.smoothed }),
			gauge("target_seats", "Seats that a level would like to have.", func(l *level) float64 { return l.demand.target }),
			gauge("current_r", "Seat-seconds that each queue has been served.", func(l *level) float64 { return l.virtual }),
		},
	}
}

// Collectors are to be shown at /metrics.
func (c *Controller) Collectors() []prometheus.Collector {
	m := c.metrics
	return []prometheus.Collector{m, m.wait, m.serve, m.length, m.width, m.watchers}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.dispatched, m.refused, m.tooWide, m.waiting, m.seatsWaiting, m.executing, m.seats, m.seatUse, m.requestUse, m.demand, m.readsVersusRest, m.inflight, m.inqueue, m.fair,
	} {
		ch <- d
	}
	for _, g := range m.perLevel {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	for name, counts := range m.c.counts {
		m.collectFlow(ch, name, counts)
	}
	for _, l := range m.c.levels {
		l.mu.Lock()
		l.advance(now)
		for _, g := range m.perLevel {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(l), l.name)
		}
		l.gauge.collect(ch, m, l.name)
		l.mu.Unlock()
	}
	ch <- prometheus.MustNewConstMetric(m.fair, prometheus.GaugeValue, math.Float64frombits(m.c.fair.Load()))
	m.kinds.collect(ch, m, now)
}

func (m *metrics) collectFlow(ch chan<- prometheus.Metric, name flowName, counts *counts) {
	show := func(desc *prometheus.Desc, kind prometheus.ValueType, n *atomic.Int64, more ...string) {
		ch <- prometheus.MustNewConstMetric(desc, kind, float64(n.Load()), append([]string{name.level, name.schema}, more...)...)
	}
	for i, reason := range reasons {
		if counts.refused[i].Load() > 0 {
			show(m.refused, prometheus.CounterValue, &counts.refused[i], reason)
		}
	}
	if counts.tooWide.Load() > 0 {
		show(m.tooWide, prometheus.CounterValue, &counts.tooWide)
	}
	if counts.dispatched.Load() == 0 {
		return
	}
	show(m.dispatched, prometheus.CounterValue, &counts.dispatched)
	show(m.waiting, prometheus.GaugeValue, &counts.waiting)
	show(m.seatsWaiting, prometheus.GaugeValue, &counts.seatsWaiting)
	show(m.executing, prometheus.GaugeValue, &counts.executing)
	show(m.seats, prometheus.GaugeValue, &counts.seats)
}

// reasons why requests are refused.
var reasons = []string{reasonQueueFull, reasonNoSeat, reasonTimeout}

// counts are of the requests of a schema at a level.
type counts struct {
	dispatched, tooWide, waiting, seatsWaiting, executing, seats atomic.Int64
	refused                                                      [3]atomic.Int64 // as in reasons
	width, watchers, length                                      series
	waits, serves                                                [2]series // indexed by flag
}

func (m *metrics) countsOf(name flowName) *counts {
	labels := func(more ...string) []string { return append([]string{name.level, name.schema}, more...) }
	return &counts{
		width: series{vec: m.width, labels: labels()}, watchers: series{vec: m.watchers, labels: labels()}, length: series{vec: m.length, labels: labels()},
		waits:  [2]series{{vec: m.wait, labels: labels("false")}, {vec: m.wait, labels: labels("true")}},
		serves: [2]series{{vec: m.serve, labels: labels("regular")}, {vec: m.serve, labels: labels("watch")}},
	}
}

func (c *counts) refuse(reason string)         { c.refused[slices.Index(reasons, reason)].Add(1) }
func (c *counts) waited(executed bool) *series { return &c.waits[flag(executed)] }
func (c *counts) served(watch bool) *series    { return &c.serves[flag(watch)] }

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

// series is one of a vector, found once, when there is something to observe.
type series struct {
	vec    *prometheus.HistogramVec
	labels []string
	found  atomic.Pointer[prometheus.Observer]
}

// Observe implements prometheus.Observer.
func (s *series) Observe(x float64) {
	o := s.found.Load()
	if o == nil {
		found := s.vec.WithLabelValues(s.labels...)
		o = &found
		s.found.Store(o)
	}
	(*o).Observe(x)
}

// timed is a histogram of a value over time, a sample per nanosecond. The bounds
// are always the same.
type timed struct {
	counts [16]uint64 // nanoseconds at most at the bound; the last: above all
	sum    float64
}

func (t *timed) add(bounds []float64, value float64, elapsed time.Duration) {
	i := 0
	for i < len(bounds) && value > bounds[i] {
		i++
	}
	t.counts[i] += uint64(elapsed)
	t.sum += value * float64(elapsed)
}

func (t *timed) metric(bounds []float64, desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets, total := map[float64]uint64{}, uint64(0)
	for i, bound := range bounds {
		total += t.counts[i]
		buckets[bound] = total
	}
	return prometheus.MustNewConstHistogram(desc, total+t.counts[len(bounds)], t.sum, buckets, labels...)
}

var (
	seatBounds    = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	requestBounds = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
	demandBounds  = []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}
	kindBounds    = []float64{0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
)

// levelMetrics are a level's numbers over time, as parts of its limits; its mu
// protects them.
type levelMetrics struct{ seats, waiting, executing, demand timed }

func (g *levelMetrics) add(l *level, elapsed time.Duration) {
	limit, room := float64(max(1, l.limit)), float64(max(1, l.desired*l.length))
	g.seats.add(seatBounds, float64(l.seats)/limit, elapsed)
	g.waiting.add(requestBounds, float64(l.waiting)/room, elapsed)
	g.executing.add(requestBounds, float64(l.executing)/limit, elapsed)
	g.demand.add(demandBounds, float64(l.seats+l.seatsWaiting)/limit, elapsed)
}

func (g *levelMetrics) collect(ch chan<- prometheus.Metric, m *metrics, level string) {
	ch <- g.seats.metric(seatBounds, m.seatUse, level)
	ch <- g.waiting.metric(requestBounds, m.requestUse, "waiting", level)
	ch <- g.executing.metric(requestBounds, m.requestUse, "executing", level)
	ch <- g.demand.metric(demandBounds, m.demand, level)
}

// kinds counts reads apart from all other requests, in both phases.
type kinds struct {
	mu    sync.Mutex // protects the fields below
	limit [2]float64 // by phase
	n     [2][2]int  // by phase and kind
	over  [2][2]timed
	now   time.Time
}

var (
	phaseNames = [2]string{"waiting", "executing"}
	kindNames  = [2]string{"readOnly", "mutating"}
)

const (
	phaseWaiting = iota
	phaseExecuting
)

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// limits sets what the parts are parts of.
func (k *kinds) limits(waiting, executing int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limit = [2]float64{float64(max(1, waiting)), float64(max(1, executing))}
}

// add counts n requests more in a phase.
func (k *kinds) add(now time.Time, phase int, r *Request, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advance(now)
	k.n[phase][flag(!isRead(r.Verb))] += n
}

func (k *kinds) advance(now time.Time) {
	elapsed := now.Sub(k.now)
	if elapsed <= 0 {
		return
	}
	if !k.now.IsZero() {
		for phase := range k.n {
			for kind, n := range k.n[phase] {
				k.over[phase][kind].add(kindBounds, float64(n)/k.limit[phase], elapsed)
			}
		}
	}
	k.now = now
}

func (k *kinds) collect(ch chan<- prometheus.Metric, m *metrics, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advance(now)
	for phase, current := range []*prometheus.Desc{m.inqueue, m.inflight} {
		for kind, n := range k.n[phase] {
			ch <- k.over[phase][kind].metric(kindBounds, m.readsVersusRest, phaseNames[phase], kindNames[kind])
			ch <- prometheus.MustNewConstMetric(current, prometheus.GaugeValue, float64(n), kindNames[kind])
		}
	}
}
