package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/audit"
)

// reviewer is a service that answers reviews and keeps the questions.
type reviewer[T any] struct {
	answer func(*T) (code int)

	mu    sync.Mutex // protects asked
	asked []T
}

func (r *reviewer[T]) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review T
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, review)
	w.Header().Set("Content-Type", "application/json")
	if code := r.answer(&review); code != 0 {
		http.Error(w, "forbidden here", code)
		return
	}
	json.NewEncoder(w).Encode(&review)
}

func (r *reviewer[T]) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// file makes a kubeconfig that points to a service.
func kubeconfigOf(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: '" + server.URL + "/ask'}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokenWebhook(t *testing.T) {
	service := &reviewer[authenticationv1.TokenReview]{answer: func(r *authenticationv1.TokenReview) int {
		r.Status.Authenticated = r.Spec.Token != "bad"
		r.Status.User = authenticationv1.UserInfo{Username: "ann", UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
		switch r.Spec.Token {
		case "bad":
			r.Status.Error = "no such token"
		case "elsewhere":
			r.Status.Audiences = []string{"other"}
		case "aware":
			r.Status.Audiences = []string{"api", "other"}
		case "broken":
			return http.StatusForbidden
		}
		return 0
	}}
	hook, err := NewTokenWebhook(kubeconfigOf(t, service), "v1", []string{"api"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ token, audience, want string }{
		{"good", "", "ann u [g] map[k:[v]] []"},
		{"good", "api", "ann u [g] map[k:[v]] [api]"},
		{"aware", "other", "ann u [g] map[k:[v]] [other]"},
		{"elsewhere", "api", "unknown"},
		{"good", "stranger", "unknown"},
		{"bad", "api", "no such token"},
		{"broken", "api", "forbidden"},
	} {
		ctx := t.Context()
		if c.audience != "" {
			ctx = authenticator.WithAudiences(ctx, []string{c.audience})
		}
		for range 2 {
			response, ok, err := hook.AuthenticateToken(ctx, c.token)
			got := "unknown"
			switch {
			case err != nil:
				got = err.Error()
			case ok:
				u := response.User
				got = fmt.Sprint(u.GetName(), " ", u.GetUID(), " ", u.GetGroups(), " ", u.GetExtra(), " ", response.Audiences)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%s for %s: %s, want %s", c.token, c.audience, got, c.want)
			}
		}
	}
	// Errors are asked about again, answers are not.
	if n := service.count(); n != 5+2*2 {
		t.Errorf("asked %d times", n)
	}
	if q := service.asked[0]; q.Kind != "TokenReview" || q.APIVersion != "authentication.k8s.io/v1" {
		t.Errorf("asked %+v", q)
	}
	if _, err := NewTokenWebhook(kubeconfigOf(t, service), "v2", nil, 0); err == nil {
		t.Error("there is a v2")
	}
}

// TestTokenCacheShares: requests with one token share a check, and what it noted.
func TestTokenCacheShares(t *testing.T) {
	calls, hold := 0, make(chan struct{})
	c := newTokenCache([]authenticator.Token{authenticator.TokenFunc(func(ctx context.Context, _ string) (*authenticator.Response, bool, error) {
		calls++
		<-hold
		audit.Annotate(ctx, "k", "v")
		return &authenticator.Response{}, true, nil
	})}, tokenTTL, 0)
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() {
			ctx, notes := audit.WithNotes(t.Context())
			if _, ok, err := c.AuthenticateToken(ctx, "x"); !ok || err != nil || notes.All()["k"] != "v" {
				t.Error(ok, err, notes.All())
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	close(hold)
	running.Wait()
	if calls != 1 {
		t.Errorf("%d checks", calls)
	}
}

func TestAnonymousPaths(t *testing.T) {
	a := NewAuthenticator(Config{AnonymousPaths: []string{"/livez"}})
	for path, want := range map[string]bool{"/livez": true, "/livez/ping": false, "/api": false} {
		_, ok, err := a.AuthenticateRequest(httptest.NewRequest("GET", path, nil))
		if ok != want || err != nil {
			t.Errorf("%s: %v %v", path, ok, err)
		}
	}
}

// hookConfig is a chain with a webhook.
func hookConfig(file, failurePolicy string, conditions ...string) *apiserver.AuthorizationConfiguration {
	w := &apiserver.WebhookConfiguration{
		AuthorizedTTL: metav1.Duration{Duration: time.Minute}, CacheAuthorizedRequests: true, CacheUnauthorizedRequests: false,
		Timeout: metav1.Duration{Duration: time.Second}, FailurePolicy: failurePolicy, SubjectAccessReviewVersion: "v1",
		MatchConditionSubjectAccessReviewVersion: "v1",
		ConnectionInfo:                           apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &file},
	}
	for _, c := range conditions {
		w.MatchConditions = append(w.MatchConditions, apiserver.WebhookMatchCondition{Expression: c})
	}
	return &apiserver.AuthorizationConfiguration{Authorizers: []apiserver.AuthorizerConfiguration{
		{Type: ModeWebhook, Name: "hook", Webhook: w}, {Type: ModeAlwaysDeny, Name: "alwaysdeny"},
	}}
}

func decide(t testing.TB, a *Authorizer, attrs authorizer.AttributesRecord) string {
	t.Helper()
	decision, reason, err := a.Authorize(t.Context(), &attrs)
	text := map[authorizer.Decision]string{authorizer.DecisionAllow: "allow", authorizer.DecisionDeny: "deny", authorizer.DecisionNoOpinion: "no opinion"}[decision]
	if reason != "" {
		text += ": " + reason
	}
	if err != nil {
		text += " (error)"
	}
	return text
}

func TestAuthorizationWebhook(t *testing.T) {
	service := &reviewer[authorizationv1.SubjectAccessReview]{answer: func(r *authorizationv1.SubjectAccessReview) int {
		switch r.Spec.User {
		case "ann":
			r.Status.Allowed, r.Status.Reason = true, "she may"
		case "eve":
			r.Status.Denied, r.Status.Reason = true, "never"
		case "both":
			r.Status.Allowed, r.Status.Denied = true, true
		case "ill":
			return http.StatusForbidden
		default:
			r.Status.Reason = "who?"
		}
		return 0
	}}
	file := kubeconfigOf(t, service)
	get := func(name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name, Groups: []string{"g"}}, Verb: "list", Namespace: "a", APIVersion: "v1", Resource: "pods", ResourceRequest: true,
			FieldSelectorRequirements: fields.Requirements{{Field: "spec.nodeName", Operator: selection.Equals, Value: "n"}}}
	}
	masters := get("root")
	masters.User = &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	for _, c := range []struct {
		policy string
		attrs  authorizer.AttributesRecord
		want   string
	}{
		{"NoOpinion", get("ann"), "allow: she may"},
		{"NoOpinion", get("eve"), "deny: never"},
		{"NoOpinion", get("both"), "deny (error)"},
		{"NoOpinion", get("bob"), "no opinion: hook: who?\nalwaysdeny: Everything is forbidden."},
		{"NoOpinion", get("ill"), "no opinion: alwaysdeny: Everything is forbidden. (error)"},
		{"Deny", get("ill"), "deny (error)"},
		{"NoOpinion", masters, "allow"},
	} {
		a, err := NewAuthorizer(AuthorizerConfig{Configuration: hookConfig(file, c.policy)})
		if err != nil {
			t.Fatal(err)
		}
		if got := decide(t, a, c.attrs); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.attrs.User.GetName(), c.policy, got, c.want)
		}
	}
	q := service.asked[0]
	r := q.Spec.ResourceAttributes
	if q.APIVersion != "authorization.k8s.io/v1" || q.Kind != "SubjectAccessReview" || q.Spec.Groups[0] != "g" || r.Verb != "list" || r.Namespace != "a" || r.Resource != "pods" ||
		r.FieldSelector == nil || r.FieldSelector.Requirements[0].Key != "spec.nodeName" || r.FieldSelector.Requirements[0].Operator != metav1.FieldSelectorOpIn {
		t.Errorf("asked %+v", q)
	}
	before := service.count()
	a, _ := NewAuthorizer(AuthorizerConfig{Configuration: hookConfig(file, "NoOpinion")})
	for range 3 {
		decide(t, a, get("ann"))
		decide(t, a, get("bob")) // refusals are not kept here
	}
	if n := service.count() - before; n != 1+3 {
		t.Errorf("asked %d times", n)
	}
	// Conditions decide whether it is asked at all.
	for condition, want := range map[string]string{
		"request.user == 'ann'":                    "allow: she may",
		"request.user != 'ann'":                    "no opinion: alwaysdeny: Everything is forbidden.",
		"request.resourceAttributes.name == 'x'":   "no opinion: alwaysdeny: Everything is forbidden.",
		"request.nonResourceAttributes.path == ''": "no opinion: alwaysdeny: Everything is forbidden. (error)",
	} {
		a, err := NewAuthorizer(AuthorizerConfig{Configuration: hookConfig(file, "NoOpinion", condition)})
		if err != nil {
			t.Fatal(err)
		}
		if got := decide(t, a, get("ann")); got != want {
			t.Errorf("%s: %s, want %s", condition, got, want)
		}
	}
	if _, _, incomplete, err := a.RulesFor(t.Context(), &user.DefaultInfo{Name: "ann"}, "a"); !incomplete || err == nil {
		t.Errorf("rules: %v %v", incomplete, err)
	}
}

