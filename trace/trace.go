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
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
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

// attributes are the object's, with room for more.
func (o Object) attributes(more int) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 7+more)
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
	resource *resource.Resource
	sample   sdktrace.Sampler
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
	here := resource.NewSchemaless(attribute.String(keyService, component))
	if all, err := resource.Merge(resource.Environment(), here); err == nil {
		here = all
	}
	return &Tracer{resource: here, sample: sample, queue: newQueue(), exporter: to}
}

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
	parent := contextIn(ctx)
	id := parent.TraceID()
	if !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	sampled := parent.IsSampled() ||
		t.sample.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: id, Name: name}).Decision == sdktrace.RecordAndSample
	s := t.begin(at, name, parent.WithTraceID(id).WithTraceFlags(parent.TraceFlags().WithSampled(sampled)), attributes)
	s.About(about)
	return context.WithValue(ctx, inContext{}, s), s
}

// Step begins a part of what the span in ctx does, which is about the same object.
func Step(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, *Span) {
	s := LastStep(ctx, name, attributes...)
	if s == nil {
		return ctx, nil
	}
	return context.WithValue(ctx, inContext{}, s), s
}

// LastStep is Step of what has no steps itself.
func LastStep(ctx context.Context, name string, attributes ...attribute.KeyValue) *Span {
	whole := From(ctx)
	if whole == nil {
		return nil
	}
	return whole.tracer.begin(time.Time{}, name, whole.id, attributes)
}

// From is the span in ctx that has not ended; nil: there is none.
func From(ctx context.Context) *Span {
	if s, _ := ctx.Value(inContext{}).(*Span); s != nil && !s.over() {
		return s
	}
	return nil
}

type inContext struct{}

// contextIn is how the span in ctx is referred to: ours, or one that a client told
// of.
func contextIn(ctx context.Context) oteltrace.SpanContext {
	if s, _ := ctx.Value(inContext{}).(*Span); s != nil {
		return s.id
	}
	return oteltrace.SpanContextFromContext(ctx)
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
	if own := contextIn(r.Context()); own.IsValid() {
		r = r.Clone(r.Context())
		w3c.Inject(oteltrace.ContextWithSpanContext(r.Context(), own), propagation.HeaderCarrier(r.Header))
	}
	return p.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go reach the transport below.
func (p propagating) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }

// Rate is the sampler for so many traces in a million.
func Rate(perMillion int32) sdktrace.Sampler {
	return sdktrace.TraceIDRatioBased(float64(perMillion) / 1e6)
}
