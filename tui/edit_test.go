package tui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"orrery.dev/edit"
	"orrery.dev/server"
	"orrery.dev/server/auth"
	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// apiServer is our API server over memory storage, where everybody may do everything.
type apiServer struct {
	t      *testing.T
	config *rest.Config
	any    dynamic.Interface
	// before is called for every write that is not a dry run.
	before atomic.Pointer[func()]
}

func startServer(t *testing.T) *apiServer {
	t.Helper()
	memory := storage.NewMemory()
	store := storage.New(memory, storage.Options{})
	kinds := registry.NewBuiltinTable()
	admin := &authenticator.Response{User: &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}}
	s, err := server.New(server.Config{
		Store: store, Kinds: kinds, Bootstrap: server.StepsOf(auth.BootstrapSteps(store)),
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return admin, true, nil }),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
		Documents: openapi.New(kinds, openapi.Options{Version: "v1.37.2"}),
		Version:   version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	running.Go(func() { s.Run(ctx) })
	a := &apiServer{t: t}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := a.before.Load(); f != nil && r.Method == http.MethodPut && r.URL.Query().Get("dryRun") == "" {
			(*f)()
		}
		s.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.Drain()
		web.CloseClientConnections()
		web.Close()
		cancel()
		running.Wait()
		memory.Close()
	})
	a.config = &rest.Config{Host: web.URL, QPS: -1}
	if a.any, err = dynamic.NewForConfig(a.config); err != nil {
		t.Fatal(err)
	}
	return a
}

func (s *apiServer) console(t *testing.T, cfg Config) *show {
	show := newShow(t, cfg, 100, 30, func(a *app) {
		c, err := newCluster(s.config, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.cluster = c
	})
	show.await("db-0")
	return show
}

func (s *apiServer) of(k kind) dynamic.NamespaceableResourceInterface {
	return s.any.Resource(k.gvr())
}

// make makes an object, waiting for its kind.
func (s *apiServer) make(k kind, text string) target {
	s.t.Helper()
	object, err := edit.Read(text)
	if err != nil {
		s.t.Fatal(err)
	}
	o := unstructuredOf(object)
	in := dynamic.ResourceInterface(s.of(k))
	if k.namespaced {
		o.SetNamespace("default")
		in = s.of(k).Namespace("default")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err = in.Create(context.Background(), o, metav1.CreateOptions{}); err == nil {
			return target{kind: k, namespace: o.GetNamespace(), name: o.GetName()}
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
}

func (s *apiServer) get(of target) *unstructured.Unstructured {
	s.t.Helper()
	o, err := s.of(of.kind).Namespace(of.namespace).Get(context.Background(), of.name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// patch is what somebody else does meanwhile.
func (s *apiServer) patch(of target, body string, sub ...string) {
	s.t.Helper()
	if _, err := s.of(of.kind).Namespace(of.namespace).Patch(context.Background(), of.name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "somebody"}, sub...); err != nil {
		s.t.Error(err)
	}
}

// has holds that the object has the values, as "a.b=c".
func (s *apiServer) has(of target, want ...string) {
	s.t.Helper()
	o := s.get(of)
	for _, w := range want {
		path, value, _ := strings.Cut(w, "=")
		got, _, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, ".")...)
		if fmt.Sprint(got) != value {
			s.t.Errorf("%s is %v, want %s", path, got, value)
		}
	}
}

var (
	configMaps  = kind{plural: "configmaps", singular: "configmap", version: "v1", namespaced: true}
	deployments = kind{group: "apps", plural: "deployments", singular: "deployment", version: "v1", namespaced: true}
	definitions = kind{group: "apiextensions.k8s.io", plural: "customresourcedefinitions", version: "v1"}
	dials       = kind{group: "example.dev", plural: "dials", singular: "dial", version: "v1", namespaced: true}
)

const (
	aDeployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}, {name: side, image: "side:1"}]}}}}`
	aDefinition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: dials.example.dev}, spec: {group: example.dev, scope: Namespaced,
  names: {plural: dials, kind: Dial}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
  spec: {type: object, properties: {size: {type: integer, maximum: 10}}}}}}}]}}`
)

// replace changes a text in the editor, as a user does.
func (s *show) replace(was, now string) {
	s.keys(tcell.KeyCtrlF, tcell.KeyCtrlU, was, tcell.KeyEnter)
	s.await(" /" + was + " ")
	for i, line := range strings.Split(now, "\n") {
		if i > 0 {
			s.keys(tcell.KeyEnter)
		}
		s.keys(line)
	}
}

