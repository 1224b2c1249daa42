package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/api"
)

// measuring puts a metrics server before the cluster.
func (c *cluster) measuring() {
	to, err := url.Parse(c.config.Host)
	c.must(to, err)
	rest := httputil.NewSingleHostReverseProxy(to)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below, found := strings.CutPrefix(r.URL.Path, metricsPath)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !found:
			w.Header().Del("Content-Type")
			rest.ServeHTTP(w, r)
		case below == "/nodes":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"n1"},"usage":{"cpu":"1500m","memory":"2Gi"}}]}`)
		case below == "/pods" && strings.Contains(r.Header.Get("Authorization"), "jane"):
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		default:
			fmt.Fprint(w, `{"items":[{"metadata":{"namespace":"shop","name":"busy"},"containers":[{"usage":{"cpu":"250m","memory":"64Mi"}},{"usage":{"cpu":"50m","memory":"64Mi"}}]}]}`)
		}
	}))
	c.t.Cleanup(web.Close)
	c.config.Host = web.URL
}

// T25: usage of a foreign cluster stands against requests and limits too; of one where
// nothing measures, at least those are told, and the reason.
func TestT25UsageOfAForeignCluster(t *testing.T) {
	c := start(t)
	limits := corev1.ResourceList{"cpu": kresource.MustParse("1"), "memory": kresource.MustParse("256Mi")}
	for _, ns := range []string{"shop", "bank"} {
		c.must(c.admin.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "busy"}, Spec: corev1.PodSpec{NodeName: "n1",
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: limits}}}}}, metav1.CreateOptions{}))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	c.must(c.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))
	look := func(who, query string) (text string) {
		answer, err := http.Get(c.serve(who, "shop").URL + api.UsagePath + query)
		c.must(answer, err)
		defer answer.Body.Close()
		var told api.Usage
		c.must(nil, json.NewDecoder(answer.Body).Decode(&told))
		for _, p := range told.Pods {
			text += fmt.Sprint(p.Namespace, "/", p.Name, " ", p.Used, " of ", p.Limits, "; ")
		}
		for _, n := range told.Nodes {
			text += fmt.Sprint(n.Name, " ", n.Used, ", asked for ", n.Requests, "; ")
		}
		return text + told.Error
	}
	if got := look("admin", "?namespace=shop"); got != "shop/busy <nil> of {1000 268435456}; this cluster does not serve metrics.k8s.io: nothing in it measures what is used" {
		t.Errorf("without metrics: %s", got)
	}
	c.measuring()
	if got := look("admin", ""); got != "bank/busy <nil> of {1000 268435456}; shop/busy &{300 134217728} of {1000 268435456}; n1 &{1500 2147483648}, asked for {2000 536870912}; " {
		t.Errorf("admin: %s", got)
	}
	if got := look("jane", ""); got != "shop/busy &{300 134217728} of {1000 268435456}; " {
		t.Errorf("who may list one namespace: %s", got)
	}
}
