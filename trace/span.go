package trace

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Span is something that a component does. The methods of none (nil) do nothing.
// It is not the SDK's: every write of an object makes several, and one of those
// costs what the write does.
type Span struct {
	sdktrace.ReadOnlySpan // none: who implements it has to embed it

	tracer *Tracer
	name   string
	id     oteltrace.SpanContext
	parent oteltrace.SpanID
	remote bool // the parent is
	start  time.Time

	mu     sync.Mutex // protects the fields below; they do not change any more once it has ended
	end    time.Time
	about  *Object
	said   []attribute.KeyValue
	status sdktrace.Status
}

// begin makes a span below parent, whose trace there is in any case.
func (t *Tracer) begin(at time.Time, name string, parent oteltrace.SpanContext, attributes []attribute.KeyValue) *Span {
	if at.IsZero() {
		at = time.Now()
	}
	var id oteltrace.SpanID
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1) // none is 0
	return &Span{tracer: t, name: name, id: parent.WithSpanID(id).WithRemote(false), parent: parent.SpanID(), remote: parent.IsRemote(), start: at, said: slices.Clip(attributes)}
}

func (s *Span) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.end.IsZero()
}

// About says which object the span is about, once that is known.
func (s *Span) About(o Object) {
	if s == nil || o.UID == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end.IsZero() {
		s.about = &o
	}
}

// Also names further objects that the span is of interest to, by uid.
func (s *Span) Also(uids []string) {
	if len(uids) > 0 {
		s.Set(attribute.StringSlice(keyAlso, uids))
	}
}

// Change marks a span as the beginning of a journey: the object is to be another
// one from now on.
func (s *Span) Change() { s.Set(attribute.Bool(keyChange, true)) }

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

// Set adds attributes.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.end.IsZero() {
		return
	}
	if s.said == nil {
		s.said = make([]attribute.KeyValue, 0, max(len(attributes), 6)) // a request says so many things
	}
	for _, a := range attributes {
		if i := slices.IndexFunc(s.said, func(b attribute.KeyValue) bool { return a.Key == b.Key }); i >= 0 {
			s.said[i] = a
		} else {
			s.said = append(s.said, a)
		}
	}
}

// EndAt is End of what ended before (zero: now).
func (s *Span) EndAt(at time.Time, err error) {
	if s == nil {
		return
	}
	if at.IsZero() {
		at = time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.end.IsZero() {
		return
	}
	s.end = at
	if err != nil {
		s.status = sdktrace.Status{Code: codes.Error, Description: err.Error()}
	}
	s.tracer.queue.put(s)
}

// What follows is the span as exporters read it, once it has ended.

// SpanContext is how others refer to the span.
func (s *Span) SpanContext() oteltrace.SpanContext {
	if s == nil {
		return oteltrace.SpanContext{}
	}
	return s.id
}

// Attributes are all that the span says, about its object first.
func (s *Span) Attributes() []attribute.KeyValue {
	if s.about == nil {
		return s.said
	}
	return append(s.about.attributes(len(s.said)), s.said...)
}

// Parent is what the span is a part of.
func (s *Span) Parent() oteltrace.SpanContext { return s.id.WithSpanID(s.parent).WithRemote(s.remote) }

func (s *Span) Name() string                 { return s.name }
func (s *Span) Status() sdktrace.Status      { return s.status }
func (s *Span) SpanKind() oteltrace.SpanKind { return oteltrace.SpanKindInternal }
func (s *Span) StartTime() time.Time         { return s.start }
func (s *Span) EndTime() time.Time           { return s.end }
func (s *Span) Links() []sdktrace.Link       { return nil }
func (s *Span) Events() []sdktrace.Event     { return nil }
func (s *Span) DroppedAttributes() int       { return 0 }
func (s *Span) DroppedLinks() int            { return 0 }
func (s *Span) DroppedEvents() int           { return 0 }
func (s *Span) ChildSpanCount() int          { return 0 }
func (s *Span) Resource() *resource.Resource { return s.tracer.resource }
func (s *Span) InstrumentationScope() instrumentation.Scope {
	return instrumentation.Scope{Name: scope}
}

// scope is the OpenTelemetry name of what makes the spans.
const scope = "orrery.dev/trace"
