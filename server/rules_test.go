package server

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"orrery.dev/server/registry"
)

func TestParseRequest(t *testing.T) {
	for _, test := range []struct{ method, url, want string }{
		{"GET", "/api/v1/pods", "list /v1 pods"},
		{"GET", "/api/v1/pods?watch", "watch /v1 pods"},
		{"GET", "/api/v1/pods?watch=false", "list /v1 pods"},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Da", "list /v1 pods name=a"},
		{"GET", "/api/v1/watch/namespaces/x/pods", "watch /v1 pods ns=x"},
		{"GET", "/api/v1/namespaces", "list /v1 namespaces"},
		{"GET", "/api/v1/namespaces/x", "get /v1 namespaces ns=x name=x"},
		{"PUT", "/api/v1/namespaces/x/finalize", "update /v1 namespaces ns=x name=x sub=finalize"},
		{"PUT", "/api/v1/namespaces/x/status", "update /v1 namespaces ns=x name=x sub=status"},
		{"POST", "/api/v1/namespaces/x/pods", "create /v1 pods ns=x"},
		{"DELETE", "/api/v1/namespaces/x/pods", "deletecollection /v1 pods ns=x"},
		{"DELETE", "/api/v1/namespaces/x/pods/a", "delete /v1 pods ns=x name=a"},
		{"PATCH", "/apis/apps/v1/namespaces/x/deployments/a/scale", "patch apps/v1 deployments ns=x name=a sub=scale"},
		{"GET", "/api/v1/namespaces/x/pods/a:80/proxy", "get /v1 pods ns=x name=a:80 sub=proxy"},
		{"GET", "/api/v1/namespaces/x/services/https:a:b/proxy/c/d/", "get /v1 services ns=x name=https:a:b sub=proxy rest=/c/d/"},
		{"GET", "/api/v1/nodes/n/proxy/", "get /v1 nodes name=n sub=proxy rest=/"},
		{"GET", "/apis/apps/v1", "path get"},
		{"GET", "/api/v1", "path get"},
		{"GET", "/healthz", "path get"},
	} {
		i := parseRequest(httptest.NewRequest(test.method, test.url, nil))
		got := "path " + i.Verb
		if i.Resource {
			got = fmt.Sprintf("%s %s/%s %s", i.Verb, i.GVR.Group, i.GVR.Version, i.GVR.Resource)
			for _, part := range [][2]string{{"ns", i.Namespace}, {"name", i.Name}, {"sub", i.Subresource}, {"rest", i.Rest}} {
				if part[1] != "" {
					got += " " + part[0] + "=" + part[1]
				}
			}
		}
		if got != test.want {
			t.Errorf("%s %s: got %s, want %s", test.method, test.url, got, test.want)
		}
	}
}

