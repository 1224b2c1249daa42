package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type schemaProps = apiextensionsv1.JSONSchemaProps

var (
	schemaTypes = []string{"array", "boolean", "integer", "number", "object", "string"}
	ruleReasons = []apiextensionsv1.FieldValueErrorReason{
		apiextensionsv1.FieldValueDuplicate, apiextensionsv1.FieldValueForbidden, apiextensionsv1.FieldValueInvalid, apiextensionsv1.FieldValueRequired,
	}
)

// validFields wants of a schema and all it has inside only what servers
// understand: none of JSON schema's words they don't, lists and maps of a known
// kind, and rules with sound texts.
func validFields(s *schemaProps, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := append(unsupportedWords(s, path), validListsAndMaps(s, path)...)
	errs = append(errs, validRuleTexts(s.XValidations, path.Child("x-kubernetes-validations"))...)
	if s.AdditionalProperties != nil {
		errs = append(errs, validFields(s.AdditionalProperties.Schema, path.Child("additionalProperties"))...)
	}
	if s.Items != nil {
		errs = append(errs, validFields(s.Items.Schema, path.Child("items"))...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		errs = append(errs, validFields(&property, path.Child("properties").Key(name))...)
	}
	errs = append(errs, validFields(s.Not, path.Child("not"))...)
	of := func(word string, list []schemaProps) {
		for i := range list {
			errs = append(errs, validFields(&list[i], path.Child(word).Index(i))...)
		}
	}
	of("allOf", s.AllOf)
	of("oneOf", s.OneOf)
	of("anyOf", s.AnyOf)
	return errs
}

func unsupportedWords(s *schemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(is bool, name, words string) {
		if is {
			errs = append(errs, field.Forbidden(path.Child(name), words))
		}
	}
	if s.Type != "" && s.Type != "null" && !slices.Contains(schemaTypes, s.Type) {
		errs = append(errs, field.NotSupported(path.Child("type"), s.Type, schemaTypes))
	}
	forbid(s.Type == "null", "type", "type cannot be set to null, use nullable as an alternative")
	forbid(s.ID != "", "id", "id is not supported")
	forbid(s.AdditionalItems != nil, "additionalItems", "additionalItems is not supported")
	forbid(len(s.PatternProperties) > 0, "patternProperties", "patternProperties is not supported")
	forbid(len(s.Definitions) > 0, "definitions", "definitions is not supported")
	forbid(s.Dependencies != nil, "dependencies", "dependencies is not supported")
	forbid(s.Ref != nil, "$ref", "$ref is not supported")
	forbid(s.Items != nil && len(s.Items.JSONSchemas) > 0, "items", "items must be a schema object and not an array")
	forbid(s.UniqueItems, "uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
	if more := s.AdditionalProperties; more != nil && len(s.Properties) > 0 {
		forbid(!more.Allows || more.Schema != nil, "additionalProperties", "additionalProperties and properties are mutual exclusive")
	}
	if keep := s.XPreserveUnknownFields; keep != nil && !*keep {
		errs = append(errs, field.Invalid(path.Child("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined"))
	}
	return errs
}

func validListsAndMaps(s *schemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	wantType := func(typ, word string) {
		switch words := fmt.Sprintf("must be %s if %s is specified", typ, word); s.Type {
		case typ:
		case "":
			errs = append(errs, field.Required(path.Child("type"), words))
		default:
			errs = append(errs, field.Invalid(path.Child("type"), s.Type, words))
		}
	}
	if m := s.XMapType; m != nil {
		wantType("object", "x-kubernetes-map-type")
		if known := []string{"atomic", "granular"}; !slices.Contains(known, *m) {
			errs = append(errs, field.NotSupported(path.Child("x-kubernetes-map-type"), *m, known))
		}
	}
	list, keys := path.Child("x-kubernetes-list-type"), path.Child("x-kubernetes-list-map-keys")
	if s.XListType == nil {
		if len(s.XListMapKeys) > 0 {
			errs = append(errs, field.Required(list, "must be map if x-kubernetes-list-map-keys is non-empty"))
		}
		return errs
	}
	wantType("array", "x-kubernetes-list-type")
	if *s.XListType != "map" && len(s.XListMapKeys) > 0 {
		errs = append(errs, field.Invalid(list, *s.XListType, "must be map if x-kubernetes-list-map-keys is non-empty"))
	}
	switch *s.XListType {
	case "atomic":
		return errs
	case "set":
		errs = append(errs, validSetItems(s, path.Child("items"))...)
	case "map":
		if len(s.XListMapKeys) == 0 {
			errs = append(errs, field.Required(keys, "must not be empty if x-kubernetes-list-type is map"))
		}
		errs = append(errs, validMapItems(s, path.Child("items"), keys)...)
	default:
		return append(errs, field.NotSupported(list, *s.XListType, []string{"atomic", "map", "set"}))
	}
	if s.Items != nil && s.Items.Schema != nil && s.Items.Schema.Nullable {
		errs = append(errs, field.Forbidden(path.Child("items", "nullable"), "cannot be nullable when x-kubernetes-list-type is "+*s.XListType))
	}
	return errs
}

// validSetItems wants items that are compared as a whole.
func validSetItems(s *schemaProps, path *field.Path) field.ErrorList {
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	switch item := s.Items.Schema; {
	case item.Type == "array" && item.XListType != nil && *item.XListType != "atomic":
		return field.ErrorList{field.Invalid(path.Child("x-kubernetes-list-type"), *item.XListType, "must be atomic as item of a list with x-kubernetes-list-type=set")}
	case item.Type == "object" && (item.XMapType == nil || *item.XMapType != "atomic"):
		return field.ErrorList{field.Invalid(path.Child("x-kubernetes-map-type"), item.XMapType, "must be atomic as item of a list with x-kubernetes-list-type=set")}
	}
	return nil
}

// validMapItems wants items that all have the keys, as scalars.
func validMapItems(s *schemaProps, path, keys *field.Path) field.ErrorList {
	switch {
	case s.Items == nil:
		return field.ErrorList{field.Required(path, "must have a schema if x-kubernetes-list-type is map")}
	case s.Items.Schema == nil:
		return field.ErrorList{field.Invalid(path, s.Items, "must only have a single schema if x-kubernetes-list-type is map")}
	case s.Items.Schema.Type != "object":
		return field.ErrorList{field.Invalid(path.Child("type"), s.Items.Schema.Type, "must be object if parent array's x-kubernetes-list-type is map")}
	}
	var errs field.ErrorList
	item, seen := s.Items.Schema, map[string]bool{}
	for _, key := range s.XListMapKeys {
		if seen[key] {
			errs = append(errs, field.Invalid(keys, s.XListMapKeys, "must not contain duplicate entries"))
		}
		seen[key] = true
		property, ok := item.Properties[key]
		if !ok {
			errs = append(errs, field.Invalid(keys, s.XListMapKeys, "entries must all be names of item properties"))
			continue
		}
		at := path.Child("properties").Key(key)
		if property.Type == "array" || property.Type == "object" {
			errs = append(errs, field.Invalid(at.Child("type"), property.Type, "must be a scalar type if parent array's x-kubernetes-list-type is map"))
		}
		if property.Default == nil && !slices.Contains(item.Required, key) {
			errs = append(errs, field.Required(at.Child("default"), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
		}
		if property.Nullable {
			errs = append(errs, field.Forbidden(at.Child("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"))
		}
	}
	return errs
}

func validRuleTexts(rules apiextensionsv1.ValidationRules, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	lines := func(s string) bool { return strings.ContainsAny(s, "\n\r") }
	for i, r := range rules {
		at, rule, message := path.Index(i), strings.TrimSpace(r.Rule), strings.TrimSpace(r.Message)
		switch {
		case rule == "":
			errs = append(errs, field.Required(at.Child("rule"), "rule is not specified"))
		case r.Message != "" && message == "":
			errs = append(errs, field.Invalid(at.Child("message"), r.Message, "must be non-empty if specified"))
		case lines(message):
			errs = append(errs, field.Invalid(at.Child("message"), r.Message, "must not contain line breaks"))
		case lines(rule) && message == "":
			errs = append(errs, field.Required(at.Child("message"), "message must be specified if rule contains line breaks"))
		}
		if r.MessageExpression != "" && strings.TrimSpace(r.MessageExpression) == "" {
			errs = append(errs, field.Required(at.Child("messageExpression"), "messageExpression must be non-empty if specified"))
		}
		if r.Reason != nil && !slices.Contains(ruleReasons, *r.Reason) {
			errs = append(errs, field.NotSupported(at.Child("reason"), *r.Reason, ruleReasons))
		}
		if r.FieldPath != "" && strings.TrimSpace(r.FieldPath) == "" {
			errs = append(errs, field.Invalid(at.Child("fieldPath"), r.FieldPath, "must be non-empty if specified"))
		} else if lines(r.FieldPath) {
			errs = append(errs, field.Invalid(at.Child("fieldPath"), r.FieldPath, "must not contain line breaks"))
		}
	}
	return errs
}
