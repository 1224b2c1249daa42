package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
	"orrery.dev/server/openapi"
	"orrery.dev/server/storage"
)

const apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"

// available is the Available condition of an APIService, "" if it isn't there.
func (c *cluster) available(name string) string {
	c.t.Helper()
	code, body := c.do("GET", apiServicesPath+"/"+name, "", nil)
	if code != 200 {
		return ""
	}
	var a api.APIService
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		c.t.Fatal(err)
	}
	for _, condition := range a.Status.Conditions {
		return condition.Status + " " + condition.Reason
	}
	return "none"
}

func TestLocalAPIServices(t *testing.T) {
	c := start(t)
	for _, name := range []string{"v1.", "v1.apps", "v2.autoscaling"} {
		c.await(name, func() bool { return c.available(name) == "True Local" })
	}
	const local = `{"metadata":{"name":"v1.l.example.org"},"spec":{"group":"l.example.org","version":"v1","groupPriorityMinimum":1,"versionPriority":1}}`
	if code, body := c.do("POST", "/apis/apiregistration.k8s.io/v1/apiservices", local, nil); code != 201 || !strings.Contains(body, "Local APIServices are always available") {
		t.Errorf("made locally: %d %s", code, body)
	}
	c.define(gadgets)
	c.await("one for the custom resources", func() bool { return c.available("v1.example.org") == "True Local" })
	if code, body := c.do("DELETE", definitionsPath+"/gadgets.example.org", "", nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	c.await("none when they are gone", func() bool { return c.available("v1.example.org") == "" })
	code, body := c.do("POST", apiServicesPath, `{"metadata":{"name":"v9.example.org","finalizers":["any"]},"spec":{"group":"example.org","version":"v9","groupPriorityMinimum":1,"versionPriority":1}}`, nil)
	if code != 201 || !strings.Contains(body, `"reason":"Local"`) {
		t.Errorf("a local one is there at once: %d %s", code, body)
	}
}

// A server that starts beside another does not take away what it does not know
// yet.
func TestAPIServicesOfAnotherServer(t *testing.T) {
	memory := storage.NewMemory()
	t.Cleanup(memory.Close)
	first := startOver(t, memory)
	first.define(gadgets)
	const path = apiServicesPath + "/v1.example.org"
	first.await("the first's", func() bool { return first.available("v1.example.org") == "True Local" })
	_, before := first.do("GET", path, "", nil)
	second := startOver(t, memory)
	second.await("custom resources at the second", func() bool {
		code, _ := second.do("GET", "/apis/example.org/v1/gadgets", "", nil)
		return code == 200
	})
	// It has looked once it has put this right.
	if code, body := second.do("PATCH", apiServicesPath+"/v1.apps", `{"spec":{"versionPriority":7}}`, map[string]string{"Content-Type": "application/merge-patch+json"}); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	second.await("look", func() bool {
		_, body := second.do("GET", apiServicesPath+"/v1.apps", "", nil)
		return strings.Contains(body, `"versionPriority":15`)
	})
	if _, after := second.do("GET", path, "", nil); after != before {
		t.Errorf("it was\n%s, and is\n%s", before, after)
	}
}

// farOpenAPI has a definition of a name that is taken, and more than the server is
// asked for.
const farOpenAPI = `{"swagger":"2.0","info":{"title":"far","version":"1"},"paths":{
"/apis/far.example.org/v1/stars":{"get":{"operationId":"listStars","responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/org.example.far.v1.Star"}}}}},
"/apis/other.example.org/v1/moons":{"get":{"operationId":"listMoons","responses":{"200":{"description":"OK"}}}}},
"definitions":{
"org.example.far.v1.Star":{"type":"object","properties":{"status":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Status"}}},
"io.k8s.apimachinery.pkg.apis.meta.v1.Status":{"type":"object","properties":{"brightness":{"type":"integer"}}}}}`

// What is missing on the way to another server is said as upstream says it.
func TestUnavailable(t *testing.T) {
	c := start(t)
	a := &api.APIService{Spec: api.APIServiceSpec{Group: "far.example.org", Version: "v1", InsecureSkipTLSVerify: true, Service: &api.ServiceReference{Namespace: "default", Name: "far"}}}
	r := &remote{from: a, via: c.server.remoteTransport(a)}
	name, port, unready := "https", int32(1), false
	meta := metav1.ObjectMeta{Namespace: "default", Name: "far", Labels: map[string]string{discoveryv1.LabelServiceName: "far"}}
	service := func(port int32) runtime.Object {
		return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: name, Port: port}}}}
	}
	slice := func(ready *bool) runtime.Object {
		return &discoveryv1.EndpointSlice{ObjectMeta: meta, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"127.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ready}},
		}}
	}
	const at = "https://10.96.0.7:443/apis/far.example.org/v1"
	for _, step := range []struct {
		group, resource string
		put             runtime.Object
		reason, message string
	}{
		{"", "", nil, "ServiceNotFound", `service/far in "default" is not present`},
		{"", "services", service(80), "ServicePortError", `service/far in "default" is not listening on port 443`},
		{"", "services", service(443), "EndpointsNotFound", `cannot find endpointslices for service/far in "default"`},
		{discoveryv1.GroupName, "endpointslices", slice(&unready), "MissingEndpoints", `endpointslices for service/far in "default" have no addresses with port name "https"`},
		{discoveryv1.GroupName, "endpointslices", slice(nil), "FailedDiscoveryCheck", `failing or missing response from ` + at + `: Get "` + at + `": dial tcp 127.0.0.1:1: connect: connection refused`},
	} {
		if step.put != nil {
			c.put(step.group, step.resource, step.put)
		}
		c.await(step.reason, func() bool {
			err := c.server.checkRemote(context.Background(), r, schema.GroupVersion{Group: "far.example.org", Version: "v1"})
			var missing *unavailable
			return errors.As(err, &missing) && missing.status == "False" && missing.reason == step.reason && missing.message == step.message
		})
	}
}

