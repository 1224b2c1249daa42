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
	if len(k.Schema) == 0 {
		return s, nil // clients would take what every object has for all there is
	}
	s = embedded(s)
	given, _ := s["properties"].(object)
	s["properties"] = merge(metaProperties(), given)
	return s, nil
}

// embedded adds what every object has to the parts of a schema that are objects
// themselves.
func embedded(s object) object {
	out := merge(object{}, s)
	if p, ok := s["properties"]; ok {
		out["properties"] = eachSchema(p, embedded)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if p, ok := s[key]; ok {
			out[key] = oneSchema(p, embedded)
		}
	}
	if s["x-kubernetes-embedded-resource"] == true {
		given, _ := out["properties"].(object)
		out["properties"] = merge(metaProperties(), given)
	}
	return out
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

// customV2 is a custom schema in v2. Clients of that take the properties of an
// object for all that it may have, so one that may have more has none.
func customV2(s object) object {
	if s["x-kubernetes-preserve-unknown-fields"] == true {
		return object{"type": "object", gvkExtension: s[gvkExtension]}
	}
	return partV2(s)
}

// partV2 drops from a part of a custom schema what v2 cannot say; a loosely typed
// part becomes untyped.
func partV2(s object) object {
	out := object{}
	for key, value := range s {
		switch key {
		case "nullable", "oneOf", "anyOf", "allOf", "not", "default":
			continue
		case "properties":
			out[key] = eachSchema(value, partV2)
		case "items", "additionalProperties":
			out[key] = oneSchema(value, partV2)
		default:
			out[key] = value
		}
	}
	loose := s["x-kubernetes-preserve-unknown-fields"] == true
	if loose || s["nullable"] == true {
		delete(out, "items")
		delete(out, "properties")
	}
	if s["nullable"] == true || loose && s["type"] == "object" || out["items"] == nil && s["type"] == "array" {
		delete(out, "type")
	}
	if s["x-kubernetes-int-or-string"] == true {
		delete(out, "type")
		delete(out, "format")
	}
	requiredV2(s, out)
	return out
}

// requiredV2 takes back that properties are required which may be null.
func requiredV2(s, out object) {
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(object)
	if required == nil || properties == nil {
		return
	}
	var kept []any
	for _, name := range required {
		text, _ := name.(string)
		if p, _ := properties[text].(object); p["nullable"] != true {
			kept = append(kept, name)
		}
	}
	if out["required"] = kept; kept == nil {
		delete(out, "required")
	}
}
