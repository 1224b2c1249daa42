package api

// JourneyPath is where the API server tells what has become of a change. A GET
// with ?uid= answers the Journey of that object; &change= names another change
// than the last (the id of its span). With ?component= (and &node=) it answers
// the last calls of that component, as a Journey without objects of its own.
const JourneyPath = "/orrery/v1/journey"

// SpansPath is where components send their spans: a POST of OTLP's
// ExportTraceServiceRequest, as protobuf.
const SpansPath = "/orrery/v1/spans"

// Journey is what components did about an object and about what it owns, in the
// order in which they began, as far as the API server that answers has heard of
// it and remembers it, and as far as the user may get the objects.
type Journey struct {
	Objects []JourneyObject `json:"objects"` // owners before what they own
	Changes []JourneyChange `json:"changes"` // of the object itself, the oldest first
	Change  string          `json:"change,omitempty"`
	Spans   []Span          `json:"spans"`
	// Since is when the oldest span began that is remembered, in microseconds of
	// Unix time; 0: none is.
	Since int64 `json:"since"`
	// Hidden are objects that the user may not get, More those that are left out
	// because there are too many.
	Hidden int `json:"hidden,omitempty"`
	More   int `json:"more,omitempty"`
}

// JourneyObject is an object that spans are about.
type JourneyObject struct {
	UID       string `json:"uid"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Owner     string `json:"owner,omitempty"` // uid of the one that controls it
}

// JourneyChange is a write that made the object another one.
type JourneyChange struct {
	Span  string `json:"span"`
	Start int64  `json:"start"` // microseconds of Unix time
	Name  string `json:"name"`  // "patch deployments"
	User  string `json:"user,omitempty"`
}

// Span is one thing that a component did. Its name says what, out of a short list
// that faces translate: "etcd commit".
type Span struct {
	ID        string          `json:"id"`
	Parent    string          `json:"parent,omitempty"`
	Trace     string          `json:"trace"`
	Object    string          `json:"object,omitempty"` // uid
	Component string          `json:"component"`
	Node      string          `json:"node,omitempty"`
	Name      string          `json:"name"`
	Start     int64           `json:"start"`    // microseconds of Unix time
	Duration  int64           `json:"duration"` // microseconds
	Failed    bool            `json:"failed,omitempty"`
	Error     string          `json:"error,omitempty"`
	Details   []SpanAttribute `json:"details,omitempty"`
}

// SpanAttribute is a detail of a span.
type SpanAttribute struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}
