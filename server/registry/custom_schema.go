package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// customVersion is a version of a custom kind with its schema made ready for
// use: programs compiled, defaults trimmed.
type customVersion struct {
	spec *apiextensionsv1.CustomResourceDefinitionVersion
	kind schema.GroupVersionKind
	// keep: fields that the schema does not know stay, by an old setting of
	// the whole definition.
	keep     bool
	schema   *structural.Structural // nil: none given
	document []byte                 // the schema as its author wrote it

	whole, status schemavalidation.SchemaValidator // status: nil if the schema has none
	rules         *cel.Validator                   // nil: no rules
	scale         *apiextensionsv1.CustomResourceSubresourceScale
	convert       Converter
	siblings      map[string]*customVersion // all versions of the definition, by name
}

func newCustomVersion(crd *apiextensionsv1.CustomResourceDefinition, spec *apiextensionsv1.CustomResourceDefinitionVersion) (*customVersion, error) {
	v := &customVersion{
		spec: spec, keep: crd.Spec.PreserveUnknownFields,
		kind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: spec.Name, Kind: crd.Status.AcceptedNames.Kind},
	}
	if spec.Subresources != nil {
		v.scale = spec.Subresources.Scale
	}
	var props *apiextensions.JSONSchemaProps
	if spec.Schema != nil && spec.Schema.OpenAPIV3Schema != nil {
		props = &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(spec.Schema.OpenAPIV3Schema.DeepCopy(), props, nil); err != nil {
			return nil, fmt.Errorf("read schema: %w", err)
		}
		var err error
		if v.document, err = json.Marshal(spec.Schema.OpenAPIV3Schema); err != nil {
			return nil, fmt.Errorf("write schema: %w", err)
		}
		if err := v.build(props); err != nil {
			return nil, err
		}
	}
	var err error
	if v.whole, _, err = schemavalidation.NewSchemaValidator(props); err != nil {
		return nil, fmt.Errorf("make validator: %w", err)
	}
	if props == nil {
		return v, nil
	}
	if status, ok := props.Properties["status"]; ok {
		if v.status, _, err = schemavalidation.NewSchemaValidator(&status); err != nil {
			return nil, fmt.Errorf("make validator of status: %w", err)
		}
	}
	return v, nil
}

// build makes the structural schema, which pruning, defaulting and rules go by.
func (v *customVersion) build(props *apiextensions.JSONSchemaProps) error {
	s, err := structural.NewStructural(props)
	if err != nil && !v.keep {
		return fmt.Errorf("schema is not structural: %w", err)
	}
	if err != nil {
		return nil // of the times before structural schemas: validated, no more
	}
	if !v.keep {
		s = s.DeepCopy() // its defaults are still those of the definition
		if err := defaulting.PruneDefaults(s); err != nil {
			return fmt.Errorf("trim defaults: %w", err)
		}
	}
	v.schema = s
	v.rules = cel.NewValidator(s, true, celconfig.PerCallLimit)
	return nil
}

// coerceObject is coerce for what a client sends.
func (v *customVersion) coerceObject(obj runtime.Object) ([]string, error) {
	return v.coerce(obj.(*unstructured.Unstructured), false)
}

