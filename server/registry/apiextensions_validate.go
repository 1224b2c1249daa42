package registry

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type definition = apiextensionsv1.CustomResourceDefinition

// validateDefinition names the faults of a CustomResourceDefinition. It is here
// and not in package api, since it needs the schema library.
func validateDefinition(c, old *definition) field.ErrorList {
	path, spec := field.NewPath("spec"), &c.Spec
	var errs field.ErrorList
	if c.Name != spec.Names.Plural+"."+spec.Group {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, `must be spec.names.plural+"."+spec.group`))
	}
	switch {
	case spec.Group == "":
		errs = append(errs, field.Required(path.Child("group"), ""))
	case !strings.Contains(spec.Group, "."):
		errs = append(errs, field.Invalid(path.Child("group"), spec.Group, "should be a domain with at least one dot"))
	default:
		errs = append(errs, complaints(path.Child("group"), spec.Group, utilvalidation.IsDNS1123Subdomain(spec.Group))...)
	}
	switch spec.Scope {
	case apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped:
	case "":
		errs = append(errs, field.Required(path.Child("scope"), ""))
	default:
		errs = append(errs, field.NotSupported(path.Child("scope"), spec.Scope, []apiextensionsv1.ResourceScope{apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped}))
	}
	if spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(path.Child("preserveUnknownFields"), true, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	errs = append(errs, validDefinitionNames(&spec.Names, path.Child("names"))...)
	var before []apiextensionsv1.CustomResourceDefinitionVersion
	if old != nil {
		before = old.Spec.Versions
	}
	errs = append(errs, validVersions(spec.Versions, before, path.Child("versions"))...)
	errs = append(errs, validConversion(spec.Conversion, path.Child("conversion"))...)
	if old != nil {
		errs = append(errs, validDefinitionUpdate(c, old)...)
	}
	return errs
}

func complaints(path *field.Path, value string, words []string) field.ErrorList {
	var errs field.ErrorList
	for _, w := range words {
		errs = append(errs, field.Invalid(path, value, w))
	}
	return errs
}

func validDefinitionNames(n *apiextensionsv1.CustomResourceDefinitionNames, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	label := func(name, value string) {
		if value == "" {
			errs = append(errs, field.Required(path.Child(name), ""))
			return
		}
		errs = append(errs, complaints(path.Child(name), value, utilvalidation.IsDNS1035Label(strings.ToLower(value)))...)
	}
	label("plural", n.Plural)
	label("singular", n.Singular)
	label("kind", n.Kind)
	label("listKind", n.ListKind)
	if n.Kind != "" && n.Kind == n.ListKind {
		errs = append(errs, field.Invalid(path.Child("listKind"), n.ListKind, "kind and listKind may not be the same"))
	}
	for i, short := range n.ShortNames {
		errs = append(errs, complaints(path.Child("shortNames").Index(i), short, utilvalidation.IsDNS1035Label(short))...)
	}
	for i, category := range n.Categories {
		errs = append(errs, complaints(path.Child("categories").Index(i), category, utilvalidation.IsDNS1035Label(category))...)
	}
	return errs
}

// validVersions checks versions, but not again a schema that was there before.
func validVersions(versions, before []apiextensionsv1.CustomResourceDefinitionVersion, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	stored, seen := 0, map[string]bool{}
	for i := range versions {
		v, at := &versions[i], path.Index(i)
		errs = append(errs, complaints(at.Child("name"), v.Name, utilvalidation.IsDNS1035Label(v.Name))...)
		if seen[v.Name] {
			errs = append(errs, field.Invalid(path, v.Name, "must contain unique version names"))
		}
		seen[v.Name] = true
		if v.Storage {
			stored++
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			errs = append(errs, field.Required(at.Child("schema", "openAPIV3Schema"), "schemas are required"))
		} else if !slices.ContainsFunc(before, func(b apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return b.Name == v.Name && equality.Semantic.DeepEqual(b.Schema, v.Schema)
		}) {
			errs = append(errs, validSchema(v.Schema.OpenAPIV3Schema, at.Child("schema", "openAPIV3Schema"))...)
		}
		for j, column := range v.AdditionalPrinterColumns {
			here := at.Child("additionalPrinterColumns").Index(j)
			if column.Name == "" {
				errs = append(errs, field.Required(here.Child("name"), ""))
			}
			if column.JSONPath == "" {
				errs = append(errs, field.Required(here.Child("jsonPath"), ""))
			}
			switch column.Type {
			case "integer", "number", "string", "boolean", "date":
			case "":
				errs = append(errs, field.Required(here.Child("type"), "must be one of boolean,date,integer,number,string"))
			default:
				errs = append(errs, field.Invalid(here.Child("type"), column.Type, "must be one of boolean,date,integer,number,string"))
			}
		}
		if s := v.Subresources; s != nil && s.Scale != nil {
			errs = append(errs, validScalePaths(s.Scale, at.Child("subresources", "scale"))...)
		}
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(path, versions, "must have exactly one version marked as storage version"))
	}
	return errs
}

