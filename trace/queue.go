package trace

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// A queue is bounded, and so is a batch: what is recorded must not grow because
// nobody takes it.
const (
	queueSize   = 4096
	batchSize   = 512
	flushEvery  = 200 * time.Millisecond
	sendTimeout = 5 * time.Second
	pauseFirst  = time.Second
	pauseMost   = time.Minute
)

// queue holds ended spans until Run exports them.
type queue struct {
	ended   chan sdktrace.ReadOnlySpan
	dropped atomic.Int64
}

func newQueue() *queue { return &queue{ended: make(chan sdktrace.ReadOnlySpan, queueSize)} }

// put takes a span, or drops it: whoever ends it has other things to do.
func (q *queue) put(s sdktrace.ReadOnlySpan) {
	select {
	case q.ended <- s:
	default:
		q.dropped.Add(1)
	}
}

// Metrics tells how many spans were lost because nobody took them.
func (t *Tracer) Metrics() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "orrery_trace_spans_dropped_total",
		Help: "Spans that were lost because the queue was full or nobody took them.",
	}, func() float64 { return float64(t.queue.dropped.Load()) })
}

// Run exports spans until ctx ends. A receiver that fails is left alone for a
// while: meanwhile the queue fills up, and then drops.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		<-ctx.Done()
		return nil
	}
	pause := pauseFirst
	for {
		batch := t.queue.next(ctx)
		if len(batch) == 0 {
			return nil
		}
		sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
		err := t.exporter.ExportSpans(sending, batch)
		cancel()
		if err == nil {
			pause = pauseFirst
			continue
		}
		t.queue.dropped.Add(int64(len(batch)))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, pauseMost)
	}
}

// next waits for a span and for those that follow close upon it. It is empty when
// ctx has ended and nothing is left.
func (q *queue) next(ctx context.Context) []sdktrace.ReadOnlySpan {
	var batch []sdktrace.ReadOnlySpan
	var full <-chan time.Time
	done := ctx.Done()
	for len(batch) < batchSize {
		select {
		case s := <-q.ended:
			batch = append(batch, s)
			if full == nil {
				full = time.After(flushEvery)
			}
			continue
		default:
		}
		if done == nil {
			return batch // ended, and the queue is empty
		}
		select {
		case s := <-q.ended:
			batch = append(batch, s)
			if full == nil {
				full = time.After(flushEvery)
			}
		case <-full:
			return batch
		case <-done:
			done = nil
		}
	}
	return batch
}
