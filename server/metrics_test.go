package server

import (
	"context"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequestsAreMeasured(t *testing.T) {
	c := start(t)
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
	_, text := c.do("GET", "/metrics", "", nil)
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="All",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="APPLY",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_request_duration_seconds_bucket{component="apiserver",dry_run="All",group="",resource="configmaps",scope="namespace",subresource="",verb="POST",version="v1",le="+Inf"} 1`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"} 1`,
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
