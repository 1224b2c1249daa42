package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for definitions.json.gz
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/registry"
)

// builtinDefinitions is made by server/openapi/gen.
//
//go:embed definitions.json.gz
var builtinDefinitions []byte

// object is a piece of an OpenAPI document. Documents are built as plain JSON
// objects: they are written once and read by nobody here.
type object = map[string]any

// v2Schema marks what a schema says in OpenAPI v2, where it differs.
const v2Schema = "x-kubernetes-v2-schema"

// gvkExtension names the kinds that a schema or an operation is of.
const gvkExtension = "x-kubernetes-group-version-kind"

const (
	v2Refs = "#/definitions/"
	v3Refs = "#/components/schemas/"
)

// definitions are the schemas of the built-in kinds, with v2 references. They
// are never changed: v2 and v3 make copies.
type definitions struct {
	schemas map[string]object
}

func decodeDefinitions() (*definitions, error) {
	zip, err := gzip.NewReader(bytes.NewReader(builtinDefinitions))
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI definitions: %w", err)
	}
	d := &definitions{}
	if err := json.NewDecoder(zip).Decode(&d.schemas); err != nil {
		return nil, fmt.Errorf("read OpenAPI definitions: %w", err)
	}
	return d, nil
}

// modelName is a type's name in the definitions.
func modelName(obj runtime.Object) string {
	if named, ok := obj.(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	return ""
}

// nameOf is the name of a kind's definition: com.example.v1.Widget for custom
// kinds.
func nameOf(k *registry.Kind) string {
	if !k.Unstructured() {
		return modelName(k.New())
	}
	return customName(k.GroupVersionKind)
}

func listNameOf(k *registry.Kind) string {
	if !k.Unstructured() {
		return modelName(k.NewList())
	}
	return customName(k.GroupVersionKind) + "List"
}

func customName(gvk schema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
}

// schemaV2 is a schema as v2 has it: without defaults, and with what it says
// for v2 in particular.
func schemaV2(s object) object {
	if v2, ok := s[v2Schema].(object); ok {
		s = merge(v2, object{"description": s["description"]})
	}
	out := object{}
	for key, value := range s {
		switch key {
		case "default", v2Schema:
			continue
		case "properties":
			out[key] = eachSchema(value, schemaV2)
		case "items", "additionalProperties":
			out[key] = oneSchema(value, schemaV2)
		default:
			out[key] = value
		}
	}
	return out
}

// schemaV3 is a schema as v3 has it: a reference beside other words goes into
// allOf, since v3 ignores the words otherwise.
func schemaV3(s object) object {
	out := object{}
	for key, value := range s {
		switch key {
		case "$ref", v2Schema:
			continue
		case "properties":
			out[key] = eachSchema(value, schemaV3)
		case "items", "additionalProperties":
			out[key] = oneSchema(value, schemaV3)
		case "allOf", "anyOf", "oneOf":
			list, _ := value.([]any)
			var all []any
			for _, item := range list {
				all = append(all, oneSchema(item, schemaV3))
			}
			out[key] = all
		default:
			out[key] = value
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		to := object{"$ref": v3Refs + strings.TrimPrefix(ref, v2Refs)}
		if len(out) == 0 {
			return to
		}
		out["allOf"] = []any{to}
	}
	return out
}

func eachSchema(value any, f func(object) object) any {
	properties, ok := value.(object)
	if !ok {
		return value
	}
	out := object{}
	for name, p := range properties {
		out[name] = oneSchema(p, f)
	}
	return out
}

func oneSchema(value any, f func(object) object) any {
	if s, ok := value.(object); ok {
		return f(s)
	}
	return value
}

// merge is a with what b has and a lacks; nil values do not count.
func merge(a, b object) object {
	out := object{}
	for key, value := range b {
		if value != nil {
			out[key] = value
		}
	}
	for key, value := range a {
		out[key] = value
	}
	return out
}

// closure adds to names all that the schemas refer to, directly or not.
func closure(schemas map[string]object, from any, prefix string, found map[string]bool) {
	switch v := from.(type) {
	case object:
		for key, value := range v {
			ref, isRef := value.(string)
			if key == "$ref" && isRef {
				name := strings.TrimPrefix(ref, prefix)
				if !found[name] {
					found[name] = true
					closure(schemas, schemas[name], prefix, found)
				}
				continue
			}
			closure(schemas, value, prefix, found)
		}
	case []any:
		for _, item := range v {
			closure(schemas, item, prefix, found)
		}
	}
}
