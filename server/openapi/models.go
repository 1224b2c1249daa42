package openapi

import (
	"encoding/json"
	"fmt"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/registry"
)

// Models are the schemas of some built-in kinds, and of all that those are made
// of, for who merges objects by them.
func Models(kinds ...*registry.Kind) (map[string]*spec.Schema, error) {
	d, err := decodeDefinitions()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, k := range kinds {
		name := nameOf(k)
		tag(d.schemas, name, k.GroupVersionKind)
		used[name] = true
		closure(d.schemas, d.schemas[name], v2Refs, used)
	}
	models := map[string]*spec.Schema{}
	for name := range used {
		text, err := json.Marshal(schemaV2(d.schemas[name]))
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		model := &spec.Schema{}
		if err := json.Unmarshal(text, model); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", name, err)
		}
		models[name] = model
	}
	return models, nil
}