// T41: what is changed all the time can be edited, too.
func TestT41ABusyObjectIsSavedWithoutAConflict(t *testing.T) {
	server := startServer(t)
	web := server.make(deployments, aDeployment)
	s := server.console(t, Config{Terminal: elsewhere{}})
	s.app.post(func() { s.app.edit(web) })
	s.await("edit default/web", "replicas: 2")
	for i := range 10 {
		server.patch(web, fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":%d}}`, i, i), "status")
		server.patch(web, fmt.Sprintf(`{"metadata":{"annotations":{"round":"%d"}}}`, i))
	}
	s.replace("replicas: 2", "replicas: 3")
	s.replace("image: side:1", "image: side:2")
	s.keys(tcell.KeyCtrlS)
	s.await("review default/web", "-   replicas: 2", "+   replicas: 3", "image: side:2")
	server.patch(web, `{"metadata":{"annotations":{"round":"after the review"}}}`)
	tries := 0
	meanwhile := func() { // between the console's look and its write
		if tries++; tries <= 3 {
			server.patch(web, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"try":"%d"}}}}}`, tries))
		}
	}
	server.before.Store(&meanwhile)
	s.keys(tcell.KeyCtrlS)
	s.await("saved", "pods(all)")
	server.has(web, "spec.replicas=3", "metadata.annotations.round=after the review", "status.replicas=9", "spec.template.metadata.annotations.try=3")
	containers, _, _ := unstructured.NestedSlice(server.get(web).Object, "spec", "template", "spec", "containers")
	if image := containers[1].(fields)["image"]; tries != 4 || image != "side:2" {
		t.Errorf("%d tries, image %v", tries, image)
	}
}

// T41: a true conflict is shown field by field, and the user chooses for each.
func TestT41ATrueConflictIsChosenFieldByField(t *testing.T) {
	server := startServer(t)
	shop := server.make(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}, data: {door: closed, light: "off", sign: old, bell: none}}`)
	s := server.console(t, Config{Terminal: elsewhere{}})
	s.app.post(func() { s.app.edit(shop) })
	s.await("door: closed")
	s.replace("door: closed", "door: open")
	s.replace("sign: old", "sign: new")
	server.patch(shop, `{"data":{"door":"locked","sign":null,"light":"on"}}`)
	s.keys(tcell.KeyCtrlS)
	screen := s.await("conflicts default/shop", "▸ data.door", "before   closed", "○ yours    open", "○ theirs   locked", "data.sign", "○ theirs   —", "<m>")
	if strings.Contains(screen, "data.light") {
		t.Errorf("only one side changed the light:\n%s", screen)
	}
	s.keys("t") // and on to the next
	s.await("● theirs   locked", "▸ data.sign")
	s.keys(tcell.KeyCtrlS)
	s.await("choose for each field")
	server.has(shop, "data.door=locked", "data.sign=<nil>")
	s.keys("e") // back to the editor; what was chosen stays
	s.await("edit default/shop", "door: open")
	s.replace("bell: none", "bell: loud")
	s.keys(tcell.KeyCtrlS)
	s.await("▸ data.door", "● theirs   locked")
	s.keys(tcell.KeyDown, "m", tcell.KeyEnter)
	screen = s.await("review default/shop", "-   bell: none", "+   bell: loud", "+   sign: new")
	if strings.Contains(screen, "+   door") {
		t.Errorf("the door is theirs:\n%s", screen)
	}
	server.patch(shop, `{"data":{"bell":"broken"}}`) // while the user looks at it
	s.keys(tcell.KeyCtrlS)
	s.await("conflicts default/shop", "data.bell", "○ theirs   broken")
	s.keys("M", tcell.KeyCtrlS)
	s.await("review default/shop", "+   bell: loud", "+   door: open")
	s.keys(tcell.KeyCtrlS)
	s.await("saved", "pods(all)")
	server.has(shop, "data.door=open", "data.sign=new", "data.light=on", "data.bell=loud")
}

// T43: what a save would change is shown before it, as the server would have it.
func TestT43AReviewComesBeforeTheSave(t *testing.T) {
	server := startServer(t)
	web := server.make(deployments, aDeployment)
	s := server.console(t, Config{Terminal: elsewhere{}, Language: "zh_TW"})
	s.app.post(func() { s.app.edit(web) })
	s.await("編輯 default/web", "replicas: 2")
	s.replace("image: web:1", "image: web:2")
	s.keys(tcell.KeyCtrlS)
	screen := s.await("檢視差異 default/web", "-       - image: web:1", "+       - image: web:2", "        imagePullPolicy")
	for _, noise := range []string{"resourceVersion", "managedFields", "generation:", "selector"} {
		if strings.Contains(screen, noise) {
			t.Errorf("%s has nothing to do with it:\n%s", noise, screen)
		}
	}
	s.keys(tcell.KeyEscape)
	s.await("編輯 default/web", "image: web:2")
	containers, _, _ := unstructured.NestedSlice(server.get(web).Object, "spec", "template", "spec", "containers")
	if image := containers[0].(fields)["image"]; image != "web:1" {
		t.Errorf("a review writes: %v", image)
	}
	s.replace("web:2", "web:1")
	s.keys(tcell.KeyCtrlS)
	s.await("沒有變更")
}

