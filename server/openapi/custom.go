package openapi

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/server/registry"
)

// customSchema is the definition of a custom kind: what its author says (the
// kind's Schema), and what every object has.
func customSchema(k *registry.Kind) (object, error) {
	s := object{"type": "object"}
	if len(k.Schema) > 0 {
		if err := json.Unmarshal(k.Schema, &s); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", k.GroupVersionKind, err)
		}
	}
	given, _ := s["properties"].(object)
	if given != nil || s["x-kubernetes-preserve-unknown-fields"] != true {
		s["properties"] = merge(metaProperties(), given)
	}
	return s, nil
}

// metaProperties are the properties of every object.
func metaProperties() object {
	words := metav1.TypeMeta{}.SwaggerDoc()
	return object{
		"apiVersion": object{"type": "string", "description": words["apiVersion"]},
		"kind":       object{"type": "string", "description": words["kind"]},
		"metadata": object{
			"$ref":        v2Refs + metav1.ObjectMeta{}.OpenAPIModelName(),
			"description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
		},
	}
}

// customList is the definition of a list of a custom kind.
func customList(k *registry.Kind) object {
	words := metav1.TypeMeta{}.SwaggerDoc()
	return object{
		"type":        "object",
		"description": k.Kind + "List is a list of " + k.Kind,
		"required":    []any{"items"},
		"properties": object{
			"apiVersion": object{"type": "string", "description": words["apiVersion"]},
			"kind":       object{"type": "string", "description": words["kind"]},
			"metadata": object{
				"$ref":        v2Refs + metav1.ListMeta{}.OpenAPIModelName(),
				"description": "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
			},
			"items": object{
				"type": "array", "description": "List of " + k.Plural,
				"items": object{"$ref": v2Refs + nameOf(k)},
			},
		},
	}
}

// customV2 drops from a custom schema what v2 cannot say; clients of v2 take
// what is left as all there is, so a loosely typed part becomes untyped.
func customV2(s object) object {
	out := object{}
	for key, value := range s {
		switch key {
		case "nullable", "oneOf", "anyOf", "allOf", "not", "default":
			continue
		case "properties":
			out[key] = eachSchema(value, customV2)
		case "items", "additionalProperties":
			out[key] = oneSchema(value, customV2)
		default:
			out[key] = value
		}
	}
	loose := s["x-kubernetes-preserve-unknown-fields"] == true || s["nullable"] == true
	if loose {
		delete(out, "type")
		delete(out, "items")
		delete(out, "properties")
		delete(out, "additionalProperties")
	}
	if s["x-kubernetes-int-or-string"] == true {
		delete(out, "type")
		delete(out, "format")
	}
	return out
}
