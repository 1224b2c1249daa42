package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const policyText = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [nobody]
- level: Metadata
  resources: [{group: "", resources: [secrets, "*/exec"], resourceNames: [x]}]
- level: Request
  verbs: [create]
  omitStages: [Panic]
- level: RequestResponse
  omitManagedFields: true
  namespaces: [bare]
- level: RequestResponse
  nonResourceURLs: ["/api*"]
- level: Metadata
`

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open makes an auditor with a log, and returns where that is.
func open(t testing.TB, change ...func(*Config)) (*Auditor, string) {
	t.Helper()
	c := Config{PolicyFile: write(t, "policy.yaml", policyText), Log: DefaultLog(), Webhook: DefaultWebhook()}
	c.Log.Path, c.Log.MaxSize = filepath.Join(t.TempDir(), "logs", "audit.log"), 0
	for _, f := range change {
		f(&c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a, c.Log.Path
}

func running(t testing.TB, a *Auditor) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { a.Run(ctx) })
	return func() { cancel(); group.Wait() }
}

var ann = &user.DefaultInfo{Name: "ann", Groups: []string{"staff"}}

func attributes(who user.Info, verb, resource, namespace, name string) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{User: who, Verb: verb, Namespace: namespace, APIVersion: "v1", Name: name, ResourceRequest: true}
	a.Resource, a.Subresource, _ = strings.Cut(resource, "/")
	return a
}

func begin(a *Auditor, attrs authorizer.Attributes) (*Event, bool) {
	_, e := a.WithEvent(context.Background(), "id1")
	r := httptest.NewRequest("GET", "/api/v1/x?limit=1", nil)
	r.Header.Set("User-Agent", "test")
	return e, e.Begin(attrs, r, time.Now())
}

func read(t testing.TB, path string) []auditv1.Event {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []auditv1.Event
	for d := json.NewDecoder(file); ; {
		var e auditv1.Event
		if err := d.Decode(&e); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

func TestPolicy(t *testing.T) {
	a, _ := open(t)
	for _, c := range []struct {
		attrs authorizer.AttributesRecord
		level auditv1.Level
	}{
		{attributes(&user.DefaultInfo{Name: "nobody"}, "get", "pods", "a", "x"), ""},
		{attributes(ann, "get", "secrets", "a", "x"), auditv1.LevelMetadata},
		{attributes(ann, "create", "pods/exec", "a", "x"), auditv1.LevelMetadata},
		{attributes(ann, "create", "pods", "a", "x"), auditv1.LevelRequest},
		{attributes(ann, "update", "pods", "bare", "x"), auditv1.LevelRequestResponse},
		{authorizer.AttributesRecord{User: ann, Verb: "get", Path: "/apis"}, auditv1.LevelRequestResponse},
		{authorizer.AttributesRecord{User: ann, Verb: "get", Path: "/version"}, auditv1.LevelMetadata},
	} {
		e, ok := begin(a, c.attrs)
		if ok != (c.level != "") || e.event.Level != c.level {
			t.Errorf("%+v: %q, want %q", c.attrs, e.event.Level, c.level)
		}
	}
}

func TestEvent(t *testing.T) {
	a, path := open(t)
	e, _ := begin(a, attributes(ann, "update", "configmaps", "bare", "x"))
	e.Annotate("a", "first")
	e.Annotate("a", "second")
	object := `{"kind":"ConfigMap","metadata":{"managedFields":[{}],"generation":12345678901234567}}`
	e.Reach(auditv1.StageRequestReceived) // the policy omits it
	e.Names(&metav1.ObjectMeta{Name: "other", UID: "u", ResourceVersion: "7"})
	e.Request([]byte(object))
	e.Response([]byte(`{"items":[` + object + `]}`))
	e.Impersonates(&user.DefaultInfo{Name: "bob"}, "impersonate:user-info")
	e.Code(200)
	e.Reach(auditv1.StageResponseComplete)
	e.Status(&metav1.Status{Code: 500, Reason: "x"})
	e.Reach(auditv1.StagePanic)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	for _, want := range []string{
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id1","stage":"ResponseComplete","requestURI":"/api/v1/x?limit=1","verb":"update","user":{"username":"ann","groups":["staff"]},"impersonatedUser":{"username":"bob"},`,
		`"sourceIPs":["192.0.2.1"],"userAgent":"test","objectRef":{"resource":"configmaps","namespace":"bare","name":"x","uid":"u","apiVersion":"v1","resourceVersion":"7"},"responseStatus":{"metadata":{},"code":200},`,
		`"requestObject":{"kind":"ConfigMap","metadata":{"generation":12345678901234567}},"responseObject":{"items":[{"kind":"ConfigMap","metadata":{"generation":12345678901234567}}]}`,
		`"annotations":{"a":"first"}`, `"impersonationConstraint":"impersonate:user-info"`,
	} {
		if !strings.Contains(first, want) {
			t.Errorf("no %s in\n%s", want, first)
		}
	}
	if all := read(t, path); len(all) != 2 || all[1].Stage != auditv1.StagePanic || all[1].ResponseStatus.Code != 500 {
		t.Errorf("%+v", all)
	}
}

// TestLevels: what the level does not want is not recorded.
func TestLevels(t *testing.T) {
	a, path := open(t)
	for _, resource := range []string{"secrets", "pods"} {
		e, _ := begin(a, attributes(ann, "create", resource, "a", "x"))
		e.Request([]byte("{}"))
		e.Response([]byte("{}"))
		e.Reach(auditv1.StageResponseComplete)
	}
	all := read(t, path)
	if len(all) != 2 || all[0].RequestObject != nil || all[1].RequestObject == nil || all[1].ResponseObject != nil {
		t.Errorf("%+v", all)
	}
	var none *Event
	none.Annotate("a", "b")
	none.Reach(auditv1.StageResponseComplete)
}

