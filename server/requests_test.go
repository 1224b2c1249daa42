package server

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/admission"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// TestBadRequests holds each refusal to upstream's code and words.
func TestBadRequests(t *testing.T) {
	c := start(t)
	if _, err := c.client.CoreV1().ConfigMaps("default").Create(context.Background(), configMap("there"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	long := strings.Repeat("a", 254)
	const jsonPatch, mergePatch = "application/json-patch+json", "application/merge-patch+json"
	tests := []struct {
		name, method, path, body string
		headers                  map[string]string
		code                     int
		reason                   metav1.StatusReason
		message                  string
	}{
		{"malformed body", "POST", maps, `{"kind":`, nil, 400, "BadRequest",
			`the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({"kind":)`},
		{"empty body", "POST", maps, "", nil, 400, "BadRequest",
			`the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)`},
		{"wrong type", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v1","data":7}`, nil, 400, "BadRequest",
			`ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string`},
		{"other version", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"x"}}`, nil, 400, "BadRequest",
			`ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111"`},
		{"another kind", "POST", maps, `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"x"}}`, nil, 400, "BadRequest",
			`Deployment in version "v1" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion`},
		{"another version", "POST", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{"name":"x"}}`, nil, 400, "BadRequest",
			`the API version in the data (autoscaling/v2) does not match the expected API version (autoscaling/v1)`},
		{"unknown field, strict", "POST", maps + "?fieldValidation=Strict", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"foo":1,"data":{},"data":{}}`, nil, 400, "BadRequest",
			`ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo", duplicate field "data"`},
		{"bad fieldValidation", "POST", maps + "?fieldValidation=Maybe", `{}`, nil, 422, "Invalid",
			`CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Maybe": supported values: "", "Ignore", "Strict", "Warn"`},
		{"bad dryRun", "POST", maps + "?dryRun=Some", `{}`, nil, 422, "Invalid",
			`CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"`},
		{"no name", "POST", maps, `{"metadata":{}}`, nil, 422, "Invalid",
			`ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required`},
		{"bad name", "POST", maps, `{"metadata":{"name":"A_b"}}`, nil, 422, "Invalid",
			`ConfigMap "A_b" is invalid: metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		{"too long by the declared rule", "POST", "/apis/resource.k8s.io/v1/deviceclasses", `{"metadata":{"generateName":"A_b","name":"` + long + `"}}`, nil, 422, "Invalid",
			`DeviceClass.resource.k8s.io "` + long + `" is invalid: metadata.name: Invalid value: "` + long + `": must be no more than 253 bytes`},
		{"name as it is generated from", "POST", "/apis/networking.k8s.io/v1/ipaddresses", `{"metadata":{"generateName":"a-"},"spec":{"parentRef":{"resource":"services","name":"s"}}}`, nil, 422, "Invalid",
			`IPAddress.networking.k8s.io "a-" is invalid: [metadata.generateName: Invalid value: "a-": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff), metadata.name: Invalid value: "a-": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)]`},
		{"older event", "POST", "/api/v1/namespaces/default/events", `{"metadata":{"finalizers":["bad"]},"involvedObject":{"namespace":"x"}}`, nil, 422, "Invalid",
			`Event "" is invalid: involvedObject.namespace: Invalid value: "x": does not match event.namespace`},
		{"newer event", "POST", "/apis/events.k8s.io/v1/namespaces/default/events", `{"type":"Normal","regarding":{"namespace":"x"}}`, nil, 422, "Invalid",
			`Event "" is invalid: [involvedObject.namespace: Invalid value: "x": does not match event.namespace, metadata.name: Required value: name or generateName is required, eventTime: Required value]`},
		{"other namespace", "POST", maps, `{"metadata":{"name":"a","namespace":"other"}}`, nil, 400, "BadRequest",
			`the namespace of the provided object does not match the namespace sent on the request`},
		{"taken name", "POST", maps, `{"metadata":{"name":"there"}}`, nil, 409, "AlreadyExists", `configmaps "there" already exists`},
		{"name in URL differs", "PUT", maps + "/there", `{"metadata":{"name":"here"}}`, nil, 400, "BadRequest", `the name of the object (here) does not match the name on the URL (there)`},
		{"update of nothing", "PUT", maps + "/nothing", `{"metadata":{"name":"nothing"}}`, nil, 404, "NotFound", `configmaps "nothing" not found`},
		{"stale update", "PUT", maps + "/there", `{"metadata":{"name":"there","resourceVersion":"1"}}`, nil, 409, "Conflict",
			`Operation cannot be fulfilled on configmaps "there": the object has been modified; please apply your changes to the latest version and try again`},
		{"get of nothing", "GET", maps + "/nothing", "", nil, 404, "NotFound", `configmaps "nothing" not found`},
		{"unknown resource", "GET", "/api/v1/namespaces/default/foos", "", nil, 404, "NotFound", `the server could not find the requested resource`},
		{"unknown subresource", "GET", maps + "/there/status", "", nil, 404, "NotFound", `the server could not find the requested resource`},
		{"post to all namespaces", "POST", "/api/v1/configmaps", `{"metadata":{"name":"a"}}`, nil, 405, "MethodNotAllowed", `the server does not allow this method on the requested resource`},
		{"put to a collection", "PUT", maps, `{}`, nil, 405, "MethodNotAllowed", `the server does not allow this method on the requested resource`},
		{"media type of the body", "POST", maps, `a`, map[string]string{"Content-Type": "text/plain"}, 415, "UnsupportedMediaType",
			`the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`},
		{"media type of a patch", "PATCH", maps + "/there", `{}`, nil, 415, "UnsupportedMediaType", `415: Unsupported Media Type`},
		{"media type of the reply", "GET", maps, "", map[string]string{"Accept": "text/html"}, 406, "NotAcceptable",
			"406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"},
		{"form of the reply", "GET", maps, "", map[string]string{"Accept": "application/json;as=Table;v=v9;g=meta.k8s.io"}, 406, "NotAcceptable",
			`only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf`},
		{"too large", "POST", maps, strings.Repeat(" ", maxBody+1), nil, 413, "RequestEntityTooLarge", `Request entity too large: limit is 3145728`},
		{"bad label selector", "GET", maps + "?labelSelector=%21%21", "", nil, 400, "BadRequest",
			`unable to parse requirement: found '!', expected: identifier`},
		{"unknown field selector", "GET", maps + "?fieldSelector=spec.x%3D1", "", nil, 400, "BadRequest",
			`"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"unknown pod field selector", "GET", "/api/v1/pods?fieldSelector=spec.x%3D1", "", nil, 400, "BadRequest", `field label not supported: spec.x`},
		{"bad resourceVersion", "GET", maps + "?resourceVersion=x", "", nil, 400, "", ``},
		{"match without version", "GET", maps + "?resourceVersionMatch=Exact", "", nil, 422, "Invalid",
			`ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided`},
		{"malformed patch", "PATCH", maps + "/there", `{`, map[string]string{"Content-Type": mergePatch}, 400, "BadRequest", `invalid JSON patch`},
		{"patch that fails", "PATCH", maps + "/there", `[{"op":"remove","path":"/nope"}]`, map[string]string{"Content-Type": jsonPatch}, 422, "Invalid",
			`the server rejected our request due to an error in our request`},
		{"patch of the name", "PATCH", maps + "/there", `{"metadata":{"name":"here"}}`, map[string]string{"Content-Type": mergePatch}, 400, "BadRequest",
			`the name of the object (here) does not match the name on the URL (there)`},
		{"apply without manager", "PATCH", maps + "/there", `{}`, map[string]string{"Content-Type": "application/apply-patch+yaml"}, 422, "Invalid",
			`PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch`},
		{"who?", "GET", maps, "", map[string]string{"Authorization": "Bearer nobody", "Accept": "application/json"}, 403, "Forbidden",
			`configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{"may not", "GET", "/apis/apps/v1/namespaces/default/deployments/web", "", map[string]string{"Authorization": "Bearer bob"}, 403, "Forbidden",
			`deployments.apps "web" is forbidden: User "bob" cannot get resource "deployments" in API group "apps" in the namespace "default"`},
		{"may not, cluster", "DELETE", "/api/v1/nodes/n1", "", map[string]string{"Authorization": "Bearer bob"}, 403, "Forbidden",
			`nodes "n1" is forbidden: User "bob" cannot delete resource "nodes" in API group "" at the cluster scope`},
		{"may not, path", "GET", "/metrics", "", map[string]string{"Authorization": "Bearer bob"}, 403, "Forbidden", `forbidden: User "bob" cannot get path "/metrics"`},
		{"exec without upgrade", "POST", "/api/v1/namespaces/default/pods/nothing/exec", "", nil, 404, "NotFound", `pods "nothing" not found`},
		{"bad timeout", "GET", maps + "?timeout=x", "", nil, 400, "BadRequest", `invalid timeout specified in the request URL - time: invalid duration "x"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, body := c.do(test.method, test.path, test.body, test.headers)
			s := status(t, body)
			if code != test.code || int(s.Code) != test.code {
				t.Errorf("code %d (in the body %d), want %d\n%s", code, s.Code, test.code, body)
			}
			if test.reason != "" && s.Reason != test.reason {
				t.Errorf("reason %s, want %s", s.Reason, test.reason)
			}
			if test.message != "" && s.Message != test.message {
				t.Errorf("message\n%s, want\n%s", s.Message, test.message)
			}
			if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure {
				t.Errorf("not a failure Status: %s", body)
			}
		})
	}
}

