package registry

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
)

// A definition is checked in the internal form of the library, since the paths of
// its faults are that form's: what all versions have in common is in the spec
// itself, so that the only version's schema is spec.validation.

type (
	crd            = apiextensionsv1.CustomResourceDefinition
	definitionSpec = apiextensions.CustomResourceDefinitionSpec
)

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

// validateDefinition names the faults of a CustomResourceDefinition. It is here
// and not in package api, since it needs the schema library.
func validateDefinition(c, old *crd) field.ErrorList {
	spec := field.NewPath("spec")
	now, err := inner(c)
	if err != nil {
		return field.ErrorList{field.Invalid(spec, "", err.Error())}
	}
	check := definitionCheck{spec: &now.Spec}
	if old != nil {
		if check.old, err = inner(old); err != nil {
			return field.ErrorList{field.InternalError(spec, err)}
		}
	}
	errs := check.whole(spec)
	if check.old != nil {
		errs = append(errs, check.changes(spec)...)
	}
	errs = append(errs, validateDefinitionStatus(c, old)...)
	errs = append(errs, validStoredVersions(now.Status.StoredVersions, now.Spec.Versions, field.NewPath("status", "storedVersions"))...)
	errs = append(errs, validApproval(now, check.old)...)
	if keep := now.Spec.PreserveUnknownFields; keep != nil && *keep {
		errs = append(errs, field.Invalid(spec.Child("preserveUnknownFields"), true, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	return errs
}

// inner is the internal form of a definition.
func inner(c *crd) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	return out, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c.DeepCopy(), out, nil)
}

// validateDefinitionStatus names the faults of a definition with a new status.
func validateDefinitionStatus(c, _ *crd) field.ErrorList {
	var names apiextensions.CustomResourceDefinitionNames
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionNames_To_apiextensions_CustomResourceDefinitionNames(&c.Status.AcceptedNames, &names, nil); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("status"), err)}
	}
	return validDefinitionNames(&names, field.NewPath("status", "acceptedNames"))
}

// definitionCheck checks one definition.
type definitionCheck struct {
	spec *definitionSpec
	old  *apiextensions.CustomResourceDefinition // nil on create
}

// established reports whether the definition is served already.
func (c definitionCheck) established() bool {
	return c.old != nil && apiextensions.IsCRDConditionTrue(c.old, apiextensions.Established)
}

// changes refuses those of what stored objects depend on.
func (c definitionCheck) changes(at *field.Path) field.ErrorList {
	before := &c.old.Spec
	var errs field.ErrorList
	if c.established() {
		errs = validation.ValidateImmutableField(c.spec.Scope, before.Scope, at.Child("scope"))
		errs = append(errs, validation.ValidateImmutableField(c.spec.Names.Kind, before.Names.Kind, at.Child("names", "kind"))...)
	}
	errs = append(errs, validation.ValidateImmutableField(c.spec.Group, before.Group, at.Child("group"))...)
	return append(errs, validation.ValidateImmutableField(c.spec.Names.Plural, before.Names.Plural, at.Child("names", "plural"))...)
}

func (c definitionCheck) whole(at *field.Path) field.ErrorList {
	s := c.spec
	errs := validGroup(s.Group, at.Child("group"))
	errs = append(errs, validWord(s.Scope, at.Child("scope"), apiextensions.ClusterScoped, apiextensions.NamespaceScoped)...)
	versions := at.Child("versions")
	for i, v := range s.Versions {
		if !hasSchema(s.Validation) && !hasSchema(v.Schema) {
			errs = append(errs, field.Required(versions.Index(i).Child("schema", "openAPIV3Schema"), ""))
		}
	}
	keeps := s.PreserveUnknownFields != nil && *s.PreserveUnknownFields
	if keeps && hasDefaults(s) {
		errs = append(errs, field.Invalid(at.Child("preserveUnknownFields"), true, "must be false in order to use defaults in the schema"))
	}
	errs = append(errs, c.versions(versions)...)
	for _, name := range []struct{ field, value string }{{"plural", s.Names.Plural}, {"singular", s.Names.Singular}, {"kind", s.Names.Kind}, {"listKind", s.Names.ListKind}} {
		if name.value == "" {
			errs = append(errs, field.Required(at.Child("names", name.field), ""))
		}
	}
	errs = append(errs, validDefinitionNames(&s.Names, at.Child("names"))...)
	errs = append(errs, c.view(s.Version, apiextensions.CustomResourceDefinitionVersion{
		Schema: s.Validation, Subresources: s.Subresources, AdditionalPrinterColumns: s.AdditionalPrinterColumns, SelectableFields: s.SelectableFields,
	}, at, "validation")...)
	if keeps && s.Conversion != nil && s.Conversion.Strategy != apiextensions.NoneConverter {
		errs = append(errs, field.Invalid(at.Child("conversion", "strategy"), s.Conversion.Strategy, "must be None if spec.preserveUnknownFields is true"))
	}
	return append(errs, c.conversion(at.Child("conversion"))...)
}

