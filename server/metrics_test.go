package server

import (
	"context"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/ptr"
)

func TestRequestsAreMeasured(t *testing.T) {
	c := start(t, func(cfg *Config) { cfg.Authenticator = authenticator.RequestFunc(knownUsers) })
	ctx, configMaps := context.Background(), c.client.CoreV1().ConfigMaps("default")
	if _, err := configMaps.Create(ctx, configMap("one"), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Fatal(err)
	}
	watching, err := configMaps.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	for method, code := range map[string]int{"GET": 200, "PATCH": 201} {
		query := map[string]string{"GET": "", "PATCH": "/one?fieldManager=me"}[method]
		body := map[string]string{"PATCH": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}`}[method]
		got, reply := c.do(method, "/api/v1/namespaces/default/configmaps"+query, body, map[string]string{"Content-Type": "application/apply-patch+yaml"})
		if got != code {
			t.Errorf("%s: %d %s", method, got, reply)
		}
	}
	c.do("GET", "/api", "", map[string]string{"Authorization": "Bearer nobody"})
	c.do("GET", "/api/v1/configmaps", "", map[string]string{"Authorization": "Bearer bob"})
	list, err := configMaps.Watch(ctx, metav1.ListOptions{SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Stop()
	var text string
	c.await("a list by watching", func() bool {
		_, text = c.do("GET", "/metrics", "", nil)
		return strings.Contains(text, "apiserver_watch_list_duration_seconds_count")
	})
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="APPLY",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_duration_seconds_bucket{component="apiserver",dry_run="All",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1",le="+Inf"} 1`,
		`apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_body_size_bytes_count{group="",resource="configmaps",verb="patch"} 1`,
		`apiserver_watch_events_sizes_count{group="",resource="configmaps",version="v1"} 3`, // one by the first watch, two by the second
		`apiserver_watch_list_duration_seconds_count{group="",resource="configmaps",scope="namespace",version="v1"} 1`,
		`authenticated_user_requests{username="other"} 1`,
		`authentication_attempts{result="failure"} 1`,
		`authorization_attempts_total{result="no-opinion"} 1`, // bob
		`apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	families, err := c.server.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "apiserver_request_duration_seconds" {
			if h := f.Metric[0].Histogram; h.GetSchema() == 0 || len(h.PositiveSpan) == 0 || len(h.Bucket) == 0 || f.GetType() != dto.MetricType_HISTOGRAM {
				t.Errorf("not native and classic at once: %v", h)
			}
			return
		}
	}
	t.Error("no durations")
}

// Anybody can ask for what there is not, under ever new names: no metric is of
// that, and nothing breaks on names that are none.
func TestMadeUpNamesAreNotMeasured(t *testing.T) {
	c := start(t)
	for _, who := range []string{"nobody", "bob", "admin"} {
		for _, path := range []string{"/apis/madeup/v1/madeup", "/api/v1/namespaces/default/pods/one/madeup", "/api/%91/madeup", "/madeup/%91"} {
			if code, reply := c.do("GET", path, "", map[string]string{"Authorization": "Bearer " + who}); code < 400 || code >= 500 {
				t.Errorf("%s of %s: %d %s", path, who, code, reply)
			}
		}
	}
	if _, text := c.do("GET", "/metrics", "", nil); strings.Contains(text, "madeup") {
		t.Error("what was made up is measured")
	}
}
