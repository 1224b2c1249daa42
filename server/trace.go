package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
	"orrery.dev/server/storage"
	"orrery.dev/trace"
)

// traced reports whether a request is worth a span: it may change an object, and
// is not one of the many by which everybody says every few seconds that nothing
// has changed.
func (i *requestInfo) traced() bool {
	switch i.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return i.Resource && tracedResource(i.GVR.Resource) && (i.GVR.Resource != "nodes" || i.Subresource != "status") && !i.longRunning()
	}
	return false
}

// tracedResource leaves out the kinds that only report, and reviews, which are no
// objects.
func tracedResource(resource string) bool {
	return resource != "leases" && resource != "events" && !strings.HasSuffix(resource, "reviews")
}

// trace begins the span of a request: the way of a change begins here. Of what
// fails, only the code is told: words may quote what is in a Secret.
func (s *Server) trace(c *gin.Context) {
	ctx := c.Request.Context()
	info := infoFrom(ctx)
	if s.Trace == nil || !info.traced() {
		return
	}
	name := info.Verb + " " + info.GVR.Resource
	if info.Subresource != "" {
		name += "/" + info.Subresource
	}
	received, _ := ctx.Value(keyReceived).(time.Time)
	ctx, span := s.Trace.StartAt(trace.Received(ctx, c.Request.Header), received, name, trace.Object{})
	c.Request = c.Request.WithContext(ctx)
	agent := c.Request.UserAgent()
	defer func() {
		code := c.Writer.Status()
		span.Set(attribute.Int("http.response.status_code", code))
		traceCaller(span, agent, userFrom(c.Request.Context()))
		var failed error
		if code >= 400 && code != http.StatusConflict { // a lost race is an answer like others
			failed = errors.New(strconv.Itoa(code))
		}
		span.End(failed)
	}()
	c.Next()
}

func traceCaller(span *trace.Span, agent string, who user.Info) {
	span.Set(attribute.String("user_agent.original", agent), trace.Caller(componentOf(agent)))
	if who == nil {
		return
	}
	span.Set(attribute.String("enduser.id", who.GetName()))
	if node, ok := strings.CutPrefix(who.GetName(), "system:node:"); ok {
		span.Set(trace.Node(node))
	}
}

// tracedDeletions is how many objects of a deletecollection are told of.
const tracedDeletions = 100

// traceDeletion begins the span of the nth object of a deletecollection.
func (c *call) traceDeletion(ctx context.Context, nth int) (context.Context, *trace.Span) {
	if nth >= tracedDeletions {
		return ctx, nil
	}
	ctx, span := trace.Step(ctx, "delete "+c.GVR.Resource)
	traceCaller(span, c.r.UserAgent(), c.user)
	return ctx, span
}

// componentOf is the program that a User-Agent names: ours are all "orrery/...".
func componentOf(agent string) string {
	agent, _ = strings.CutPrefix(agent, "orrery/")
	if end := strings.IndexAny(agent, "/ "); end >= 0 {
		agent = agent[:end]
	}
	return agent
}

// components are the programs that a cluster is made of.
var components = []string{"kube-scheduler", "kube-controller-manager", "kubelet", "kube-proxy"}

// wrote tells the request's span which object it has changed, and how: from before
// (nil: it was not there) to after, which has the revision.
func (c *call) wrote(ctx context.Context, before, after runtime.Object, revision int64) {
	span := trace.From(ctx)
	if span == nil {
		return
	}
	m, err := meta.Accessor(after)
	if err != nil {
		return
	}
	what := trace.Of(c.GVR.Group, c.GVR.Resource, m)
	what.Revision = strconv.FormatInt(revision, 10)
	if what.Resource == "bindings" { // which name a pod
		what.Resource = "pods"
	}
	span.About(what)
	var also []string
	if slice, ok := after.(*discoveryv1.EndpointSlice); ok {
		was, _ := before.(*discoveryv1.EndpointSlice)
		also = api.NewlyReady(was, slice)
	}
	span.Also(also)
	if mark := milestone(before, after); mark != "" {
		span.Set(attribute.String("orrery.milestone", mark))
	}
	if was, err := meta.Accessor(before); err == nil && was.GetResourceVersion() == what.Revision {
		return // nothing was to be done
	}
	if c.changes(before, after) {
		span.Change()
	}
	if c.s.commits != nil {
		c.s.commits.note(&commit{revision: revision, at: time.Now(), object: what, also: also, span: span.SpanContext()})
	}
}

