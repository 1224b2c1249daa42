package flowcontrol

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ask is a request in words: "ann,group1 get pods", "ann get web/pods/status",
// "ann get /healthz".
func ask(text string) *Request {
	words := strings.Fields(text)
	names := strings.Split(words[0], ",")
	r := &Request{User: &user.DefaultInfo{Name: names[0], Groups: names[1:]}, Verb: words[1], URL: &url.URL{Path: words[2]}, Received: time.Now()}
	what, query, _ := strings.Cut(words[2], "?")
	r.URL.RawQuery = query
	if strings.HasPrefix(what, "/") {
		return r
	}
	r.Resource = true
	r.GVR = schema.GroupVersionResource{Version: "v1", Resource: what}
	parts := strings.Split(what, "/")
	if len(parts) > 1 {
		r.Namespace, r.GVR.Resource = parts[0], parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = parts[2]
	}
	return r
}

func TestClassification(t *testing.T) {
	c := New(Config{Seats: 600})
	c.Configure(time.Now(), Levels(), Schemas())
	for text, want := range map[string]string{
		"root,system:masters create web/pods":                                  "exempt/exempt",
		"ann,system:unauthenticated get /healthz":                              "probes/exempt",
		"ann,system:authenticated get /healthz/ping":                           "probes/exempt",
		"ann,system:authenticated get /healthzz":                               "global-default/global-default",
		"system:kube-scheduler,system:authenticated watch pods":                "kube-scheduler/workload-high",
		"system:node:a,system:nodes update nodes/x":                            "system-nodes/system",
		"system:node:a,system:nodes get nodes":                                 "system-node-high/node-high",
		"system:serviceaccount:kube-system:x,system:serviceaccounts get pods":  "kube-system-service-accounts/workload-high",
		"system:serviceaccount:kube-system,system:serviceaccounts get pods":    "service-accounts/workload-low",
		"system:serviceaccount:kube-systems:x,system:serviceaccounts get pods": "service-accounts/workload-low",
		"ann,system:authenticated list web/pods":                               "global-default/global-default",
		"ann list web/pods":                                                    "catch-all/catch-all",
	} {
		if f := c.flowFor(ask(text)); f.about.Schema+"/"+f.about.Level != want {
			t.Errorf("%s: %s/%s, want %s", text, f.about.Schema, f.about.Level, want)
		}
	}
}

func TestRules(t *testing.T) {
	group := []flowcontrolv1.Subject{flowGroup("g")}
	rules := func(verb, groups, resource string, cluster bool, namespaces ...string) flowcontrolv1.PolicyRulesWithSubjects {
		return flowcontrolv1.PolicyRulesWithSubjects{Subjects: group, ResourceRules: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: []string{verb}, APIGroups: []string{groups}, Resources: []string{resource}, ClusterScope: cluster, Namespaces: namespaces},
		}}
	}
	paths := func(path string) flowcontrolv1.PolicyRulesWithSubjects {
		return flowcontrolv1.PolicyRulesWithSubjects{Subjects: group, NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{path}}}}
	}
	for _, c := range []struct {
		rules flowcontrolv1.PolicyRulesWithSubjects
		text  string
		want  bool
	}{
		{rules("get", "", "pods", false, "web"), "a,g get web/pods", true},
		{rules("get", "", "pods", false, "web"), "a,h get web/pods", false},
		{rules("get", "", "pods", false, "web"), "a,g list web/pods", false},
		{rules("get", "", "pods", false, "web"), "a,g get shop/pods", false},
		{rules("get", "", "pods", false, "web"), "a,g get pods", false},
		{rules("get", "", "pods", true), "a,g get pods", true},
		{rules("get", "", "pods", true), "a,g get web/pods", false},
		{rules("*", "apps", "pods", true, "*"), "a,g get web/pods", false},
		{rules("*", "*", "pods", true, "*"), "a,g get web/pods/status", false},
		{rules("*", "*", "pods/status", true, "*"), "a,g get web/pods/status", true},
		{rules("*", "*", "*", true, "*"), "a,g get web/pods/status", true},
		{rules("*", "*", "*", true, "*"), "a,g get /version", false},
		{paths("*"), "a,g get /version", true},
		{paths("*"), "a,g get web/pods", false},
		{paths("/version"), "a,g get /version", true},
		{paths("/version"), "a,g get /version/x", true},
		{paths("/version/*"), "a,g get /version/x", true},
		{paths("/version/*"), "a,g get /version", false},
		{paths("/version/*"), "a,g get /versions", false},
	} {
		s := &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{Rules: []flowcontrolv1.PolicyRulesWithSubjects{c.rules}}}
		if got := matches(s, ask(c.text)); got != c.want {
			t.Errorf("%+v\n%s: %t", c.rules, c.text, got)
		}
	}
}

