// Package trace is how components tell what they do to objects, on OpenTelemetry:
// a span says who did what, when and for how long, and which object it was about.
// The spans of all components meet in a Window that the API server keeps, where
// the uid of the object and the owners of that join them: objects carry no trace
// ids, since they must stay what they would be without anybody looking.
//
// A component makes a Tracer, starts a Span about an object, and Steps below it
// in whatever gets the context. Ended spans wait in a bounded queue for Run to
// export them in batches; what does not fit is dropped and counted, and nobody
// ever waits. The window is the one reader in the API server's own process; other
// components send theirs to it as OTLP over HTTP (client.Spans). Without a tracer
// (nil) nothing is recorded.
package trace

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the attributes that the window understands; it keeps all others as they
// are.
const (
	keyService  = "service.name"
	keyGroup    = "k8s.object.group"
	keyResource = "k8s.object.resource"
	keySpace    = "k8s.namespace.name"
	keyName     = "k8s.object.name"
	keyUID      = "k8s.object.uid"
	keyVersion  = "k8s.object.resource_version"
	keyOwner    = "k8s.object.owner.uid"
	keyAlso     = "k8s.object.also"
	keyNode     = "k8s.node.name"
	keyChange   = "orrery.change"
	keyCaller   = "orrery.caller"
)

// Object is what a span is about.
type Object struct {
	Group, Resource, Namespace, Name string
	UID, Revision                    string
	Owner                            string // uid of the object that controls it
}

// Of is an object of a resource.
func Of(group, resource string, m metav1.Object) Object {
	o := Object{Group: group, Resource: resource, Namespace: m.GetNamespace(), Name: m.GetName(), UID: string(m.GetUID()), Revision: m.GetResourceVersion()}
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		o.Owner = string(owner.UID)
	}
	return o
}

func (o Object) attributes() []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 7)
	for _, a := range [...]struct{ key, value string }{
		{keyGroup, o.Group}, {keyResource, o.Resource}, {keySpace, o.Namespace}, {keyName, o.Name},
		{keyUID, o.UID}, {keyVersion, o.Revision}, {keyOwner, o.Owner},
	} {
		if a.value != "" {
			all = append(all, attribute.String(a.key, a.value))
		}
	}
	return all
}

// Tracer makes the spans of one component.
type Tracer struct {
	tracer   oteltrace.Tracer
	queue    *queue
	exporter sdktrace.SpanExporter
}

// New makes a tracer whose spans go to a Receiver, or to a connection to one.
// sample tells which of them a collector is to have; nil: those whose parent says
// so.
func New(component string, to sdktrace.SpanExporter, sample sdktrace.Sampler) *Tracer {
	if sample == nil {
		sample = sdktrace.NeverSample()
	}
	q := newQueue()
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.NewSchemaless(attribute.String(keyService, component))),
		sdktrace.WithSampler(recordAll{sample}), sdktrace.WithSpanProcessor(q))
	return &Tracer{tracer: provider.Tracer(scope), queue: q, exporter: to}
}

// scope is the OpenTelemetry name of what makes the spans.
const scope = "orrery.dev/trace"

// recordAll records every span, for the window, and marks those for a collector
// that the sampler chooses.
type recordAll struct{ sdktrace.Sampler }