func validScalePaths(s *apiextensionsv1.CustomResourceSubresourceScale, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !strings.HasPrefix(s.SpecReplicasPath, ".spec.") {
		errs = append(errs, field.Invalid(path.Child("specReplicasPath"), s.SpecReplicasPath, "should be a json path under .spec"))
	}
	if !strings.HasPrefix(s.StatusReplicasPath, ".status.") {
		errs = append(errs, field.Invalid(path.Child("statusReplicasPath"), s.StatusReplicasPath, "should be a json path under .status"))
	}
	if p := s.LabelSelectorPath; p != nil && *p != "" && !strings.HasPrefix(*p, ".spec.") && !strings.HasPrefix(*p, ".status.") {
		errs = append(errs, field.Invalid(path.Child("labelSelectorPath"), *p, "should be a json path under either .spec or .status"))
	}
	return errs
}

// validSchema wants a structural schema: one that says of every field what it
// is, so that unknown ones can be dropped and defaults filled in.
func validSchema(s *apiextensionsv1.JSONSchemaProps, path *field.Path) field.ErrorList {
	switch s.Type {
	case "object":
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "must not be empty at the root")}
	default:
		return field.ErrorList{field.Invalid(path.Child("type"), s.Type, "must be object at the root")}
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s.DeepCopy(), &internal, nil); err != nil {
		return field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	built, err := structural.NewStructural(&internal)
	if err != nil {
		return field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	if errs := append(validFields(s, path), structural.ValidateStructural(path, built)...); len(errs) > 0 {
		return errs // defaults and rules can only be understood by a sound schema
	}
	return append(validDefaults(built, path), validRules(built, path)...)
}

func validConversion(c *apiextensionsv1.CustomResourceConversion, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	switch c.Strategy {
	case apiextensionsv1.NoneConverter:
		if c.Webhook != nil {
			return field.ErrorList{field.Forbidden(path.Child("webhook"), "should not be set when strategy is not set to Webhook")}
		}
	case apiextensionsv1.WebhookConverter:
		if c.Webhook == nil || c.Webhook.ClientConfig == nil {
			return field.ErrorList{field.Required(path.Child("webhook", "clientConfig"), "required when strategy is set to Webhook")}
		}
		if len(c.Webhook.ConversionReviewVersions) == 0 {
			return field.ErrorList{field.Required(path.Child("webhook", "conversionReviewVersions"), "")}
		}
	default:
		return field.ErrorList{field.NotSupported(path.Child("strategy"), c.Strategy, []apiextensionsv1.ConversionStrategyType{apiextensionsv1.NoneConverter, apiextensionsv1.WebhookConverter})}
	}
	return nil
}

// validDefinitionUpdate keeps what stored objects depend on.
func validDefinitionUpdate(c, old *definition) field.ErrorList {
	path := field.NewPath("spec")
	errs := validation.ValidateImmutableField(c.Spec.Group, old.Spec.Group, path.Child("group"))
	errs = append(errs, validation.ValidateImmutableField(c.Spec.Names.Plural, old.Spec.Names.Plural, path.Child("names", "plural"))...)
	for _, condition := range old.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			errs = append(errs, validation.ValidateImmutableField(c.Spec.Scope, old.Spec.Scope, path.Child("scope"))...)
			errs = append(errs, validation.ValidateImmutableField(c.Spec.Names.Kind, old.Spec.Names.Kind, path.Child("names", "kind"))...)
		}
	}
	for i, stored := range c.Status.StoredVersions {
		found := false
		for _, v := range c.Spec.Versions {
			found = found || v.Name == stored
		}
		if !found {
			errs = append(errs, field.Invalid(field.NewPath("status", "storedVersions").Index(i), stored,
				fmt.Sprintf("missing from spec.versions; %s was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in %s and removes %s from status.storedVersions", stored, stored, stored)))
		}
	}
	return errs
}
