package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
	"orrery.dev/server"
	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// cluster is our own API server as a foreign one: the row protocol is hidden.
type cluster struct {
	t      *testing.T
	config *rest.Config
	admin  kubernetes.Interface
	away   atomic.Bool // answers nothing
}

func authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	who := &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}
	if name == "admin" {
		who.Groups = append(who.Groups, user.SystemPrivilegedGroup)
	}
	return &authenticator.Response{User: who}, name != "", nil
}

// rules let admins do everything, jane read the namespace "shop", and joe those of
// "shop" and "bank" and the list of namespaces.
type rules struct{}

func (rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := a.GetUser().GetName()
	switch {
	case slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup),
		!a.IsResourceRequest(),
		strings.HasPrefix(a.GetResource(), "selfsubject"),
		a.GetNamespace() == "shop" && a.IsReadOnly(),
		who == "joe" && a.IsReadOnly() && (a.GetNamespace() == "bank" || a.GetResource() == "namespaces"):
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r rules) RulesFor(ctx context.Context, who user.Info, ns string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	all := []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: []string{"create"}, APIGroups: []string{"*"}, Resources: []string{"selfsubjectaccessreviews"}}}
	attributes := authorizer.AttributesRecord{User: who, Verb: "list", Namespace: ns, Resource: "pods", ResourceRequest: true}
	if decision, _, _ := r.Authorize(ctx, attributes); decision == authorizer.DecisionAllow {
		all = append(all, &authorizer.DefaultResourceRuleInfo{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}})
	}
	return all, nil, true, nil
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	memory := storage.NewMemory()
	t.Cleanup(memory.Close)
	store, kinds := storage.New(memory, storage.Options{}), registry.NewBuiltinTable()
	s, err := server.New(server.Config{
		Store: store, Kinds: kinds, Authenticator: authenticator.RequestFunc(authenticate), Authorizer: rules{}, Rules: rules{},
		Documents: openapi.New(kinds, openapi.Options{}), Version: version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.away.Load() {
			panic(http.ErrAbortHandler)
		}
		s.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.Drain()
		web.CloseClientConnections()
		web.Close()
		cancel()
		running.Wait()
	})
	c.config = &rest.Config{Host: web.URL, BearerToken: "admin", QPS: -1}
	if c.admin, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	c.eventually("the server is ready", func() bool {
		return c.admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
	})
	for _, ns := range []string{"shop", "bank", "lab"} {
		c.must(c.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}))
		c.pod(ns, "one")
	}
	return c
}

func (c *cluster) must(_ any, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	for until := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			c.t.Fatalf("in vain waited that %s", what)
		}
	}
}

func (c *cluster) pod(ns, name string) {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	c.must(c.admin.CoreV1().Pods(ns).Create(c.t.Context(), pod, metav1.CreateOptions{}))
}

// serve is a Server with a user's rights.
func (c *cluster) serve(who, home string) *httptest.Server {
	c.t.Helper()
	cfg := rest.CopyConfig(c.config)
	cfg.BearerToken = who
	s, err := New(cfg, home, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	var serving sync.WaitGroup
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		s.ServeHTTP(w, r)
	}))
	c.t.Cleanup(func() { web.CloseClientConnections(); web.Close(); serving.Wait() })
	return web
}

// face keeps the rows of one view, as both faces do.
type face struct {
	t        *testing.T
	socket   *websocket.Conn
	columns  []api.RowColumn
	rows     map[string]api.Row // by namespace/name
	revision string
}

func dial(t *testing.T, web *httptest.Server) (*face, error) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{api.StreamProtocol}}
	socket, _, err := d.Dial("ws"+strings.TrimPrefix(web.URL, "http")+api.StreamPath, nil)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { socket.Close() })
	return &face{t: t, socket: socket, rows: map[string]api.Row{}}, nil
}

