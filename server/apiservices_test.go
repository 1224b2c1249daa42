package server

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	c.define(gadgets)
	c.await("one for the custom resources", func() bool { return c.available("v1.example.org") == "True Local" })
	if code, body := c.do("DELETE", definitionsPath+"/gadgets.example.org", "", nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	c.await("none when they are gone", func() bool { return c.available("v1.example.org") == "" })
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

// handlerDocuments serves documents, as package cmd does.
type handlerDocuments struct{ *openapi.Documents }

func (d handlerDocuments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	doc, ok := d.Get(r.URL.Path, r.Header.Get("Accept"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", doc.ContentType)
	_, _ = w.Write(doc.Body) // the test sees what is missing
}

func TestAggregation(t *testing.T) {
	far := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/far.example.org/v1":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"far.example.org/v1","resources":[{"name":"stars","singularName":"star","namespaced":true,"kind":"Star","verbs":["get"]},{"name":"stars/status","namespaced":true,"kind":"Star","verbs":["get"]}]}`))
		default:
			_, _ = w.Write([]byte(r.Method + " " + r.URL.RequestURI() + " by " + r.Header.Get("X-Remote-User") + " of " + strings.Join(r.Header["X-Remote-Group"], ",") + r.Header.Get("Authorization")))
		}
	}))
	defer far.Close()
	c := start(t, func(cfg *Config) {
		cfg.Documents = handlerDocuments{openapi.New(cfg.Kinds, openapi.Options{Version: "v1.37.2"})}
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
	if code, body := c.do("DELETE", apiServicesPath+"/v1.far.example.org", "", nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	c.await("nothing there", func() bool { code, _ := c.do("GET", "/apis/far.example.org/v1/stars", "", nil); return code == 404 })
}
