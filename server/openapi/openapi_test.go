package openapi

import (
	"encoding/json"
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
		New:     func() runtime.Object { return &unstructured.Unstructured{} },
		NewList: func() runtime.Object { return &unstructured.UnstructuredList{} },
		Schema:  []byte(`{"type":"object","properties":{"spec":{"type":"object","required":["size"],"properties":{"size":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}}}}}`),
	}
}

func get(t *testing.T, d *Documents, path, accept string, into any) Document {
	t.Helper()
	doc, ok := d.Get(path, accept)
	if !ok {
		t.Fatalf("%s as %q: none", path, accept)
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
		if _, ok := d.Get(path, ""); ok {
			t.Errorf("%s exists", path)
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
	if !strings.HasSuffix(doc.ContentType, aggregatedParams) || doc.ETag == "" {
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
	var plain object
	get(t, d, "/openapi/v2", mediaJSON, &plain)
	checkRefs(t, plain, v2Refs, plain["definitions"].(object))
}

func TestOpenAPIv3(t *testing.T) {
	d := newDocuments(t, widget())
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	get(t, d, "/openapi/v3", "", &index)
	if len(index.Paths) != 24 {
		t.Errorf("%d group versions", len(index.Paths))
	}
	for path := range index.Paths {
		var doc object
		get(t, d, "/openapi/v3/"+path, mediaJSON, &doc)
		checkRefs(t, doc, v3Refs, doc["components"].(object)["schemas"].(object))
	}
	get(t, d, "/openapi/v3/apis/apps/v1", mediaOpenAPI3, nil)
	if _, ok := d.Get("/openapi/v3/apis/nope/v1", ""); ok {
		t.Error("a document for a group that is not there")
	}
}

// checkRefs checks that what is referred to is there.
func checkRefs(t *testing.T, doc any, prefix string, schemas object) {
	t.Helper()
	found := map[string]bool{}
	closure(nil, doc, prefix, found)
	for name := range found {
		if _, ok := schemas[name]; !ok {
			t.Errorf("reference to %s, which is not there", name)
		}
	}
}
