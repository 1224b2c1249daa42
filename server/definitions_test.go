package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"orrery.dev/server/openapi"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// gadgets is a definition that uses about everything that one can say.
const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget, shortNames: [gd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    selectableFields: [{jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        description: A gadget.
        properties:
          spec:
            type: object
            required: [size]
            x-kubernetes-validations:
            - {rule: "self.replicas <= 10", message: too many}
            properties:
              size: {type: string, enum: [small, large], description: How large it is.}
              replicas: {type: integer, default: 1, minimum: 0}
              tags: {type: array, items: {type: string}, x-kubernetes-list-type: set}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}}}
          status:
            type: object
            properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: string}, replicas: {type: integer, default: 2}, hue: {type: string, default: red}}}
`

// define creates a definition and waits until it is established.
func (c *cluster) define(text string) *apiextensionsv1.CustomResourceDefinition {
	c.t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
		c.t.Fatal(err)
	}
	code, body := c.do("POST", definitionsPath, text, map[string]string{"Content-Type": "application/yaml"})
	if code != 201 {
		c.t.Fatalf("create: %d %s", code, body)
	}
	c.await("established", func() bool { return c.condition(crd.Name, apiextensionsv1.Established) == "True InitialNamesAccepted" })
	return &crd
}

// condition is the status and reason of a definition's condition.
func (c *cluster) condition(name string, kind apiextensionsv1.CustomResourceDefinitionConditionType) string {
	c.t.Helper()
	_, body := c.do("GET", definitionsPath+"/"+name, "", nil)
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal([]byte(body), &crd); err != nil {
		c.t.Fatal(err)
	}
	for _, condition := range crd.Status.Conditions {
		if condition.Type == kind {
			return string(condition.Status) + " " + condition.Reason
		}
	}
	return ""
}

func gadget(name, size string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": size},
	}}
}

func (c *cluster) dynamic(version string) dynamic.ResourceInterface {
	c.t.Helper()
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "example.org", Version: version, Resource: "gadgets"}).Namespace("default")
}

func number(t *testing.T, u *unstructured.Unstructured, path ...string) int64 {
	t.Helper()
	n, _, err := unstructured.NestedInt64(u.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDefinitionServes(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	ctx := context.Background()
	things := c.dynamic("v1")

	watcher, err := things.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	obj := gadget("one", "small")
	obj.Object["status"] = map[string]any{"phase": "Ready"}
	made, err := things.Create(ctx, obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if number(t, made, "spec", "replicas") != 1 || made.GetGeneration() != 1 || made.Object["status"] != nil {
		t.Errorf("created: %v", made.Object)
	}
	if e := <-watcher.ResultChan(); e.Type != watch.Added || e.Object.(*unstructured.Unstructured).GetName() != "one" {
		t.Errorf("watch: %v", e)
	}

	made.Object["status"] = map[string]any{"replicas": int64(1), "selector": "a=b"}
	made.Object["spec"].(map[string]any)["size"] = "large"
	made, err = things.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if number(t, made, "status", "replicas") != 1 || made.GetGeneration() != 1 || made.Object["spec"].(map[string]any)["size"] != "small" {
		t.Errorf("status: %v", made.Object)
	}
	made, err = things.Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"size":"large"},"status":{"replicas":7}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if number(t, made, "status", "replicas") != 1 || made.GetGeneration() != 2 {
		t.Errorf("patched: %v", made.Object)
	}

	scale, err := things.Get(ctx, "one", metav1.GetOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
	if number(t, scale, "spec", "replicas") != 1 || scale.Object["status"].(map[string]any)["selector"] != "a=b" {
		t.Errorf("scale: %v", scale.Object)
	}
	if err := unstructured.SetNestedField(scale.Object, int64(3), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if _, err = things.Update(ctx, scale, metav1.UpdateOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}
	made, err = things.Get(ctx, "one", metav1.GetOptions{})
	if err != nil || number(t, made, "spec", "replicas") != 3 || made.GetGeneration() != 3 {
		t.Errorf("scaled: %v %v", made, err)
	}

	if _, err := things.Create(ctx, gadget("two", "small"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := things.List(ctx, metav1.ListOptions{FieldSelector: "spec.size=large"})
	if err != nil || len(list.Items) != 1 || list.GetKind() != "GadgetList" || list.Items[0].GetName() != "one" {
		t.Errorf("list: %v %v", list, err)
	}
	as := map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
	if _, body := c.do("GET", "/apis/example.org/v1/gadgets", "", as); !strings.Contains(body, `"cells":["one","large",3,"`) || !strings.Contains(body, `"name":"Size","type":"string"`) {
		t.Errorf("table: %s", body)
	}
	if err := things.Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := things.Get(ctx, "two", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted: %v", err)
	}
}

