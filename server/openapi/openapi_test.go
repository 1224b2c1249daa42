package openapi

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectlopenapi "k8s.io/kubectl/pkg/util/openapi"

	"orrery.dev/server/registry"
)

func newDocuments(t *testing.T, more ...*registry.Kind) *Documents {
	t.Helper()
	table := registry.NewBuiltinTable()
	table.Put(more...)
	return New(table, Options{Version: "v1.37.2", Address: "10.0.0.1:6443"})
}

func widget() *registry.Kind {
	return &registry.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		Plural:           "widgets", Singular: "widget", Namespaced: true, JSON: true,
		New: func() runtime.Object { return &unstructured.Unstructured{} },
		NewList: func() runtime.Object {
			return &unstructured.UnstructuredList{Object: map[string]any{"kind": "WidgetList"}}
		},
		Schema: []byte(`{"type":"object","properties":{"spec":{"type":"object","required":["size"],"properties":{"size":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}}}}}`),
	}
}

func get(t *testing.T, d *Documents, path, accept string, into any) Document {
	t.Helper()
	doc, err := d.Get(path, accept)
	if err != nil {
		t.Fatalf("%s as %q: %v", path, accept, err)
	}
	if into != nil {
		if err := json.Unmarshal(doc.Body, into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return doc
}

func TestLegacyDiscovery(t *testing.T) {
	d := newDocuments(t)
	var groups metav1.APIGroupList
	get(t, d, "/apis", "application/json", &groups)
	if len(groups.Groups) != 21 || groups.Groups[0].Name != "apiregistration.k8s.io" || groups.Groups[1].Name != "apps" {
		t.Errorf("groups: %d, first %v", len(groups.Groups), groups.Groups[:2])
	}
	for _, g := range groups.Groups {
		if g.Name == "autoscaling" && g.PreferredVersion.GroupVersion != "autoscaling/v2" {
			t.Errorf("preferred autoscaling: %v", g.PreferredVersion)
		}
	}
	var core metav1.APIResourceList
	get(t, d, "/api/v1", "", &core)
	for _, r := range core.APIResources {
		if r.Name == "pods" && r.StorageVersionHash != "xPOwRZ+Yhw8=" {
			t.Errorf("hash of pods: %s", r.StorageVersionHash)
		}
		if r.Name == "pods/eviction" && r.Group != "policy" {
			t.Errorf("eviction: %+v", r)
		}
	}
	for _, path := range []string{"/apis/nope", "/api/v2", "/apis/apps/v9", "/apis//v1"} {
		if _, err := d.Get(path, ""); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", path, err)
		}
	}
	get(t, d, "/apis/apps", mediaProtobuf, nil)
	get(t, d, "/apis/apps/v1", mediaYAML, nil)
}

func TestAggregatedDiscovery(t *testing.T) {
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
	d := newDocuments(t, widget())
	var all apidiscoveryv2.APIGroupDiscoveryList
	doc := get(t, d, "/apis", accept, &all)
	if !strings.HasSuffix(doc.ContentType, ";as=APIGroupDiscoveryList") || doc.ETag == "" {
		t.Errorf("content type %q, etag %q", doc.ContentType, doc.ETag)
	}
	if last := all.Items[len(all.Items)-1]; last.Name != "example.com" || len(last.Versions[0].Resources) != 1 {
		t.Errorf("last group: %+v", last)
	}
	var core apidiscoveryv2.APIGroupDiscoveryList
	get(t, d, "/api", accept, &core)
	if len(core.Items) != 1 || core.Items[0].Name != "" {
		t.Errorf("core: %+v", core.Items)
	}
	// Below the root there is no aggregated form; the plain one is next.
	if doc := get(t, d, "/apis/apps", accept, nil); doc.ContentType != mediaJSON {
		t.Errorf("group as %q", doc.ContentType)
	}
	// The removed beta form alone is no form at all.
	if doc := get(t, d, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", nil); doc.ContentType != mediaJSON {
		t.Errorf("beta as %q", doc.ContentType)
	}
}

func TestDocumentsFollowTheTable(t *testing.T) {
	table := registry.NewBuiltinTable()
	d := New(table, Options{})
	before := get(t, d, "/apis", "", nil)
	table.Put(widget())
	after := get(t, d, "/apis", "", nil)
	if before.ETag == after.ETag {
		t.Error("a new group does not change the document")
	}
	table.Remove(widget().GroupVersionResource())
	if got := get(t, d, "/apis", "", nil); got.ETag != before.ETag {
		t.Error("removing it does not bring the first document back")
	}
}

// TestOpenAPIv2 reads the document as kubectl does, from protobuf.
func TestOpenAPIv2(t *testing.T) {
	d := newDocuments(t, widget())
	doc := get(t, d, "/openapi/v2", mediaOpenAPI2, nil)
	var parsed openapi_v2.Document
	if err := proto.Unmarshal(doc.Body, &parsed); err != nil {
		t.Fatal(err)
	}
	resources, err := kubectlopenapi.NewOpenAPIData(&parsed)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range registry.NewBuiltinTable().Kinds() {
		if k.Can("get") && resources.LookupResource(k.GroupVersionKind) == nil {
			t.Errorf("no schema of %s", k.GroupVersionKind)
		}
	}
	if resources.LookupResource(widget().GroupVersionKind) == nil {
		t.Error("no schema of the custom kind")
	}
	var plain struct {
		Definitions map[string]any `json:"definitions"`
	}
	checkRefs(t, get(t, d, "/openapi/v2", mediaJSON, &plain), v2Refs, plain.Definitions)
}

func TestOpenAPIv3(t *testing.T) {
	d := newDocuments(t, widget())
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	get(t, d, "/openapi/v3", "", &index)
	if len(index.Paths) != 50 {
		t.Errorf("%d documents", len(index.Paths))
	}
	for path := range index.Paths {
		var doc struct {
			Components struct {
				Schemas map[string]any `json:"schemas"`
			} `json:"components"`
		}
		checkRefs(t, get(t, d, "/openapi/v3/"+path, mediaJSON, &doc), v3Refs, doc.Components.Schemas)
	}
	get(t, d, "/openapi/v3/apis/apps/v1", mediaOpenAPI3, nil)
	if _, err := d.Get("/openapi/v3/apis/nope/v1", ""); !errors.Is(err, ErrNone) {
		t.Errorf("a group that is not there: %v", err)
	}
}

// checkRefs checks that what is referred to is there.
func checkRefs(t *testing.T, doc Document, prefix string, schemas map[string]any) {
	t.Helper()
	for _, ref := range regexp.MustCompile(`"\$ref":"`+prefix+`([^"]+)"`).FindAllSubmatch(doc.Body, -1) {
		if schemas[string(ref[1])] == nil {
			t.Errorf("reference to %s, which is not there", ref[1])
		}
	}
}

// Operations are named and answered as upstream's are.
func TestOperations(t *testing.T) {
	type operation struct {
		ID   string `json:"operationId"`
		Says string `json:"description"`
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	get(t, newDocuments(t, widget()), "/openapi/v2", mediaJSON, &doc)
	const pod = "/api/v1/namespaces/{namespace}/pods/{name}"
	for _, c := range []struct{ path, method, id, says, reply string }{
		{"/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "list or watch objects of kind Pod", "io.k8s.api.core.v1.PodList"},
		{"/api/v1/componentstatuses", "get", "listCoreV1ComponentStatus", "list objects of kind ComponentStatus", "io.k8s.api.core.v1.ComponentStatusList"},
		{"/api/v1/watch/pods", "get", "watchCoreV1PodListForAllNamespaces", "watch individual changes to a list of Pod. deprecated: use the 'watch' parameter with a list operation instead.", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"},
		{pod, "delete", "deleteCoreV1NamespacedPod", "delete a Pod", "io.k8s.api.core.v1.Pod"},
		{"/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "delete", "deleteAppsV1NamespacedDeployment", "delete a Deployment", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"},
		{"/api/v1/namespaces/{namespace}/endpoints", "post", "createCoreV1NamespacedEndpoints", "create Endpoints", "io.k8s.api.core.v1.Endpoints"},
		{"/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod", "delete collection of Pod", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"},
		{pod + "/exec", "post", "connectCoreV1PostNamespacedPodExec", "connect POST requests to exec of Pod", "string"},
		{pod + "/proxy/{path}", "options", "connectCoreV1OptionsNamespacedPodProxyWithPath", "connect OPTIONS requests to proxy of Pod", "string"},
		{pod + "/log", "get", "readCoreV1NamespacedPodLog", "read log of the specified Pod", "string"},
		{"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", "patch", "patchAppsV1NamespacedDeploymentScale", "partially update scale of the specified Deployment", "io.k8s.api.autoscaling.v1.Scale"},
		{"/apis/rbac.authorization.k8s.io/v1/", "get", "getRbacAuthorizationV1APIResources", "get available resources", "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList"},
		{"/apis/example.com/v1/namespaces/{namespace}/widgets", "get", "listExampleComV1NamespacedWidget", "list objects of kind Widget", "com.example.v1.WidgetList"},
	} {
		var op operation
		if err := json.Unmarshal(doc.Paths[c.path][c.method], &op); err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
			continue
		}
		if op.ID != c.id || op.Says != c.says {
			t.Errorf("%s %s: %s %q", c.method, c.path, op.ID, op.Says)
		}
		if text := string(doc.Paths[c.path][c.method]); !strings.Contains(text, c.reply+`"`) {
			t.Errorf("%s %s: no %s in %s", c.method, c.path, c.reply, text)
		}
	}
}

// Clients keep documents by their hash, and are sent on when it is another.
func TestServe(t *testing.T) {
	d := newDocuments(t)
	const path = "/openapi/v3/apis/apps"
	hash := get(t, d, path, "", nil).ETag
	for _, c := range []struct {
		url    string
		header [2]string
		code   int
		got    string // of the headers
		want   string
	}{
		{path, [2]string{}, 200, "Vary", "Accept"},
		{path + "?hash=" + hash, [2]string{}, 200, "Cache-Control", "public, immutable"},
		{path + "?hash=old", [2]string{}, 301, "Location", path + "?hash=" + hash},
		{path, [2]string{"If-None-Match", `"` + hash + `"`}, 304, "Etag", `"` + hash + `"`},
		{path, [2]string{"Accept", "text/plain"}, 406, "Vary", "Accept"},
		{path, [2]string{"Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"}, 200, "Content-Type", mediaOpenAPI3},
		{"/openapi/v3/none", [2]string{}, 404, "Content-Type", ""},
		{"/openapi/v2", [2]string{"Accept-Encoding", "gzip"}, 200, "Content-Encoding", "gzip"},
		{"/openapi/v2", [2]string{"Accept", "text/plain;q=0.5, application/com.github.proto-openapi.spec.v2.v1.0+protobuf;q=0.1"}, 200, "Content-Type", mediaOpenAPI2},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", c.url, nil)
		r.Header.Set(c.header[0], c.header[1])
		if err := d.Serve(w, r); err != nil || w.Code != c.code || w.Header().Get(c.got) != c.want {
			t.Errorf("%s with %q: %d, %s %q, %v", c.url, c.header, w.Code, c.got, w.Header().Get(c.got), err)
		}
	}
}
