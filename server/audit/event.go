package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Event gathers what is to be recorded of one request. A nil event records
// nothing. It is safe for concurrent use.
type Event struct {
	auditor *Auditor

	mu    sync.Mutex // protects the fields below
	rule  *rule      // nil until Begin
	event auditv1.Event
}

type eventKey struct{}

// WithEvent begins the event of a request and leaves it in the context.
func (a *Auditor) WithEvent(ctx context.Context, id string) (context.Context, *Event) {
	e := &Event{auditor: a, event: auditv1.Event{AuditID: types.UID(id)}}
	return context.WithValue(ctx, eventKey{}, e), e
}

// From is the event of a request, or nil.
func From(ctx context.Context) *Event {
	e, _ := ctx.Value(eventKey{}).(*Event)
	return e
}

// Annotate adds an annotation to the request's event. The first one of a key
// stays.
func Annotate(ctx context.Context, key, value string) {
	if notes, ok := ctx.Value(notesKey{}).(*Notes); ok {
		notes.annotate(key, value)
		return
	}
	From(ctx).Annotate(key, value)
}

// Annotate adds an annotation. The first one of a key stays.
func (e *Event) Annotate(key, value string) {
	if !e.enabled() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.event.Annotations == nil {
		e.event.Annotations = map[string]string{}
	}
	if _, taken := e.event.Annotations[key]; !taken {
		e.event.Annotations[key] = value
	}
}

// enabled: before the policy was asked, everything is kept in case it is wanted.
func (e *Event) enabled() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rule == nil || e.rule.level != audit.LevelNone
}

// longestAgent is how much of a User-Agent is recorded.
const longestAgent = 1024

// Begin asks the policy about the request. It reports false if the event is not
// to be recorded at all.
func (e *Event) Begin(attrs authorizer.Attributes, r *http.Request, received time.Time) bool {
	if e == nil {
		return false
	}
	rule := e.auditor.rule(attrs)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rule = &rule
	if rule.level == audit.LevelNone {
		return false
	}
	v := &e.event
	v.Level = auditv1.Level(rule.level)
	v.RequestReceivedTimestamp = metav1.NewMicroTime(received)
	v.Verb, v.RequestURI, v.UserAgent = attrs.GetVerb(), r.URL.RequestURI(), r.UserAgent()
	if len(v.UserAgent) > longestAgent {
		v.UserAgent = v.UserAgent[:longestAgent] + "...TRUNCATED"
	}
	for _, ip := range utilnet.SourceIPs(r) {
		v.SourceIPs = append(v.SourceIPs, ip.String())
	}
	v.User = UserInfo(attrs.GetUser())
	if attrs.IsResourceRequest() {
		v.ObjectRef = &auditv1.ObjectReference{
			Resource: attrs.GetResource(), Subresource: attrs.GetSubresource(), Namespace: attrs.GetNamespace(),
			Name: attrs.GetName(), APIGroup: attrs.GetAPIGroup(), APIVersion: attrs.GetAPIVersion(),
		}
	}
	return true
}

// UserInfo is a user as the API's objects have it.
func UserInfo(u user.Info) authenticationv1.UserInfo {
	if u == nil {
		return authenticationv1.UserInfo{}
	}
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// Impersonates records as whom the user acts, and by which constrained right, if
// it was one.
func (e *Event) Impersonates(as user.Info, constraint string) {
	e.visit(audit.LevelMetadata, func(v *auditv1.Event) {
		info := UserInfo(as)
		v.ImpersonatedUser = &info
		if constraint != "" {
			v.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
		}
	})
}

// Wants reports whether the level is at least this one.
func (e *Event) Wants(level auditv1.Level) bool {
	wants := false
	e.visit(audit.Level(level), func(*auditv1.Event) { wants = true })
	return wants
}

// visit lets f see the event if its level is at least this one.
func (e *Event) visit(level audit.Level, f func(*auditv1.Event)) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rule != nil && e.rule.level.GreaterOrEqual(level) {
		f(&e.event)
	}
}

// Names completes what the URL says of the object by what is in it.
func (e *Event) Names(m metav1.Object) {
	e.visit(audit.LevelMetadata, func(v *auditv1.Event) {
		ref := v.ObjectRef
		if ref == nil || m == nil {
			return
		}
		if ref.Namespace == "" {
			ref.Namespace = m.GetNamespace()
		}
		if ref.Name == "" {
			ref.Name = m.GetName()
		}
		ref.UID, ref.ResourceVersion = m.GetUID(), m.GetResourceVersion()
	})
}