func (r recordAll) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := oteltrace.SpanContextFromContext(p.ParentContext)
	result := sdktrace.SamplingResult{Decision: sdktrace.RecordOnly, Tracestate: parent.TraceState()}
	if parent.IsSampled() || r.Sampler.ShouldSample(p).Decision == sdktrace.RecordAndSample {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

// Span is something that a component does. The methods of none (nil) do nothing.
type Span struct{ span oteltrace.Span }

// Start begins a span about an object, below the one in ctx if there is one, and
// leaves it in the context that it returns.
func (t *Tracer) Start(ctx context.Context, name string, about Object, attributes ...attribute.KeyValue) (context.Context, *Span) {
	return t.StartAt(ctx, time.Time{}, name, about, attributes...)
}

// StartAt is Start of what began before (zero: now).
func (t *Tracer) StartAt(ctx context.Context, at time.Time, name string, about Object, attributes ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	if about.UID != "" {
		attributes = append(about.attributes(), attributes...)
	}
	options := []oteltrace.SpanStartOption{oteltrace.WithAttributes(attributes...)}
	if !at.IsZero() {
		options = append(options, oteltrace.WithTimestamp(at))
	}
	ctx, span := t.tracer.Start(ctx, name, options...)
	return ctx, &Span{span}
}

// Step begins a part of what the span in ctx does, which is about the same object.
func Step(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, *Span) {
	whole := oteltrace.SpanFromContext(ctx)
	if !whole.IsRecording() {
		return ctx, nil
	}
	var options []oteltrace.SpanStartOption
	if len(attributes) > 0 {
		options = append(options, oteltrace.WithAttributes(attributes...))
	}
	ctx, span := whole.TracerProvider().Tracer(scope).Start(ctx, name, options...)
	return ctx, &Span{span}
}

// From is the span in ctx; nil: there is none.
func From(ctx context.Context) *Span {
	if span := oteltrace.SpanFromContext(ctx); span.IsRecording() {
		return &Span{span}
	}
	return nil
}

// About says which object the span is about, once that is known.
func (s *Span) About(o Object) {
	if s != nil {
		s.span.SetAttributes(o.attributes()...)
	}
}

// Also names further objects that the span is of interest to, by uid.
func (s *Span) Also(uids []string) {
	if s != nil && len(uids) > 0 {
		s.span.SetAttributes(attribute.StringSlice(keyAlso, uids))
	}
}

// Change marks a span as the beginning of a journey: the object is to be another
// one from now on.
func (s *Span) Change() { s.Set(attribute.Bool(keyChange, true)) }

// Set adds attributes.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attributes...)
	}
}

// Context is how others refer to the span.
func (s *Span) Context() oteltrace.SpanContext {
	if s == nil {
		return oteltrace.SpanContext{}
	}
	return s.span.SpanContext()
}

// End ends the span; a failure is part of it.
func (s *Span) End(err error) { s.EndAt(time.Time{}, err) }

// EndQuietly is End where the words of a failure may quote what is in a Secret: it
// tells no more than its reason.
func (s *Span) EndQuietly(err error) {
	if err != nil {
		err = errors.New(string(apierrors.ReasonForError(err)))
	}
	s.End(err)
}

// EndAt is End of what ended before (zero: now).
func (s *Span) EndAt(at time.Time, err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	if at.IsZero() {
		s.span.End()
		return
	}
	s.span.End(oteltrace.WithTimestamp(at))
}

// Node is where a span's component runs.
func Node(name string) attribute.KeyValue { return attribute.String(keyNode, name) }

// Caller is the component that a request comes from.
func Caller(component string) attribute.KeyValue { return attribute.String(keyCaller, component) }

var w3c propagation.TraceContext

// Received takes a client's trace from the headers of its request, so that what
// we do becomes a part of that.
func Received(ctx context.Context, h http.Header) context.Context {
	if h.Get("Traceparent") == "" {
		return ctx
	}
	return w3c.Extract(ctx, propagation.HeaderCarrier(h))
}

// Propagate sends the span in a request's context along with it.
func Propagate(next http.RoundTripper) http.RoundTripper { return propagating{next} }

type propagating struct{ http.RoundTripper }

func (p propagating) RoundTrip(r *http.Request) (*http.Response, error) {
	if oteltrace.SpanContextFromContext(r.Context()).IsValid() {
		r = r.Clone(r.Context())
		w3c.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	}
	return p.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go reach the transport below.
func (p propagating) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }

// Rate is the sampler for so many traces in a million.
func Rate(perMillion int32) sdktrace.Sampler {
	return sdktrace.TraceIDRatioBased(float64(perMillion) / 1e6)
}
