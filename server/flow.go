package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/server/auth"
	"orrery.dev/server/flowcontrol"
	"orrery.dev/trace"
)

// newFlow makes priority and fairness; nil if the configuration wants plain
// limits.
func (s *Server) newFlow() *flowcontrol.Controller {
	if s.PlainLimits {
		return nil
	}
	return flowcontrol.New(flowcontrol.Config{
		Seats: max(0, s.MaxReads) + max(0, s.MaxWrites), Patience: s.RequestTimeout / 4,
		Objects: func(gr schema.GroupResource) (int, int64) {
			if col := s.Store.Collection(gr); col != nil {
				return col.Size()
			}
			return 0, 0
		},
	})
}

// limit lets a request wait for its turn, or refuses it. What lasts is not
// counted, but for watches until they have begun.
func (s *Server) limit(c *gin.Context) {
	info := infoFrom(c.Request.Context())
	if info.longRunning() && (info.Verb != "watch" || s.flow == nil) || s.isStream(info.Path) {
		return
	}
	if s.flow == nil {
		s.limitPlainly(c, info)
		return
	}
	ctx := c.Request.Context()
	received, _ := ctx.Value(keyReceived).(time.Time)
	request := &flowcontrol.Request{
		User: userFrom(ctx), Resource: info.Resource, Verb: info.Verb, GVR: info.GVR, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name, URL: c.Request.URL, Received: received,
	}
	began := time.Now()
	step := trace.LastStep(ctx, "priority and fairness")
	pass := s.flow.Enter(ctx, request)
	step.End(nil)
	delayOf(ctx).add(time.Since(began))
	// The names would tell users what the administrator thinks of them.
	c.Header(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID, string(pass.Class.LevelUID))
	c.Header(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, string(pass.Class.SchemaUID))
	if !pass.Admitted {
		s.tooMany(c, pass.RetryAfter)
		return
	}
	defer pass.Leave()
	if info.Verb == "watch" {
		defer s.flow.Watch(request)()
		c.Request = c.Request.WithContext(context.WithValue(ctx, keyPass, pass))
	}
	c.Next()
}

// watchBegun gives back the seats of a watch, which serves from now on what
// others do.
func watchBegun(ctx context.Context) {
	if pass, ok := ctx.Value(keyPass).(*flowcontrol.Pass); ok {
		pass.Leave()
	}
}

// tooMany is upstream's refusal, which is not a Status.
func (s *Server) tooMany(c *gin.Context, after int64) {
	c.Abort()
	s.metrics.terminate(c.Request, http.StatusTooManyRequests)
	c.Header("Retry-After", strconv.FormatInt(after, 10))
	http.Error(c.Writer, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// limitPlainly bounds reads, and all other requests. Who may do everything is
// never refused.
func (s *Server) limitPlainly(c *gin.Context, info *requestInfo) {
	slots := s.writes
	if info.Verb == "get" || info.Verb == "list" {
		slots = s.reads
	}
	if slots == nil {
		return
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		c.Next()
	default:
		if !slices.Contains(userFrom(c.Request.Context()).GetGroups(), user.SystemPrivilegedGroup) {
			s.tooMany(c, 1)
		}
	}
}

// rebalanceEvery is how often levels lend each other what they do not need.
const rebalanceEvery = 10 * time.Second

// followFlows keeps flow control in step with its objects until ctx ends.
func (s *Server) followFlows(ctx context.Context) {
	changed := make(chan struct{}, 1)
	nudge := func([]auth.Change, bool) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, resource := range []string{"flowschemas", "prioritylevelconfigurations"} {
		wg.Go(func() { _ = AuthSource{s.Store}.Follow(ctx, flowResource(resource), nudge) }) // ends with ctx only
	}
	again := time.NewTicker(rebalanceEvery)
	defer again.Stop()
	for {
		select {
		case <-changed:
			s.configureFlows(ctx)
		case <-again.C:
			if s.flow.Rebalance(time.Now()) {
				s.configureFlows(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

func flowResource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: resource}
}

// configureFlows hands the stored objects to flow control, and writes what it
// says of them.
func (s *Server) configureFlows(ctx context.Context) {
	schemas, err := stored[*flowcontrolv1.FlowSchema](ctx, s, flowResource("flowschemas"))
	if err != nil {
		return // not without the objects; the next change, or round, will see them
	}
	levels, err := stored[*flowcontrolv1.PriorityLevelConfiguration](ctx, s, flowResource("prioritylevelconfigurations"))
	if err != nil {
		return
	}
	conditions := s.flow.Configure(time.Now(), levels, schemas)
	s.health.finished(nil, flowConfigHook)
	own := &OwnStore{s.Store, s.fields}
	for name, condition := range conditions {
		if err := own.ApplyCondition(ctx, flowResource("flowschemas"), name, flowStatusManager, &condition); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.Log.Warn("condition of a flow schema not written", "name", name, "err", err)
		}
	}
}

func stored[T runtime.Object](ctx context.Context, s *Server, resource schema.GroupResource) ([]T, error) {
	objects, err := s.Store.List(ctx, resource, "")
	if err != nil {
		return nil, err
	}
	var all []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			all = append(all, typed)
		}
	}
	return all, nil
}
