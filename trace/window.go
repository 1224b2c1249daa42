package trace

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"orrery.dev/api"
)

// Bounds of a window, and of what is read out of it at once.
const (
	windowSpans   = 32768
	windowBytes   = 24 << 20
	maxObjects    = 200
	maxCalls      = 10
	bytesOfRecord = 400 // of a span without its words: struct, slots in the indexes
)

// Window keeps the newest spans, by the objects that they are about. It is bounded
// by their number and by their bytes; the oldest go first.
type Window struct {
	maxSpans, maxBytes int

	mu      sync.Mutex // protects the fields below
	spans   []*record  // the oldest first
	bytes   int
	objects map[string]*object         // by uid
	owned   map[string]map[string]bool // uids of what an object controls
	steps   map[string][]*record       // about whatever their parent is about, which has not come yet, by its id
	about   map[string]*record         // by id, those that steps may come to yet
}

// record is a span in the window. What it is about is under its uid, and under
// those of also.
type record struct {
	api.Span
	also   []string
	object api.JourneyObject
	caller string
	change bool
	user   string
	size   int
}

// object is what the window knows of an object.
type object struct {
	api.JourneyObject
	spans []*record
}

// NewWindow makes an empty window of the usual size.
func NewWindow() *Window { return newWindow(windowSpans, windowBytes) }

func newWindow(spans, bytes int) *Window {
	return &Window{maxSpans: spans, maxBytes: bytes, objects: map[string]*object{}, owned: map[string]map[string]bool{},
		steps: map[string][]*record{}, about: map[string]*record{}}
}

// take puts spans into the window that their component told of itself.
func (w *Window) take(component string, spans []*tracepb.Span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range spans {
		w.add(recordOf(component, s))
	}
}

// takeOwn is take of spans that were made in this process.
func (w *Window) takeOwn(spans []sdktrace.ReadOnlySpan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range spans {
		w.add(ownRecord(s))
	}
}

// recordOf is a span as OTLP has it.
func recordOf(component string, s *tracepb.Span) *record {
	r := &record{Span: api.Span{
		ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Trace: hex.EncodeToString(s.TraceId),
		Component: component, Name: s.Name,
		Start: int64(s.StartTimeUnixNano / 1e3), Duration: (int64(s.EndTimeUnixNano) - int64(s.StartTimeUnixNano)) / 1e3,
		Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Error: s.GetStatus().GetMessage(),
	}}
	for _, a := range s.Attributes {
		if a.Key == keyAlso {
			for _, v := range a.Value.GetArrayValue().GetValues() {
				r.also = append(r.also, v.GetStringValue())
			}
			continue
		}
		r.note(a.Key, valueOf(a.Value))
	}
	return r.finish()
}

// ownRecord is a span as the SDK has it.
func ownRecord(s sdktrace.ReadOnlySpan) *record {
	own, parent := s.SpanContext(), s.Parent()
	trace, id, above := own.TraceID(), own.SpanID(), parent.SpanID()
	var digits [64]byte
	words := string(hex.AppendEncode(hex.AppendEncode(hex.AppendEncode(digits[:0], trace[:]), id[:]), above[:]))
	r := &record{Span: api.Span{
		Trace: words[:32], ID: words[32:48],
		Name: s.Name(), Start: s.StartTime().UnixMicro(), Duration: s.EndTime().Sub(s.StartTime()).Microseconds(),
		Failed: s.Status().Code == codes.Error, Error: s.Status().Description,
	}}
	if parent.HasSpanID() {
		r.Parent = words[48:]
	}
	if component, ok := s.Resource().Set().Value(keyService); ok {
		r.Component = component.AsString()
	}
	all := s.Attributes()
	if len(all) > 0 {
		r.Details = make([]api.SpanAttribute, 0, 4)
	}
	for _, a := range all {
		if a.Key == keyAlso {
			r.also = a.Value.AsStringSlice()
			continue
		}
		r.note(string(a.Key), a.Value.Emit())
	}
	return r.finish()
}

