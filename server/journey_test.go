package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	tracecollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
	"orrery.dev/server/registry"
	"orrery.dev/trace"
)

// withJourneys has a server keep spans, and serve them.
func withJourneys(c *Config) {
	receiver := trace.NewReceiver(trace.NewWindow(), nil, trace.Rate(0))
	journeys := &Journeys{Spans: receiver, Authorizer: c.Authorizer}
	c.Trace = trace.New("kube-apiserver", receiver, nil)
	c.Extra = map[string]http.Handler{api.JourneyPath: journeys, api.SpansPath: journeys}
	c.Own = []string{api.JourneyPath, api.SpansPath}
}

func (c *cluster) journey(uid string) api.Journey {
	c.t.Helper()
	code, body := c.do("GET", api.JourneyPath+"?uid="+uid, "", nil)
	var j api.Journey
	if err := json.Unmarshal([]byte(body), &j); code != 200 || err != nil {
		c.t.Fatalf("%d %s", code, body)
	}
	return j
}

func spanNames(j api.Journey) []string {
	var all []string
	for _, s := range j.Spans {
		all = append(all, s.Name)
	}
	return all
}

func TestJourneyOfARequest(t *testing.T) {
	c := start(t, withJourneys)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	scheduling := rest.CopyConfig(c.config)
	scheduling.UserAgent = "orrery/kube-scheduler"
	scheduler, err := kubernetes.NewForConfig(scheduling)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := scheduler.CoreV1().Secrets("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	code, body := c.do("POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"password":"swordfish"}}`, map[string]string{"Traceparent": traceparent})
	var made metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(body), &made); code != 201 || err != nil {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := c.do("PATCH", "/api/v1/namespaces/default/secrets/s", `{"data":{"password":"swordfish!"}}`, map[string]string{"Content-Type": "application/merge-patch+json"}); code < 400 {
		t.Fatalf("%d %s", code, body)
	}
	want := []string{"create secrets", "authentication", "authorization", "admission: mutating", "admission: validating", "etcd commit", "watch delivery"}
	var j api.Journey
	c.await("the journey", func() bool { j = c.journey(string(made.UID)); return len(j.Spans) >= len(want) })
	got := slices.DeleteFunc(spanNames(j), func(name string) bool { return !slices.Contains(want, name) })
	if !slices.Equal(got, want) {
		t.Errorf("spans %v", spanNames(j))
	}
	if j.Spans[0].Trace != "0af7651916cd43dd8448eb211c80319c" || j.Spans[0].Parent != "b7ad6b7169203331" {
		t.Errorf("the client's trace does not go on in %+v", j.Spans[0])
	}
	if len(j.Changes) != 1 || j.Changes[0].User != "admin" {
		t.Errorf("changes %+v", j.Changes)
	}
	if text, _ := json.Marshal(j); strings.Contains(string(text), "swordfish") {
		t.Errorf("the secret is told: %s", text)
	}
	reply := c.raw("GET", api.JourneyPath+"?uid="+string(made.UID), "", map[string]string{"Authorization": "Bearer bob"})
	defer reply.Body.Close()
	var bobs api.Journey
	if err := json.NewDecoder(reply.Body).Decode(&bobs); err != nil || len(bobs.Spans) != 0 || bobs.Hidden != 1 {
		t.Errorf("%d: bob, who may not get it, sees %+v, %v", reply.StatusCode, bobs, err)
	}
	if reply := c.raw("GET", api.JourneyPath+"?uid="+string(made.UID), "", map[string]string{"Authorization": ""}); reply.StatusCode != 403 {
		t.Errorf("nobody in particular: %d", reply.StatusCode)
	}
}

// Each object of a deletecollection is told of, by whom and that it has gone.
func TestJourneysOfACollection(t *testing.T) {
	c := start(t, withJourneys)
	var uids []string
	for _, name := range []string{"a", "b"} {
		_, body := c.do("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", `{"metadata":{"name":"`+name+`"}}`, nil)
		var made metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(body), &made); err != nil {
			t.Fatal(err)
		}
		uids = append(uids, string(made.UID))
	}
	if code, body := c.do("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "", nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, uid := range uids {
		var j api.Journey
		c.await("the journey", func() bool { j = c.journey(uid); return len(j.Changes) == 2 })
		last := j.Changes[1]
		if last.Name != "delete poddisruptionbudgets" || last.User != "admin" || !slices.Contains(spanNames(j), "etcd commit") {
			t.Errorf("changes %+v, spans %v", j.Changes, spanNames(j))
		}
	}
}

func TestSpansOfComponents(t *testing.T) {
	node := &user.DefaultInfo{Name: "system:node:one", Groups: []string{user.NodesGroup}}
	for _, c := range []struct {
		who       user.Info
		component string
		code      int
		node      string
	}{
		{&user.DefaultInfo{Name: "system:kube-scheduler"}, "kube-scheduler", 200, "said"},
		{&user.DefaultInfo{Name: "system:kube-scheduler"}, "kube-controller-manager", 403, ""},
		{node, "kubelet", 200, "one"},
		{node, "kube-proxy", 403, ""},
		{&user.DefaultInfo{Name: "system:node:one"}, "kubelet", 403, ""},
		{&user.DefaultInfo{Name: "system:serviceaccount:kube-system:kube-proxy"}, "kube-proxy", 200, "said"},
		{&user.DefaultInfo{Name: "ann"}, "kubelet", 403, ""},
		{&user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, "kube-apiserver", 403, ""},
	} {
		word := func(key, value string) *commonpb.KeyValue {
			return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
		}
		body, err := proto.Marshal(&tracecollector.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
			Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{word("service.name", c.component)}},
			ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{
				SpanId: []byte{1}, Attributes: []*commonpb.KeyValue{word("k8s.object.uid", "x"), word("k8s.node.name", "said")},
			}}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		window := trace.NewWindow()
		j := &Journeys{Spans: trace.NewReceiver(window, nil, nil), Authorizer: authorizer.AuthorizerFunc(onlyAdmins)}
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", api.SpansPath, strings.NewReader(string(body)))
		j.ServeHTTP(w, r.WithContext(registry.WithUser(r.Context(), c.who)))
		if w.Code != c.code {
			t.Errorf("%s for %s: %d %s", c.who.GetName(), c.component, w.Code, w.Body)
		}
		got := window.Journey("x", "", func(api.JourneyObject) bool { return true })
		if len(got.Spans) != map[int]int{200: 1}[c.code] || len(got.Spans) == 1 && got.Spans[0].Node != c.node {
			t.Errorf("%s for %s: %+v", c.who.GetName(), c.component, got.Spans)
		}
	}
}

func TestMilestones(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase, ready bool) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		return p
	}
	deployment := func(available int32) *appsv1.Deployment {
		return &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: available}}
	}
	for _, c := range []struct {
		before, after runtime.Object
		want          string
	}{
		{nil, pod("", corev1.PodPending, false), ""},
		{pod("", corev1.PodPending, false), pod("n", corev1.PodPending, false), "scheduled"},
		{pod("n", corev1.PodPending, false), pod("n", corev1.PodRunning, false), "running"},
		{pod("n", corev1.PodPending, false), pod("n", corev1.PodRunning, true), "ready"},
		{pod("n", corev1.PodRunning, true), pod("n", corev1.PodRunning, true), ""},
		{pod("n", corev1.PodRunning, true), pod("n", corev1.PodFailed, false), "failed"},
		{deployment(0), deployment(1), "complete"},
		{deployment(1), deployment(1), ""},
		{nil, &corev1.Service{}, ""},
	} {
		if got := milestone(c.before, c.after); got != c.want {
			t.Errorf("%+v to %+v is %q, not %q", c.before, c.after, got, c.want)
		}
	}
}

func TestWhatBeginsAJourney(t *testing.T) {
	object := func(generation int64, deleted bool) runtime.Object {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		if deleted {
			d.DeletionTimestamp = &metav1.Time{}
		}
		return d
	}
	for _, c := range []struct {
		verb, sub, agent string
		before, after    runtime.Object
		want             bool
	}{
		{"create", "", "kubectl/v1", nil, object(1, false), true},
		{"create", "", "orrery/kube-controller-manager/deployment-controller", nil, object(1, false), true},
		{"patch", "", "kubectl/v1", object(1, false), object(2, false), true},
		{"patch", "", "kubectl/v1", object(1, false), object(1, false), false},
		{"patch", "", "kubectl/v1", object(0, false), object(0, false), true}, // a kind without generations
		{"update", "", "orrery/kube-controller-manager/deployment-controller", object(1, false), object(2, false), false},
		{"update", "scale", "orrery/kube-controller-manager/horizontal-pod-autoscaler", object(1, false), object(2, false), true},
		{"update", "status", "kubectl/v1", object(1, false), object(2, false), false},
		{"delete", "", "kubectl/v1", object(1, false), object(2, true), true},
		{"delete", "", "orrery/kubelet", object(2, true), object(2, true), false},
		{"create", "eviction", "kubectl/v1", object(1, false), object(2, true), true},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("User-Agent", c.agent)
		call := &call{requestInfo: &requestInfo{Verb: c.verb, Subresource: c.sub}, r: r}
		if got := call.changes(c.before, c.after); got != c.want {
			t.Errorf("%s %s by %s: %v", c.verb, c.sub, c.agent, got)
		}
	}
}
