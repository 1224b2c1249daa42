package admission

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"orrery.dev/server/registry"
)

// hookServer is a webhook whose answer a test decides.
type hookServer struct {
	*httptest.Server
	mu    sync.Mutex // protects asked
	asked []*admissionv1.AdmissionRequest
}

func newHookServer(t *testing.T, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *hookServer {
	s := &hookServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.asked = append(s.asked, review.Request)
		s.mu.Unlock()
		review.Response = answer(review.Request)
		if review.Response == nil {
			<-r.Context().Done() // never
			return
		}
		review.Response.UID = review.Request.UID
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *hookServer) client() admissionregistrationv1.WebhookClientConfig {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(s.URL + "/hook"), CABundle: ca}
}

func anyPod() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
}

func validatingHook(s *hookServer, change func(*admissionregistrationv1.ValidatingWebhook)) *fakeStore {
	h := admissionregistrationv1.ValidatingWebhook{
		Name: "check.example.com", ClientConfig: s.client(), Rules: anyPod(), AdmissionReviewVersions: []string{"v1"},
		SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](5),
	}
	change(&h)
	return newFakeStore().with(
		schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations"},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("", "c"), Webhooks: []admissionregistrationv1.ValidatingWebhook{h}},
	).with(core("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"checked": "yes"}}})
}

func podRequest(pod *corev1.Pod) *Request {
	r := request(Create, "pods", pod, nil)
	r.Kind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	return r
}

func TestValidatingWebhook(t *testing.T) {
	deny := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not today", Code: 403}, Warnings: []string{"careful"}}
	}
	never := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }
	type webhook = admissionregistrationv1.ValidatingWebhook
	const denied = `admission webhook "check.example.com" denied the request: not today`
	for _, c := range []struct {
		name   string
		answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
		change func(*webhook)
		dryRun bool
		want   string // a part of it
	}{
		{"denied", deny, func(*webhook) {}, false, denied},
		{"another rule", deny, func(h *webhook) { h.Rules[0].Resources = []string{"configmaps", "pods/exec"} }, false, ""},
		{"any resource", deny, func(h *webhook) { h.Rules[0].Resources = []string{"*/*"} }, false, denied},
		{"cluster scope", deny, func(h *webhook) { h.Rules[0].Scope = ptr.To(admissionregistrationv1.ClusterScope) }, false, ""},
		{"namespace selected", deny, func(h *webhook) {
			h.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"checked": "yes"}}
		}, false, denied},
		{"namespace not selected", deny, func(h *webhook) {
			h.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"checked": "no"}}
		}, false, ""},
		{"object not selected", deny, func(h *webhook) { h.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}} }, false, ""},
		{"condition true", deny, func(h *webhook) {
			h.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "object.metadata.name == 'p' && request.userInfo.username == 'ann'"}}
		}, false, denied},
		{"condition false", deny, func(h *webhook) {
			h.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "object.metadata.name != 'p'"}}
		}, false, ""},
		{"condition broken", deny, func(h *webhook) {
			h.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "object.spec.nope == 'p'"}}
		}, false, "no such key: nope"},
		{"dry run with side effects", deny, func(h *webhook) { h.SideEffects = ptr.To(admissionregistrationv1.SideEffectClassSome) }, true, `admission webhook "check.example.com" does not support dry run`},
		{"too slow", never, func(h *webhook) { h.TimeoutSeconds = ptr.To[int32](1) }, false, `failed calling webhook "check.example.com": failed to call webhook: Post "https://`},
		{"too slow but ignored", never, func(h *webhook) {
			h.TimeoutSeconds, h.FailurePolicy = ptr.To[int32](1), ptr.To(admissionregistrationv1.Ignore)
		}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := newHookServer(t, c.answer)
			authz := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionNoOpinion, "", nil
			})
			p := newWebhooks(validatingHook(server, c.change), nil, authz).validating()
			r := podRequest(newPod("p"))
			r.DryRun = c.dryRun
			var warnings []string
			r.Warn = func(text string) { warnings = append(warnings, text) }
			err := run(t, p, r)
			if c.want == "" {
				wantError(t, err, "")
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if c.want == denied && (len(warnings) != 1 || server.asked[0].UserInfo.Username != "ann" || !strings.Contains(string(server.asked[0].Object.Raw), `"name":"p"`)) {
				t.Errorf("warnings %q, asked %+v", warnings, server.asked[0])
			}
		})
	}
}