func TestUnauthorized(t *testing.T) {
	c := start(t, func(cfg *Config) { cfg.Authenticator = authenticator.RequestFunc(knownUsers) })
	code, body := c.do("GET", "/api/v1/pods", "", map[string]string{"Authorization": ""})
	want := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}` + "\n"
	if code != 401 || body != want {
		t.Errorf("%d %s", code, body)
	}
}

func TestUnknownPaths(t *testing.T) {
	c := start(t)
	for _, path := range []string{"/foo", "/apis/none.example.org/v1/foos", "/livez/nope"} {
		if code, body := c.do("GET", path, "", nil); code != 404 || body != "404 page not found\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}

// TestBodies holds replies to the very bytes that upstream sends.
func TestBodies(t *testing.T) {
	c := start(t)
	const path = "/api/v1/namespaces/default/configmaps"
	code, body := c.do("POST", path+"?fieldManager=m", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one"},"data":{"a":"<1>"}}`, nil)
	var made corev1.ConfigMap
	if err := json.Unmarshal([]byte(body), &made); err != nil || code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	stamp := made.CreationTimestamp.UTC().Format(time.RFC3339)
	rest := fmt.Sprintf(`"metadata":{"name":"one","namespace":"default","uid":"%s","resourceVersion":"%s","creationTimestamp":"%s","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","time":"%s","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{}}}}]},"data":{"a":"\u003c1\u003e"}}`,
		made.UID, made.ResourceVersion, stamp, made.ManagedFields[0].Time.UTC().Format(time.RFC3339))
	whole := `{"kind":"ConfigMap","apiVersion":"v1",` + rest
	if body != whole+"\n" {
		t.Errorf("create:\n%s want\n%s", body, whole)
	}
	if _, body = c.do("GET", path+"/one", "", nil); body != whole+"\n" {
		t.Errorf("get:\n%s want\n%s", body, whole)
	}
	want := fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%s"},"items":[{%s]}`, made.ResourceVersion, rest)
	_, body = c.do("GET", path+"?resourceVersion="+made.ResourceVersion+"&resourceVersionMatch=Exact", "", nil)
	if body != want+"\n" {
		t.Errorf("list:\n%s want\n%s", body, want)
	}
	reply := c.raw("GET", path+"?watch=true&resourceVersion=0&timeoutSeconds=1", "", nil)
	defer reply.Body.Close()
	line, err := bufio.NewReader(reply.Body).ReadString('\n')
	if want := `{"type":"ADDED","object":` + whole + "}\n"; err != nil || line != want {
		t.Errorf("watch:\n%s want\n%s", line, want)
	}
	code, body = c.do("DELETE", path+"/one", "", nil)
	want = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"one","kind":"configmaps","uid":"%s"}}`, made.UID)
	if code != 200 || body != want+"\n" {
		t.Errorf("delete: %d\n%s want\n%s", code, body, want)
	}
}

func TestWarnings(t *testing.T) {
	c := start(t)
	reply := c.raw("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"w"},"spec":{}}`, nil)
	defer reply.Body.Close()
	if got := reply.Header.Values("Warning"); reply.StatusCode != 201 || len(got) != 1 || got[0] != `299 - "unknown field \"spec\""` {
		t.Errorf("%d %q", reply.StatusCode, got)
	}
	unrouted := c.raw("PATCH", "/api/v1/namespaces/default/endpoints/e", `{}`, map[string]string{"Content-Type": "application/json"})
	defer unrouted.Body.Close()
	if got := unrouted.Header.Values("Warning"); unrouted.StatusCode != 415 || len(got) != 0 {
		t.Errorf("a patch of no type: %d %q", unrouted.StatusCode, got)
	}
}