// TestConfigure has what a configuration makes of the mandatory objects, of those
// that do not fit, and of those that go.
func TestConfigure(t *testing.T) {
	now := time.Unix(1000, 0)
	c := New(Config{Seats: 600})
	names := func() (all []string) {
		for _, f := range *c.flows.Load() {
			all = append(all, f.about.Schema+">"+f.about.Level)
		}
		return all
	}
	if got := names(); !slices.Equal(got, []string{"exempt>exempt", "catch-all>catch-all"}) {
		t.Errorf("without objects: %v", got)
	}
	lost := flowSchema("lost", "nowhere", 5, "", flowcontrolv1.PolicyRulesWithSubjects{})
	conditions := c.Configure(now, Levels(), append(Schemas(), lost))
	if len(conditions) != 12 || conditions["lost"].Status != "True" || conditions["lost"].Reason != "NotFound" || conditions["exempt"].Status != "False" {
		t.Errorf("conditions %v", conditions)
	}
	if got := names(); slices.Contains(got, "lost>nowhere") || len(got) != 11 {
		t.Errorf("flows %v", got)
	}
	lost.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{conditions["lost"]}
	if again := c.Configure(now, nil, []*flowcontrolv1.FlowSchema{lost}); len(again) != 0 {
		t.Errorf("a condition that is there: %v", again)
	}
	if len(c.levels) != 2 {
		t.Errorf("levels %v", c.levels)
	}
	broken := Levels()[2]
	broken.Spec.Limited.LimitResponse.Queuing.HandSize = 100
	if conditions := c.Configure(now, []*flowcontrolv1.PriorityLevelConfiguration{broken}, []*flowcontrolv1.FlowSchema{flowSchema("x", broken.Name, 5, "", flowcontrolv1.PolicyRulesWithSubjects{})}); conditions["x"].Status != "True" {
		t.Errorf("a broken level: %v", conditions)
	}
}

// TestUnwantedLevel: a level whose object is gone serves those who are in it.
func TestUnwantedLevel(t *testing.T) {
	c := New(Config{Seats: 600})
	c.Configure(time.Now(), Levels(), Schemas())
	p := c.Enter(t.Context(), ask("ann,system:authenticated get web/pods"))
	c.Configure(time.Now(), nil, nil)
	if l := c.levels["global-default"]; l == nil || !l.unwanted || l.limit == 0 || c.Rebalance(time.Now()) {
		t.Errorf("level %+v", l)
	}
	p.Leave()
	if !c.Rebalance(time.Now()) {
		t.Error("not to be dropped")
	}
	c.Configure(time.Now(), nil, nil)
	if c.levels["global-default"] != nil {
		t.Error("not dropped")
	}
}

func TestShares(t *testing.T) {
	c := New(Config{Seats: 600})
	c.Configure(time.Now(), Levels(), Schemas())
	for name, want := range map[string]bounds{ // upstream's, with the same objects
		"exempt": {0, 0, 600}, "catch-all": {13, 13, 613}, "system": {74, 50, 674}, "node-high": {98, 73, 698}, "leader-election": {25, 25, 625},
		"workload-high": {98, 49, 698}, "workload-low": {245, 24, 845}, "global-default": {49, 24, 649},
	} {
		if got := c.levels[name].bounds; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := widest(c.levels["workload-low"].object, 245); got != 37 {
		t.Errorf("widest %d", got)
	}
}

func TestAllot(t *testing.T) {
	for _, c := range []struct {
		seats  float64
		claims []claim
		want   []float64
	}{
		{30, []claim{{0, 100, 10}, {0, 100, 20}}, []float64{10, 20}},
		{15, []claim{{0, 100, 10}, {0, 100, 20}}, []float64{5, 10}},
		{60, []claim{{0, 100, 10}, {0, 30, 20}}, []float64{30, 30}},
		{60, []claim{{40, 100, 10}, {0, 100, 20}}, []float64{40, 20}},
		{60, []claim{{0, 100, 0}, {0, 100, 0}}, []float64{30, 30}},
		{10, []claim{{5, 100, 50}, {5, 100, 5}}, []float64{5, 5}},
		{100, []claim{{0, 20, 50}, {0, 20, 5}}, []float64{20, 20}},
	} {
		got, _ := allot(c.seats, c.claims)
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-6 {
				t.Errorf("%v of %v: %v, want %v", c.claims, c.seats, got, c.want)
				break
			}
		}
	}
}