func TestDefinitionRefuses(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	for name, test := range map[string]struct{ spec, strict, want string }{
		"unknown field": {`{"size":"small","colour":"red"}`, "Strict", `Gadget in version "v1" cannot be handled as a Gadget: strict decoding error: unknown field "spec.colour"`},
		"enum":          {`{"size":"huge"}`, "", `Gadget.example.org "x" is invalid: [spec.size: Unsupported value: "huge": supported values: "small", "large", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		"missing":       {`{"replicas":1}`, "", `Gadget.example.org "x" is invalid: [spec.size: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`},
		"minimum":       {`{"size":"small","replicas":-1}`, "", `Gadget.example.org "x" is invalid: [spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, .spec.replicas: Invalid value: -1: should be a non-negative integer]`},
		"rule":          {`{"size":"small","replicas":11}`, "", `Gadget.example.org "x" is invalid: spec: Invalid value: too many`},
		"set":           {`{"size":"small","tags":["a","a"]}`, "", `Gadget.example.org "x" is invalid: spec.tags[1]: Duplicate value: "a"`},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"x"},"spec":` + test.spec + `}`
			_, reply := c.do("POST", "/apis/example.org/v1/namespaces/default/gadgets?fieldValidation="+test.strict, body, nil)
			if got := status(t, reply).Message; got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	// Without strict validation an unknown field is dropped, with a warning.
	body := `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"x"},"spec":{"size":"small","colour":"red"}}`
	reply := c.raw("POST", "/apis/example.org/v1/namespaces/default/gadgets", body, nil)
	reply.Body.Close()
	if got := reply.Header.Get("Warning"); reply.StatusCode != 201 || got != `299 - "unknown field \"spec.colour\""` {
		t.Errorf("%d %s", reply.StatusCode, got)
	}
	if _, text := c.do("GET", "/apis/example.org/v1/namespaces/default/gadgets/x", "", nil); strings.Contains(text, `"red"`) {
		t.Errorf("kept: %s", text)
	}
}

// TestCustomRefusals: what is wrong with a request for custom resources is told in
// other words than for built-in ones.
func TestCustomRefusals(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	if _, err := c.dynamic("v1").Create(context.Background(), gadget("one", "small"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const all, one = "/apis/example.org/v1/namespaces/default/gadgets", "/apis/example.org/v1/namespaces/default/gadgets/one"
	merge := map[string]string{"Content-Type": "application/merge-patch+json"}
	const otherKind = `Other.example.org "one" is invalid: kind: Invalid value: "Other": must be Gadget`
	for _, test := range []struct {
		method, path, body string
		header             map[string]string
		code               int
		want               string
	}{
		{"POST", all, `{"kind":"Gadget","metadata":{"name":"x"}}`, nil, 400, "the API version in the data () does not match the expected API version (example.org/v1)"},
		{"POST", all, `{"apiVersion":"example.org/v1","kind":"Other","metadata":{"name":"one"}}`, nil, 422, otherKind},
		{"PATCH", one, `{"kind":"Other"}`, merge, 422, otherKind},
		{"POST", all, `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":"x"}`, nil, 400, `Gadget in version "v1" cannot be handled as a Gadget: json: cannot unmarshal string into Go value of type v1.ObjectMeta`},
		{"POST", all, `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":5}}`, nil, 400, `Gadget in version "v1" cannot be handled as a Gadget: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string`},
		{"PUT", all, `{}`, nil, 400, "name must be provided"},
		{"OPTIONS", all, "", nil, 405, ` is not supported on resources of kind "gadgets.example.org"`},
		{"POST", "/apis/example.org/v1/gadgets", `{}`, nil, 404, "404 page not found"},
		{"HEAD", one, "", nil, 200, ""},
		{"PATCH", one + "/scale", `{"spec":{"replicas":-5}}`, merge, 422, `Gadget.example.org "one" is invalid: [spec.replicas: Invalid value: -5: spec.replicas in body should be greater than or equal to 0, .spec.replicas: Invalid value: -5: should be a non-negative integer]`},
	} {
		code, body := c.do(test.method, test.path, test.body, test.header)
		got := strings.TrimSpace(body)
		if strings.HasPrefix(body, "{") {
			got = status(t, body).Message
		}
		if code != test.code || got != test.want {
			t.Errorf("%s %s %s\ngot  %d %s\nwant %d %s", test.method, test.path, test.body, code, got, test.code, test.want)
		}
	}
	_, body := c.do("PATCH", definitionsPath+"/gadgets.example.org/status", `{"status":{"storedVersions":[]}}`, merge)
	if !strings.Contains(body, `"storedVersions":["v1"]`) {
		t.Error(body)
	}
}

// The names of some kinds follow from the rest of the object, those that are made up
// too.
func TestNamesThatFollow(t *testing.T) {
	c := start(t)
	const local = `"spec":{"group":"example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1}`
	for _, test := range []struct{ path, metadata, rest, want string }{
		{apiServicesPath, `{"name":"v2.example.com"}`, local, `metadata.name: Invalid value: "v2.example.com": must be ` + "`spec.version+\".\"+spec.group`" + `: "v1.example.com"`},
		{apiServicesPath, `{}`, local, `metadata.name: Required value: name or generateName is required`},
		{apiServicesPath, `{"generateName":"x-"}`, local, `metadata.generateName: Invalid value: "x-": must be ` + "`spec.version"},
		{definitionsPath, `{"generateName":"x-"}`, `"spec":{"group":"example.com","names":{"plural":"xs"}}`, `metadata.generateName: Invalid value: "x-": must be spec.names.plural+"."+spec.group`},
		{"/apis/certificates.k8s.io/v1/clustertrustbundles", `{"generateName":"x-"}`, `"spec":{"signerName":"a.b/c"}`, `metadata.generateName: Invalid value: "x-": ClusterTrustBundle for signerName a.b/c must be named with prefix a.b:c:`},
	} {
		_, reply := c.do("POST", test.path+"?dryRun=All", `{"metadata":`+test.metadata+`,`+test.rest+`}`, nil)
		if got := status(t, reply).Message; !strings.Contains(got, test.want) || strings.Contains(test.want, "Required") && strings.Contains(got, "[") {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestDefinitionApply(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	ctx, things := context.Background(), c.dynamic("v1")
	apply := func(manager, spec string) (*unstructured.Unstructured, error) {
		body := `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"x"},"spec":` + spec + `}`
		return things.Patch(ctx, "x", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager})
	}
	if _, err := apply("a", `{"size":"small","ports":[{"name":"http","port":80}]}`); err != nil {
		t.Fatal(err)
	}
	// Ports are a map by name: another owner's stays.
	both, err := apply("b", `{"ports":[{"name":"https","port":443}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if ports, _, _ := unstructured.NestedSlice(both.Object, "spec", "ports"); len(ports) != 2 {
		t.Errorf("ports: %v", ports)
	}
	if _, err := apply("b", `{"size":"large"}`); !apierrors.IsConflict(err) {
		t.Errorf("conflict: %v", err)
	}
	if _, err := apply("b", `{"colour":"red"}`); err == nil || !strings.Contains(err.Error(), ".spec.colour: field not declared in schema") {
		t.Errorf("undeclared: %v", err)
	}
}

// A definition is merged by its schema too: conditions have owners of their own.
func TestDefinitionStatusApply(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.org"
	const condition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.org"},"status":{"conditions":[
		{"type":"StorageMigrating","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	code, body := c.do("PATCH", path+"/status?fieldManager=migrator", condition, map[string]string{"Content-Type": string(types.ApplyPatchType)})
	for _, want := range []string{`"type":"Established"`, `"type":"NamesAccepted"`, `"type":"StorageMigrating"`, `"k:{\"type\":\"StorageMigrating\"}"`} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("no %s: %d %s", want, code, body)
		}
	}
}

func TestDefinitionVersions(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	ctx := context.Background()
	if _, err := c.dynamic("v1").Create(ctx, gadget("one", "small"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old, err := c.dynamic("v1beta1").Get(ctx, "one", metav1.GetOptions{})
	if err != nil || old.GetAPIVersion() != "example.org/v1beta1" || number(t, old, "spec", "replicas") != 1 {
		t.Errorf("as v1beta1: %v %v", old, err)
	}
	// Defaults are for what is sent, and those of the stored version for what is read.
	if hue, filled, _ := unstructured.NestedString(old.Object, "spec", "hue"); filled {
		t.Errorf("filled in on the way out: %s", hue)
	}
	// Each version is validated by its own schema and defaulted by it.
	other := gadget("two", "enormous")
	other.SetAPIVersion("example.org/v1beta1")
	if other, err = c.dynamic("v1beta1").Create(ctx, other, metav1.CreateOptions{}); err != nil || number(t, other, "spec", "replicas") != 2 {
		t.Errorf("create as v1beta1: %v %v", other, err)
	}
	other, err = c.dynamic("v1").Get(ctx, "two", metav1.GetOptions{})
	if err != nil || other.GetAPIVersion() != "example.org/v1" || number(t, other, "spec", "replicas") != 2 {
		t.Errorf("as v1: %v %v", other, err)
	}
	reply := c.raw("GET", "/apis/example.org/v1beta1/gadgets", "", nil)
	reply.Body.Close()
	if got := reply.Header.Get("Warning"); got != `299 - "example.org/v1beta1 Gadget is deprecated; use example.org/v1 Gadget"` {
		t.Errorf("warning: %s", got)
	}
	// The other version becomes the storage version: what is there stays readable.
	code, body := c.do("PATCH", definitionsPath+"/gadgets.example.org", `[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`, map[string]string{"Content-Type": "application/json-patch+json"})
	if code != 200 || !strings.Contains(body, `"storedVersions":["v1","v1beta1"]`) {
		t.Fatalf("%d %s", code, body)
	}
	c.await("the new storage version", func() bool {
		_, err := c.dynamic("v1").Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
		return err == nil && c.store.Collection(schema.GroupResource{Group: "example.org", Resource: "gadgets"}).Resource().Kind.Version == "v1beta1"
	})
	list, err := c.dynamic("v1").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || number(t, &list.Items[0], "spec", "replicas") != 5 {
		t.Errorf("list: %v %v", list, err)
	}
}

func TestDefinitionEnds(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	ctx, things := context.Background(), c.dynamic("v1")
	held := gadget("held", "small")
	held.SetFinalizers([]string{"example.org/wait"})
	for _, obj := range []*unstructured.Unstructured{held, gadget("free", "small")} {
		if _, err := things.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	watcher, err := things.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=free"})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if _, body := c.do("DELETE", definitionsPath+"/gadgets.example.org", `{"preconditions":{"uid":"x"}}`, nil); !strings.Contains(body, `customresourcedefinitions.apiextensions.k8s.io \"gadgets.example.org\": precondition failed: UID in precondition: x, UID in object meta:`) {
		t.Error(body)
	}
	code, body := c.do("DELETE", definitionsPath+"/gadgets.example.org?propagationPolicy=Foreground", "", nil)
	if code != 200 || !strings.Contains(body, `"generation":1,`) || strings.Contains(body, "deletionGracePeriodSeconds") || strings.Contains(body, "foregroundDeletion") {
		t.Fatalf("%d %s", code, body)
	}
	for deadline := time.After(time.Minute); ; {
		var e watch.Event
		select {
		case e = <-watcher.ResultChan():
		case <-deadline:
			t.Fatal("not deleted")
		}
		if e.Type == watch.Deleted {
			break
		}
	}
	c.await("terminating", func() bool {
		return c.condition("gadgets.example.org", apiextensionsv1.Terminating) == "True InstanceDeletionInProgress"
	})
	if _, err := things.Create(ctx, gadget("late", "small"), metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("create: %v", err)
	}
	if _, err := things.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("the end", func() bool {
		code, _ := c.do("GET", definitionsPath+"/gadgets.example.org", "", nil)
		return code == 404
	})
	c.await("no rows", func() bool { code, _ := c.do("GET", "/apis/example.org/v1/gadgets", "", nil); return code == 404 })
	// The same name can be defined again, and nothing is left of before.
	c.define(gadgets)
	if list, err := things.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("again: %v %v", list, err)
	}
}

func TestDefinitionNameConflict(t *testing.T) {
	c := start(t)
	c.define(gadgets)
	rival := strings.ReplaceAll(strings.ReplaceAll(gadgets, "name: gadgets.example.org", "name: gizmos.example.org"), "plural: gadgets", "plural: gizmos")
	code, body := c.do("POST", definitionsPath, rival, map[string]string{"Content-Type": "application/yaml"})
	if code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	c.await("refused", func() bool {
		return c.condition("gizmos.example.org", apiextensionsv1.NamesAccepted) == "False ListKindConflict" &&
			c.condition("gizmos.example.org", apiextensionsv1.Established) == "False NotAccepted"
	})
	if code, body := c.do("DELETE", definitionsPath+"/gadgets.example.org", "", nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	c.await("the names are free", func() bool {
		return c.condition("gizmos.example.org", apiextensionsv1.Established) == "True InitialNamesAccepted"
	})
}

// TestDefinitionConverts has a webhook that keeps the size in another place in
// v1beta1.
func TestDefinitionConverts(t *testing.T) {
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			var u unstructured.Unstructured
			if err := u.UnmarshalJSON(raw.Raw); err != nil {
				t.Error(err)
				return
			}
			from, to := []string{"spec", "size"}, []string{"size"}
			if u.GetAPIVersion() == "example.org/v1beta1" {
				from, to = to, from
			}
			size, _, _ := unstructured.NestedFieldNoCopy(u.Object, from...)
			unstructured.RemoveNestedField(u.Object, from...)
			if err := unstructured.SetNestedField(u.Object, size, to...); err != nil {
				t.Error(err)
			}
			u.SetAPIVersion(review.Request.DesiredAPIVersion)
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: &u})
		}
		review.Request, review.Response = nil, answer
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	defer hook.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	c := start(t)
	c.define(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "` + hook.URL + `", caBundle: ` + ca + `}}}
  versions:
  - {name: v1, served: true, storage: true, selectableFields: [{jsonPath: .spec.size}], schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: string}}}}}}}
  - {name: v1beta1, served: true, storage: false, selectableFields: [{jsonPath: .size}], schema: {openAPIV3Schema: {type: object, required: [size], properties: {size: {type: string}}}}}