// changes reports whether a write asked for something else than before, rather
// than tell how things are.
func (c *call) changes(before, after runtime.Object) bool {
	if before == nil {
		return true
	}
	b, err1 := meta.Accessor(before)
	a, err2 := meta.Accessor(after)
	switch {
	case err1 != nil || err2 != nil:
		return false
	case strings.HasPrefix(c.Verb, "delete") || a.GetDeletionTimestamp() != nil:
		return b.GetDeletionTimestamp() == nil
	case c.Subresource == "" && slices.Contains(components, componentOf(c.r.UserAgent())):
		return false // what controllers note in annotations
	case c.Subresource != "" && c.Subresource != "scale":
		return false
	}
	return a.GetGeneration() == 0 || a.GetGeneration() != b.GetGeneration()
}

// milestone names what users wait for, where a write is the news of it.
func milestone(before, after runtime.Object) string {
	switch now := after.(type) {
	case *corev1.Pod:
		was, _ := before.(*corev1.Pod)
		if was == nil {
			was = &corev1.Pod{}
		}
		switch {
		case api.IsPodReady(now) && !api.IsPodReady(was):
			return "ready"
		case now.Status.Phase != was.Status.Phase && now.Status.Phase != corev1.PodPending:
			return strings.ToLower(string(now.Status.Phase))
		case now.Spec.NodeName != "" && was.Spec.NodeName == "":
			return "scheduled"
		}
	case *appsv1.Deployment:
		if was, ok := before.(*appsv1.Deployment); ok && complete(now) && !complete(was) {
			return "complete"
		}
	}
	return ""
}

// complete reports whether a Deployment is what it is asked to be.
func complete(d *appsv1.Deployment) bool {
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	st := d.Status
	return st.ObservedGeneration >= d.Generation && st.Replicas == wanted && st.UpdatedReplicas == wanted && st.AvailableReplicas == wanted
}

// commit is a write of this server, as its delivery to watchers is told of.
type commit struct {
	revision int64
	at       time.Time
	object   trace.Object
	also     []string
	span     oteltrace.SpanContext
}

// commits remembers the last writes by their revision.
type commits [4096]atomic.Pointer[commit]

func (c *commits) note(one *commit) { c[one.revision%int64(len(c))].Store(one) }

func (c *commits) find(revision int64) *commit {
	if one := c[revision%int64(len(c))].Load(); one != nil && one.revision == revision {
		return one
	}
	return nil
}

// delivery is a batch of events that has gone out to a component.
type delivery struct {
	to, node  string
	at        time.Time
	revisions []int64
}

// deliver notes that a component has been sent events. Who is told of a write may
// know of it before who wrote it: what they mean is looked up a moment later.
func (e *eventStream) deliver(events []storage.Event) {
	if e.deliveries == nil || len(events) == 0 {
		return
	}
	d := delivery{to: e.to, node: e.node, at: time.Now(), revisions: make([]int64, len(events))}
	for i, event := range events {
		d.revisions[i] = event.Revision
	}
	select {
	case e.deliveries <- d:
	default: // nobody waits for what is only told
	}
}

// toComponent prepares a watch for deliver, if a component of the cluster has it.
func (e *eventStream) toComponent() {
	to := componentOf(e.r.UserAgent())
	if e.s.Trace == nil || !tracedResource(e.GVR.Resource) || !slices.Contains(components, to) {
		return
	}
	e.to, e.deliveries = to, e.s.deliveries
	e.node, _ = strings.CutPrefix(e.user.GetName(), "system:node:")
	if e.node == e.user.GetName() {
		e.node = ""
	}
}

// deliveryDelay is how long a write has to become known, deliveryMost to how many
// components its delivery is told of: there may be thousands of nodes.
const (
	deliveryDelay = 20 * time.Millisecond
	deliveryMost  = 8
)

// followDeliveries makes spans of deliveries until ctx ends.
func (s *Server) followDeliveries(ctx context.Context) {
	told := map[*commit][]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-s.deliveries:
			if wait := deliveryDelay - time.Since(d.at); wait > 0 {
				time.Sleep(wait)
			}
			if len(told) > len(s.commits) {
				clear(told)
			}
			for _, revision := range d.revisions {
				s.delivered(d, revision, told)
			}
		}
	}
}

func (s *Server) delivered(d delivery, revision int64, told map[*commit][]string) {
	c := s.commits.find(revision)
	if c == nil || len(told[c]) == deliveryMost || slices.Contains(told[c], d.to+d.node) {
		return
	}
	told[c] = append(told[c], d.to+d.node)
	from := min(c.at.UnixNano(), d.at.UnixNano())
	_, span := s.Trace.StartAt(oteltrace.ContextWithSpanContext(context.Background(), c.span), time.Unix(0, from), "watch delivery", c.object,
		attribute.String("to", d.to))
	span.Also(c.also)
	if d.node != "" {
		span.Set(attribute.String("to.node", d.node))
	}
	span.EndAt(d.at, nil)
}
