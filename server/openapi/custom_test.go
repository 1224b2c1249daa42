package openapi

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/registry"
)

// TestCustomSchema compares what is published with what clients of the two
// versions can make use of, less the properties of every object.
func TestCustomSchema(t *testing.T) {
	for _, c := range []struct{ name, given, v2, v3 string }{
		{"none", ``, `{"type":"object"}`, `{"type":"object"}`},
		{"plain", `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`},
		{
			"anything", `{"type":"object","description":"d","x-kubernetes-preserve-unknown-fields":true}`,
			`{"type":"object"}`, `{"type":"object","description":"d","x-kubernetes-preserve-unknown-fields":true}`,
		},
		{
			"anything below", `{"type":"object","properties":{"a":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"b":{"type":"string"}}}}}`,
			`{"type":"object","properties":{"a":{"x-kubernetes-preserve-unknown-fields":true}}}`,
			`{"type":"object","properties":{"a":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"b":{"type":"string"}}}}}`,
		},
		{
			"nullable", `{"type":"object","required":["a","b"],"properties":{"a":{"type":"object","nullable":true,"properties":{"c":{"type":"string"}}},"b":{"type":"string"}}}`,
			`{"type":"object","required":["b"],"properties":{"a":{},"b":{"type":"string"}}}`,
			`{"type":"object","required":["a","b"],"properties":{"a":{"type":"object","nullable":true,"properties":{"c":{"type":"string"}}},"b":{"type":"string"}}}`,
		},
		{
			"loose list", `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"},"x-kubernetes-preserve-unknown-fields":true}}}`,
			`{"type":"object","properties":{"a":{"x-kubernetes-preserve-unknown-fields":true}}}`,
			`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"},"x-kubernetes-preserve-unknown-fields":true}}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := widget()
			k.Schema = []byte(c.given)
			sameSchema(t, customOf(t, k, v2Refs), c.v2)
			sameSchema(t, customOf(t, k, v3Refs), c.v3)
		})
	}
}

func customOf(t *testing.T, k *registry.Kind, refs string) *spec.Schema {
	t.Helper()
	s, err := customSchema(k, refs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sameSchema(t *testing.T, got *spec.Schema, want string) {
	t.Helper()
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		if _, ok := got.Properties[name]; !ok && got.Properties != nil {
			t.Errorf("no %s", name)
		}
		delete(got.Properties, name)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var plain, wanted any
	if err := errors.Join(json.Unmarshal(text, &plain), json.Unmarshal([]byte(want), &wanted)); err != nil || !reflect.DeepEqual(plain, wanted) {
		t.Errorf("%v\ngot  %s\nwant %s", err, text, want)
	}
}

func TestEmbeddedObjects(t *testing.T) {
	k := widget()
	k.Schema = []byte(`{"type":"object","properties":{"template":{"type":"object","x-kubernetes-embedded-resource":true}}}`)
	for _, refs := range []string{v2Refs, v3Refs} {
		template := customOf(t, k, refs).Properties["template"]
		if _, ok := template.Properties["metadata"]; !ok || len(template.Required) != 2 {
			t.Errorf("below %s: %+v", refs, template)
		}
	}
	k.Schema = []byte(`{"type":"object","properties":{"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}`)
	if template := customOf(t, k, v2Refs).Properties["template"]; len(template.Properties) != 0 {
		t.Errorf("clients of v2 would refuse the rest: %+v", template)
	}
}