// TestLending: seats that a level does not use are borrowed by one that could use
// more than its own, and go back when they are needed.
func TestLending(t *testing.T) {
	now := time.Unix(1000, 0)
	c := New(Config{Seats: 600})
	c.Configure(now, Levels(), Schemas())
	low, high := c.levels["workload-low"], c.levels["workload-high"]
	want := func(l *level, n int) { // as if n requests wanted a seat for ten seconds
		l.mu.Lock()
		defer l.mu.Unlock()
		l.advance(now)
		l.seatsWaiting = n
	}
	round := func() {
		now = now.Add(10 * time.Second)
		c.Rebalance(now)
	}
	want(low, 1000)
	round()
	if low.limit < 300 || low.limit > 560 {
		t.Errorf("workload-low borrows: %d seats of its own %d", low.limit, low.bounds.nominal)
	}
	borrowed := low.limit
	want(high, 1000)
	round()
	if high.limit < high.bounds.nominal || low.limit >= borrowed {
		t.Errorf("workload-high has %d seats of its own %d, workload-low %d", high.limit, high.bounds.nominal, low.limit)
	}
	total := 0
	for _, l := range c.levels {
		if total += l.limit; l.limit < l.bounds.least || l.limit > l.bounds.most {
			t.Errorf("%s: %d, bounds %v", l.name, l.limit, l.bounds)
		}
	}
	if total < 595 || total > 620 {
		t.Errorf("%d seats in all", total)
	}
}

// newLevel is a level with 64 queues.
func newLevel(limit, length int) *level {
	p := Levels()[2].DeepCopy()
	p.Spec.Limited.LimitResponse.Queuing.QueueLengthLimit = int32(length)
	l := &level{name: "test", now: time.Unix(1000, 0)}
	l.configure(p)
	l.limit = limit
	return l
}

var testCounts = newMetrics(nil).countsOf(flowName{"test", "test"})

func newPass(flowOf string, w work) *Pass {
	return &Pass{flow: &flow{counts: testCounts}, flowOf: flowOf, work: w}
}

// hashOf is the same every time.
func hashOf(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:])
}

// world is a level whose requests take a time, and a clock that jumps from event
// to event.
type world struct {
	l       *level
	now     time.Time
	ends    []event // in order
	waited  map[string]time.Duration
	pending []*Pass
	takes   time.Duration
}

type event struct {
	at time.Time
	p  *Pass
}

func (w *world) arrive(flowOf string) (refusal string) {
	p := newPass(flowOf, work{seats: 1})
	refusal = w.l.enter(w.now, p, hashOf(flowOf))
	if refusal == "" {
		w.pending = append(w.pending, p)
	}
	w.note()
	return refusal
}

// note finds who has been served meanwhile.
func (w *world) note() {
	w.pending = slices.DeleteFunc(w.pending, func(p *Pass) bool {
		if p.started.IsZero() {
			return false
		}
		w.waited[p.flowOf] = max(w.waited[p.flowOf], p.started.Sub(p.arrived))
		w.ends = append(w.ends, event{p.started.Add(w.takes), p})
		return true
	})
}

func (w *world) runTo(t time.Time) {
	for len(w.ends) > 0 && !w.ends[0].at.After(t) {
		e := w.ends[0]
		w.ends = w.ends[1:]
		w.now = e.at
		w.l.finish(w.now, e.p)
		w.note()
	}
	w.now = t
}

// TestElephantAndMice: a flow that floods its level makes itself wait; flows of
// few requests hardly notice.
func TestElephantAndMice(t *testing.T) {
	w := &world{l: newLevel(10, 50), now: time.Unix(1000, 0), waited: map[string]time.Duration{}, takes: 100 * time.Millisecond}
	refused := map[string]int{}
	for tick := range 2000 { // 20 s, of which each 10 ms bring ten of the elephant's
		for range 10 {
			if w.arrive("elephant") != "" {
				refused["elephant"]++
			}
		}
		if tick%20 == 7 {
			if name := fmt.Sprint("mouse-", tick%100); w.arrive(name) != "" {
				refused[name]++
			}
		}
		w.runTo(w.now.Add(10 * time.Millisecond))
	}
	elephant := w.waited["elephant"]
	if refused["elephant"] < 10000 || elephant < time.Second {
		t.Errorf("the elephant: %d refused, waited %v", refused["elephant"], elephant)
	}
	for name, waited := range w.waited {
		if name != "elephant" && (waited > 300*time.Millisecond || refused[name] > 0) {
			t.Errorf("%s waited %v, was refused %d times", name, waited, refused[name])
		}
	}
	if len(w.waited) != 6 {
		t.Errorf("flows %v", w.waited)
	}
}

