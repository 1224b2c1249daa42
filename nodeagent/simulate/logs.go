package simulate

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"time"

	crilogs "k8s.io/cri-client/pkg/logs"
)

const (
	logInterval = 4 * time.Second // between lines, unless LogRate says otherwise
	keptLines   = 10_000          // older ones count as rotated away
)

// A record is what a container's log can be told from. The log is not kept
// anywhere: line i of a container is always the same, so lines are made up when
// somebody reads them, and a hundred thousand containers cost nothing.
type record struct {
	id, name, image   string
	started, finished time.Time // zero: not yet
	every             time.Duration
	code              int32
	reason            string
}

// logEvery reads how often the container writes a line; 0: never.
func (c *container) logEvery() (time.Duration, error) {
	text := c.sandbox.config.GetAnnotations()[LogRate]
	if text == "" {
		return logInterval, nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || rate < 0 || rate > 1e6 {
		return 0, fmt.Errorf("annotation %s: %q is not a number of lines per second", LogRate, text)
	}
	if rate == 0 {
		return 0, nil
	}
	return time.Duration(float64(time.Second) / rate), nil
}

// record describes the container's log as of now. Callers hold the runtime's mu.
func (c *container) record() record {
	return record{
		id: c.id, name: c.config.GetMetadata().GetName(), image: c.config.GetImage().GetUserSpecifiedImage(),
		started: c.started, finished: c.finished, every: c.every, code: c.exit, reason: c.reason,
	}
}

// lines is how many lines have been written until now.
func (r record) lines(now time.Time) int {
	if r.started.IsZero() {
		return 0
	}
	n := r.worked(now)
	if !r.finished.IsZero() {
		return n + 2 // the first line and the last
	}
	return n + 1
}

// worked is how many of them are about work: all but the first and the last.
func (r record) worked(now time.Time) int {
	if r.every <= 0 {
		return 0
	}
	if !r.finished.IsZero() && r.finished.Before(now) {
		now = r.finished
	}
	n := int(now.Sub(r.started) / r.every)
	if n > 0 && r.at(n).After(now) {
		n--
	}
	return n
}

// at is when line i is written. Intervals vary, as those of real work do.
func (r record) at(i int) time.Time {
	if i == 0 {
		return r.started
	}
	jitter := time.Duration(r.chance(i)%400) * r.every / 1000
	return r.started.Add(time.Duration(i)*r.every + jitter)
}

// chance is a number that looks random, and is always the same for line i.
func (r record) chance(i int) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, r.id, i)
	n := h.Sum32() * 0x9e3779b1 // the hashes of neighbours are neighbours
	return n ^ n>>15
}

// line is the text of line i and its time, when there are total lines.
func (r record) line(i, total int) (time.Time, string) {
	switch {
	case i == 0:
		return r.started, fmt.Sprintf("simulated container %s of image %s started: nothing runs here, these lines are made up", r.name, r.image)
	case !r.finished.IsZero() && i == total-1:
		return r.finished, fmt.Sprintf("container ends: exit code %d (%s)", r.code, r.reason)
	}
	n := r.chance(i)
	took := n >> 8 % 90
	switch n % 16 {
	case 0:
		return r.at(i), fmt.Sprintf("level=warn msg=\"slow answer\" path=/items/%d duration=%dms", n>>4%1000, 900+took)
	case 1, 2:
		return r.at(i), fmt.Sprintf("level=info msg=\"cache refreshed\" entries=%d duration=%dms", n>>4%5000, took)
	case 3, 4, 5:
		return r.at(i), fmt.Sprintf("level=info msg=\"item stored\" id=%d duration=%dms", n>>4%100000, took)
	}
	return r.at(i), fmt.Sprintf("level=info msg=\"request served\" method=GET path=/items/%d status=200 duration=%dms", n>>4%1000, took)
}

// ReadLog writes a container's log, and what comes to it until the container
// ends if the options say to follow.
func (r *Runtime) ReadLog(ctx context.Context, id string, opts *crilogs.LogOptions, stdout, _ io.Writer) error {
	r.mu.Lock()
	c, err := r.find(id)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	out := &logWriter{to: stdout, opts: opts}
	for next := -1; ; {
		r.mu.Lock()
		rec, now := c.record(), time.Now() // later, the end may have been before now
		r.mu.Unlock()
		n := rec.lines(now)
		if next < 0 {
			next = firstLine(n, opts.TailLines)
		}
		for ; next < n && !out.full; next++ {
			out.add(rec.line(next, n))
		}
		if err := out.flush(); err != nil || out.full || !opts.Follow || !rec.finished.IsZero() {
			return err
		}
		if !c.waitLine(ctx, rec, n) {
			return nil
		}
	}
}

func firstLine(total int, tail *int64) int {
	first := max(0, total-keptLines)
	if tail != nil {
		first = max(first, total-int(min(*tail, keptLines)))
	}
	return first
}

// waitLine waits for line n or the container's end; false: nobody reads any more.
func (c *container) waitLine(ctx context.Context, rec record, n int) bool {
	var due <-chan time.Time
	if rec.every > 0 && n > 0 {
		timer := time.NewTimer(max(time.Until(rec.at(n)), time.Millisecond))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-c.done:
	case <-due:
	}
	return true
}

// logWriter collects lines into large writes, and counts their bytes.
type logWriter struct {
	to      io.Writer
	opts    *crilogs.LogOptions
	pending bytes.Buffer
	wrote   int64
	full    bool // the limit is reached
	err     error
}

func (w *logWriter) add(at time.Time, text string) {
	if at.Before(w.opts.Since) {
		return
	}
	line := text + "\n"
	if w.opts.Timestamp {
		line = at.UTC().Format(crilogs.RFC3339NanoFixed) + " " + line
	}
	if limit := w.opts.LimitBytes; limit != nil && w.wrote+int64(len(line)) >= *limit {
		line = line[:*limit-w.wrote]
		w.full = true
	}
	w.wrote += int64(len(line))
	w.pending.WriteString(line)
	if w.pending.Len() > 32<<10 {
		w.err = w.flush()
	}
}

func (w *logWriter) flush() error {
	if w.err == nil && w.pending.Len() > 0 {
		_, w.err = w.to.Write(w.pending.Bytes())
	}
	w.pending.Reset()
	if w.err != nil {
		w.full = true
	}
	return w.err
}