`)
	ctx := context.Background()
	small, err := c.dynamic("v1beta1").Watch(ctx, metav1.ListOptions{FieldSelector: "size=small"})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Stop()
	if _, err := c.dynamic("v1").Create(ctx, gadget("one", "small"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]int{"size=small": 1, "size=large": 0, "size!=large": 1} {
		if list, err := c.dynamic("v1beta1").List(ctx, metav1.ListOptions{FieldSelector: selector}); err != nil || len(list.Items) != want {
			t.Errorf("%s: %v %v", selector, list, err)
		}
	}
	list, err := c.dynamic("v1beta1").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Object["size"] != "small" {
		t.Fatalf("%v %v", list, err)
	}
	old := &list.Items[0]
	old.Object["size"] = "large"
	if _, err := c.dynamic("v1beta1").Update(ctx, old, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	now, err := c.dynamic("v1").Get(ctx, "one", metav1.GetOptions{})
	if size, _, _ := unstructured.NestedString(now.Object, "spec", "size"); err != nil || size != "large" || now.GetGeneration() != 2 {
		t.Errorf("%v %v", now, err)
	}
	// By another field of the same object it would have come and stayed.
	for _, want := range []string{"ADDED small", "DELETED small"} {
		event := <-small.ResultChan()
		u, _ := event.Object.(*unstructured.Unstructured)
		if u == nil || string(event.Type)+" "+fmt.Sprint(u.Object["size"]) != want {
			t.Errorf("watch: %v, want %s", event, want)
		}
	}
	hook.Close()
	if _, err := c.dynamic("v1beta1").Patch(ctx, "one", types.MergePatchType, []byte(`{"size":"small"}`), metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "conversion webhook for example.org/v1, Kind=Gadget failed") {
		t.Errorf("without webhook: %v", err)
	}
}

func TestDefinitionIsDocumented(t *testing.T) {
	c := start(t)
	documents := openapi.New(c.server.Kinds, openapi.Options{Version: "v1.37.2"})
	c.define(gadgets)
	doc, err := documents.Get("/openapi/v3/apis/example.org/v1", "application/json")
	if err != nil || !strings.Contains(string(doc.Body), "How large it is.") {
		t.Errorf("openapi: %v %.200s", err, doc.Body)
	}
	doc, err = documents.Get("/apis/example.org", "application/json")
	if err != nil || !strings.Contains(string(doc.Body), `"preferredVersion":{"groupVersion":"example.org/v1"`) {
		t.Errorf("group: %s", doc.Body)
	}
	doc, err = documents.Get("/apis/example.org/v1", "application/json")
	for _, want := range []string{`"name":"gadgets"`, `"name":"gadgets/status"`, `"name":"gadgets/scale"`, `"shortNames":["gd"]`} {
		if err != nil || !strings.Contains(string(doc.Body), want) {
			t.Errorf("discovery without %s: %s", want, doc.Body)
		}
	}
}
