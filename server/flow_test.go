package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/admission"
)

// hanging is a server on which all may do all, and where the creation of an object
// named slow-... hangs in admission until its channel is closed.
func hanging(t *testing.T, adjust func(*Config)) (c *cluster, entered, hang chan struct{}) {
	entered, hang = make(chan struct{}, 10), make(chan struct{})
	c = start(t, func(cfg *Config) {
		cfg.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
		cfg.Admission = admission.Chain{{Name: "Hang", On: func(r *admission.Request) bool { return strings.HasPrefix(r.Name, "slow") }, Validate: func(context.Context, *admission.Request) error {
			entered <- struct{}{}
			<-hang
			return nil
		}}}
		adjust(cfg)
	})
	return c, entered, hang
}

// begin makes a request that hangs; the returned function waits for its answer.
func (c *cluster) begin(entered chan struct{}, user map[string]string) (end func() int) {
	done := make(chan int, 1)
	go func() {
		code, _ := c.do("POST", configMapsPath, `{"metadata":{"generateName":"slow-","name":"slow"}}`, user)
		done <- code
	}()
	<-entered
	return func() int { return <-done }
}

const configMapsPath = "/api/v1/namespaces/default/configmaps"

// wantTooMany checks a refusal to be upstream's.
func (c *cluster) wantTooMany(method, path, body string, user map[string]string) {
	c.t.Helper()
	reply := c.raw(method, path, body, user)
	defer reply.Body.Close()
	text := make([]byte, 100)
	n, _ := reply.Body.Read(text)
	if reply.StatusCode != 429 || reply.Header.Get("Retry-After") != "1" || reply.Header.Get("Content-Type") != "text/plain; charset=utf-8" || string(text[:n]) != "Too many requests, please try again later.\n" {
		c.t.Errorf("code %d, headers %v, %q", reply.StatusCode, reply.Header, text[:n])
	}
}

var bob = map[string]string{"Authorization": "Bearer bob"}

func TestPlainLimits(t *testing.T) {
	c, entered, hang := hanging(t, func(cfg *Config) { cfg.PlainLimits, cfg.MaxWrites, cfg.MaxReads = true, 1, -1 })
	slow := c.begin(entered, bob)
	c.wantTooMany("POST", configMapsPath, `{"metadata":{"name":"fast"}}`, bob)
	if code, body := c.do("POST", configMapsPath, `{"metadata":{"name":"fast"}}`, nil); code != 201 {
		t.Errorf("the administrator: %d %s", code, body)
	}
	if code, body := c.do("GET", configMapsPath, "", bob); code != 200 {
		t.Errorf("a read: %d %s", code, body)
	}
	close(hang)
	if code := slow(); code != 201 {
		t.Errorf("the slow one: %d", code)
	}
}

// TestFairness follows a configuration through its life: bob's requests get one
// seat, and lose it again.
func TestFairness(t *testing.T) {
	c, entered, hang := hanging(t, func(*Config) {})
	ctx := t.Context()
	levels, schemas := c.client.FlowcontrolV1().PriorityLevelConfigurations(), c.client.FlowcontrolV1().FlowSchemas()
	dangling := func(want flowcontrolv1.ConditionStatus, reason string) func() bool {
		return func() bool {
			s, err := schemas.Get(ctx, "bob", metav1.GetOptions{})
			return err == nil && len(s.Status.Conditions) == 1 && s.Status.Conditions[0].Type == "Dangling" && s.Status.Conditions[0].Status == want && s.Status.Conditions[0].Reason == reason
		}
	}
	all := []string{"*"}
	schema, err := schemas.Create(ctx, &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: flowcontrolv1.FlowSchemaSpec{
		MatchingPrecedence: 50, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "bob"},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects:      []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "bob"}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.await("the schema dangles", dangling("True", "NotFound"))
	shares, none := int32(0), int32(0)
	level, err := levels.Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, BorrowingLimitPercent: &none, LimitResponse: flowcontrolv1.LimitResponse{Type: "Reject"},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.await("the schema is found", dangling("False", "Found"))

	// Without shares, one is served at a time.
	slow := c.begin(entered, bob)
	c.wantTooMany("GET", configMapsPath, "", bob)
	if code, _ := c.do("GET", configMapsPath, "", nil); code != 200 {
		t.Errorf("the administrator: %d", code)
	}
	_, dump := c.do("GET", "/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1", "", nil)
	if !strings.Contains(dump, configMapsPath) {
		t.Errorf("dump:\n%s", dump)
	}
	_, metrics := c.do("GET", "/metrics", "", nil)
	for _, want := range []string{
		`apiserver_flowcontrol_current_executing_requests{flow_schema="bob",priority_level="bob"} 1`,
		`apiserver_flowcontrol_rejected_requests_total{flow_schema="bob",priority_level="bob",reason="concurrency-limit"} 1`,
		`apiserver_flowcontrol_nominal_limit_seats{priority_level="workload-low"} 245`,
		`apiserver_current_inflight_requests{request_kind="mutating"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	close(hang)
	if code := slow(); code != 201 {
		t.Errorf("the slow one: %d", code)
	}

	// A watch gives its seat back when it has begun.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := http.NewRequestWithContext(ctx, "GET", c.url+configMapsPath+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	watch.Header.Set("Authorization", "Bearer bob")
	events, err := http.DefaultTransport.RoundTrip(watch)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if _, err := events.Body.Read(make([]byte, 1)); err != nil || events.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != string(schema.UID) {
		t.Errorf("watch: %v %v", err, events.Header)
	}
	c.await("beside the watch there is a seat", func() bool {
		reply := c.raw("GET", configMapsPath, "", bob)
		reply.Body.Close()
		return reply.StatusCode == 200 && reply.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) == string(schema.UID) &&
			reply.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID) == string(level.UID)
	})
	if err := levels.Delete(t.Context(), "bob", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx = t.Context()
	c.await("the schema dangles again", dangling("True", "NotFound"))
	reply := c.raw("GET", configMapsPath, "", bob)
	reply.Body.Close()
	if uid := reply.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); uid == "" || uid == string(schema.UID) {
		t.Errorf("matched %q", uid)
	}
}

// TestSizes: lists are weighed by what storage holds.
func TestSizes(t *testing.T) {
	c := start(t)
	col := c.store.Collection(corev1.Resource("configmaps"))
	before, bytesBefore := col.Size()
	for _, body := range []string{`{"metadata":{"name":"a"},"data":{"k":"` + strings.Repeat("x", 1000) + `"}}`, `{"metadata":{"name":"b"}}`} {
		if code, text := c.do("POST", configMapsPath, body, nil); code != 201 {
			t.Fatal(text)
		}
	}
	size := func() (int, int64) {
		objects, bytes := col.Size()
		return objects - before, bytes - bytesBefore
	}
	c.await("two more", func() bool { n, _ := size(); return n == 2 })
	_, large := size()
	c.do("PUT", configMapsPath+"/a", `{"metadata":{"name":"a"}}`, nil)
	c.await("one is smaller", func() bool { n, bytes := size(); return n == 2 && large > 1200 && bytes < large-900 })
	c.do("DELETE", configMapsPath+"/a", "", nil)
	c.do("DELETE", configMapsPath+"/b", "", nil)
	c.await("none", func() bool { n, bytes := size(); return n == 0 && bytes == 0 })
}
