package openapi

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestCustomSchema compares what is published with what clients of the two
// versions can make use of, less the properties of every object.
func TestCustomSchema(t *testing.T) {
	for _, c := range []struct{ name, given, v2, v3 string }{
		{"none", ``, `{"type":"object"}`, `{"type":"object"}`},
		{"plain", `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`},
		{
			"anything", `{"type":"object","description":"d","x-kubernetes-preserve-unknown-fields":true}`,
			`{"type":"object"}`, `{"type":"object","description":"d","x-kubernetes-preserve-unknown-fields":true,"properties":{}}`,
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
			s, err := customSchema(k)
			if err != nil {
				t.Fatal(err)
			}
			sameSchema(t, customV2(s), c.v2)
			sameSchema(t, s, c.v3)
		})
	}
}

func sameSchema(t *testing.T, got object, want string) {
	t.Helper()
	var wanted object
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if properties, ok := got["properties"].(object); ok {
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			if properties[name] == nil {
				t.Errorf("no %s", name)
			}
			delete(properties, name)
		}
	}
	if extension, ok := got[gvkExtension]; ok && extension == nil {
		delete(got, gvkExtension)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var plain object
	if err := json.Unmarshal(text, &plain); err != nil || !reflect.DeepEqual(plain, wanted) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestEmbeddedObjects(t *testing.T) {
	k := widget()
	k.Schema = []byte(`{"type":"object","properties":{"template":{"type":"object","x-kubernetes-embedded-resource":true}}}`)
	s, err := customSchema(k)
	if err != nil {
		t.Fatal(err)
	}
	if template := s["properties"].(object)["template"].(object); template["properties"].(object)["metadata"] == nil {
		t.Errorf("no metadata in %v", template)
	}
	if definition := customV2(s); definition["properties"].(object)["template"].(object)["properties"] == nil {
		t.Error("nor in v2")
	}
}