func TestAuthorizationConfiguration(t *testing.T) {
	file := kubeconfigOf(t, http.NotFoundHandler())
	head := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	hook := "- {type: Webhook, name: h, webhook: {timeout: 1s, failurePolicy: Deny, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, connectionInfo: {type: KubeConfigFile, kubeConfigFile: " + file + "}}}\n"
	for text, want := range map[string]string{
		hook + "- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n": "",
		"- {type: Node, name: mine}\n":                                    "expected name node for authorizer Node instead of mine",
		"- {type: Node, name: node}\n- {type: Node, name: node}\n":        "Duplicate value",
		"- {type: ABC, name: abc}\n":                                      "Unsupported value",
		"- {type: Webhook, name: h}\n":                                    "Required value",
	} {
		_, err := ParseAuthorization([]byte(head + text))
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for want, f := range map[string]AuthorizationFlags{
		"":                                {Modes: []string{"Node", "RBAC"}},
		`"X" is not a valid mode`:         {Modes: []string{"X"}},
		"more than once":                  {Modes: []string{"RBAC", "RBAC"}},
		"config file not passed":          {Modes: []string{"Webhook"}},
		"without mode Webhook":            {Modes: []string{"RBAC"}, WebhookFile: file},
		"at least one authorization-mode": {},
	} {
		_, err := f.Configuration()
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
	raw := []byte(head + "- {type: RBAC, name: rbac}\n")
	config, err := ParseAuthorization(raw)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAuthorizer(AuthorizerConfig{Configuration: config})
	if err != nil {
		t.Fatal(err)
	}
	names := func() (all []string) {
		for _, l := range (*a.links.Load())[1:] {
			all = append(all, l.name)
		}
		return all
	}
	for text, want := range map[string]string{
		hook + "- {type: RBAC, name: rbac}\n": "",
		hook:                                  "missing required types: [RBAC]",
		"- {type: RBAC, name: rbac}\n- {type: Node, name: node}\n": "not allowed if it was not enabled at initial server startup",
	} {
		before := names()
		_, err := a.reload(t.Context(), []byte(head+text))
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("reload of %s: %v, want %s", text, err, want)
		}
		if want == "" && !slices.Equal(names(), []string{"h", "rbac"}) || want != "" && !slices.Equal(names(), before) {
			t.Errorf("reload of %s: %v", text, names())
		}
	}
}