// put writes an object past the verbs.
func (c *cluster) put(group, resource string, obj runtime.Object) {
	c.t.Helper()
	err := c.server.ensure(context.Background(), group, resource, obj.(metav1.Object), func(have runtime.Object) {
		switch have := have.(type) {
		case *corev1.Service:
			have.Spec = obj.(*corev1.Service).Spec
		case *discoveryv1.EndpointSlice:
			have.Endpoints = obj.(*discoveryv1.EndpointSlice).Endpoints
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func TestAggregation(t *testing.T) {
	far := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/openapi/v2":
			_, _ = w.Write([]byte(farOpenAPI))
		case "/openapi/v3":
			_, _ = w.Write([]byte(`{"paths":{"apis/far.example.org/v1":{"serverRelativeURL":"/openapi/v3/apis/far.example.org/v1?hash=FAR"},"apis/apps/v1":{"serverRelativeURL":"/mine"}}}`))
		case "/apis/far.example.org/v1":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"far.example.org/v1","resources":[{"name":"stars","singularName":"star","namespaced":true,"kind":"Star","verbs":["get"]},{"name":"stars/status","namespaced":true,"kind":"Star","verbs":["get"]}]}`))
		default:
			_, _ = w.Write([]byte(r.Method + " " + r.URL.RequestURI() + " by " + r.Header.Get("X-Remote-User") + " of " + strings.Join(r.Header["X-Remote-Group"], ",") + r.Header.Get("Authorization")))
		}
	}))
	defer far.Close()
	c := start(t, func(cfg *Config) {
		cfg.Documents = openapi.New(cfg.Kinds, openapi.Options{Version: "v1.37.2"})
	})
	service := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.far.example.org"},"spec":{"group":"far.example.org","version":"v1","insecureSkipTLSVerify":true,"groupPriorityMinimum":2000,"versionPriority":10,"service":{"namespace":"default","name":"far"}}}`
	if code, body := c.do("POST", apiServicesPath, service, nil); code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	c.await("no service", func() bool { return c.available("v1.far.example.org") == "False ServiceNotFound" })
	if code, body := c.do("GET", "/apis/far.example.org/v1/stars", "", nil); code != 503 {
		t.Errorf("%d %s", code, body)
	}

	host, port, err := net.SplitHostPort(far.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	name, target, meta := "https", int32(number), metav1.ObjectMeta{Namespace: "default", Name: "far", Labels: map[string]string{discoveryv1.LabelServiceName: "far"}}
	ctx := context.Background()
	if err := c.server.ensure(ctx, discoveryv1.GroupName, "endpointslices", &discoveryv1.EndpointSlice{
		ObjectMeta: meta, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &target}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.server.ensure(ctx, "", "services", &corev1.Service{
		ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: name, Port: 443}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	c.await("an answer", func() bool { return c.available("v1.far.example.org") == "True Passed" })
	_, body := c.do("GET", "/apis/far.example.org/v1/namespaces/default/stars?limit=1", "", map[string]string{"X-Remote-User": "evil", "X-Remote-Group": "evil"})
	if want := "GET /apis/far.example.org/v1/namespaces/default/stars?limit=1 by admin of system:masters,system:authenticated"; body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	for path, want := range map[string]string{
		"/apis/far.example.org/v1": `"name":"stars/status"`,
		"/apis/far.example.org":    `"preferredVersion":{"groupVersion":"far.example.org/v1"`,
		"/apis":                    `"name":"far.example.org"`,
	} {
		if code, body := c.do("GET", path, "", nil); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d without %s: %.300s", path, code, want, body)
		}
	}
	_, body = c.do("GET", "/apis", "", map[string]string{"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"})
	if !strings.Contains(body, `"resource":"stars"`) || !strings.Contains(body, `"subresource":"status"`) {
		t.Errorf("aggregated: no stars")
	}
	_, body = c.do("GET", "/openapi/v2", "", map[string]string{"Accept": "application/json"})
	for _, want := range []string{`"/apis/far.example.org/v1/stars"`, `"org.example.far.v1.Star"`, `"io.k8s.apimachinery.pkg.apis.meta.v1.Status_v2"`, `"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Status_v2"`} {
		if !strings.Contains(body, want) {
			t.Errorf("openapi v2 without %s", want)
		}
	}
	if strings.Contains(body, "/apis/other.example.org/v1/moons") {
		t.Error("openapi v2 has what the server has no APIService for")
	}
	if _, body = c.do("GET", "/openapi/v3", "", nil); !strings.Contains(body, "?hash=FAR") || strings.Contains(body, "/mine") {
		t.Error("the index of openapi v3 has not the other's document, or another's in the place of ours")
	}
	_, body = c.do("GET", "/openapi/v3/apis/far.example.org/v1?hash=FAR", "", nil)
	if want := "GET /openapi/v3/apis/far.example.org/v1?hash=FAR by admin"; !strings.HasPrefix(body, want) {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	if code, body := c.do("DELETE", apiServicesPath+"/v1.far.example.org", "", nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	c.await("nothing there", func() bool { code, _ := c.do("GET", "/apis/far.example.org/v1/stars", "", nil); return code == 404 })
}