// note takes an attribute: a word that the window understands, or a detail.
func (r *record) note(key, value string) {
	switch key {
	case keyUID:
		r.object.UID = value
	case keyGroup:
		r.object.Group = value
	case keyResource:
		r.object.Resource = value
	case keySpace:
		r.object.Namespace = value
	case keyName:
		r.object.Name = value
	case keyOwner:
		r.object.Owner = value
	case keyNode:
		r.Node = value
	case keyCaller:
		r.caller = value
	case keyChange:
		r.change = value == "true"
	case "":
	default:
		if key == keyUser {
			r.user = value
		}
		r.size += 32
		r.Details = append(r.Details, api.SpanAttribute{Key: key, Value: value})
	}
	r.size += len(key) + len(value)
}

func (r *record) finish() *record {
	r.Object = r.object.UID
	r.size += bytesOfRecord + len(r.Name) + len(r.Error) + 100*len(r.also)
	return r
}

// keyUser is who makes a request.
const keyUser = "enduser.id"

func text(all []*commonpb.KeyValue, key string) string {
	for _, a := range all {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func valueOf(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonpb.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *commonpb.AnyValue_DoubleValue:
		return strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
	}
	return ""
}

// add puts a span into the window. A step comes before the whole that it is a part
// of, and waits for that to learn what it is about.
func (w *Window) add(r *record) {
	if r.Object == "" {
		if whole := w.about[r.Parent]; whole != nil {
			r.belong(whole)
		} else if r.Parent != "" {
			w.steps[r.Parent] = append(w.steps[r.Parent], r)
		}
	}
	w.spans = append(w.spans, r)
	w.bytes += r.size
	if r.Object != "" {
		w.file(r)
	}
	for len(w.spans) > w.maxSpans || w.bytes > w.maxBytes {
		w.evict()
	}
}

// file puts a span that is known to be about an object under it, and with it the
// steps that have waited for that.
func (w *Window) file(r *record) {
	w.about[r.ID] = r
	for _, uid := range r.uids() {
		o := w.objects[uid]
		if o == nil {
			o = &object{JourneyObject: api.JourneyObject{UID: uid}}
			w.objects[uid] = o
		}
		o.spans = append(o.spans, r)
		if uid == r.Object {
			w.know(o, r.object)
		}
	}
	waiting := w.steps[r.ID]
	delete(w.steps, r.ID)
	for _, step := range waiting {
		step.belong(r)
		w.file(step)
	}
}

// belong makes a step be about what the whole is about.
func (r *record) belong(whole *record) {
	r.Object, r.object, r.also = whole.Object, whole.object, whole.also
}

func (r *record) uids() []string { return append([]string{r.Object}, r.also...) }

// know takes over what a span says of its object. Its owner may be told of later,
// or change.
func (w *Window) know(o *object, told api.JourneyObject) {
	if told.Owner == "" {
		told.Owner = o.Owner
	}
	if o.Owner != told.Owner {
		w.disown(o)
		if w.owned[told.Owner] == nil {
			w.owned[told.Owner] = map[string]bool{}
		}
		w.owned[told.Owner][o.UID] = true
	}
	o.JourneyObject = told
}

func (w *Window) disown(o *object) {
	if delete(w.owned[o.Owner], o.UID); len(w.owned[o.Owner]) == 0 {
		delete(w.owned, o.Owner)
	}
}

// evict forgets the oldest span, and what only that told of.
func (w *Window) evict() {
	r := w.spans[0]
	w.spans[0] = nil
	w.spans = w.spans[1:]
	w.bytes -= r.size
	delete(w.about, r.ID)
	if r.Object == "" {
		waiting := slices.DeleteFunc(w.steps[r.Parent], func(s *record) bool { return s == r })
		if w.steps[r.Parent] = waiting; len(waiting) == 0 {
			delete(w.steps, r.Parent)
		}
		return
	}
	for _, uid := range r.uids() {
		o := w.objects[uid]
		if o == nil {
			continue // named twice
		}
		// It is the first but for steps that waited.
		if i := slices.Index(o.spans, r); i >= 0 {
			o.spans = slices.Delete(o.spans, i, i+1)
		}
		if len(o.spans) == 0 {
			w.disown(o)
			delete(w.objects, uid)
		}
	}
}

// Size is how many spans the window holds, and about how many bytes.
func (w *Window) Size() (spans, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.spans), w.bytes
}

func (w *Window) since() int64 {
	if len(w.spans) == 0 {
		return 0
	}
	return w.spans[0].Start
}

