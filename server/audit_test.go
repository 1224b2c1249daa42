package server

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/server/audit"
)

// audited makes a server record by a policy, and tells what it has recorded of
// the requests that a filter picks.
func audited(t *testing.T, rules string) (func(*Config), func(pick func(*auditv1.Event) bool) []string) {
	dir := t.TempDir()
	c := audit.Config{PolicyFile: filepath.Join(dir, "policy.yaml"), Log: audit.DefaultLog()}
	c.Log.Path, c.Log.MaxSize = filepath.Join(dir, "audit.log"), 0
	if err := os.WriteFile(c.PolicyFile, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n"+rules), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := audit.New(c)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(pick func(*auditv1.Event) bool) (all []string) {
		file, err := os.Open(c.Log.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for d := json.NewDecoder(file); ; {
			var e auditv1.Event
			if err := d.Decode(&e); err == io.EOF {
				return all
			} else if err != nil {
				t.Fatal(err)
			}
			if pick(&e) {
				all = append(all, story(&e))
			}
		}
	}
	return func(cfg *Config) { cfg.Audit = a }, tell
}

// story is an event without what differs from run to run.
func story(e *auditv1.Event) string {
	text := fmt.Sprintf("%s %s %s by %s", e.Level, e.Stage, e.Verb, e.User.Username)
	if e.ImpersonatedUser != nil {
		text += " as " + e.ImpersonatedUser.Username
	}
	if r := e.ObjectRef; r != nil {
		text += fmt.Sprintf(" of %s/%s", r.Resource, r.Name)
	} else {
		text += " of " + e.RequestURI
	}
	if s := e.ResponseStatus; s != nil {
		text += fmt.Sprintf(": %d%s", s.Code, s.Reason)
	}
	if e.RequestObject != nil {
		text += " asked " + string(e.RequestObject.Raw)
	}
	if e.ResponseObject != nil {
		var kind metav1.TypeMeta
		json.Unmarshal(e.ResponseObject.Raw, &kind)
		text += " answered " + kind.APIVersion + " " + kind.Kind
	}
	if d := e.Annotations["authorization.k8s.io/decision"]; d != "" {
		text += " " + d
	}
	return text
}

func TestAudit(t *testing.T) {
	adjust, recorded := audited(t, `
- {level: None, nonResourceURLs: ["/readyz", "/healthz*"]}
- {level: Metadata, resources: [{resources: [secrets]}], omitStages: [RequestReceived]}
- {level: RequestResponse, namespaces: [default], omitStages: [RequestReceived]}
- {level: Metadata}
`)
	c := start(t, adjust, func(cfg *Config) { cfg.Authenticator = authenticator.RequestFunc(knownUsers) })
	ctx := t.Context()
	maps := c.client.CoreV1().ConfigMaps("default")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "word"}, StringData: map[string]string{"a": "sesame"}}
	config := *c.config
	config.Impersonate = rest.ImpersonationConfig{UserName: "bob"}
	bob := kubernetes.NewForConfigOrDie(&config)
	stranger := map[string]string{"Authorization": "Bearer wrong"}
	for _, step := range []func() error{
		func() error { _, err := maps.Create(ctx, configMap("one"), metav1.CreateOptions{}); return err },
		func() error {
			_, err := maps.Patch(ctx, "one", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
			return err
		},
		func() error { _, err := maps.List(ctx, metav1.ListOptions{Limit: 1}); return err },
		func() error { _, err := maps.Get(ctx, "none", metav1.GetOptions{}); return ignore(err, "NotFound") },
		func() error { return maps.Delete(ctx, "one", metav1.DeleteOptions{}) },
		func() error {
			_, err := c.client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := bob.CoreV1().Nodes().Get(ctx, "x", metav1.GetOptions{})
			return ignore(err, "Forbidden")
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	c.do("GET", "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1", "", nil)
	c.do("GET", "/version", "", stranger)
	c.do("GET", "/readyz", "", stranger)
	got := recorded(func(e *auditv1.Event) bool {
		return e.User.Username == "admin" && e.RequestURI != "/version" || strings.HasPrefix(e.RequestURI, "/version")
	})
	want := []string{
		`RequestResponse ResponseComplete create by admin of configmaps/one: 201 asked {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one","namespace":"default"}} answered v1 ConfigMap allow`,
		`RequestResponse ResponseComplete patch by admin of configmaps/one: 200 asked {"data":{"a":"b"}} answered v1 ConfigMap allow`,
		`RequestResponse ResponseComplete list by admin of configmaps/: 200 answered v1 ConfigMapList allow`,
		`RequestResponse ResponseComplete get by admin of configmaps/none: 404NotFound answered v1 Status allow`,
		`RequestResponse ResponseComplete delete by admin of configmaps/one: 200 asked {"kind":"DeleteOptions","apiVersion":"v1"} answered v1 Status allow`,
		`Metadata ResponseComplete create by admin of secrets/word: 201 allow`,
		`Metadata RequestReceived get by admin of nodes/x`,
		`Metadata ResponseComplete get by admin as bob of nodes/x: 403Forbidden forbid`,
		`RequestResponse ResponseStarted watch by admin of configmaps/: 200 allow`,
		`RequestResponse ResponseComplete watch by admin of configmaps/: 200 allow`,
		`Metadata ResponseStarted get by  of /version: 401Unauthorized`,
	}
	var kept []string // without what the test's set-up asks
	for _, g := range got {
		if !strings.Contains(g, "/readyz") {
			kept = append(kept, g)
		}
	}
	if g, w := strings.Join(kept, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\n\nwant\n%s", g, w)
	}
	_, body := c.do("GET", "/metrics", "", nil)
	if !strings.Contains(body, `apiserver_audit_level_total{level="RequestResponse"}`) {
		t.Error("/metrics does not count levels")
	}
}

func ignore(err error, reason metav1.StatusReason) error {
	if apierrors.ReasonForError(err) == reason {
		return nil
	}
	return err
}
