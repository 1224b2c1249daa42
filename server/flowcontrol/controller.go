package flowcontrol

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Config is what a Controller is made of.
type Config struct {
	// Seats are the requests that the server handles at a time.
	Seats int
	// Patience is how long requests without a deadline wait for a seat.
	Patience time.Duration
	// Objects tells how many objects there are of a resource, and the bytes of
	// all; nil: lists cost no more than other requests.
	Objects func(schema.GroupResource) (count int, bytes int64)
}

// Controller lets requests in.
type Controller struct {
	Config
	watches watches
	metrics *metrics
	seed    maphash.Seed
	// flows are those in use, in the order in which they match; catch-all is
	// always among them.
	flows atomic.Pointer[[]*flow]
	fair  atomic.Uint64 // float64 bits: the fraction of what they would like that levels got

	mu      sync.Mutex // protects the fields below
	levels  map[string]*level
	counts  map[flowName]*counts
	nominal int // seats of all levels
}

// flow is a FlowSchema in use.
type flow struct {
	schema *flowcontrolv1.FlowSchema
	level  *level
	counts *counts
	about  Class
	exempt bool
	widest int
}

// flowName is the name of a schema at a level.
type flowName struct{ level, schema string }

// flowID tells flows apart.
type flowID struct{ schema, distinguisher string }

// Class is what a request has been taken for.
type Class struct {
	Schema, Level       string
	SchemaUID, LevelUID types.UID
}

// New makes a controller that knows the mandatory objects only.
func New(c Config) *Controller {
	f := &Controller{
		Config: c, watches: watches{count: map[watched]int{}}, seed: maphash.MakeSeed(),
		levels: map[string]*level{}, counts: map[flowName]*counts{},
	}
	f.metrics = newMetrics(f)
	f.Configure(time.Now(), nil, nil)
	return f
}

// Pass is a request's: admitted or not. Until Leave is called it holds its seats.
type Pass struct {
	Class    Class
	Admitted bool
	// RetryAfter is the number of seconds after which to ask again, if it was not
	// admitted.
	RetryAfter int64

	controller *Controller
	request    *Request
	flow       *flow
	work       work
	flowOf     string // distinguisher

	turn             chan struct{} // closed when it is served; nil: it was at once
	left             atomic.Bool
	arrived, started time.Time
	virtual          float64 // its level's time when it arrived
	queue            *queue
	in               *line
	prev, next       *Pass
}

// Enter classifies a request and waits for its seats. Pass.Leave must be called
// if it is admitted.
func (c *Controller) Enter(ctx context.Context, r *Request) *Pass {
	f := c.flowFor(r)
	p := &Pass{Class: f.about, controller: c, request: r, flow: f, work: c.estimate(r, f, f.widest)}
	f.counts.width.Observe(float64(p.work.width()))
	var hash uint64 // nobody can aim at another's queues: the seed is secret
	if !f.exempt {
		p.flowOf = distinguisher(f.schema, r)
		hash = maphash.Comparable(c.seed, flowID{f.about.Schema, p.flowOf})
	}
	f.level.mu.Lock()
	refusal := f.level.enter(time.Now(), p, hash)
	f.level.mu.Unlock()
	if p.turn != nil {
		refusal = c.wait(ctx, p)
	}
	if refusal != "" {
		f.counts.refuse(refusal)
		p.RetryAfter = f.level.pace.refuse(time.Now().Unix())
		return p
	}
	p.Admitted = true
	c.metrics.kinds.add(p.started, phaseExecuting, r, 1)
	if !f.exempt {
		f.counts.waited(true).Observe(p.started.Sub(p.arrived).Seconds())
	}
	return p
}

// flowFor is the first flow that matches.
func (c *Controller) flowFor(r *Request) *flow {
	flows := *c.flows.Load()
	for _, f := range flows {
		if matches(f.schema, r) {
			return f
		}
	}
	return flows[slices.IndexFunc(flows, func(f *flow) bool { return f.about.Schema == flowcontrolv1.FlowSchemaNameCatchAll })]
}

// wait waits for a pass's turn: a quarter of the request's time, so that enough is
// left to serve it.
func (c *Controller) wait(ctx context.Context, p *Pass) (refusal string) {
	c.metrics.kinds.add(p.arrived, phaseWaiting, p.request, 1)
	defer func() { c.metrics.kinds.add(time.Now(), phaseWaiting, p.request, -1) }()
	limit := c.Patience
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline.Sub(p.request.Received) / 4
	}
	over := time.NewTimer(time.Until(p.request.Received.Add(min(limit, time.Minute))))
	defer over.Stop()
	select {
	case <-p.turn:
		return ""
	case <-over.C:
	case <-ctx.Done():
	}
	l, now := p.flow.level, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.giveUp(now, p, ctx.Err() != nil) {
		return ""
	}
	p.flow.counts.waited(false).Observe(now.Sub(p.arrived).Seconds())
	return reasonTimeout
}

// Leave gives the seats back. Only the first call counts.
func (p *Pass) Leave() {
	if !p.Admitted || p.left.Swap(true) {
		return
	}
	now, l := time.Now(), p.flow.level
	l.mu.Lock()
	extra := l.finish(now, p)
	l.mu.Unlock()
	p.controller.metrics.kinds.add(now, phaseExecuting, p.request, -1)
	p.flow.counts.served(p.request.Verb == "watch").Observe(now.Sub(p.started).Seconds())
	if extra > 0 {
		time.AfterFunc(extra, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.free(time.Now(), p)
		})
	}
}

