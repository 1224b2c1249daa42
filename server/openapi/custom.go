package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/registry"
)

// defineCustom adds the definitions of a custom kind and of its list.
func defineCustom(k *registry.Kind, refs string, to map[string]common.OpenAPIDefinition) error {
	s, err := customSchema(k, refs)
	if err != nil {
		return fmt.Errorf("schema of %s: %w", k.GroupVersionKind, err)
	}
	list := customList(k, refs)
	for definition, gvk := range map[*spec.Schema]schema.GroupVersionKind{s: k.GroupVersionKind, list: listKind(k)} {
		definition.AddExtension(gvkExtension, []any{gvkObject(gvk)})
		if len(k.Selectable) > 0 {
			definition.AddExtension("x-kubernetes-selectable-fields", selectable(k))
		}
	}
	to[string(nameOf(k))] = common.OpenAPIDefinition{Schema: *s, Dependencies: []string{metav1.ObjectMeta{}.OpenAPIModelName()}}
	to[string(listNameOf(k))] = common.OpenAPIDefinition{Schema: *list}
	return nil
}

func gvkObject(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

func selectable(k *registry.Kind) []any {
	var paths []any
	for _, path := range k.Selectable {
		paths = append(paths, map[string]any{"fieldPath": path})
	}
	return paths
}

// customSchema is the definition of a custom kind: what its author says (the
// kind's Schema), and what every object has. One without a schema has nothing,
// since clients would take what every object has for all there is; nor has one in
// v2 that may have anything.
func customSchema(k *registry.Kind, refs string) (*spec.Schema, error) {
	var given *apiextensionsv1.JSONSchemaProps
	if len(k.Schema) > 0 {
		if err := json.Unmarshal(k.Schema, &given); err != nil {
			return nil, err
		}
	}
	v2 := refs == v2Refs
	if given == nil || v2 && given.XPreserveUnknownFields != nil && *given.XPreserveUnknownFields {
		return new(spec.Schema).Typed("object", ""), nil
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(given, props, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	structural = structural.Unfold()
	if v2 {
		(&structuralschema.Visitor{Structural: loosen}).Visit(structural)
	}
	s := structural.ToKubeOpenAPI()
	words := metav1.TypeMeta{}.SwaggerDoc()
	addMeta(s, refs, words["apiVersion"], words["kind"])
	addEmbedded(s, refs)
	return s, nil
}

// addMeta adds the properties of every object.
func addMeta(s *spec.Schema, refs, apiVersion, kind string) {
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(apiVersion))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(kind))
	s.SetProperty("metadata", *spec.RefSchema(refs + metav1.ObjectMeta{}.OpenAPIModelName()).WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
}

// addEmbedded adds them to the parts of a schema that are objects themselves.
func addEmbedded(s *spec.Schema, refs string) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		addEmbedded(&p, refs)
		s.Properties[name] = p
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema, refs)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema, refs)
	}
	loose, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource")
	if !embedded || loose && refs == v2Refs {
		return
	}
	const conventions = " More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#"
	addMeta(s, refs, "apiVersion defines the versioned schema of this representation of an object."+conventions+"resources",
		"kind is a string value representing the type of this object. In CamelCase."+conventions+"types-kinds")
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// customList is the definition of a list of a custom kind.
func customList(k *registry.Kind, refs string) *spec.Schema {
	words := metav1.TypeMeta{}.SwaggerDoc()
	items := spec.ArrayProperty(spec.RefSchema(refs + string(nameOf(k)))).WithDescription(
		"List of " + k.Plural + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md")
	meta := spec.RefSchema(refs + metav1.ListMeta{}.OpenAPIModelName()).WithDescription(metav1.PartialObjectMetadataList{}.SwaggerDoc()["metadata"])
	return new(spec.Schema).Typed("object", "").
		WithDescription(listKind(k).Kind+" is a list of "+k.Kind).WithRequired("items").
		SetProperty("items", *items).SetProperty("metadata", *meta).
		SetProperty("apiVersion", *spec.StringProperty().WithDescription(words["apiVersion"])).
		SetProperty("kind", *spec.StringProperty().WithDescription(words["kind"]))
}

// loosen takes from a part of a custom schema what v2 cannot say. A part that may
// be null or have unknown fields becomes untyped, as clients of v2 take what it
// says for all there is; then a property that may be null is not required either.
func loosen(s *structuralschema.Structural) bool {
	if v := s.ValueValidation; v != nil {
		v.AllOf, v.OneOf, v.AnyOf, v.Not = nil, nil, nil, nil
	}
	nullable, loose := s.Nullable, s.XPreserveUnknownFields
	if nullable || loose {
		s.Items, s.Properties = nil, nil
	}
	if nullable || loose && s.Type == "object" || s.Items == nil && s.Type == "array" {
		s.Type = ""
	}
	s.Nullable = false
	if s.ValueValidation == nil {
		return true
	}
	s.ValueValidation.Required = slices.DeleteFunc(slices.Clone(s.ValueValidation.Required), func(name string) bool { return s.Properties[name].Nullable })
	if more := s.AdditionalProperties; more != nil && more.Structural != nil && more.Structural.Nullable {
		s.ValueValidation.Required = nil
	}
	return true
}

// forCustom is what a definition is in the documents of custom kinds: the groups
// that are none of the client library's are not named there.
func forCustom(definitions map[string]common.OpenAPIDefinition) {
	foreign := []string{"admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"}
	keepKinds(definitions, func(group, _ string) bool { return !slices.Contains(foreign, group) })
}

// keepKinds keeps some of the kinds that the types are named as which every group
// version has.
func keepKinds(definitions map[string]common.OpenAPIDefinition, keep func(group, version string) bool) {
	for _, name := range []string{metav1.DeleteOptions{}.OpenAPIModelName(), metav1.WatchEvent{}.OpenAPIModelName()} {
		definition, ok := definitions[name]
		all, _ := definition.Schema.Extensions[gvkExtension].([]any)
		if !ok {
			continue
		}
		definition.Schema.Extensions[gvkExtension] = slices.DeleteFunc(all, func(item any) bool {
			gvk, _ := item.(map[string]any)
			group, _ := gvk["group"].(string)
			version, _ := gvk["version"].(string)
			return !keep(group, version)
		})
		definitions[name] = definition
	}
}

// pathOf is "api/v1" or "apis/apps/v1".
func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return strings.TrimSuffix("apis/"+gv.Group+"/"+gv.Version, "/")
}