// coerce does to an unstructured object what decoding into a Go struct does to a
// built-in one: it drops fields that the schema does not know, and returns their
// paths; it drops nulls where no null may be; and it brings metadata into form.
// mend drops malformed metadata too instead of refusing it: objects in etcd may
// be older than the check.
func (v *customVersion) coerce(u *unstructured.Unstructured, mend bool) (unknown []string, err error) {
	apiVersion, kind := u.Object["apiVersion"], u.Object["kind"]
	meta, hasMeta, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields: mend, ReturnUnknownFieldPaths: true,
	})
	if err != nil {
		return nil, err
	}
	if !v.keep {
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, v.schema, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, v.schema)
	}
	refused, paths := objectmeta.CoerceWithOptions(nil, u.Object, v.schema, false, objectmeta.CoerceOptions{
		DropInvalidFields: mend, ReturnUnknownFieldPaths: true,
	})
	if refused != nil {
		return nil, refused
	}
	unknown = append(unknown, paths...)
	// What every object has need not be in the schema: put it back.
	u.Object["apiVersion"], u.Object["kind"] = apiVersion, kind
	if hasMeta {
		if mend && meta.Generation == 0 {
			meta.Generation = 1 // older than generations of custom resources
		}
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// fillIn sets the schema's defaults.
func (v *customVersion) fillIn(obj runtime.Object) {
	defaulting.Default(obj.(*unstructured.Unstructured).Object, v.schema)
}

// errSkippedRules stands in for rules that could not be run on an object that is
// malformed already.
func errSkippedRules() *field.Error {
	return field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")
}

// malformed reports whether rules cannot be trusted to make sense of the object.
func malformed(errs field.ErrorList) bool {
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

func (v *customVersion) validate(obj, old runtime.Object) field.ErrorList {
	u := obj.(*unstructured.Unstructured)
	if errs := v.validKind(u); len(errs) > 0 {
		return errs
	}
	if old == nil {
		errs := schemavalidation.ValidateCustomResource(nil, u.Object, v.whole)
		errs = append(errs, v.validScale(u, true)...)
		errs = append(errs, objectmeta.Validate(context.Background(), nil, u.Object, v.schema, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, v.schema, u.Object)...)
		return append(errs, v.checkRules(errs, u.Object, nil)...)
	}
	// What was wrong before and has not been touched is not held against an update.
	o := old.(*unstructured.Unstructured)
	related := common.NewCorrelatedObject(u.Object, o.Object, &model.Structural{Structural: v.schema})
	errs := schemavalidation.ValidateCustomResourceUpdate(nil, u.Object, o.Object, v.whole, schemavalidation.WithRatcheting(related))
	errs = append(errs, v.validScale(u, true)...)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, u.Object, v.schema, false)...)
	errs = append(errs, v.newListFaults(u, o)...)
	return append(errs, v.checkRules(errs, u.Object, o.Object, cel.WithRatcheting(related))...)
}

// validateStatus is validate for writes of the status.
func (v *customVersion) validateStatus(obj, old runtime.Object) field.ErrorList {
	u, o := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	if errs := v.validKind(u); len(errs) > 0 {
		return errs
	}
	related := common.NewCorrelatedObject(u.Object, o.Object, &model.Structural{Structural: v.schema})
	var errs field.ErrorList
	if status, ok := u.Object["status"]; ok && v.status != nil {
		var options []schemavalidation.ValidationOption
		if v.schema != nil {
			options = append(options, schemavalidation.WithRatcheting(related.Key("status")))
		}
		errs = append(errs, schemavalidation.ValidateCustomResourceUpdate(field.NewPath("status"), status, o.Object["status"], v.status, options...)...)
	}
	errs = append(errs, v.validScale(u, false)...)
	errs = append(errs, v.newListFaults(u, o)...)
	return append(errs, v.checkRules(errs, u.Object, o.Object, cel.WithRatcheting(related))...)
}

// newListFaults are lists that should be sets or maps and are not, unless that
// was so before.
func (v *customVersion) newListFaults(u, old *unstructured.Unstructured) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, v.schema, u.Object)
	if len(errs) == 0 || len(listtype.ValidateListSetsAndMaps(nil, v.schema, old.Object)) > 0 {
		return nil
	}
	return errs
}

func (v *customVersion) checkRules(found field.ErrorList, obj, old map[string]any, options ...cel.Option) field.ErrorList {
	if v.rules == nil {
		return nil
	}
	if malformed(found) {
		return field.ErrorList{errSkippedRules()}
	}
	var before any // an untyped nil on create
	if old != nil {
		before = old
	}
	errs, _ := v.rules.Validate(context.Background(), nil, v.schema, obj, before, celconfig.RuntimeCELCostBudget, options...)
	return errs
}

func (v *customVersion) validKind(u *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	if u.GetKind() != v.kind.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), "must be "+v.kind.Kind))
	}
	if want := v.kind.GroupVersion().String(); u.GetAPIVersion() != want {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), "must be "+want))
	}
	return errs
}

// validScale sees to it that the object can be shown as a Scale.
func (v *customVersion) validScale(u *unstructured.Unstructured, withSpec bool) field.ErrorList {
	if v.scale == nil {
		return nil
	}
	var errs field.ErrorList
	count := func(path string) {
		n, _, err := unstructured.NestedInt64(u.Object, pathParts(path)...)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(path), n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(field.NewPath(path), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if withSpec {
		count(v.scale.SpecReplicasPath)
	}
	count(v.scale.StatusReplicasPath)
	if p := v.scale.LabelSelectorPath; p != nil {
		if selector, _, err := unstructured.NestedString(u.Object, pathParts(*p)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*p), selector, err.Error()))
		}
	}
	return errs
}