// TestEqualFlows: flows that ask for the same get the same.
func TestEqualFlows(t *testing.T) {
	w := &world{l: newLevel(4, 1000), now: time.Unix(1000, 0), waited: map[string]time.Duration{}, takes: 10 * time.Millisecond}
	names := []string{"a", "bb", "ccc"}
	for range 300 {
		for _, name := range names {
			w.arrive(name)
		}
	}
	w.runTo(w.now.Add(time.Second)) // 400 of 900
	served := map[string]int{}
	for _, name := range names {
		served[name] = 300
	}
	for _, p := range w.pending {
		served[p.flowOf]--
	}
	for name, n := range served {
		if n < 120 || n > 150 {
			t.Errorf("%s: %d served (%v)", name, n, served)
		}
	}
}

// TestWideIsNotStarved: a request of many seats is waited for, however many narrow
// ones there are, and one that is wider than the level is served alone.
func TestWideIsNotStarved(t *testing.T) {
	for _, seats := range []int{5, 50} {
		l, now := newLevel(10, 50), time.Unix(1000, 0)
		var served []*Pass
		for range 10 {
			p := newPass("narrow", work{seats: 1})
			l.enter(now, p, hashOf("narrow"))
			served = append(served, p)
		}
		wide := newPass("wide", work{seats: seats})
		l.enter(now, wide, hashOf("wide"))
		for n := 0; wide.started.IsZero() && n < 1000; n++ {
			now = now.Add(time.Millisecond)
			p := newPass("narrow", work{seats: 1})
			l.enter(now, p, hashOf("narrow"))
			served = append(served, p)
			for i, p := range served {
				if !p.started.IsZero() {
					l.finish(now, p)
					served = slices.Delete(served, i, i+1)
					break
				}
			}
		}
		if wide.started.IsZero() {
			t.Errorf("%d seats: never served", seats)
		}
		if seats > 10 && l.executing != 1 {
			t.Errorf("wider than the level, but with %d others", l.executing-1)
		}
	}
}

func TestRefusals(t *testing.T) {
	l, now := newLevel(1, 2), time.Unix(1000, 0)
	first := newPass("a", work{seats: 1})
	l.enter(now, first, 0)
	var waiting []*Pass
	for n := range 13 { // one hand of six queues of two
		p := newPass("a", work{seats: 1})
		refusal := l.enter(now, p, 0)
		if (refusal == reasonQueueFull) != (n == 12) || refusal == "" && p.turn == nil {
			t.Errorf("%d: %q", n, refusal)
		}
		if refusal == "" {
			waiting = append(waiting, p)
		}
	}
	if !l.giveUp(now, waiting[3], true) || l.waiting != 11 || l.cancelled != 1 {
		t.Errorf("gave up: %d wait", l.waiting)
	}
	l.finish(now, first)
	if l.executing != 1 || l.waiting != 10 {
		t.Errorf("%d executing, %d waiting", l.executing, l.waiting)
	}
	reject := Levels()[1]
	l = &level{}
	l.configure(reject)
	l.limit = 1
	for n, want := range []string{"", reasonNoSeat} {
		if got := l.enter(now, newPass("a", work{seats: 1}), 0); got != want {
			t.Errorf("%d without queues: %q", n, got)
		}
	}
}

// TestFewerQueues: queues that are too many serve those who are in them.
func TestFewerQueues(t *testing.T) {
	l, now := newLevel(1, 2), time.Unix(1000, 0)
	var all []*Pass
	for n := range 20 {
		p := newPass("a", work{seats: 1})
		if l.enter(now, p, hashOf(fmt.Sprint(n))) == "" {
			all = append(all, p)
		}
	}
	l.configure(Levels()[4]) // 16 queues
	l.configure(Levels()[1]) // none
	for range all {
		i := slices.IndexFunc(all, func(p *Pass) bool { return !p.started.IsZero() })
		if i < 0 {
			t.Fatal("nobody is served")
		}
		l.finish(now, all[i])
		all = slices.Delete(all, i, i+1)
	}
	if !l.idle() || l.active != 0 || len(l.queues) != 0 || l.seats != 0 {
		t.Errorf("left: %+v", l)
	}
}