func open(t *testing.T, web *httptest.Server, v api.View, revision string) *face {
	t.Helper()
	f, err := dial(t, web)
	if err == nil {
		err = f.socket.WriteJSON(api.Ask{ID: 1, Op: "open", View: &v, Revision: revision})
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *face) next() api.Tell {
	f.t.Helper()
	_ = f.socket.SetReadDeadline(time.Now().Add(30 * time.Second))
	var m api.Tell
	if err := f.socket.ReadJSON(&m); err != nil {
		f.t.Fatalf("read: %v (rows %v)", err, f.names())
	}
	if m.Reset {
		clear(f.rows)
	}
	if len(m.Columns) > 0 {
		f.columns = m.Columns
	}
	for _, r := range m.Rows {
		f.rows[r.Namespace+"/"+r.Name] = r
	}
	for _, uid := range m.Gone {
		for key, r := range f.rows {
			if r.UID == uid {
				delete(f.rows, key)
			}
		}
	}
	if m.Revision != "" {
		f.revision = m.Revision
		_ = f.socket.WriteJSON(api.Ask{ID: m.ID, Op: "ack", Revision: m.Revision})
	}
	return m
}

func (f *face) names() []string {
	var names []string
	for key := range f.rows {
		names = append(names, key)
	}
	slices.Sort(names)
	return names
}

func (f *face) until(want ...string) {
	f.t.Helper()
	for start := time.Now(); !slices.Equal(f.names(), want); {
		if time.Since(start) > time.Minute {
			f.t.Fatalf("rows %v, want %v", f.names(), want)
		}
		if m := f.next(); m.Error != nil {
			f.t.Fatalf("%+v, want rows %v", m.Error, want)
		}
	}
}

func TestRowsFollowTheCluster(t *testing.T) {
	c := start(t)
	web := c.serve("admin", "default")
	pods := open(t, web, api.View{Resource: "pods"}, "")
	pods.until("bank/one", "lab/one", "shop/one")
	if age := pods.columns[len(pods.columns)-1]; pods.columns[2].Name != "Status" {
		t.Errorf("columns %+v, age %+v", pods.columns, age)
	}
	if r := pods.rows["shop/one"]; r.State != api.StateProgressing || r.Cells[2] != "Pending" {
		t.Errorf("row %+v", r)
	}
	c.pod("shop", "two")
	pods.until("bank/one", "lab/one", "shop/one", "shop/two")
	pods.socket.Close()

	now := int64(0)
	c.must(nil, c.admin.CoreV1().Pods("bank").Delete(t.Context(), "one", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	again := open(t, web, api.View{Resource: "pods"}, pods.revision)
	again.rows = pods.rows
	again.until("lab/one", "shop/one", "shop/two")
	some := open(t, web, api.View{Resource: "pods", Namespaces: []string{"lab", "bank"}, LabelSelector: "!x"}, "")
	some.until("lab/one")

	object := open(t, web, api.View{Resource: "pods", Namespaces: []string{"shop"}, Name: "two"}, "")
	m := object.next()
	if !bytes.Contains(m.Object, []byte(`"kind":"Pod"`)) || !bytes.Contains(m.Object, []byte(`"image":"i"`)) {
		t.Errorf("object %s", m.Object)
	}
	c.must(nil, c.admin.CoreV1().Pods("shop").Delete(t.Context(), "two", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	for len(m.Gone) == 0 {
		m = object.next()
	}
}

// What a user may see needs no configuration, and is asked of the server.
func TestRowsOfWhoMayNotSeeAll(t *testing.T) {
	c := start(t)
	jane := c.serve("jane", "shop")
	open(t, jane, api.View{Resource: "pods"}, "").until("shop/one")
	open(t, c.serve("joe", "default"), api.View{Resource: "pods"}, "").until("bank/one", "shop/one")
	for _, v := range []api.View{{Resource: "nodes"}, {Resource: "pods", Namespaces: []string{"bank"}}, {Resource: "pods", Namespaces: []string{"bank"}, Name: "one"}} {
		f := open(t, jane, v, "")
		m := f.next()
		if m.Type == "columns" {
			m = f.next()
		}
		if m.Error == nil || m.Error.Code != http.StatusForbidden || !strings.Contains(m.Error.Message, `"jane"`) {
			t.Errorf("%+v: %+v", v, m)
		}
	}
	for who, want := range map[string]string{"jane": `["shop"]`, "joe": `["bank","shop"]`} {
		if code, body := get(t, c.serve(who, "shop"), api.NamespacesPath); code != 200 || !strings.Contains(body, want) {
			t.Errorf("namespaces of %s: %d %s", who, code, body)
		}
	}
}

// The server prints the kinds that only it knows.
func TestRowsOfCustomResources(t *testing.T) {
	c := start(t)
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"stars.sky.example"},"spec":{"group":"sky.example","scope":"Namespaced",
		"names":{"plural":"stars","singular":"star","kind":"Star"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
		"additionalPrinterColumns":[{"name":"Colour","type":"string","jsonPath":".spec.colour"},{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}]}]}}`
	create := func(path, body string) error {
		return c.admin.Discovery().RESTClient().Post().AbsPath(path).Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
	}
	c.must(nil, create("/apis/"+apiextensionsv1.SchemeGroupVersion.String()+"/customresourcedefinitions", definition))
	stars := "/apis/sky.example/v1/namespaces/shop/stars"
	star := `{"apiVersion":"sky.example/v1","kind":"Star","metadata":{"name":"%"},"spec":{"colour":"red"},"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
	c.eventually("stars are served", func() bool { return create(stars, strings.ReplaceAll(star, "%", "sun")) == nil })
	web := c.serve("jane", "shop")
	f := open(t, web, api.View{Group: "sky.example", Resource: "stars"}, "")
	f.until("shop/sun")
	c.must(nil, create(stars, strings.ReplaceAll(star, "%", "vega")))
	f.until("shop/sun", "shop/vega")
	for name, r := range f.rows {
		if _, err := time.Parse(time.RFC3339, r.Cells[2].(string)); len(r.Cells) != 3 || r.Cells[1] != "red" || err != nil || r.State == api.StateOK {
			t.Errorf("%s: %+v (%v), columns %+v", name, r, err, f.columns)
		}
	}
	var sun metav1.PartialObjectMetadata
	_, body := get(t, web, stars+"/sun")
	c.must(nil, json.Unmarshal([]byte(body), &sun))
	light := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "light", OwnerReferences: []metav1.OwnerReference{{APIVersion: "sky.example/v1", Kind: "Star", Name: "sun", UID: sun.UID}}}}
	c.must(c.admin.CoreV1().ConfigMaps("shop").Create(t.Context(), light, metav1.CreateOptions{}))
	for asked, want := range map[string]string{
		`{"group":"sky.example","resource":"stars","namespace":"shop","name":"sun"}`:                         `"goes","params":{"count":"1","kind":"ConfigMap","names":"light"}`,
		`{"group":"apiextensions.k8s.io","resource":"customresourcedefinitions","name":"stars.sky.example"}`: `"unlisted","params":{"resources":"stars"}`,
		`{"resource":"namespaces","name":"shop"}`:                                                            `"contains","params":{"count":"2","kind":"Stars"}`,
	} {
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+api.BlastPath, strings.NewReader(`{"objects":[`+asked+`]}`))
		c.must(nil, err)
		if code, body := do(t, ask); code != 200 || !strings.Contains(body, want) {
			t.Errorf("blast of %s: %d %s, want %s", asked, code, body, want)
		}
	}
	merge, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+api.MergePath, strings.NewReader(`{"base":{"a":1,"b":1},"mine":{"a":2,"b":1},"theirs":{"a":1,"b":3}}`))
	c.must(nil, err)
	if code, body := do(t, merge); code != 200 || !strings.Contains(body, `{"a":2,"b":3}`) {
		t.Errorf("merge: %d %s", code, body)
	}
	if m := open(t, web, api.View{Resource: "moons"}, "").next(); m.Error == nil || m.Error.Code != http.StatusNotFound {
		t.Errorf("unknown kind: %+v", m)
	}
}