func TestMutatingWebhook(t *testing.T) {
	labels := func(key string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			patch := `[{"op":"add","path":"/metadata/labels","value":{}},{"op":"add","path":"/metadata/labels/` + key + `","value":"yes"}]`
			if strings.Contains(string(r.Object.Raw), `"labels":{`) {
				patch = `[{"op":"add","path":"/metadata/labels/` + key + `","value":"yes"}]`
			}
			return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		}
	}
	first, second := newHookServer(t, labels("first")), newHookServer(t, labels("second"))
	hook := func(name string, s *hookServer, again admissionregistrationv1.ReinvocationPolicyType) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{Name: name, ClientConfig: s.client(), Rules: anyPod(), AdmissionReviewVersions: []string{"v2", "v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), ReinvocationPolicy: &again}
	}
	store := newFakeStore().with(
		schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingwebhookconfigurations"},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("", "b"), Webhooks: []admissionregistrationv1.MutatingWebhook{hook("second", second, admissionregistrationv1.IfNeededReinvocationPolicy)}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("", "a"), Webhooks: []admissionregistrationv1.MutatingWebhook{hook("first", first, admissionregistrationv1.IfNeededReinvocationPolicy)}},
	)
	rounds := 0
	settled := 0
	chain := Chain{
		{Name: "late", Settled: true, Mutate: func(context.Context, *Request) error { settled++; return nil }},
		{Name: "count", Mutate: func(context.Context, *Request) error { rounds++; return nil }},
		newWebhooks(store, nil, nil).mutating(),
	}
	pod := newPod("p")
	wantError(t, chain.Mutate(t.Context(), podRequest(pod)), "")
	if pod.Labels["first"] != "yes" || pod.Labels["second"] != "yes" || pod.Spec.Containers[0].Name != "c" {
		t.Errorf("pod %+v", pod)
	}
	// The first saw the object change after it, the second did not.
	if len(first.asked) != 2 || len(second.asked) != 1 || rounds != 2 || settled != 1 {
		t.Errorf("asked %d and %d times, earlier plugins %d, settled ones %d", len(first.asked), len(second.asked), rounds, settled)
	}
}

func TestWebhookSeesTheVersionOfItsRule(t *testing.T) {
	server := newHookServer(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	kinds := registry.NewBuiltinTable()
	events := kinds.Find(schema.GroupVersionResource{Version: "v1", Resource: "events"})
	if events == nil {
		t.Fatal("no events in the table")
	}
	store := validatingHook(server, func(h *admissionregistrationv1.ValidatingWebhook) {
		h.Rules[0].APIGroups, h.Rules[0].Resources = []string{"events.k8s.io"}, []string{"events"}
	})
	event := &corev1.Event{ObjectMeta: named("ns", "e"), Reason: "Started", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"}}
	r := request(Create, "events", event, nil)
	r.Kind = events.Stored().GroupVersionKind
	wantError(t, run(t, newWebhooks(store, kinds, nil).validating(), r), "")
	if len(server.asked) != 1 {
		t.Fatalf("asked %d times", len(server.asked))
	}
	got := server.asked[0]
	if got.Kind.Group != "events.k8s.io" || got.Resource.Group != "events.k8s.io" || got.RequestKind.Group != "" || !strings.Contains(string(got.Object.Raw), `"regarding"`) {
		t.Errorf("asked %+v %s", got, got.Object.Raw)
	}
}

func TestWebhookService(t *testing.T) {
	server := newHookServer(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil })
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, _ := strconv.Atoi(port)
	store := newFakeStore().with(core("services"),
		&corev1.Service{ObjectMeta: named("ns", "s"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Name: "web", Port: 443}}}},
		&corev1.Service{ObjectMeta: named("ns", "bare"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.8", Ports: []corev1.ServicePort{{Port: 443}}}},
	).with(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s-1", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To(int32(number))}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}, {Addresses: []string{host}}},
	})
	c := NewCaller(store)
	for _, want := range []struct {
		service string
		port    int
		address string
	}{{"s", 443, server.Listener.Addr().String()}, {"bare", 443, "10.96.0.8:443"}} {
		if got, err := c.Resolve(t.Context(), "ns", want.service, want.port); err != nil || got != want.address {
			t.Errorf("%s: %s %v, want %s", want.service, got, err, want.address)
		}
	}
	if _, err := c.Resolve(t.Context(), "ns", "s", 80); err == nil {
		t.Error("a port that the service does not have")
	}
}
