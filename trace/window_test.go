package trace

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"orrery.dev/api"
)

// told is a span as a component sends it, of a millisecond. attributes are pairs.
func told(id, parent byte, start int, name string, attributes ...string) []*tracepb.ResourceSpans {
	s := &tracepb.Span{
		TraceId: []byte{id}, SpanId: []byte{id}, Name: name,
		StartTimeUnixNano: uint64(start) * 1e6, EndTimeUnixNano: uint64(start+1) * 1e6,
	}
	if parent != 0 {
		s.ParentSpanId = []byte{parent}
	}
	word := func(text string) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: text}}
	}
	for i := 0; i < len(attributes); i += 2 {
		value := word(attributes[i+1])
		if attributes[i] == keyAlso {
			value = &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{value}}}}
		}
		s.Attributes = append(s.Attributes, &commonpb.KeyValue{Key: attributes[i], Value: value})
	}
	return []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{{Key: keyService, Value: word("kube-apiserver")}}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{s}}},
	}}
}

func tell(w *Window, spans ...[]*tracepb.ResourceSpans) {
	for _, s := range spans {
		NewReceiver(w, nil, nil).Receive(s)
	}
}

func everything(api.JourneyObject) bool { return true }

func names(j api.Journey) string {
	var all []string
	for _, s := range j.Spans {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}

func TestJourneyFollowsOwners(t *testing.T) {
	w := NewWindow()
	tell(w,
		told(2, 1, 11, "etcd commit"), // a step comes before its whole
		told(1, 0, 10, "create deployments", keyUID, "d", keyResource, "deployments", keyName, "web", keyChange, "true", keyUser, "ann"),
		told(3, 0, 20, "create replicasets", keyUID, "r", keyResource, "replicasets", keyOwner, "d", keyChange, "true"),
		told(4, 0, 30, "create pods", keyUID, "p", keyResource, "pods", keyOwner, "r", keyChange, "true"),
		told(5, 0, 40, "schedule", keyUID, "p", keyResource, "pods"),
		told(6, 0, 60, "patch endpointslices", keyUID, "e", keyResource, "endpointslices", keyAlso, "p"),
		told(7, 0, 50, "patch pods", keyUID, "other", keyResource, "pods"),
		told(8, 0, 90, "update deployments", keyUID, "d", keyResource, "deployments", keyName, "web", keyChange, "true"),
		told(9, 0, 95, "create replicasets", keyUID, "r2", keyResource, "replicasets", keyOwner, "d", keyChange, "true"),
	)
	last := w.Journey("d", "", everything)
	if got := names(last); got != "update deployments, create replicasets" {
		t.Errorf("the last change: %s", got)
	}
	if len(last.Changes) != 2 || last.Changes[0].User != "ann" {
		t.Fatalf("changes %+v", last.Changes)
	}
	first := w.Journey("d", last.Changes[0].Span, everything)
	if got := names(first); got != "create deployments, etcd commit, create replicasets, create pods, schedule, patch endpointslices" {
		t.Errorf("the first change: %s", got)
	}
	if len(first.Objects) != 4 || first.Objects[0].Name != "web" || first.Objects[2].UID != "p" {
		t.Errorf("objects %+v", first.Objects)
	}
	if first.Spans[1].Object != "d" {
		t.Errorf("a step is about what the whole is about, not %+v", first.Spans[1])
	}

	noPods := w.Journey("d", last.Changes[0].Span, func(o api.JourneyObject) bool { return o.Resource != "pods" })
	if got := names(noPods); strings.Contains(got, "pods") || strings.Contains(got, "schedule") || noPods.Hidden != 1 {
		t.Errorf("who may not get pods sees %s, hidden %d", got, noPods.Hidden)
	}
	if j := w.Journey("d", "", func(api.JourneyObject) bool { return false }); len(j.Spans)+len(j.Objects)+len(j.Changes) != 0 || j.Hidden != 1 {
		t.Errorf("who may get nothing sees %+v", j)
	}
	if got := names(w.Calls("kube-apiserver", "", everything)); !strings.HasPrefix(got, "create replicasets, update deployments") || strings.Contains(got, "etcd") {
		t.Errorf("last calls %s", got)
	}
}

func TestWindowIsBounded(t *testing.T) {
	for _, bound := range []struct{ spans, bytes int }{{100, 1 << 30}, {1 << 30, 50_000}} {
		w := newWindow(bound.spans, bound.bytes)
		for i := range 1000 {
			tell(w, told(byte(i%250+1), 0, i, "sync", keyUID, fmt.Sprint("u", i), keyOwner, fmt.Sprint("o", i/10), keyAlso, "all"),
				told(byte((i+100)%250+1), byte((i+101)%250+1), i, "lost step"))
		}
		spans, bytes := w.Size()
		if spans > bound.spans || bytes > bound.bytes || spans < 50 {
			t.Errorf("%d spans of %d, %d bytes of %d", spans, bound.spans, bytes, bound.bytes)
		}
		if len(w.objects) > spans+1 || len(w.owned) > spans || len(w.about) > spans || len(w.steps) > spans {
			t.Errorf("of %d spans: %d objects, %d owners, %d about, %d steps", spans, len(w.objects), len(w.owned), len(w.about), len(w.steps))
		}
		if got := len(w.Journey("all", "", everything).Spans); got == 0 || got > spans {
			t.Errorf("%d spans of %d are found", got, spans)
		}
		if len(w.Journey("u1", "", everything).Spans) != 0 {
			t.Error("the oldest is still there")
		}
	}
}

// receiving counts what it is sent, and fails while err is set.
type receiving struct {
	got  []string
	fail atomic.Bool
}

func (*receiving) Start(context.Context) error { return nil }
func (*receiving) Stop(context.Context) error  { return nil }
func (r *receiving) UploadTraces(_ context.Context, batch []*tracepb.ResourceSpans) error {
	for _, from := range batch {
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				r.got = append(r.got, s.Name)
			}
		}
	}
	if r.fail.Load() {
		return errors.New("not now")
	}
	return nil
}

func TestSpansAreDroppedRatherThanWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &receiving{}
		to.fail.Store(true)
		tracer := New("test", otlptrace.NewUnstarted(to), nil)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- tracer.Run(ctx) }()
		for range 3 * queueSize {
			_, span := tracer.Start(ctx, "busy", Object{UID: "x"})
			span.End(nil)
		}
		synctest.Wait()
		if n := tracer.queue.dropped.Load(); n < queueSize {
			t.Errorf("%d are dropped", n)
		}
		to.fail.Store(false)
		time.Sleep(2 * pauseMost)
		_, span := tracer.Start(ctx, "last", Object{UID: "x"})
		span.End(nil)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(to.got) == 0 || to.got[len(to.got)-1] != "last" {
			t.Error("what was in the queue at the end is not sent")
		}
	})
}

func TestCollectorGetsSampledTracesOnly(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   int32
		sample bool
		want   int
	}{{"rate 0", 0, false, 0}, {"rate 0, asked for", 0, true, 1}, {"all", 1e6, false, 1}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &receiving{}
				r := NewReceiver(NewWindow(), to, Rate(c.rate))
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error)
				go func() { ended <- r.Run(ctx) }()
				sampler := r.Sampler()
				if c.sample {
					sampler = sdktrace.AlwaysSample()
				}
				tracer := New("kube-apiserver", r, sampler)
				go tracer.Run(ctx)
				whole, span := tracer.Start(ctx, "prepare pod", Object{UID: "x"})
				_, step := Step(whole, "create sandbox")
				step.End(nil)
				span.End(nil)
				other := told(9, 0, 1, "admit", keyUID, "x") // by who does not know the rate
				if c.sample {
					other[0].ScopeSpans[0].Spans[0].Flags = 1
				}
				r.Receive(other)
				time.Sleep(2 * flushEvery)
				cancel()
				<-ended
				if got := len(to.got); got != 3*c.want {
					t.Errorf("the collector got %d", got)
				}
				if got := names(r.Journey("x", "", everything)); got != "admit, prepare pod, create sandbox" {
					t.Errorf("the window got %s", got)
				}
			})
		})
	}
}

// Every write makes several, whether anybody looks or not.
func TestStepsAreCheap(t *testing.T) {
	tracer := New("test", NewReceiver(NewWindow(), nil, nil), nil)
	ctx, _ := tracer.Start(context.Background(), "whole", Object{UID: "x"})
	if n := testing.AllocsPerRun(100, func() { LastStep(ctx, "step").End(nil) }); n > 1 {
		t.Errorf("a step makes %v allocations", n)
	}
}

func BenchmarkWindow(b *testing.B) {
	w := NewWindow()
	batches := make([][]*tracepb.ResourceSpans, 250)
	for i := range batches {
		batches[i] = told(byte(i), 0, i, "sync", keyUID, fmt.Sprint("u", i), keyResource, "pods", keyName, "some-pod-name", keySpace, "default")
	}
	b.ReportAllocs()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := 0; b.Loop(); i++ {
		tell(w, batches[i%len(batches)])
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	spans, bytes := w.Size()
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(spans), "heap-B/span")
	b.ReportMetric(float64(bytes)/float64(spans), "counted-B/span")
	runtime.KeepAlive(w)
}
