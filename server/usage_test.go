package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
	"orrery.dev/server/registry"
)

// TestUsageIsWhatTheUserMayList has a node that answers, one that does not, a
// static pod, which its node knows by another UID, and a user of one namespace.
func TestUsageIsWhatTheUserMayList(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	uids := map[string]string{}
	for _, name := range []string{"n1", "n2"} {
		node, err := c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
		if _, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"a", "b", "static"} {
		if _, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		meta := metav1.ObjectMeta{Name: "p"}
		if ns == "static" {
			meta.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "of-its-file"}
		}
		pod, err := c.client.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{
			ObjectMeta: meta,
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}, Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")},
			}}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[ns] = string(pod.UID)
	}
	asked := 0
	agent := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		fmt.Fprintf(w, `{"node":{"cpu":{"usageNanoCores":2000000000}},"pods":[{"podRef":{"uid":%q},"cpu":{"usageNanoCores":250000000},"memory":{"workingSetBytes":1024}},{"podRef":{"uid":"of-its-file"},"cpu":{"usageNanoCores":7000000}}]}`, uids["a"])
	}))
	defer agent.Close()
	at, _ := url.Parse(agent.URL)
	port, _ := strconv.Atoi(at.Port())
	u := NewUsage(c.store, authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "admin" || a.GetNamespace() == a.GetUser().GetName() {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}), KubeletConfig{Address: func(n *corev1.Node) (string, int32, error) {
		if n.Name == "n2" {
			return "", 0, fmt.Errorf("no address")
		}
		return at.Hostname(), int32(port), nil
	}})
	look := func(who, query string) api.Usage {
		r := httptest.NewRequest("GET", api.UsagePath+query, nil)
		w := httptest.NewRecorder()
		u.ServeHTTP(w, r.WithContext(registry.WithUser(r.Context(), &user.DefaultInfo{Name: who})))
		var got api.Usage
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", w.Body, err)
		}
		return got
	}
	c.await("the cache has all", func() bool {
		nodes, _ := listAll[*corev1.Node](ctx, c.store, "nodes")
		pods, _ := listAll[*corev1.Pod](ctx, c.store, "pods")
		return len(nodes) == 2 && len(pods) == 3
	})
	all := look("admin", "")
	if len(all.Pods) != 3 || len(all.Nodes) != 2 || all.Error == "" {
		t.Fatalf("usage %+v", all)
	}
	for _, n := range all.Nodes {
		if n.Name == "n1" && (n.Used == nil || n.Used.CPU != 2000 || n.Allocatable.CPU != 4000 || n.Requests.CPU != 1500) || n.Name == "n2" && n.Used != nil {
			t.Errorf("node %+v", n)
		}
	}
	one := look("a", "")
	if len(one.Pods) != 1 || len(one.Nodes) != 0 {
		t.Fatalf("of one namespace: %+v", one)
	}
	if p := one.Pods[0]; p.Used == nil || *p.Used != (api.Amounts{CPU: 250, Memory: 1024}) || p.Requests.CPU != 500 || p.Limits.Memory != 1<<30 {
		t.Errorf("pod %+v, used %+v", p, p.Used)
	}
	if b := look("admin", "?namespace=b"); len(b.Pods) != 1 || b.Pods[0].Used != nil {
		t.Errorf("of namespace b: %+v", b.Pods)
	}
	if s := look("static", ""); len(s.Pods) != 1 || s.Pods[0].Used == nil || s.Pods[0].Used.CPU != 7 {
		t.Errorf("of a static pod: %+v", s.Pods)
	}
	if asked != 1 {
		t.Errorf("the node was asked %d times, want once for all who look", asked)
	}
}