// Watch counts a watch among those that hear of writes, until the returned
// function is called.
func (c *Controller) Watch(r *Request) (end func()) { return c.watches.begin(r) }

// Configure takes over the stored objects, and returns the conditions that are to
// be written to schemas, by name.
func (c *Controller) Configure(now time.Time, levels []*flowcontrolv1.PriorityLevelConfiguration, schemas []*flowcontrolv1.FlowSchema) map[string]flowcontrolv1.FlowSchemaCondition {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := map[string]bool{}
	for _, p := range levels {
		if usable(p) {
			stored[p.Name] = true
			c.configure(p)
		}
	}
	for _, p := range Levels() {
		if IsMandatory(p.Name) && !stored[p.Name] {
			stored[p.Name] = true
			c.configure(p)
		}
	}
	c.dropUnwanted(stored)
	c.share(now)
	c.rebalance(now)
	existing := map[string]bool{}
	for _, p := range levels {
		existing[p.Name] = stored[p.Name] && usable(p)
	}
	conditions := map[string]flowcontrolv1.FlowSchemaCondition{}
	for _, s := range schemas {
		if condition, changed := dangling(now, s, existing[s.Spec.PriorityLevelConfiguration.Name]); changed {
			conditions[s.Name] = condition
		}
	}
	c.useFlows(schemas, existing)
	return conditions
}

// configure makes or changes a level. Caller holds mu, as of all below.
func (c *Controller) configure(p *flowcontrolv1.PriorityLevelConfiguration) {
	l := c.levels[p.Name]
	if l == nil {
		l = &level{name: p.Name}
		c.levels[p.Name] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.configure(p)
}

// dropUnwanted drops the levels whose objects are gone, once they are empty. Until
// then they keep their share, so that they do become empty.
func (c *Controller) dropUnwanted(wanted map[string]bool) {
	maps.DeleteFunc(c.levels, func(name string, l *level) bool {
		if wanted[name] {
			return false
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unwanted = true
		return l.idle()
	})
}

// share divides the server's seats among the levels.
func (c *Controller) share(now time.Time) {
	all := int64(0)
	for _, l := range c.levels {
		shares, _, _ := shareOf(l.object)
		all += int64(shares)
	}
	c.nominal = 0
	waiting := 0
	for _, l := range c.levels {
		l.mu.Lock()
		l.advance(now)
		l.bounds = boundsOf(l.object, c.Seats, all)
		c.nominal += l.bounds.nominal
		waiting += l.desired * l.length
		l.mu.Unlock()
	}
	c.metrics.kinds.limits(waiting, c.nominal)
}

// useFlows puts schemas into the order in which they match: by precedence, then by
// name; the mandatory ones are always there.
func (c *Controller) useFlows(schemas []*flowcontrolv1.FlowSchema, levels map[string]bool) {
	used := slices.DeleteFunc(slices.Clone(schemas), func(s *flowcontrolv1.FlowSchema) bool {
		return !levels[s.Spec.PriorityLevelConfiguration.Name]
	})
	slices.SortFunc(used, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	named := func(name string) func(*flowcontrolv1.FlowSchema) bool {
		return func(s *flowcontrolv1.FlowSchema) bool { return s.Name == name }
	}
	for _, s := range Schemas() {
		switch {
		case slices.ContainsFunc(used, named(s.Name)):
		case s.Name == flowcontrolv1.FlowSchemaNameExempt:
			used = slices.Insert(used, 0, s)
		case s.Name == flowcontrolv1.FlowSchemaNameCatchAll:
			used = append(used, s)
		}
	}
	flows := make([]*flow, len(used))
	for i, s := range used {
		l := c.levels[s.Spec.PriorityLevelConfiguration.Name]
		flows[i] = &flow{
			schema: s, level: l, exempt: l.exempt, widest: widest(l.object, l.bounds.nominal), counts: c.countsOf(flowName{l.name, s.Name}),
			about: Class{Schema: s.Name, SchemaUID: s.UID, Level: l.name, LevelUID: l.object.UID},
		}
	}
	c.flows.Store(&flows)
}

func (c *Controller) countsOf(name flowName) *counts {
	if c.counts[name] == nil {
		c.counts[name] = c.metrics.countsOf(name)
	}
	return c.counts[name]
}

// Rebalance is to be called every ten seconds. It reports whether a level that is
// no longer wanted has become empty, so that Configure can drop it.
func (c *Controller) Rebalance(now time.Time) (drop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rebalance(now)
	for _, l := range c.levels {
		l.mu.Lock()
		drop = drop || l.unwanted && l.idle()
		l.mu.Unlock()
	}
	return drop
}

// dangling is the condition that says whether a schema's level exists, if it is
// not what the schema says already.
func dangling(now time.Time, s *flowcontrolv1.FlowSchema, found bool) (flowcontrolv1.FlowSchemaCondition, bool) {
	name := s.Spec.PriorityLevelConfiguration.Name
	c := flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), Reason: "NotFound",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", name),
	}
	if found {
		c.Status, c.Reason = flowcontrolv1.ConditionFalse, "Found"
		c.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", name)
	}
	for _, have := range s.Status.Conditions {
		if have.Type == c.Type && have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message {
			return c, false
		}
	}
	return c, true
}