// TestDecideDeletion is the table of what a delete means.
func TestDecideDeletion(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	graceful := &registry.Kind{GracePeriod: func(_ runtime.Object, asked *int64) int64 {
		if asked != nil {
			return *asked
		}
		return 30
	}}
	plain := &registry.Kind{}
	orphaning := &registry.Kind{OrphanByDefault: true}
	at := func(seconds int) *metav1.Time {
		t := metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
		return &t
	}
	n := func(n int64) *int64 { return &n }
	policy := func(p metav1.DeletionPropagation) *metav1.DeletionPropagation { return &p }
	for _, test := range []struct {
		name    string
		kind    *registry.Kind
		meta    metav1.ObjectMeta
		options metav1.DeleteOptions
		want    string
	}{
		{"plain", plain, metav1.ObjectMeta{}, metav1.DeleteOptions{}, "now"},
		{"finalizer", plain, metav1.ObjectMeta{Finalizers: []string{"f"}, Generation: 1}, metav1.DeleteOptions{}, "marked at 0s grace 0 [f] generation 2"},
		{"finalizer, again", plain, metav1.ObjectMeta{Finalizers: []string{"f"}, DeletionTimestamp: at(-9), DeletionGracePeriodSeconds: n(0), Generation: 2}, metav1.DeleteOptions{}, "marked at -9s grace 0 [f] generation 2"},
		{"foreground", plain, metav1.ObjectMeta{}, metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationForeground)}, "marked at 0s grace 0 [foregroundDeletion] generation 0"},
		{"orphan", plain, metav1.ObjectMeta{}, metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationOrphan)}, "marked at 0s grace 0 [orphan] generation 0"},
		{"orphan by default", orphaning, metav1.ObjectMeta{}, metav1.DeleteOptions{}, "marked at 0s grace 0 [orphan] generation 0"},
		{"background overrides that", orphaning, metav1.ObjectMeta{}, metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationBackground)}, "now"},
		{"background overrides an earlier wish", plain, metav1.ObjectMeta{Finalizers: []string{metav1.FinalizerDeleteDependents}}, metav1.DeleteOptions{PropagationPolicy: policy(metav1.DeletePropagationBackground)}, "now"},
		{"graceful", graceful, metav1.ObjectMeta{Generation: 1}, metav1.DeleteOptions{}, "marked at 30s grace 30 [] generation 2"},
		{"graceful, asked", graceful, metav1.ObjectMeta{}, metav1.DeleteOptions{GracePeriodSeconds: n(5)}, "marked at 5s grace 5 [] generation 0"},
		{"graceful, none", graceful, metav1.ObjectMeta{}, metav1.DeleteOptions{GracePeriodSeconds: n(0)}, "now"},
		{"graceful, with a finalizer", graceful, metav1.ObjectMeta{Finalizers: []string{"f"}}, metav1.DeleteOptions{GracePeriodSeconds: n(0)}, "marked at 0s grace 0 [f] generation 0"},
		{"pending", graceful, metav1.ObjectMeta{DeletionTimestamp: at(20), DeletionGracePeriodSeconds: n(30)}, metav1.DeleteOptions{}, "pending"},
		{"longer is refused", graceful, metav1.ObjectMeta{DeletionTimestamp: at(20), DeletionGracePeriodSeconds: n(30)}, metav1.DeleteOptions{GracePeriodSeconds: n(60)}, "pending"},
		{"shortened", graceful, metav1.ObjectMeta{DeletionTimestamp: at(20), DeletionGracePeriodSeconds: n(30)}, metav1.DeleteOptions{GracePeriodSeconds: n(15)}, "marked at 5s grace 15 [] generation 0"},
		{"shortened into the past", graceful, metav1.ObjectMeta{DeletionTimestamp: at(1), DeletionGracePeriodSeconds: n(30)}, metav1.DeleteOptions{GracePeriodSeconds: n(5)}, "marked at 0s grace 1 [] generation 0"},
		{"forced", graceful, metav1.ObjectMeta{DeletionTimestamp: at(20), DeletionGracePeriodSeconds: n(30)}, metav1.DeleteOptions{GracePeriodSeconds: n(0)}, "now"},
	} {
		obj := &corev1.ConfigMap{ObjectMeta: test.meta}
		verdict := decideDeletion(test.kind, obj, &test.options, now)
		got := "now"
		switch {
		case verdict.err != nil:
			got = verdict.err.Error()
		case verdict.pending:
			got = "pending"
		case !verdict.now:
			got = fmt.Sprintf("marked at %v grace %d %v generation %d", obj.DeletionTimestamp.Sub(now), *obj.DeletionGracePeriodSeconds, obj.Finalizers, obj.Generation)
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestNegotiate(t *testing.T) {
	all := (&Server{}).encodings(nil)
	for accept, want := range map[string]string{
		"":                 typeJSON,
		"*/*":              typeJSON,
		"application/json": typeJSON,
		"application/yaml": typeYAML,
		"application/json;q=0.5,application/yaml":                                         typeYAML,
		"application/vnd.kubernetes.protobuf,application/json":                            typeProtobuf,
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json":                   typeJSON + " Table",
		"application/json;as=Table;v=v2;g=meta.k8s.io,application/yaml":                   typeYAML,
		"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,*/*":             typeJSON,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io": typeProtobuf + " PartialObjectMetadata",
		"text/html": "none",
	} {
		r := httptest.NewRequest("GET", "/api/v1/pods", nil)
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		got := "none"
		if out, err := negotiate(r, all, true); err == nil {
			got = out.name
			if out.as != "" {
				got += " " + out.as
			}
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", accept, got, want)
		}
	}
}
