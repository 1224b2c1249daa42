package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Batch is how events are gathered in mode batch.
type Batch struct {
	Buffer   int // events that may wait; more are dropped
	MaxSize  int // events of a batch
	MaxWait  time.Duration
	Throttle bool // of batches:
	QPS      float32
	Burst    int
}

func validateMode(name, mode string, b Batch) error {
	switch {
	case !slices.Contains(Modes, mode):
		return fmt.Errorf("invalid audit %s mode %s, allowed modes are %q", name, mode, strings.Join(Modes, ","))
	case mode != ModeBatch:
		return nil
	case b.Buffer <= 0:
		return fmt.Errorf("invalid audit batch %s buffer size %v, must be a positive number", name, b.Buffer)
	case b.MaxSize <= 0:
		return fmt.Errorf("invalid audit batch %s max batch size %v, must be a positive number", name, b.MaxSize)
	case b.Throttle && b.QPS <= 0:
		return fmt.Errorf("invalid audit batch %s throttle QPS %v, must be a positive number", name, b.QPS)
	case b.Throttle && b.Burst <= 0:
		return fmt.Errorf("invalid audit batch %s throttle burst %v, must be a positive number", name, b.Burst)
	}
	return nil
}

// delivery is a sink over a function that writes some events somewhere.
type delivery struct {
	name     string
	mode     string
	truncate Truncate
	batch    Batch
	parallel bool // batches may overtake one another
	metrics  *metrics
	write    func(context.Context, []*record) error
	close    func() // at the end; may be nil

	queue chan *record
}

func (d *delivery) open() *delivery {
	d.queue = make(chan *record, d.batch.Buffer)
	return d
}

// put implements sink.
func (d *delivery) put(r *record) bool {
	if r = d.truncate.cut(r); r == nil {
		d.lost("truncate", 1)
		return true
	}
	if d.mode != ModeBatch {
		err := d.write(context.Background(), []*record{r})
		if err != nil {
			d.lost(d.name, 1)
		}
		return err == nil || d.mode == ModeBlocking
	}
	select {
	case d.queue <- r:
	default:
		d.lost("buffered", 1)
	}
	return true
}

func (d *delivery) lost(where string, n int) { d.metrics.errors.WithLabelValues(where).Add(float64(n)) }

// run implements sink.
func (d *delivery) run(ctx context.Context) {
	if d.close != nil {
		defer d.close()
	}
	if d.mode != ModeBatch {
		<-ctx.Done()
		return
	}
	// What is on its way when ctx ends gets a little more time.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(waitFor, cancel) })
	defer stop()
	limit := rate.NewLimiter(rate.Inf, 1)
	if d.batch.Throttle {
		limit = rate.NewLimiter(rate.Limit(d.batch.QPS), d.batch.Burst)
	}
	for more := true; more; {
		var batch []*record
		if batch, more = d.collect(ctx); len(batch) == 0 {
			continue
		}
		limit.Wait(ctx) // once ctx has ended: no more
		if d.parallel {
			running.Go(func() { d.send(sending, batch) })
			continue
		}
		d.send(sending, batch)
	}
}

// collect gathers a batch. more is false once ctx has ended and the queue is
// empty.
func (d *delivery) collect(ctx context.Context) (batch []*record, more bool) {
	var timeout <-chan time.Time
	if d.batch.MaxSize > 1 {
		t := time.NewTimer(d.batch.MaxWait)
		defer t.Stop()
		timeout = t.C
	}
	for len(batch) < d.batch.MaxSize {
		select {
		case r := <-d.queue:
			batch = append(batch, r)
		case <-timeout:
			return batch, true
		case <-ctx.Done():
			select {
			case r := <-d.queue:
				batch = append(batch, r)
			default:
				return batch, false
			}
		}
	}
	return batch, true
}

// send writes a batch, in parts if it is too large for one.
func (d *delivery) send(ctx context.Context, batch []*record) {
	var part []*record
	var size int64
	write := func() {
		if len(part) > 0 && d.write(ctx, part) != nil {
			d.lost(d.name, len(part))
		}
		part, size = nil, 0
	}
	for _, r := range batch {
		if d.truncate.Enabled && size+r.size() > d.truncate.MaxBatch {
			write()
		}
		part, size = append(part, r), size+r.size()
	}
	write()
}