func hasSchema(v *apiextensions.CustomResourceValidation) bool {
	return v != nil && v.OpenAPIV3Schema != nil
}

func hasDefaults(s *definitionSpec) bool {
	found := false
	eachSchema(s, func(p *schemaProps) { found = found || p.Default != nil })
	return found
}

func validGroup(group string, at *field.Path) field.ErrorList {
	if group == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if errs := oneFault(at, group, utilvalidation.IsDNS1123Subdomain(group)); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(group, ".") {
		return field.ErrorList{field.Invalid(at, group, "should be a domain with at least one dot")}
	}
	return nil
}

// oneFault makes one error of all complaints about a value.
func oneFault(at *field.Path, value string, complaints []string) field.ErrorList {
	if len(complaints) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, value, strings.Join(complaints, ","))}
}

// validWord wants one of the given words.
func validWord[T ~string](word T, at *field.Path, allowed ...T) field.ErrorList {
	switch {
	case word == "":
		return field.ErrorList{field.Required(at, "")}
	case slices.Contains(allowed, word):
		return nil
	}
	return field.ErrorList{field.NotSupported(at, string(word), allowed)}
}

// versions checks what each has of its own, and all together.
func (c definitionCheck) versions(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	stored, seen, unique := 0, map[string]bool{}, true
	for i, v := range c.spec.Versions {
		here := at.Index(i)
		unique = unique && !seen[v.Name]
		seen[v.Name] = true
		if v.Storage {
			stored++
		}
		errs = append(errs, oneFault(here.Child("name"), v.Name, utilvalidation.IsDNS1035Label(v.Name))...)
		for _, complaint := range badDeprecation(v.Deprecated, v.DeprecationWarning) {
			errs = append(errs, field.Invalid(here.Child("deprecationWarning"), v.DeprecationWarning, complaint))
		}
		errs = append(errs, c.view(v.Name, v, here, "schema")...)
	}
	if !unique {
		errs = append(errs, field.Invalid(at, c.spec.Versions, "must contain unique version names"))
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(at, c.spec.Versions, "must have exactly one version marked as storage version"))
	}
	if v := c.spec.Version; v != "" {
		errs = append(errs, oneFault(field.NewPath("spec", "version"), v, utilvalidation.IsDNS1035Label(v))...)
	}
	return errs
}

