package registry

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/api"
)

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
	now, err := inner(c)
	if err != nil {
		return nil // told by validation
	}
	var formats, sets []string
	eachSchema(&now.Spec, func(s *schemaProps) {
		if s.Format != "" {
			known := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, f := range schemavalidation.GetUnrecognizedFormats(known, environment.DefaultCompatibilityVersion()) {
				formats = append(formats, fmt.Sprintf("unrecognized format %q", f))
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil && (s.Items.Schema.Type == "object" || s.Items.Schema.Type == "array") {
			sets = append(sets, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", s.Items.Schema.Type))
		}
	})
	slices.Sort(sets)
	return append(formats, slices.Compact(sets)...)
}

// eachSchema calls visit with the schemas of a definition and all they have inside.
func eachSchema(s *definitionSpec, visit func(*schemaProps)) {
	roots := []*apiextensions.CustomResourceValidation{s.Validation}
	for _, v := range s.Versions {
		roots = append(roots, v.Schema)
	}
	for _, r := range roots {
		if hasSchema(r) {
			visitSchema(r.OpenAPIV3Schema, visit)
		}
	}
}

func visitSchema(s *schemaProps, visit func(*schemaProps)) {
	if s == nil {
		return
	}
	visit(s)
	(&schemaCheck{}).parts(s, schemaPlace{}, func(s *schemaProps, _ schemaPlace) { visitSchema(s, visit) })
}

// noteStored adds the storage version to those that may be in etcd.
func noteStored(c *apiextensionsv1.CustomResourceDefinition) {
	i := slices.IndexFunc(c.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i < 0 || slices.Contains(c.Status.StoredVersions, c.Spec.Versions[i].Name) {
		return
	}
	c.Status.StoredVersions = append(slices.Clip(c.Status.StoredVersions), c.Spec.Versions[i].Name)
}
