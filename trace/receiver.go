package trace

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Receiver puts spans into a window, and sends those of sampled traces on to a
// collector: this process' own, as the exporter of its tracer, and those of other
// components, by Receive.
type Receiver struct {
	*Window
	collector otlptrace.Client // nil: there is none
	sample    sdktrace.Sampler
	outgoing  chan []*tracepb.ResourceSpans
	own       *otlptrace.Exporter // to outgoing
}

var _ sdktrace.SpanExporter = (*Receiver)(nil)

// NewReceiver makes a receiver. collector may be nil; sample chooses what it gets
// beside the traces that somebody asked for.
func NewReceiver(w *Window, collector otlptrace.Client, sample sdktrace.Sampler) *Receiver {
	outgoing := make(chan []*tracepb.ResourceSpans, 16)
	return &Receiver{Window: w, collector: collector, sample: sample, outgoing: outgoing, own: otlptrace.NewUnstarted(sending(outgoing))}
}

// Sampler chooses what the collector gets.
func (r *Receiver) Sampler() sdktrace.Sampler { return r.sample }

// ExportSpans implements sdktrace.SpanExporter. The spans are not made into
// anything else but for a collector: there are many, and nobody may look.
func (r *Receiver) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	r.takeOwn(spans)
	if r.collector == nil {
		return nil
	}
	spans = slices.DeleteFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return !s.SpanContext().IsSampled() })
	if len(spans) == 0 {
		return nil
	}
	return r.own.ExportSpans(ctx, spans)
}

// Shutdown implements sdktrace.SpanExporter.
func (r *Receiver) Shutdown(context.Context) error { return nil }

// Receive takes the spans of another component in. They may not be changed after
// that.
func (r *Receiver) Receive(batch []*tracepb.ResourceSpans) {
	for _, from := range batch {
		for _, scope := range from.GetScopeSpans() {
			r.take(ComponentOf(from), scope.GetSpans())
		}
	}
	if r.collector == nil {
		return
	}
	if chosen := r.sampled(batch); len(chosen) > 0 {
		_ = sending(r.outgoing).UploadTraces(context.Background(), chosen) // which drops rather than fails
	}
}

// sending is the way to Run's goroutine. A collector that does not keep up misses
// some.
type sending chan<- []*tracepb.ResourceSpans

func (s sending) Start(context.Context) error { return nil }
func (s sending) Stop(context.Context) error  { return nil }
func (s sending) UploadTraces(_ context.Context, batch []*tracepb.ResourceSpans) error {
	select {
	case s <- batch:
	default:
	}
	return nil
}

// sampled are the spans of traces for the collector. Who made them may not have
// known the rate: it is the trace's id that decides, for all alike.
func (r *Receiver) sampled(batch []*tracepb.ResourceSpans) []*tracepb.ResourceSpans {
	var out []*tracepb.ResourceSpans
	for _, from := range batch {
		to := &tracepb.ResourceSpans{Resource: from.Resource, SchemaUrl: from.SchemaUrl}
		for _, scope := range from.ScopeSpans {
			chosen := &tracepb.ScopeSpans{Scope: scope.Scope, SchemaUrl: scope.SchemaUrl}
			for _, s := range scope.Spans {
				if r.wanted(s) {
					chosen.Spans = append(chosen.Spans, s)
				}
			}
			if len(chosen.Spans) > 0 {
				to.ScopeSpans = append(to.ScopeSpans, chosen)
			}
		}
		if len(to.ScopeSpans) > 0 {
			out = append(out, to)
		}
	}
	return out
}

func (r *Receiver) wanted(s *tracepb.Span) bool {
	if oteltrace.TraceFlags(s.Flags).IsSampled() {
		return true
	}
	var id oteltrace.TraceID
	copy(id[:], s.TraceId)
	return r.sample.ShouldSample(sdktrace.SamplingParameters{ParentContext: context.Background(), TraceID: id}).Decision == sdktrace.RecordAndSample
}

// Run sends what is for the collector until ctx ends.
func (r *Receiver) Run(ctx context.Context) error {
	if r.collector == nil {
		<-ctx.Done()
		return nil
	}
	if err := r.collector.Start(ctx); err != nil {
		return err
	}
	defer r.collector.Stop(context.WithoutCancel(ctx))
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-r.outgoing:
			upload, cancel := context.WithTimeout(ctx, sendTimeout)
			_ = r.collector.UploadTraces(upload, batch) // what it does not take is lost
			cancel()
		}
	}
}

// ComponentOf is who made spans, as they say.
func ComponentOf(from *tracepb.ResourceSpans) string {
	return text(from.GetResource().GetAttributes(), keyService)
}

// SetNode makes spans be of a node, whatever they say.
func SetNode(from *tracepb.ResourceSpans, node string) {
	here := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: node}}
	for _, scope := range from.GetScopeSpans() {
		for _, s := range scope.GetSpans() {
			s.Attributes = append(s.Attributes, &commonpb.KeyValue{Key: keyNode, Value: here}) // the last one counts
		}
	}
}
