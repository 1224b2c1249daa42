package registry

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