// Journey is what happened to an object and to what it owns since a change of it
// (the id of a span; "": the last) and before the next. may says which objects the
// reader may get.
func (w *Window) Journey(uid, change string, may func(api.JourneyObject) bool) api.Journey {
	objects, spans, since := w.family(uid)
	j := api.Journey{Objects: []api.JourneyObject{}, Changes: []api.JourneyChange{}, Spans: []api.Span{}, Since: since}
	allowed, told := map[string]bool{}, map[string]bool{}
	for _, r := range spans {
		told[r.Object] = true
	}
	for _, o := range objects {
		if !told[o.UID] {
			continue // only others' spans are of interest to it
		}
		allowed[o.UID] = may(o)
		switch {
		case !allowed[o.UID] && o.UID == uid:
			return api.Journey{Objects: j.Objects, Changes: j.Changes, Spans: j.Spans, Hidden: 1}
		case !allowed[o.UID]:
			j.Hidden++
		case len(j.Objects) == maxObjects:
			j.More++
			allowed[o.UID] = false
		default:
			j.Objects = append(j.Objects, o)
		}
	}
	slices.SortStableFunc(spans, func(a, b *record) int { return cmp.Compare(a.Start, b.Start) })
	from, to := chooseChange(&j, uid, change, spans)
	for _, r := range spans {
		if allowed[r.Object] && r.Start >= from && (to == 0 || r.Start < to) {
			j.Spans = append(j.Spans, r.Span)
		}
	}
	// Objects that this change had nothing to do with are none of its journey.
	j.Objects = slices.DeleteFunc(j.Objects, func(o api.JourneyObject) bool {
		return o.UID != uid && !slices.ContainsFunc(j.Spans, func(s api.Span) bool { return s.Object == o.UID })
	})
	return j
}

// family is an object, what it owns, and what that owns, owners first; and what is
// known of them all: copies of the lists, of records that do not change any more.
func (w *Window) family(uid string) (objects []api.JourneyObject, spans []*record, since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{uid: true}
	met := map[*record]bool{}
	var others []api.JourneyObject // that spans are about which are of interest to the family
	for queue := []string{uid}; len(queue) > 0; queue = queue[1:] {
		o := w.objects[queue[0]]
		if o != nil {
			objects = append(objects, o.JourneyObject)
			for _, r := range o.spans {
				if met[r] {
					continue
				}
				met[r] = true
				spans = append(spans, r)
				if other := w.objects[r.Object]; !seen[r.Object] && other != nil {
					seen[r.Object] = true
					others = append(others, other.JourneyObject)
				}
			}
		}
		next := make([]string, 0, len(w.owned[queue[0]]))
		for child := range w.owned[queue[0]] {
			if !seen[child] {
				seen[child] = true
				next = append(next, child)
			}
		}
		slices.SortFunc(next, func(a, b string) int { return strings.Compare(w.objects[a].Name, w.objects[b].Name) })
		queue = append(queue, next...)
	}
	return append(objects, others...), spans, w.since()
}

// chooseChange lists the changes of an object and says when the wanted one began,
// and the one after it.
func chooseChange(j *api.Journey, uid, wanted string, spans []*record) (from, to int64) {
	for _, r := range spans {
		if r.change && r.Object == uid {
			j.Changes = append(j.Changes, api.JourneyChange{Span: r.ID, Start: r.Start, Name: r.Name, User: r.user})
		}
	}
	for _, c := range j.Changes {
		if j.Change == wanted && wanted != "" {
			return from, c.Start
		}
		j.Change, from = c.Span, c.Start
	}
	return from, 0
}

// Calls are the last things that a component did (on a node, if one is named), and
// that were done for it, the newest first. may says which objects the reader may
// get.
func (w *Window) Calls(component, node string, may func(api.JourneyObject) bool) api.Journey {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := api.Journey{Objects: []api.JourneyObject{}, Changes: []api.JourneyChange{}, Spans: []api.Span{}, Since: w.since()}
	for _, r := range slices.Backward(w.spans) {
		if len(j.Spans) == maxCalls {
			break
		}
		whole := w.about[r.Parent]
		own := r.Component == component && (whole == nil || whole.Component != component)
		if r.Object == "" || !own && r.caller != component || node != "" && r.Node != node || !may(r.object) {
			continue
		}
		j.Spans = append(j.Spans, r.Span)
		if !slices.ContainsFunc(j.Objects, func(o api.JourneyObject) bool { return o.UID == r.Object }) {
			j.Objects = append(j.Objects, r.object)
		}
	}
	return j
}
