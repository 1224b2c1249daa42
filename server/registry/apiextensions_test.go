package registry

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func widgetDefinition() *crd {
	return &crd{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
}

func TestDefinitionFaults(t *testing.T) {
	k := row(t, "apiextensions.k8s.io", "v1", "customresourcedefinitions")
	for name, c := range map[string]struct {
		change func(*crd)
		want   string
	}{
		"good":      {func(*crd) {}, ""},
		"name":      {func(c *crd) { c.Name = "w.example.com" }, `metadata.name: Invalid value: "w.example.com": must be spec.names.plural+"."+spec.group`},
		"no schema": {func(c *crd) { c.Spec.Versions[0].Schema = nil }, "spec.versions[0].schema.openAPIV3Schema: Required value"},
		"no type":   {func(c *crd) { c.Spec.Versions[0].Schema.OpenAPIV3Schema.Type = "" }, "spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root"},
		"untyped field": {
			func(c *crd) {
				c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"spec": {}}
			},
			"spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
		},
		"bad default": {
			func(c *crd) {
				c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte("1")}}}
			},
			`spec.validation.openAPIV3Schema.properties[size].default: Invalid value: "integer":  in body must be of type string: "integer"`,
		},
		"bad rule": {
			func(c *crd) {
				c.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = apiextensionsv1.ValidationRules{{Rule: "self.nothing"}}
			},
			"spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.nothing\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing\n | ....^",
		},
		"words nobody understands": {
			func(c *crd) { c.Spec.Versions[0].Schema.OpenAPIV3Schema.UniqueItems = true },
			"uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
		},
		"two stored": {
			func(c *crd) {
				c.Spec.Versions = append(c.Spec.Versions, *c.Spec.Versions[0].DeepCopy())
				c.Spec.Versions[1].Name = "v2"
			},
			"must have exactly one version marked as storage version",
		},
	} {
		obj := widgetDefinition()
		c.change(obj)
		made := write(t, k, obj, nil)
		errs := k.Validate(made, nil)
		for _, bad := range k.NameRule(made)(made.Name, false) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), made.Name, bad))
		}
		if name == "two stored" { // and one of them was not before
			errs = errs[:1]
		}
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || errs[0].Error() != c.want && errs[0].Detail != c.want) {
			t.Errorf("%s: got %v, want %s", name, errs, c.want)
		}
	}
	made := write(t, k, widgetDefinition(), nil)
	if len(made.Status.StoredVersions) != 1 || made.Spec.Names.ListKind != "WidgetList" || made.Generation != 1 {
		t.Errorf("created: %+v", made)
	}
}

// What was there before may be dear, though not all together, and has to compile.
func TestKnownRules(t *testing.T) {
	const dear = "self.all(a, self.all(b, a == b))" // of 3000 items: by more than one rule may, by less than all
	for name, c := range map[string]struct {
		before, now []string
		items       int64
		want        string
	}{
		"new and dear":            {nil, []string{dear}, 3000, "estimated rule cost exceeds budget"},
		"known and dear":          {[]string{dear}, []string{dear}, 3000, ""},
		"dear, beside a new one":  {[]string{dear}, []string{dear, "true"}, 3000, "estimated rule cost exceeds budget"},
		"known, too dear":         {[]string{dear}, []string{dear}, 100_000, "estimated rule cost total for entire OpenAPIv3 schema exceeds budget"},
		"new and wrong":           {nil, []string{"self.nothing"}, 1, "compilation failed"},
		"known and wrong":         {[]string{"self.nothing"}, []string{"self.nothing"}, 1, "compilation failed"},
		"wrong, and taken away":   {[]string{"self.nothing"}, nil, 1, ""},
		"wrong, and put right":    {[]string{"self.nothing"}, []string{"true"}, 1, ""},
		"right, and a wrong more": {[]string{"true"}, []string{"true", "self.nothing"}, 1, "compilation failed"},
	} {
		definition := func(rules []string) *crd {
			d := widgetDefinition()
			d.Spec.Names.Singular, d.Spec.Names.ListKind = "widget", "WidgetList"
			x := apiextensionsv1.JSONSchemaProps{
				Type: "array", MaxItems: &c.items,
				Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: ptr.To[int64](10)}},
			}
			for _, text := range rules {
				x.XValidations = append(x.XValidations, apiextensionsv1.ValidationRule{Rule: text})
			}
			d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"x": x}
			return d
		}
		errs := validateDefinition(definition(c.now), definition(c.before))
		told := func(e *field.Error) bool { return strings.Contains(e.Error(), c.want) }
		if c.want == "" && len(errs) > 0 || c.want != "" && !slices.ContainsFunc(errs, told) {
			t.Errorf("%s: got %v, want %q", name, errs, c.want)
		}
	}
}