func TestLegacyFormat(t *testing.T) {
	a, path := open(t, func(c *Config) { c.Log.Format = FormatLegacy })
	e, _ := begin(a, attributes(ann, "get", "pods", "a", "x"))
	e.Code(200)
	e.Reach(auditv1.StageResponseComplete)
	raw, _ := os.ReadFile(path)
	const want = ` AUDIT: id="id1" stage="ResponseComplete" ip="192.0.2.1" method="get" user="ann" groups="\"staff\"" as="<self>" asgroups="<lookup>" user-agent="test" namespace="a" uri="/api/v1/x?limit=1" response="200"` + "\n"
	if !strings.HasSuffix(string(raw), want) {
		t.Errorf("%s", raw)
	}
}

func TestTruncate(t *testing.T) {
	a, path := open(t, func(c *Config) { c.Log.Truncate.Enabled, c.Log.Truncate.MaxEvent = true, 1000 })
	for _, size := range []int{10, 2000} {
		e, _ := begin(a, attributes(ann, "create", "pods", "a", "x"))
		e.Request(fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("x", size)))
		e.Reach(auditv1.StageResponseComplete)
	}
	e, _ := begin(a, attributes(ann, "create", "pods", "a", "x"))
	e.Annotate("long", strings.Repeat("x", 2000))
	e.Reach(auditv1.StageResponseComplete)
	all := read(t, path)
	if len(all) != 2 || all[0].RequestObject == nil || all[1].RequestObject != nil || all[1].Annotations[truncatedKey] != "true" {
		t.Errorf("%+v", all)
	}
}

// TestStrict: what cannot be recorded must not go on, if the mode says so.
func TestStrict(t *testing.T) {
	for mode, goesOn := range map[string]bool{ModeBlocking: true, ModeBlockingStrict: false} {
		a, _ := open(t, func(c *Config) { c.Log.Mode, c.Log.Path = mode, "/dev/full" })
		e, _ := begin(a, attributes(ann, "get", "pods", "a", "x"))
		if got := e.Reach(auditv1.StageResponseComplete); got != goesOn {
			t.Errorf("%s: goes on: %v", mode, got)
		}
	}
}

// collector is a webhook that keeps what it is sent.
type collector struct {
	mu    sync.Mutex // protects the fields below
	lists []auditv1.EventList
	fails int // so many times, before anything is taken
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails > 0 {
		c.fails--
		http.Error(w, "later", http.StatusNotFound)
		return
	}
	var list auditv1.EventList
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil || r.URL.Path != "/events" {
		http.Error(w, fmt.Sprint(err, r.URL), http.StatusBadRequest)
		return
	}
	c.lists = append(c.lists, list)
}

func (c *collector) config(t testing.TB) func(*Config) {
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	file := write(t, "kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: '"+server.URL+"/events'}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n")
	return func(config *Config) {
		config.Log.Path = ""
		config.Webhook.File, config.Webhook.InitialPause = file, time.Millisecond
	}
}

// TestWebhook: events go out in batches, again if need be, and what is left goes
// out at the end.
func TestWebhook(t *testing.T) {
	hook := &collector{fails: 1}
	a, _ := open(t, hook.config(t), func(c *Config) { c.Webhook.Batch.MaxSize = 2 })
	stop := running(t, a)
	for range 5 {
		e, _ := begin(a, attributes(ann, "get", "pods", "a", "x"))
		e.Reach(auditv1.StageResponseComplete)
	}
	stop()
	total := 0
	for _, l := range hook.lists {
		if l.Kind != "EventList" || l.APIVersion != "audit.k8s.io/v1" || len(l.Items) > 2 {
			t.Errorf("%+v", l)
		}
		for _, e := range l.Items {
			total++
			if e.Kind != "" || e.User.Username != "ann" {
				t.Errorf("%+v", e)
			}
		}
	}
	if len(hook.lists) != 3 || total != 5 {
		t.Errorf("%d events in %d lists", total, len(hook.lists))
	}
}

func TestBadConfig(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`invalid audit log mode never, allowed modes are "batch,blocking,blocking-strict"`:              func(c *Config) { c.Log.Mode = "never" },
		`invalid audit log format xml, allowed formats are "legacy,json"`:                               func(c *Config) { c.Log.Format = "xml" },
		"--audit-log-maxage -1 can't be a negative number":                                              func(c *Config) { c.Log.MaxAge = -1 },
		"invalid audit batch webhook buffer size 0, must be a positive number":                          func(c *Config) { c.Webhook.Batch.Buffer = 0 },
		"invalid audit truncate webhook max batch size 1, must be greater than max event size (102400)": func(c *Config) { c.Webhook.Truncate.MaxBatch = 1 },
	} {
		c := Config{Log: DefaultLog(), Webhook: DefaultWebhook()}
		c.Log.Path, c.Webhook.File = "x", "x"
		change(&c)
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for text, want := range map[string]string{
		"kind: [": "failed decoding",
		"apiVersion: audit.k8s.io/v1\nkind: Policy":                         "loaded illegal policy with 0 rules",
		"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Some}]": `rules[0].level: Unsupported value: "Some"`,
	} {
		_, err := New(Config{PolicyFile: write(t, "p", text), Log: Log{Path: "-"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if a, err := New(Config{Log: Log{Path: "-"}}); a != nil || err != nil {
		t.Error("something is recorded without a policy")
	}
}