// badDeprecation is what is wrong with the warning that a version gives.
func badDeprecation(deprecated bool, warning *string) []string {
	switch {
	case warning == nil:
		return nil
	case !deprecated:
		return []string{"can only be set for deprecated versions"}
	}
	const most = 256
	var complaints []string
	if len(*warning) > most {
		complaints = append(complaints, fmt.Sprintf("must be <= %d characters long", most))
	}
	if *warning == "" {
		complaints = append(complaints, "must not be an empty string")
	}
	if i := strings.IndexFunc(*warning, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		complaints = append(complaints, fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d", i))
	}
	return complaints
}

// view checks what a version, or all of them, shows of objects.
func (c definitionCheck) view(version string, v apiextensions.CustomResourceDefinitionVersion, at *field.Path, schemaField string) field.ErrorList {
	errs := c.schema(version, v.Schema, at.Child(schemaField))
	errs = append(errs, validScalePaths(v.Subresources, at.Child("subresources"))...)
	for i := range v.AdditionalPrinterColumns {
		errs = append(errs, validPrinterColumn(&v.AdditionalPrinterColumns[i], at.Child("additionalPrinterColumns").Index(i))...)
	}
	if len(v.SelectableFields) == 0 {
		return errs
	}
	fields := at.Child("selectableFields")
	if !hasSchema(v.Schema) {
		why := "may only be set when `version.schema.openAPIV3Schema` is not included"
		if schemaField == "validation" {
			why = "may only be set when validations.schema is included"
		}
		return append(errs, field.Invalid(fields, "", why))
	}
	s, err := structural.NewStructural(v.Schema.OpenAPIV3Schema)
	if err != nil {
		return append(errs, field.Invalid(at.Child("schema", "openAPIV3Schema"), "", err.Error()))
	}
	return append(errs, c.selectable(version, v.SelectableFields, s, fields)...)
}

// selectable wants the paths of plain values in the schema, not too many unless
// they were as many before.
func (c definitionCheck) selectable(version string, all []apiextensions.SelectableField, s *structural.Structural, at *field.Path) field.ErrorList {
	const most = 8
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, f := range all {
		here := at.Index(i).Child("jsonPath")
		if f.JSONPath == "" {
			errs = append(errs, field.Required(here, ""))
			continue
		}
		path, found, err := cel.ValidFieldPath(f.JSONPath, s, cel.WithFieldPathAllowArrayNotation(false))
		if err != nil {
			errs = append(errs, field.Invalid(here, f.JSONPath, fmt.Sprintf("is an invalid path: %v", err)))
			continue
		}
		if path.Root().String() == "metadata" {
			errs = append(errs, field.Invalid(here, f.JSONPath, "must not point to fields in metadata"))
		}
		if found == nil || found.Type != "string" && found.Type != "boolean" && found.Type != "integer" {
			errs = append(errs, field.Invalid(here, f.JSONPath, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."))
		}
		if seen[path.String()] {
			errs = append(errs, field.Duplicate(here, f.JSONPath))
		}
		seen[path.String()] = true
	}
	if len(seen) > most && !c.hadSelectable(version, all) {
		errs = append(errs, field.TooMany(at, len(seen), most))
	}
	return errs
}

func (c definitionCheck) hadSelectable(version string, all []apiextensions.SelectableField) bool {
	if c.old == nil {
		return false
	}
	before := c.old.Spec.SelectableFields
	for _, v := range c.old.Spec.Versions {
		if v.Name == version && len(v.SelectableFields) > 0 {
			before = v.SelectableFields
		}
	}
	return reflect.DeepEqual(all, before)
}

// rootFields are those that the root of a schema may have if there is a status,
// whose own schema is taken out of it.
var rootFields = []string{
	"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength", "Pattern", "MaxItems", "MinItems",
	"UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
}

// schema wants a structural schema: one that says of every field what it is, so
// that unknown ones can be dropped and defaults filled in.
func (c definitionCheck) schema(version string, v *apiextensions.CustomResourceValidation, at *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	var errs field.ErrorList
	if s := v.OpenAPIV3Schema; s != nil {
		at := at.Child("openAPIV3Schema")
		if c.hasStatus(version) {
			errs = validRoot(s, at)
		}
		if s.Nullable {
			errs = append(errs, field.Forbidden(at.Child("nullable"), "nullable cannot be true at the root"))
		}
		errs = append(errs, validSchema(s, at, c.knownRules(version, v))...)
	}
	if len(errs) == 0 {
		if _, _, err := schemavalidation.NewSchemaValidator(v.OpenAPIV3Schema); err != nil {
			errs = append(errs, field.Invalid(at, "", fmt.Sprintf("error building validator: %v", err)))
		}
	}
	return errs
}

func (c definitionCheck) hasStatus(version string) bool {
	has := func(s *apiextensions.CustomResourceSubresources) bool { return s != nil && s.Status != nil }
	for _, v := range c.spec.Versions {
		// A schema that all versions have in common is that of the first.
		if v.Name == version || c.spec.Validation != nil {
			if has(v.Subresources) {
				return true
			}
		}
	}
	return has(c.spec.Subresources)
}

// knownRules are those of the definition as it was before.
func (c definitionCheck) knownRules(version string, v *apiextensions.CustomResourceValidation) *knownRules {
	known := &knownRules{texts: map[string]bool{}}
	if c.old == nil {
		return known
	}
	note := func(v *apiextensions.CustomResourceValidation) {
		if v != nil {
			known.note(v.OpenAPIV3Schema, schemaPlace{})
		}
	}
	note(c.old.Spec.Validation)
	for _, old := range c.old.Spec.Versions {
		note(old.Schema)
	}
	before, err := apiextensions.GetSchemaForVersion(c.old, version)
	known.unchanged = err == nil && equality.Semantic.DeepEqual(before, v)
	return known
}

func validRoot(s *schemaProps, at *field.Path) field.ErrorList {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch {
		case v.Field(i).IsZero():
		case name == "Type" && s.Type != "object":
			return field.ErrorList{field.Invalid(at.Child("type"), s.Type, `only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)}
		case !slices.Contains(rootFields, name):
			return field.ErrorList{field.Invalid(at, *s, fmt.Sprintf("only %v fields are allowed at the root of the schema if the status subresource is enabled", rootFields))}
		}
	}
	return nil
}

func validDefinitionNames(n *apiextensions.CustomResourceDefinitionNames, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	label := func(at *field.Path, name string) {
		errs = append(errs, oneFault(at, name, utilvalidation.IsDNS1035Label(name))...)
	}
	if n.Plural != "" {
		label(at.Child("plural"), n.Plural)
	}
	if n.Singular != "" {
		label(at.Child("singular"), n.Singular)
	}
	mixed := func(name, value string) {
		if complaints := utilvalidation.IsDNS1035Label(strings.ToLower(value)); value != "" && len(complaints) > 0 {
			errs = append(errs, field.Invalid(at.Child(name), value, "may have mixed case, but should otherwise match: "+strings.Join(complaints, ",")))
		}
	}
	mixed("kind", n.Kind)
	mixed("listKind", n.ListKind)
	for i, short := range n.ShortNames {
		label(at.Child("shortNames").Index(i), short)
	}
	if n.Kind != "" && n.Kind == n.ListKind {
		errs = append(errs, field.Invalid(at.Child("listKind"), n.ListKind, "kind and listKind may not be the same"))
	}
	for i, category := range n.Categories {
		label(at.Child("categories").Index(i), category)
	}
	return errs
}

var columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}

func validPrinterColumn(c *apiextensions.CustomResourceColumnDefinition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	switch types := "must be one of boolean,date,integer,number,string"; c.Type {
	case "integer", "number", "string", "boolean", "date":
	case "":
		errs = append(errs, field.Required(at.Child("type"), types))
	default:
		errs = append(errs, field.Invalid(at.Child("type"), c.Type, types))
	}
	if c.Format != "" && !slices.Contains(columnFormats, c.Format) {
		errs = append(errs, field.Invalid(at.Child("format"), c.Format, "must be one of "+strings.Join(columnFormats, ",")))
	}
	return append(errs, validPath(c.JSONPath, true, at.Child("JSONPath"), "", "")...)
}

// validPath wants a simple JSON path, below one of the given fields.
func validPath(p string, needed bool, at *field.Path, why string, below ...string) field.ErrorList {
	switch {
	case p == "" && needed:
		return field.ErrorList{field.Required(at, "")}
	case p == "":
		return nil
	case p[0] != '.':
		return field.ErrorList{field.Invalid(at, p, "must be a simple json path starting with .")}
	case !slices.ContainsFunc(below, func(b string) bool { return strings.HasPrefix(p, b) }):
		return field.ErrorList{field.Invalid(at, p, "should be a json path under "+why)}
	}
	return nil
}

func validScalePaths(s *apiextensions.CustomResourceSubresources, at *field.Path) field.ErrorList {
	if s == nil || s.Scale == nil {
		return nil
	}
	at = at.Child("scale")
	errs := validPath(s.Scale.SpecReplicasPath, true, at.Child("specReplicasPath"), ".spec", ".spec.")
	errs = append(errs, validPath(s.Scale.StatusReplicasPath, true, at.Child("statusReplicasPath"), ".status", ".status.")...)
	if p := s.Scale.LabelSelectorPath; p != nil {
		errs = append(errs, validPath(*p, false, at.Child("labelSelectorPath"), "either .spec or .status", ".spec.", ".status.")...)
	}
	return errs
}

// reviewVersions are the versions of ConversionReview that we speak.
var reviewVersions = []string{"v1", "v1beta1"}

func knowsReview(versions []string) bool {
	return slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(reviewVersions, v) })
}

func (c definitionCheck) conversion(at *field.Path) field.ErrorList {
	v := c.spec.Conversion
	if v == nil {
		return nil
	}
	errs := validWord(v.Strategy, at.Child("strategy"), apiextensions.NoneConverter, apiextensions.WebhookConverter)
	client, versions := at.Child("webhookClientConfig"), at.Child("conversionReviewVersions")
	if v.Strategy != apiextensions.WebhookConverter {
		const why = "should not be set when strategy is not set to Webhook"
		if v.WebhookClientConfig != nil {
			errs = append(errs, field.Forbidden(client, why))
		}
		if len(v.ConversionReviewVersions) > 0 {
			errs = append(errs, field.Forbidden(versions, why))
		}
		return errs
	}
	if v.WebhookClientConfig == nil {
		errs = append(errs, field.Required(client, "required when strategy is set to Webhook"))
	} else {
		errs = append(errs, c.converter(v.WebhookClientConfig, client)...)
	}
	return append(errs, c.reviews(v.ConversionReviewVersions, versions)...)
}

func (c definitionCheck) converter(w *apiextensions.WebhookClientConfig, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case (w.URL == nil) == (w.Service == nil):
		errs = append(errs, field.Required(at, "exactly one of url or service is required"))
	case w.URL != nil:
		errs = api.ValidateWebhookURL(*w.URL, at.Child("url"))
	default:
		errs = api.ValidateWebhookService(w.Service.Namespace, w.Service.Name, w.Service.Path, w.Service.Port, at.Child("service"))
	}
	// A bundle that nobody has used yet may still be wrong, and one that was so may
	// stay.
	if len(w.CABundle) > 0 && c.established() {
		before := c.old.Spec.Conversion
		if before == nil || before.WebhookClientConfig == nil || len(api.ValidateCABundle(before.WebhookClientConfig.CABundle, at)) == 0 {
			errs = append(errs, api.ValidateCABundle(w.CABundle, at.Child("caBundle"))...)
		}
	}
	return errs
}

func (c definitionCheck) reviews(versions []string, at *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		for _, complaint := range utilvalidation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, complaint))
		}
	}
	var before []string
	if c.old != nil && c.old.Spec.Conversion != nil {
		before = c.old.Spec.Conversion.ConversionReviewVersions
	}
	if !knowsReview(versions) && (len(before) == 0 || knowsReview(before)) {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of "+strings.Join(reviewVersions, ", ")))
	}
	return errs
}

// validStoredVersions wants those that may still be in etcd to be known.
func validStoredVersions(stored []string, versions []apiextensions.CustomResourceDefinitionVersion, at *field.Path) field.ErrorList {
	if len(stored) == 0 {
		return field.ErrorList{field.Invalid(at, stored, "must have at least one stored version")}
	}
	var errs field.ErrorList
	known := map[string]bool{}
	for _, v := range versions {
		// One of a name that was there before counts as another to upstream.
		if v.Storage && (known[v.Name] || !slices.Contains(stored, v.Name)) {
			errs = append(errs, field.Invalid(at, stored, "must have the storage version "+v.Name))
		}
		known[v.Name] = true
	}
	for i, v := range stored {
		if !known[v] {
			errs = append(errs, field.Invalid(at.Index(i), v, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", v)))
		}
	}
	return errs
}

// validApproval wants what is in a group of the Kubernetes community to say where
// it was approved, unless it said the same before.
func validApproval(now, old *apiextensions.CustomResourceDefinition) field.ErrorList {
	if !apihelpers.IsProtectedCommunityGroup(now.Spec.Group) {
		return nil
	}
	state, reason := apihelpers.GetAPIApprovalState(now.Annotations)
	if old != nil {
		if before, _ := apihelpers.GetAPIApprovalState(old.Annotations); before == state {
			return nil
		}
	}
	const key = apiextensionsv1.KubeAPIApprovedAnnotation
	at := field.NewPath("metadata", "annotations").Key(key)
	switch state {
	case apihelpers.APIApproved, apihelpers.APIApprovalBypassed:
		return nil
	case apihelpers.APIApprovalMissing:
		return field.ErrorList{field.Required(at, reason)}
	}
	return field.ErrorList{field.Invalid(at, now.Annotations[key], reason)}
}
