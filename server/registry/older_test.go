package registry

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What upstream and its older releases have stored is read.
func TestOlderVersions(t *testing.T) {
	for _, c := range []struct {
		name                   string
		group, version, plural string // of our row
		stored                 string
		field                  []string
		want                   any
	}{
		{"the same under another name", "certificates.k8s.io", "v1", "clustertrustbundles",
			`{"apiVersion":"certificates.k8s.io/v1beta1","kind":"ClusterTrustBundle","metadata":{"name":"x"},"spec":{"trustBundle":"pem"}}`,
			[]string{"spec", "trustBundle"}, "pem"},
		{"another group", "apps", "v1", "deployments",
			`{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"x"},"spec":{"replicas":3}}`,
			[]string{"spec", "replicas"}, int64(3)},
		{"a definition", "apiextensions.k8s.io", "v1", "customresourcedefinitions",
			`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"x"},"spec":{"group":"example.org","version":"v1","names":{"plural":"xs","kind":"X"},"scope":"Namespaced"}}`,
			[]string{"spec", "versions"}, []any{map[string]any{"name": "v1", "served": true, "storage": true}}},
		{"a field that there is no more", "networking.k8s.io", "v1", "ingresses",
			`{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"x"},"spec":{"backend":{"serviceName":"s","servicePort":80}}}`,
			nil, nil},
		{"no version that there was", "apps", "v1", "deployments", `{"apiVersion":"apps/v3","kind":"Deployment"}`, nil, nil},
		{"another kind", "apps", "v1", "deployments", `{"apiVersion":"apps/v1","kind":"ReplicaSet"}`, nil, nil},
	} {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(c.stored), &u.Object); err != nil {
			t.Fatal(err)
		}
		got, err := readOlder(row(t, c.group, c.version, c.plural), u.GroupVersionKind(), c.stored)
		if c.field == nil {
			if err == nil && got != nil {
				t.Errorf("%s: read as %v", c.name, got)
			}
			continue
		}
		if err != nil || got == nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		value, _, _ := unstructured.NestedFieldNoCopy(got, c.field...)
		if have, want := inJSON(value), inJSON(c.want); have != want {
			t.Errorf("%s: %v is %s, want %s", c.name, c.field, have, want)
		}
	}
}

func inJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// readOlder is nil for what is not known.
func readOlder(k *Kind, stored schema.GroupVersionKind, value string) (map[string]any, error) {
	older, ok := k.Older(stored)
	if !ok {
		return nil, nil
	}
	obj := older.New()
	if err := json.Unmarshal([]byte(value), obj); err != nil {
		return nil, err
	}
	converted, err := older.Convert(obj)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal([]byte(inJSON(converted)), &out)
}