// TestSchemaFaults gives the schema of a field "x" of a version.
func TestSchemaFaults(t *testing.T) {
	const few = 10
	text := schemaProps{Type: "string"}
	limited := func(s schemaProps) *schemaProps { s.MaxLength = ptr.To[int64](few); return &s }
	listOf := func(s *schemaProps, kind string, most *int64, keys ...string) schemaProps {
		list := schemaProps{Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: s}, MaxItems: most, XListMapKeys: keys}
		if kind != "" {
			list.XListType = &kind
		}
		return list
	}
	ruled := func(s schemaProps, rules ...apiextensions.ValidationRule) schemaProps {
		s.XValidations = rules
		return s
	}
	rule := func(r string) apiextensions.ValidationRule { return apiextensions.ValidationRule{Rule: r} }
	pair := func(key schemaProps, required ...string) *schemaProps {
		return &schemaProps{Type: "object", Properties: map[string]schemaProps{"k": key, "v": text}, Required: required}
	}
	quadratic := rule("self.all(a, self.all(b, a == b))")
	const advice = " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
	for name, c := range map[string]struct {
		x    schemaProps
		want []string
	}{
		"rule of a limited list":            {ruled(listOf(limited(text), "", ptr.To[int64](few)), quadratic), nil},
		"rule of an unlimited list":         {ruled(listOf(&text, "", nil), quadratic), []string{"x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x" + advice, "!contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema", "!x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x" + advice}},
		"rule of items of a limited list":   {listOf(ptr.To(ruled(text, rule("self.contains('x')"))), "", ptr.To[int64](1)), nil},
		"rule of items of an unlimited one": {listOf(ptr.To(ruled(text, rule("self.contains('x')"))), "", nil), []string{"items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x" + advice, "!contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema", "!x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x" + advice}},
		"message":                           {ruled(*limited(text), apiextensions.ValidationRule{Rule: "self == 'x'", MessageExpression: "'no ' + self"}), nil},
		"message that is no text":           {ruled(*limited(text), apiextensions.ValidationRule{Rule: "self == 'x'", MessageExpression: "1"}), []string{"!messageExpression must evaluate to a string"}},
		"message with lines":                {ruled(text, apiextensions.ValidationRule{Rule: "self == 'x'", Message: "a\nb"}), []string{"!must not contain line breaks"}},
		"rule with lines and no message":    {ruled(text, rule("self\n== 'x'")), []string{"x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks"}},
		"no rule":                           {ruled(text, rule(" ")), []string{"x-kubernetes-validations[0].rule: Required value: rule is not specified"}},
		"reason":                            {ruled(text, apiextensions.ValidationRule{Rule: "self == 'x'", Reason: ptr.To(apiextensions.FieldValueErrorReason("Other"))}), []string{`x-kubernetes-validations[0].reason: Unsupported value: "Other": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"`}},
		"path of no field":                  {ruled(*pair(*limited(text)), apiextensions.ValidationRule{Rule: "self.k == 'x'", FieldPath: ".z"}), []string{"!must be a valid path"}},
		"path of a field":                   {ruled(*pair(*limited(text)), apiextensions.ValidationRule{Rule: "self.k == 'x'", FieldPath: ".k"}), nil},
		"old self":                          {ruled(text, rule("self == oldSelf")), nil},
		"old self of items of a map":        {listOf(ptr.To(ruled(*pair(*limited(text), "k"), rule("self.k == oldSelf.k"))), "map", ptr.To[int64](few), "k"), nil},
		"old self of items":                 {listOf(ptr.To(ruled(*limited(text), rule("self == oldSelf"))), "set", ptr.To[int64](few)), []string{"!oldSelf cannot be used on the uncorrelatable portion of the schema within spec.versions[0].schema.openAPIV3Schema.properties[x]"}},
		"set of maps that are mixed":        {listOf(pair(text), "set", nil), []string{"!must be atomic as item of a list with x-kubernetes-list-type=set"}},
		"map without keys":                  {listOf(pair(text), "map", nil), []string{"x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"}},
		"map by what isn't always there":    {listOf(pair(text), "map", nil, "k"), []string{"items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"}},
		"map by nothing that is there":      {listOf(pair(text), "map", nil, "z"), []string{"!entries must all be names of item properties"}},
		"map by a list":                     {listOf(pair(listOf(&text, "", nil), "k"), "map", nil, "k"), []string{"!must be a scalar type if parent array's x-kubernetes-list-type is map"}},
		"keys of no map":                    {listOf(pair(text), "", nil, "k"), []string{"x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"}},
		"list type of no list":              {schemaProps{Type: "string", XListType: ptr.To("atomic")}, []string{`type: Invalid value: "string": must be array if x-kubernetes-list-type is specified`}},
		"map type":                          {schemaProps{Type: "object", XMapType: ptr.To("other")}, []string{`x-kubernetes-map-type: Unsupported value: "other": supported values: "atomic", "granular"`}},
		"type":                              {schemaProps{Type: "text"}, []string{`type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"`}},
	} {
		root := &schemaProps{Type: "object", Properties: map[string]schemaProps{"x": c.x}}
		path := field.NewPath("spec", "versions").Index(0).Child("schema", "openAPIV3Schema")
		errs := validSchema(root, path, &knownRules{})
		ok := len(errs) == len(c.want)
		for i := 0; ok && i < len(errs); i++ {
			detail, isDetail := strings.CutPrefix(c.want[i], "!")
			ok = isDetail && errs[i].Detail == detail || errs[i].Error() == path.Child("properties").Key("x").String()+"."+c.want[i]
		}
		if !ok {
			t.Errorf("%s: got %q, want %q", name, errs, c.want)
		}
	}
}
