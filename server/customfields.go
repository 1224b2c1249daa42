package server

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/registry"
)

// customTypes tells the merge of a custom kind which lists are sets or maps and
// which parts are atomic, by the schemas of all its versions: an owner may have
// set a field through any of them. Without schemas it deduces: every list is
// atomic.
func (f *FieldTypes) customTypes(k *registry.Kind) (managedfields.TypeConverter, error) {
	models := map[string]*spec.Schema{}
	for _, row := range f.kinds.Kinds() {
		if row != k && row.Stored() != k.Stored() {
			continue
		}
		model, err := customModel(row)
		if err != nil {
			return nil, err
		}
		if model != nil {
			models[row.Group+"."+row.Version+"."+row.Kind] = model
		}
	}
	if len(models) == 0 || k.Schema == nil {
		return managedfields.NewDeducedTypeConverter(), nil
	}
	return managedfields.NewTypeConverter(models, false)
}

// customModel is the schema of a row with what every object has.
func customModel(row *registry.Kind) (*spec.Schema, error) {
	if row.Schema == nil {
		return nil, nil
	}
	model := &spec.Schema{}
	if err := json.Unmarshal(row.Schema, model); err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", row.GroupVersionKind, err)
	}
	embedObjects(model)
	tagModel(model, row.GroupVersionKind)
	return model, nil
}

// tagModel makes a schema that of a kind of object.
func tagModel(model *spec.Schema, kind schema.GroupVersionKind) {
	addObjectFields(model)
	model.AddExtension("x-kubernetes-group-version-kind", []any{
		map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind},
	})
}

// embedObjects adds to the schemas of embedded objects what every object has.
func embedObjects(s *spec.Schema) {
	for name, property := range s.Properties {
		if on, _ := property.Extensions.GetBool("x-kubernetes-embedded-resource"); on {
			addObjectFields(&property)
		}
		embedObjects(&property)
		s.Properties[name] = property
	}
	for _, below := range []*spec.Schema{itemsOf(s), valuesOf(s)} {
		if below == nil {
			continue
		}
		if on, _ := below.Extensions.GetBool("x-kubernetes-embedded-resource"); on {
			addObjectFields(below)
		}
		embedObjects(below)
	}
}

func itemsOf(s *spec.Schema) *spec.Schema {
	if s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

func valuesOf(s *spec.Schema) *spec.Schema {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Schema
}

func addObjectFields(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", metadataModel())
}

// metadataModel is how metadata is merged: owners by their UID, finalizers as a
// set, labels and annotations each by itself.
func metadataModel() spec.Schema {
	m := spec.Schema{}
	m.Typed("object", "")
	for _, name := range []string{"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"} {
		m.SetProperty(name, *spec.StringProperty())
	}
	for _, name := range []string{"creationTimestamp", "deletionTimestamp"} {
		m.SetProperty(name, *spec.DateTimeProperty())
	}
	for _, name := range []string{"generation", "deletionGracePeriodSeconds"} {
		m.SetProperty(name, *spec.Int64Property())
	}
	for _, name := range []string{"labels", "annotations"} {
		m.SetProperty(name, *spec.MapProperty(spec.StringProperty()))
	}
	finalizers := spec.ArrayProperty(spec.StringProperty())
	finalizers.AddExtension("x-kubernetes-list-type", "set")
	m.SetProperty("finalizers", *finalizers)

	owner := &spec.Schema{}
	owner.Typed("object", "")
	for _, name := range []string{"apiVersion", "kind", "name", "uid"} {
		owner.SetProperty(name, *spec.StringProperty())
	}
	owner.SetProperty("controller", *spec.BooleanProperty())
	owner.SetProperty("blockOwnerDeletion", *spec.BooleanProperty())
	owner.AddExtension("x-kubernetes-map-type", "atomic")
	owners := spec.ArrayProperty(owner)
	owners.AddExtension("x-kubernetes-list-type", "map")
	owners.AddExtension("x-kubernetes-list-map-keys", []any{"uid"})
	m.SetProperty("ownerReferences", *owners)

	entry := &spec.Schema{}
	entry.Typed("object", "")
	entry.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	entries := spec.ArrayProperty(entry)
	entries.AddExtension("x-kubernetes-list-type", "atomic")
	m.SetProperty("managedFields", *entries)
	return m
}