// T43: what the server refuses can be edited on, and the reasons are at their fields.
func TestT43ARefusalBringsTheTextBack(t *testing.T) {
	server := startServer(t)
	web := server.make(deployments, aDeployment)
	s := server.console(t, Config{Terminal: elsewhere{}})
	s.app.post(func() { s.app.edit(web) })
	s.await("replicas: 2")
	s.replace("replicas: 2", "replicas: -2\n  replikas: 3")
	s.keys(tcell.KeyCtrlS)
	s.await("✗  replikas: 3", "✗ spec.replikas: unknown field", "replicas: -2")
	s.replace("replikas: 3", "paused: true")
	s.keys(tcell.KeyCtrlS)
	s.await("✗  replicas: -2", "✗ spec.replicas: Invalid value: -2")
	s.replace("replicas: -2", "replicas: [")
	s.keys(tcell.KeyCtrlS)
	s.await("✗ ", "yaml: line")
	s.replace("replicas: [", "replicas: 4")
	s.keys(tcell.KeyCtrlS)
	s.await("review default/web", "+   replicas: 4")
	s.keys(tcell.KeyCtrlS)
	s.await("saved", "pods(all)")
	server.has(web, "spec.replicas=4")
}

// T44: an object of any kind is edited by the console itself, with no other program.
func TestT44ACustomResourceIsEditedWithoutKubectl(t *testing.T) {
	t.Setenv("PATH", "")
	server := startServer(t)
	server.make(definitions, aDefinition)
	dial := server.make(dials, `{apiVersion: example.dev/v1, kind: Dial, metadata: {name: one}, spec: {size: 1}}`)
	s := server.console(t, Config{})
	s.app.post(func() { s.app.edit(dial) })
	s.await("edit default/one", "size: 1")
	s.replace("size: 1", "size: 99")
	s.keys(tcell.KeyCtrlS)
	s.await("✗  size: 99", "✗ spec.size: Invalid value")
	s.replace("size: 99", "size: 2")
	s.keys(tcell.KeyCtrlS)
	s.await("+   size: 2")
	server.patch(dial, `{"metadata":{"labels":{"a":"b"}}}`)
	s.keys(tcell.KeyCtrlS)
	s.await("saved")
	server.has(dial, "spec.size=2", "metadata.labels.a=b")
}

// T44: the user's own editor gets the same merge, and the reasons as comments.
func TestT44AnEditorOfTheUsersGetsTheSame(t *testing.T) {
	server := startServer(t)
	web := server.make(deployments, aDeployment)
	dir := t.TempDir()
	script := filepath.Join(dir, "editor")
	// First it writes nonsense; then it mends that, as told by the comment above it.
	if err := os.WriteFile(script, []byte(`#!/bin/sh
cp "$1" `+dir+`/seen-$(ls `+dir+` | wc -l)
if grep -q 'spec.replicas: Invalid' "$1"; then sed -i 's/replicas: -2/replicas: 5/' "$1"; else sed -i 's/replicas: 2/replicas: -2/' "$1"; fi
`), 0o755); err != nil {
		t.Fatal(err)
	}
	s := server.console(t, Config{Editor: script})
	s.app.post(func() { s.app.edit(web) })
	s.await("spec.replicas: Invalid value: -2", "Cancel")
	server.patch(web, `{"metadata":{"annotations":{"busy":"yes"}}}`)
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("review default/web", "-   replicas: 2", "+   replicas: 5")
	s.keys(tcell.KeyCtrlS)
	s.await("saved", "pods(all)")
	server.has(web, "spec.replicas=5", "metadata.annotations.busy=yes")
	seen, err := os.ReadFile(filepath.Join(dir, "seen-2"))
	if err != nil || !strings.Contains(string(seen), "  # ✗ spec.replicas: Invalid value: -2") {
		t.Errorf("%v:\n%s", err, seen)
	}
}

func TestReasonsAreCommentsThatGoAgain(t *testing.T) {
	const text = "spec:\n  size: 1\n# mine\n"
	marked := markReasons(text, []edit.Reason{{Text: "no"}, {Field: "spec.size", Text: "too\nsmall", Line: 2}, {Text: "and", Line: 99}})
	if want := "# ✗ no\nspec:\n  # ✗ spec.size: too\n  # ✗ small\n  size: 1\n# mine\n# ✗ and\n"; marked != want {
		t.Errorf("%s, want\n%s", marked, want)
	}
	if got := withoutReasons(marked); got != text {
		t.Errorf("%s, want\n%s", got, text)
	}
}