func TestDeal(t *testing.T) {
	dealt := map[int]int{}
	for n := range 10000 {
		hand := deal(hashOf(fmt.Sprint(n)), 16, make([]int, 4))
		for i, card := range hand {
			dealt[card]++
			if i > 0 && card <= hand[i-1] || card < 0 || card > 15 {
				t.Fatalf("hand %v", hand)
			}
		}
	}
	for card, n := range dealt {
		if n < 2300 || n > 2700 {
			t.Errorf("card %d: %d times", card, n)
		}
	}
}

func TestPace(t *testing.T) {
	var p pace
	for second := range int64(1000) {
		n := 50
		if second > 100 {
			n = int(max(0, 1-second%10)) // one every ten seconds
		}
		after := int64(0)
		for range n {
			after = p.refuse(1000 + second)
		}
		if want, ok := map[int64]int64{0: 1, 1: 2, 100: 32, 990: 1}[second]; ok && after != want {
			t.Errorf("in second %d: %d, want %d", second, after, want)
		}
	}
}

func TestWork(t *testing.T) {
	c := New(Config{Seats: 600, Objects: func(gr schema.GroupResource) (int, int64) {
		switch gr.Resource {
		case "pods":
			return 1000, 2_000_000
		case "secrets":
			return 100, 50_000
		}
		return 0, 0
	}})
	c.Configure(time.Now(), Levels(), Schemas())
	for n, watch := range map[string]int{"pods": 90, "web/pods": 30, "pods?fieldSelector=spec.nodeName%3Da": 1000, "serviceaccounts": 100} {
		for range watch {
			c.Watch(ask("ann watch " + n))
		}
	}
	for text, want := range map[string]work{
		"ann,system:authenticated list pods":                      {seats: 8}, // the most at its level
		"ann list pods":                                           {seats: 10},
		"ann list pods?limit=100":                                 {seats: 2},
		"ann list pods?limit=500&continue=x":                      {seats: 10},
		"ann list pods?continue=x":                                {seats: 20},
		"ann list pods?limit=10&continue=x&labelSelector=a":       {seats: 10},
		"ann list pods?limit=abc":                                 {seats: 100},
		"ann list secrets":                                        {seats: 1},
		"ann list widgets":                                        {seats: 1},
		"ann watch pods":                                          {seats: 10},
		"ann watch pods?resourceVersion=5":                        {seats: 1},
		"ann watch pods?resourceVersion=5&sendInitialEvents=true": {seats: 10},
		"ann get web/pods":                                        {seats: 1},
		"ann create web/pods":                                     {seats: 1, final: 10, extra: 6 * time.Millisecond},
		"ann create shop/pods":                                    {seats: 1, final: 9, extra: 5 * time.Millisecond},
		"ann create web/secrets":                                  {seats: 1},
		"ann create web/serviceaccounts/token":                    {seats: 1},
		"ann deletecollection web/pods":                           {seats: 1},
		"ann get /metrics":                                        {seats: 1},
	} {
		r := ask(text)
		f := c.flowFor(r)
		if got := c.estimate(r, f, f.widest); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// small is a controller with one seat for everybody, and short queues.
func small(queued bool) *Controller {
	c := New(Config{Seats: 1, Patience: 15 * time.Second})
	all := Levels()
	level := all[slices.IndexFunc(all, func(p *flowcontrolv1.PriorityLevelConfiguration) bool { return p.Name == "global-default" })]
	if !queued {
		level.Spec.Limited.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
	}
	c.Configure(time.Now(), []*flowcontrolv1.PriorityLevelConfiguration{level}, Schemas())
	c.levels["global-default"].limit = 1
	return c
}

func TestEnter(t *testing.T) {
	const text = "ann,system:authenticated get web/pods"
	synctest.Test(t, func(t *testing.T) {
		c := small(true)
		first := c.Enter(t.Context(), ask(text))
		var mu sync.Mutex
		admitted := 0
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				p := c.Enter(t.Context(), ask(text))
				if !p.Admitted {
					t.Error("refused")
				}
				mu.Lock()
				admitted++
				mu.Unlock()
				time.Sleep(time.Second)
				p.Leave()
				p.Leave()
			})
		}
		synctest.Wait()
		if admitted != 0 {
			t.Errorf("%d at once", admitted)
		}
		first.Leave()
		all.Wait()
		if l := c.levels["global-default"]; !l.idle() || l.seats != 0 {
			t.Errorf("left: %+v", l)
		}
	})
	for name, c := range map[string]struct {
		queued bool
		give   time.Duration // the request has; 0: no deadline
		cancel bool
		waits  time.Duration
	}{
		"a quarter of its time": {queued: true, give: 8 * time.Second, waits: 2 * time.Second},
		"at most a minute":      {queued: true, give: time.Hour, waits: time.Minute},
		"no deadline":           {queued: true, waits: 15 * time.Second},
		"the client leaves":     {queued: true, cancel: true, waits: time.Second},
		"no queues":             {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				flows := small(c.queued)
				defer flows.Enter(t.Context(), ask(text)).Leave()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.give > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.give)
					defer cancel()
				}
				if c.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				begin := time.Now()
				p := flows.Enter(ctx, ask(text))
				if waited := time.Since(begin); p.Admitted || waited != c.waits || p.RetryAfter != 1 || p.Class.Level != "global-default" {
					t.Errorf("admitted %t after %v, come back in %d s", p.Admitted, waited, p.RetryAfter)
				}
			})
		})
	}
}

