package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for definitions.json.gz
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/registry"
)

// builtinDefinitions is made by server/openapi/gen.
//
//go:embed definitions.json.gz
var builtinDefinitions []byte

// gvkExtension names the kinds that a schema or an operation is of.
const gvkExtension = "x-kubernetes-group-version-kind"

// Where references point to in the two versions of OpenAPI.
const (
	v2Refs = "#/definitions/"
	v3Refs = "#/components/schemas/"
)

// definitions are the schemas of the built-in kinds, with v2 references, not yet
// decoded: a document has few of them.
type definitions map[string]json.RawMessage

var allDefinitions = sync.OnceValues(readDefinitions)

func readDefinitions() (definitions, error) {
	zip, err := gzip.NewReader(bytes.NewReader(builtinDefinitions))
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI definitions: %w", err)
	}
	d := definitions{}
	if err := json.NewDecoder(zip).Decode(&d); err != nil {
		return nil, fmt.Errorf("read OpenAPI definitions: %w", err)
	}
	return d, nil
}

var references = regexp.MustCompile(`"\$ref":"#/definitions/([^"]+)"`)

// closure decodes the definitions of some models, and of all that they are made
// of, with references as they are in v2 or v3.
func (d definitions) closure(refs string, names ...string) (map[string]common.OpenAPIDefinition, error) {
	found := map[string]common.OpenAPIDefinition{}
	for len(names) > 0 {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		text, known := d[name]
		if _, done := found[name]; done || !known {
			continue // unknown ones are simple types and custom kinds
		}
		definition := common.OpenAPIDefinition{}
		for _, match := range references.FindAllSubmatch(text, -1) {
			definition.Dependencies = append(definition.Dependencies, string(match[1]))
		}
		names = append(names, definition.Dependencies...)
		if refs != v2Refs {
			text = bytes.ReplaceAll(text, []byte(v2Refs), []byte(refs))
		}
		if err := decodeDefinition(text, refs == v2Refs, &definition.Schema); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		found[name] = definition
	}
	return found, nil
}

// decodeDefinition takes what a definition says for v2 in particular in the place
// of the rest.
func decodeDefinition(text []byte, v2 bool, into *spec.Schema) error {
	if err := json.Unmarshal(text, into); err != nil {
		return err
	}
	other, differs := into.Extensions[common.ExtensionV2Schema]
	delete(into.Extensions, common.ExtensionV2Schema)
	if !v2 || !differs {
		return nil
	}
	text, err := json.Marshal(other)
	if err != nil {
		return err
	}
	*into = spec.Schema{}
	return json.Unmarshal(text, into)
}

// Models are the schemas of some built-in kinds, and of all that those are made
// of, for who merges objects by them.
func Models(kinds ...*registry.Kind) (map[string]*spec.Schema, error) {
	d, err := allDefinitions()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, k := range kinds {
		names = append(names, string(nameOf(k)))
	}
	found, err := d.closure(v2Refs, names...)
	if err != nil {
		return nil, err
	}
	models := make(map[string]*spec.Schema, len(found))
	for name, definition := range found {
		models[name] = &definition.Schema
	}
	return models, nil
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
func nameOf(k *registry.Kind) model {
	if !k.Unstructured() {
		return model(modelName(k.New()))
	}
	return customName(k.GroupVersionKind)
}

func listNameOf(k *registry.Kind) model {
	if !k.Unstructured() {
		return model(modelName(k.NewList()))
	}
	return customName(listKind(k))
}

// listKind is the kind of a custom kind's lists.
func listKind(k *registry.Kind) schema.GroupVersionKind {
	return k.GroupVersion().WithKind(k.NewList().GetObjectKind().GroupVersionKind().Kind)
}

func customName(gvk schema.GroupVersionKind) model {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return model(strings.Join(append(parts, gvk.Version, gvk.Kind), "."))
}