// To be cut off from the API server looks to a face as a broken connection.
func TestRowsEndWhileTheServerIsAway(t *testing.T) {
	c := start(t)
	web := c.serve("admin", "default")
	f := open(t, web, api.View{Resource: "pods"}, "")
	f.until("bank/one", "lab/one", "shop/one")
	c.away.Store(true)
	_ = f.socket.SetReadDeadline(time.Now().Add(30 * time.Second))
	for err := error(nil); err == nil; {
		if _, _, err = f.socket.ReadMessage(); err != nil && !websocket.IsCloseError(err, websocket.CloseGoingAway) {
			t.Errorf("ended with %v", err)
		}
	}
	if _, err := dial(t, web); err == nil {
		t.Error("a new connection was taken")
	}
	c.away.Store(false)
	again := open(t, web, api.View{Resource: "pods"}, f.revision)
	again.rows = f.rows
	c.pod("lab", "two")
	again.until("bank/one", "lab/one", "lab/two", "shop/one")
}

func get(t *testing.T, web *httptest.Server, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer somebody")
	return do(t, r)
}

func do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// Everything else goes to the API server, as the kubeconfig's user.
func TestOthersAreHandedOn(t *testing.T) {
	c := start(t)
	web := c.serve("jane", "shop")
	if code, body := get(t, web, "/api/v1/namespaces/shop/pods/one"); code != 200 || !strings.Contains(body, `"name":"one"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, web, "/api/v1/namespaces/bank/pods"); code != 403 || !strings.Contains(body, `\"jane\"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, web, api.WhyPath+"?resource=pods&namespace=shop&name=one"); code != 200 || !strings.Contains(body, `"scheduling"`) {
		t.Errorf("why: %d %s", code, body)
	}
	if code, body := get(t, web, api.RightsPath+"?of=me"); code != 200 || !strings.Contains(body, `"name":"jane"`) || !strings.Contains(body, `"originsUnread"`) || !strings.Contains(body, `{"resource":"pods","namespaced":true,"some":["get","list","watch"]`) {
		t.Errorf("rights: %d %s", code, body)
	}
	if code, body := get(t, web, api.RightsPath+"?verb=get&resource=pods"); code != 403 || !strings.Contains(body, `clusterroles`) {
		t.Errorf("who can: %d %s", code, body)
	}
	as, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.serve("admin", "shop").URL+api.NamespacesPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	as.Header.Set("Impersonate-User", "joe")
	if code, body := do(t, as); code != 200 || !strings.Contains(body, `["bank","shop"]`) {
		t.Errorf("namespaces of joe, to an admin: %d %s", code, body)
	}
	for _, path := range []string{api.MapPath, "/orrery/v2/other"} {
		var status metav1.Status
		if code, body := get(t, web, path); json.Unmarshal([]byte(body), &status) != nil || code != 404 || !apierrors.IsNotFound(&apierrors.StatusError{ErrStatus: status}) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	c.away.Store(true)
	if code, body := get(t, web, "/api/v1/pods"); code != http.StatusBadGateway || !strings.Contains(body, "can't be reached") {
		t.Errorf("%d %s", code, body)
	}
}