func TestTable(t *testing.T) {
	c := start(t)
	if _, err := c.client.CoreV1().Pods("default").Create(context.Background(), pod("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	as := map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
	_, body := c.do("GET", "/api/v1/namespaces/default/pods", "", as)
	var table metav1.Table
	if err := json.Unmarshal([]byte(body), &table); err != nil {
		t.Fatal(err)
	}
	if table.Kind != "Table" || len(table.Rows) != 1 || table.Rows[0].Cells[0] != "one" || table.Rows[0].Cells[1] != "0/1" || table.Rows[0].Cells[2] != "Pending" {
		t.Errorf("table: %s", body)
	}
	if age, ok := table.Rows[0].Cells[4].(string); !ok || !strings.HasSuffix(age, "s") {
		t.Errorf("age: %v", table.Rows[0].Cells[4])
	}
	if !strings.Contains(string(table.Rows[0].Object.Raw), `"kind":"PartialObjectMetadata"`) {
		t.Errorf("row object: %s", table.Rows[0].Object.Raw)
	}
	_, body = c.do("GET", "/api/v1/namespaces/default/pods/one?includeObject=None", "", as)
	if !strings.Contains(body, `"object":null`) {
		t.Errorf("includeObject=None: %s", body)
	}
	_, body = c.do("GET", "/api/v1/pods", "", map[string]string{"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"})
	if !strings.HasPrefix(body, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":`) || strings.Contains(body, "containers") && !strings.Contains(body, "f:containers") {
		t.Errorf("metadata: %s", body)
	}
	const set = `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	code, body := c.do("POST", "/apis/apps/v1/namespaces/default/daemonsets", set, as)
	if code != 201 || strings.Contains(body, `"annotations":`) {
		t.Errorf("an annotation that is a field: %d %s", code, body)
	}
	code, body = c.do("GET", "/api/v1/namespaces/default/pods/nothing", "", as)
	if s := status(t, body); code != 404 || s.Reason != metav1.StatusReasonNotFound {
		t.Errorf("error as table: %s", body)
	}
	const review = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`
	only := map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
	if code, body = c.do("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, only); code != 406 || status(t, body).Reason != metav1.StatusReasonNotAcceptable {
		t.Errorf("a review as table: %d %s", code, body)
	}
	ended := pod("ended")
	if _, err := c.client.CoreV1().Pods("default").Create(context.Background(), ended, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ended.Status.Phase = corev1.PodSucceeded
	if _, err := c.client.CoreV1().Pods("default").UpdateStatus(context.Background(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods/ended"} {
		_, body = c.do("GET", path, "", as)
		if !strings.Contains(body, `"conditions":[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has completed successfully."}],"object":`) || strings.Count(body, "Completed") != 1 {
			t.Errorf("pod that has ended: %s", body)
		}
	}
}

func TestFormats(t *testing.T) {
	c := start(t)
	_, body := c.do("GET", "/api/v1/namespaces/default", "", map[string]string{"Accept": "application/yaml"})
	if !strings.HasPrefix(body, "apiVersion: v1\nkind: Namespace\n") {
		t.Errorf("yaml: %s", body)
	}
	_, body = c.do("GET", "/api/v1/namespaces/default?pretty=true", "", nil)
	if !strings.HasPrefix(body, "{\n  \"kind\": \"Namespace\",\n") {
		t.Errorf("pretty: %s", body)
	}
	_, body = c.do("POST", "/api/v1/namespaces/default/configmaps", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: b\n", map[string]string{"Content-Type": "application/yaml"})
	if !strings.Contains(body, `"data":{"a":"b"}`) {
		t.Errorf("yaml in: %s", body)
	}
	big := configMap("big", "x", strings.Repeat("0123456789", 20000))
	if _, err := c.client.CoreV1().ConfigMaps("default").Create(context.Background(), big, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reply := c.raw("GET", "/api/v1/configmaps", "", map[string]string{"Accept-Encoding": "gzip"})
	defer reply.Body.Close()
	if reply.Header.Get("Content-Encoding") != "gzip" {
		t.Fatal("a large list was not compressed")
	}
	plain, err := gzip.NewReader(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(plain); err != nil || !json.Valid(text) {
		t.Errorf("gzip: %v", err)
	}
}

func TestWatchEnds(t *testing.T) {
	c := start(t)
	reply := c.raw("GET", "/api/v1/pods?watch=1&timeoutSeconds=1", "", nil)
	defer reply.Body.Close()
	if _, err := io.ReadAll(reply.Body); err != nil {
		t.Errorf("a watch that timed out: %v", err)
	}
	reply = c.raw("GET", "/api/v1/pods?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "", nil)
	defer reply.Body.Close()
	lines := bufio.NewReader(reply.Body)
	line, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, `{"type":"BOOKMARK"`) || !strings.Contains(line, `"k8s.io/initial-events-end":"true"`) {
		t.Errorf("streaming list: %s %v", line, err)
	}
	c.server.Drain()
	if _, err := lines.ReadString('\n'); err != io.EOF {
		t.Errorf("a watch outlived the drain: %v", err)
	}
}

func TestWatchSocket(t *testing.T) {
	c := start(t)
	dialer := websocket.Dialer{}
	conn, _, err := dialer.Dial("ws"+strings.TrimPrefix(c.url, "http")+"/api/v1/namespaces/default/configmaps?watch=1", http.Header{"Authorization": {"Bearer admin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := c.client.CoreV1().ConfigMaps("default").Create(context.Background(), configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, message, err := conn.ReadMessage()
	if err != nil || !strings.HasPrefix(string(message), `{"type":"ADDED","object":{"kind":"ConfigMap"`) {
		t.Errorf("%s %v", message, err)
	}
}

func TestHealthAndVersion(t *testing.T) {
	c := start(t, func(cfg *Config) {
		cfg.Admission = admission.Chain{{Name: "Quiet", Validate: func(context.Context, *admission.Request) error { return nil }}}
	})
	for path, want := range map[string]string{
		"/healthz": "ok", "/livez/ping": "ok", "/readyz/poststarthook/rbac/bootstrap-roles": "ok",
		"/livez/poststarthook/crd-informer-synced": "ok", "/readyz/informer-sync": "ok", "/healthz/autoregister-completion": "ok",
	} {
		if code, body := c.do("GET", path, "", nil); code != 200 || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if _, body := c.do("GET", "/version", "", nil); !strings.Contains(body, `"gitVersion": "v1.37.2"`) {
		t.Errorf("version: %s", body)
	}
	if _, body := c.do("GET", "/metrics", "", nil); !strings.Contains(body, "apiserver_resource_objects{") || !strings.Contains(body, "apiserver_request_total{") {
		t.Errorf("metrics: %s", body[:min(len(body), 500)])
	}
	if code, body := c.do("POST", "/api/v1/namespaces/default/endpoints", `{"metadata":{"name":"old"}}`, nil); code != 201 {
		t.Errorf("%d %s", code, body)
	}
	_, body := c.do("GET", "/metrics", "", nil)
	for _, want := range []string{
		`kubernetes_build_info{`, `apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1`,
		`apiserver_response_sizes_count{component="",group="",resource="",scope="",subresource="/healthz",verb="GET",version=""}`,
		`aggregator_unavailable_apiservice{name="v1.apps"} 0`, `apiserver_admission_controller_admission_duration_seconds_count{name="Quiet",operation="CREATE",rejected="false",type="validate"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics without %s", want)
		}
	}
	if _, body := c.do("GET", "/metrics/slis", "", nil); !strings.Contains(body, `kubernetes_healthcheck{name="ping",type="healthz"} 1`) {
		t.Errorf("health in metrics: %.500s", body)
	}
	if _, body := c.do("GET", "/", "", nil); !strings.Contains(body, `"/apis/apps/v1"`) {
		t.Errorf("paths: %s", body)
	}
	c.server.Drain()
	if code, _ := c.do("GET", "/readyz", "", nil); code != 500 {
		t.Errorf("readyz while draining: %d", code)
	}
}

func TestPanic(t *testing.T) {
	c := start(t, func(cfg *Config) {
		cfg.Admission = admission.Chain{{Name: "Panic", Mutate: func(context.Context, *admission.Request) error { panic("oops") }}}
	})
	code, body := c.do("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`, nil)
	if s := status(t, body); code != 500 || s.Reason != metav1.StatusReasonInternalError {
		t.Errorf("%d %s", code, body)
	}
}

func TestTimeout(t *testing.T) {
	c := start(t, func(cfg *Config) {
		cfg.Admission = admission.Chain{{Name: "Wait", Mutate: func(ctx context.Context, _ *admission.Request) error { <-ctx.Done(); return ctx.Err() }}}
	})
	code, body := c.do("POST", "/api/v1/namespaces/default/configmaps?timeout=10ms", `{"metadata":{"name":"a"}}`, nil)
	if s := status(t, body); code != 504 || s.Reason != metav1.StatusReasonTimeout {
		t.Errorf("%d %s", code, body)
	}
}

func TestImpersonation(t *testing.T) {
	c := start(t)
	code, body := c.do("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`,
		map[string]string{"Impersonate-User": "carol", "Impersonate-Group": "dev"})
	// carol has no rights, so being her is refused.
	if s := status(t, body); code != 403 || !strings.Contains(s.Message, `User "carol" cannot create resource "selfsubjectreviews"`) {
		t.Errorf("%d %s", code, body)
	}
	if r := c.raw("GET", "/api/v1/pods", "", map[string]string{"Impersonate-Group": "dev"}); r.StatusCode != 400 || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("nobody in a group: %d %v", r.StatusCode, r.Header)
	}
	code, body = c.do("GET", "/api/v1/pods", "", map[string]string{"Authorization": "Bearer bob", "Impersonate-User": "admin"})
	if s := status(t, body); code != 403 || s.Message != `pods is forbidden: User "bob" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope` {
		t.Errorf("%d %s", code, body)
	}
}

// TestStarting: what may be a custom resource is not said to be gone before the
// definitions have been read.
func TestStarting(t *testing.T) {
	memory := storage.NewMemory()
	defer memory.Close()
	s, err := New(Config{
		Store: storage.New(memory, storage.Options{}), Kinds: registry.NewBuiltinTable(),
		Authenticator: authenticator.RequestFunc(testUsers), Authorizer: authorizer.AuthorizerFunc(onlyAdmins),
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/apis/example.org/v1": 503, "/apis/example.org/v1/widgets": 503, "/apis/apps/v1/widgets": 404, "/readyz/poststarthook/crd-informer-synced": 500,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer admin")
		s.Handler().ServeHTTP(w, r)
		if w.Code != want || want == 503 && w.Header().Get("Retry-After") != "5" {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
}