// TestLingering: a write that many watch keeps its seats for a moment.
func TestLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Seats: 600})
		c.Configure(time.Now(), Levels(), Schemas())
		for range 100 {
			c.Watch(ask("ann watch pods"))
		}
		l := c.levels["workload-high"]
		c.Enter(t.Context(), ask("system:kube-scheduler create web/pods")).Leave()
		taken := func() [2]int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return [2]int{l.executing, l.seats}
		}
		if got := taken(); got != [2]int{0, 10} {
			t.Errorf("%d executing, seats", got)
		}
		time.Sleep(6 * time.Millisecond)
		synctest.Wait()
		if got := taken(); got != [2]int{} {
			t.Errorf("%d executing, seats afterwards", got)
		}
	})
}

func TestMetricsAndDumps(t *testing.T) {
	c := small(false)
	p := c.Enter(t.Context(), ask("ann,system:authenticated get web/pods"))
	c.Enter(t.Context(), ask("ann,system:authenticated create web/pods"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		for _, m := range f.Metric {
			fmt.Fprintln(&text, f.GetName(), m)
		}
	}
	const labels = `label:{name:"flow_schema" value:"global-default"} label:{name:"priority_level" value:"global-default"} `
	for _, want := range []string{
		"apiserver_flowcontrol_current_executing_seats " + labels + "gauge:{value:1}",
		"apiserver_flowcontrol_rejected_requests_total " + labels + `label:{name:"reason" value:"concurrency-limit"} counter:{value:1}`,
		`apiserver_flowcontrol_nominal_limit_seats label:{name:"priority_level" value:"global-default"} gauge:{value:1}`,
		`apiserver_current_inflight_requests label:{name:"request_kind" value:"readOnly"} gauge:{value:1}`,
	} {
		if got := strings.ReplaceAll(text.String(), "  ", " "); !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	for path, want := range map[string]string{
		"dump_priority_levels":                  "global-default, 0, false, false, 0, 1, 1, 1, 0, 0",
		"dump_queues":                           "PriorityLevelName, Index, PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum",
		"dump_requests?includeRequestDetails=1": p.arrived.UTC().Format(time.RFC3339Nano) + ", ann, get, web/pods, web, , v1, pods,",
	} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest("GET", DebugPath+path, nil))
		if got := strings.Join(strings.Fields(w.Body.String()), " "); !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nwant %s", path, w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	if c.ServeHTTP(w, httptest.NewRequest("GET", DebugPath+"other", nil)); w.Code != 404 {
		t.Errorf("other: %d", w.Code)
	}
}

func BenchmarkEnter(b *testing.B) {
	c := New(Config{Seats: 600})
	c.Configure(time.Now(), Levels(), Schemas())
	for _, text := range []string{"root,system:masters get web/pods", "ann,system:authenticated get web/pods", "system:serviceaccount:web:a,system:serviceaccounts,system:authenticated update web/pods"} {
		b.Run(strings.Fields(text)[0], func(b *testing.B) {
			r := ask(text)
			b.ReportAllocs()
			for b.Loop() {
				c.Enter(b.Context(), r).Leave()
			}
		})
	}
}
