package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/api"
)

type crd = apiextensionsv1.CustomResourceDefinition

func apiextensionsKinds() []*Kind {
	parts := halves[crd]{counted: true}
	return []*Kind{kind[crd, apiextensionsv1.CustomResourceDefinitionList]{
		Plural: "customresourcedefinitions", Short: []string{"crd", "crds"}, In: []string{"api-extensions"}, Cluster: true,
		Columns: crdColumns(), Row: crdRow,
		Default:  api.DefaultCustomResourceDefinition,
		Validate: validateDefinition,
		NamedBy:  definitionName,
		Prefix:   "apiextensions.k8s.io/customresourcedefinitions", JSON: true, NeedsRevision: true,
		Prepare: func(c, old *crd) {
			parts.prepare(c, old)
			noteStored(c)
		},
		Warn: warnDefinition,
		Sub:  Sub{"status": view(readWrite, parts.keepSpec, validateDefinitionStatus)},
	}.erase(apiextensionsv1.SchemeGroupVersion)}
}

// definitionName checks the name of a definition: its plural and its group.
func definitionName(c *crd) func(name string, prefix bool) []string {
	return func(name string, prefix bool) []string {
		bad := validation.NameIsDNSSubdomain(name, prefix)
		if name != c.Spec.Names.Plural+"."+c.Spec.Group {
			bad = append(bad, `must be spec.names.plural+"."+spec.group`)
		}
		return bad
	}
}

// validateDefinition names the faults of a CustomResourceDefinition: those that the
// library of schemas knows.
func validateDefinition(c, old *crd) field.ErrorList {
	return inner(c, old, definitionvalidation.ValidateCustomResourceDefinition, definitionvalidation.ValidateCustomResourceDefinitionUpdate)
}

// validateDefinitionStatus names the faults of a definition with a new status.
func validateDefinitionStatus(c, old *crd) field.ErrorList {
	return inner(c, old, nil, definitionvalidation.ValidateUpdateCustomResourceDefinitionStatus)
}

type innerDefinition = apiextensions.CustomResourceDefinition

// inner checks definitions in the library's own form: what all versions have in common
// is in the spec itself there, so that the only version's schema is spec.validation.
func inner(c, old *crd, create func(context.Context, *innerDefinition) field.ErrorList, update func(ctx context.Context, c, old *innerDefinition) field.ErrorList) field.ErrorList {
	now, err := innerOf(c)
	if err == nil && old == nil {
		return create(context.Background(), now)
	}
	before, oldErr := innerOf(old)
	if err = errors.Join(err, oldErr); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	return update(context.Background(), now, before)
}

func innerOf(c *crd) (*innerDefinition, error) {
	out := &innerDefinition{}
	return out, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c.DeepCopy(), out, nil)
}

// warnDefinition tells formats that the server doesn't know, and sets of what can't
// be told apart, unless they were there before.
func warnDefinition(c, old *apiextensionsv1.CustomResourceDefinition) []string {
	var before []string
	if old != nil {
		before = definitionWarnings(old)
	}
	return slices.DeleteFunc(definitionWarnings(c), func(w string) bool { return slices.Contains(before, w) })
}

func definitionWarnings(c *apiextensionsv1.CustomResourceDefinition) []string {
	now, err := innerOf(c)
	if err != nil {
		return nil // told by validation
	}
	var formats, sets []string
	visit := func(s *apiextensions.JSONSchemaProps) bool {
		if s.Format != "" {
			known := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, f := range schemavalidation.GetUnrecognizedFormats(known, environment.DefaultCompatibilityVersion()) {
				formats = append(formats, fmt.Sprintf("unrecognized format %q", f))
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil && (s.Items.Schema.Type == "object" || s.Items.Schema.Type == "array") {
			sets = append(sets, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", s.Items.Schema.Type))
		}
		return false
	}
	for _, v := range append(now.Spec.Versions, apiextensions.CustomResourceDefinitionVersion{Schema: now.Spec.Validation}) {
		if v.Schema != nil {
			definitionvalidation.SchemaHas(v.Schema.OpenAPIV3Schema, visit)
		}
	}
	slices.Sort(sets)
	return append(formats, slices.Compact(sets)...)
}

// noteStored adds the storage version to those that may be in etcd.
func noteStored(c *apiextensionsv1.CustomResourceDefinition) {
	i := slices.IndexFunc(c.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i < 0 || slices.Contains(c.Status.StoredVersions, c.Spec.Versions[i].Name) {
		return
	}
	c.Status.StoredVersions = append(slices.Clip(c.Status.StoredVersions), c.Spec.Versions[i].Name)
}