// Request records the object that the client has sent.
func (e *Event) Request(object []byte) {
	e.visit(audit.LevelRequest, func(v *auditv1.Event) { v.RequestObject = e.object(object) })
}

// Response records the object that it was answered.
func (e *Event) Response(object []byte) {
	e.visit(audit.LevelRequestResponse, func(v *auditv1.Event) { v.ResponseObject = e.object(object) })
}

// object is an object as events have it. Caller holds mu.
func (e *Event) object(raw []byte) *runtime.Unknown {
	if e.rule.omitManagedFields {
		raw = withoutManagedFields(raw)
	}
	return &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
}

// Status records the Status that the client was answered.
func (e *Event) Status(s *metav1.Status) {
	e.visit(audit.LevelMetadata, func(v *auditv1.Event) {
		v.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
	})
}

// Code records the answer's status code.
func (e *Event) Code(code int) {
	e.visit(audit.LevelMetadata, func(v *auditv1.Event) {
		if v.ResponseStatus == nil {
			v.ResponseStatus = &metav1.Status{}
		}
		v.ResponseStatus.Code = int32(code)
	})
}

// Answered reports whether a status is recorded.
func (e *Event) Answered() bool {
	answered := false
	e.visit(audit.LevelMetadata, func(v *auditv1.Event) { answered = v.ResponseStatus != nil })
	return answered
}

// Reach sends the event with what is known at a stage. It reports false if that
// fails and the request must not go on.
func (e *Event) Reach(stage auditv1.Stage) bool {
	ok := true
	e.visit(audit.LevelMetadata, func(v *auditv1.Event) {
		if e.rule.omits(stage) {
			return
		}
		v.Stage, v.StageTimestamp = stage, metav1.NowMicro()
		if stage == auditv1.StageRequestReceived {
			v.StageTimestamp = v.RequestReceivedTimestamp
		}
		r, err := encode(v)
		if err != nil {
			e.auditor.metrics.errors.WithLabelValues("encode").Inc()
			ok = false
			return
		}
		ok = e.auditor.put(r)
	})
	return ok
}

// encode makes the record of an event, which may change afterwards.
func encode(v *auditv1.Event) (*record, error) {
	event := *v
	if v.ResponseStatus != nil {
		status := *v.ResponseStatus
		event.ResponseStatus = &status
	}
	if v.Annotations != nil {
		event.Annotations = make(map[string]string, len(v.Annotations))
		for key, value := range v.Annotations {
			event.Annotations[key] = value
		}
	}
	raw, err := json.Marshal(&event)
	return &record{event: &event, json: raw}, err
}

// typeHead is how the JSON of an event that stands alone begins.
const typeHead = `{"kind":"Event","apiVersion":"audit.k8s.io/v1",`

// line is the record as a line of the log.
func (r *record) line() []byte {
	line := make([]byte, 0, len(typeHead)+len(r.json))
	return append(append(append(line, typeHead...), r.json[1:]...), '\n')
}

func (r *record) size() int64 { return int64(len(typeHead) + len(r.json)) }

// withoutManagedFields takes the ownership of fields out of an object, or of all
// the objects of a list or table.
func withoutManagedFields(raw []byte) []byte {
	var object map[string]any
	numbers := json.NewDecoder(bytes.NewReader(raw))
	numbers.UseNumber() // large integers must not become floating
	if numbers.Decode(&object) != nil {
		return raw
	}
	changed := forget(object)
	for _, list := range []string{"items", "rows"} {
		entries, _ := object[list].([]any)
		for _, entry := range entries {
			item, _ := entry.(map[string]any)
			if inner, ok := item["object"].(map[string]any); ok && list == "rows" {
				item = inner
			}
			changed = forget(item) || changed
		}
	}
	if !changed {
		return raw
	}
	if less, err := json.Marshal(object); err == nil {
		return less
	}
	return raw
}

func forget(object map[string]any) bool {
	meta, _ := object["metadata"].(map[string]any)
	_, ok := meta["managedFields"]
	delete(meta, "managedFields")
	return ok
}
