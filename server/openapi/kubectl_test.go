package openapi

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	explain "k8s.io/kubectl/pkg/explain/v2"
)

// serve puts documents on a server, as package server does.
func serve(t *testing.T, d *Documents) *discovery.DiscoveryClient {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.Serve(w, r); err != nil {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: s.URL})
}

// TestClientDiscovery has client-go discover the server, aggregated and not.
func TestClientDiscovery(t *testing.T) {
	for name, legacy := range map[string]bool{"aggregated": false, "one by one": true} {
		client := serve(t, newDocuments(t, widget()))
		client.UseLegacyDiscovery = legacy
		groups, lists, err := client.ServerGroupsAndResources()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(groups) != 23 || len(lists) != 24 {
			t.Errorf("%s: %d groups, %d versions", name, len(groups), len(lists))
		}
		subresources := 0
		for _, l := range lists {
			for _, r := range l.APIResources {
				if strings.Contains(r.Name, "/") {
					subresources++
				}
			}
		}
		if subresources != 49 {
			t.Errorf("%s: %d subresources", name, subresources)
		}
	}
}

// TestExplain has kubectl explain fields of a built-in and of a custom kind.
func TestExplain(t *testing.T) {
	client := serve(t, newDocuments(t, widget())).OpenAPIV3()
	for _, c := range []struct {
		gvr   schema.GroupVersionResource
		path  []string
		words []string
	}{
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, []string{"spec", "strategy", "rollingUpdate"}, []string{"KIND:       Deployment", "maxSurge\t<IntOrString>"}},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, []string{"spec"}, []string{"containers\t<[]Container> -required-", "restartPolicy\t<string>", "enum: Always, Never, OnFailure"}},
		{schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}, []string{"spec"}, []string{"groupPriorityMinimum\t<integer>"}},
		{schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, []string{"spec"}, []string{"GROUP:      example.com", "size\t<Object> -required-"}},
	} {
		var out bytes.Buffer
		if err := explain.PrintModelDescription(c.path, &out, client, c.gvr, false, 0, "plaintext"); err != nil {
			t.Errorf("%s: %v", c.gvr, err)
			continue
		}
		for _, want := range c.words {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.gvr, want, out.String())
			}
		}
	}
}
