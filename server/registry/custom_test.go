package registry

import (
	"encoding/json"
	"reflect"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
)

// customKind is the v1 row of a definition with the given parts of the version,
// in YAML.
func customKind(t *testing.T, version string) *Kind {
	t.Helper()
	crd := widgetDefinition()
	v := &crd.Spec.Versions[0]
	if err := yaml.UnmarshalStrict([]byte(version), v); err != nil {
		t.Fatal(err)
	}
	api.DefaultCustomResourceDefinition(crd)
	if errs := validateDefinition(crd, nil); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	Accept(crd, nil)
	custom, err := NewCustom(crd, Relabel)
	if err != nil {
		t.Fatal(err)
	}
	return custom.Rows[0]
}

func widget(t *testing.T, fields string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}`+fields+`}`), &u.Object); err != nil {
		t.Fatal(err)
	}
	// Integers as decoding makes them.
	data, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCoerceAndDefault(t *testing.T) {
	k := customKind(t, `
schema:
  openAPIV3Schema:
    type: object
    properties:
      spec:
        type: object
        properties:
          size: {type: integer, default: 3}
          any: {type: object, x-kubernetes-preserve-unknown-fields: true}
          note: {type: string, nullable: true}
          template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
`)
	for name, c := range map[string]struct {
		in, want string
		unknown  []string
	}{
		"default":      {`,"spec":{}`, `,"spec":{"size":3}`, nil},
		"no spec":      {``, ``, nil},
		"unknown":      {`,"spec":{"color":1},"more":{}`, `,"spec":{"size":3}`, []string{"more", "spec.color"}},
		"kept":         {`,"spec":{"any":{"thing":1}}`, `,"spec":{"any":{"thing":1},"size":3}`, nil},
		"null dropped": {`,"spec":{"size":null}`, `,"spec":{"size":3}`, nil},
		"null allowed": {`,"spec":{"note":null}`, `,"spec":{"note":null,"size":3}`, nil},
		"embedded": {
			`,"spec":{"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","foo":1},"spec":{"x":1}}}`,
			`,"spec":{"size":3,"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"x":1}}}`,
			[]string{"spec.template.metadata.foo"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := widget(t, c.in)
			unknown, err := k.Coerce(got)
			if err != nil {
				t.Fatal(err)
			}
			k.Default(got)
			if want := widget(t, c.want); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(unknown, c.unknown) {
				t.Errorf("got  %v, unknown %q\nwant %v", got.Object, unknown, want.Object)
			}
		})
	}
}

func TestCustomPrepare(t *testing.T) {
	k := customKind(t, `{subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`)
	old := widget(t, `,"spec":{"a":1},"status":{"b":1}`)
	old.SetGeneration(4)
	for name, c := range map[string]struct {
		prepare    func(obj, old runtime.Object)
		in, want   string
		generation int64
	}{
		"nothing":        {func(obj, old runtime.Object) { k.Prepare(t.Context(), obj, old) }, `,"spec":{"a":1},"status":{"b":1}`, `,"spec":{"a":1},"status":{"b":1}`, 4},
		"spec":           {func(obj, old runtime.Object) { k.Prepare(t.Context(), obj, old) }, `,"spec":{"a":2},"status":{"b":2}`, `,"spec":{"a":2},"status":{"b":1}`, 5},
		"other field":    {func(obj, old runtime.Object) { k.Prepare(t.Context(), obj, old) }, `,"spec":{"a":1},"data":1`, `,"spec":{"a":1},"data":1,"status":{"b":1}`, 5},
		"status":         {func(obj, old runtime.Object) { k.Sub["status"].Prepare(t.Context(), obj, old) }, `,"spec":{"a":2},"status":{"b":2}`, `,"spec":{"a":1},"status":{"b":2}`, 4},
		"status cleared": {func(obj, old runtime.Object) { k.Sub["status"].Prepare(t.Context(), obj, old) }, ``, `,"spec":{"a":1}`, 4},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := widget(t, c.in), widget(t, c.want)
			got.SetGeneration(99)
			want.SetGeneration(c.generation)
			c.prepare(got, old.DeepCopy())
			got.SetManagedFields(nil)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got.Object, want.Object)
			}
		})
	}
}

func TestCustomColumns(t *testing.T) {
	k := customKind(t, `
additionalPrinterColumns:
- {name: Text, type: string, jsonPath: .spec.text}
- {name: List, type: string, jsonPath: .spec.list}
- {name: Count, type: integer, jsonPath: .spec.count}
- {name: Share, type: number, jsonPath: .spec.share, priority: 1}
- {name: On, type: boolean, jsonPath: .spec.on}
- {name: Filtered, type: string, jsonPath: '.spec.list[?(@.a==2)].b'}
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	for name, c := range map[string]struct {
		in   string
		want []any
	}{
		"empty":      {``, []any{"w", nil, nil, nil, nil, nil, nil}},
		"all":        {`,"spec":{"text":"t","list":[{"a":1},{"a":2,"b":"x"}],"count":3,"share":0.5,"on":true}`, []any{"w", "t", `[{"a":1},{"a":2,"b":"x"}]`, int64(3), 0.5, true, "x"}},
		"wrong type": {`,"spec":{"text":5,"count":"many"}`, []any{"w", "5", nil, nil, nil, nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := k.Row(widget(t, c.in)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if len(k.Columns) != 7 || k.Columns[4].Priority != 1 || k.Columns[1].Description != "Custom resource definition column (in JSONPath format): .spec.text" {
		t.Errorf("columns: %+v", k.Columns)
	}
}

func TestAccept(t *testing.T) {
	first := widgetDefinition()
	first.Spec.Names.ShortNames = []string{"w"}
	api.DefaultCustomResourceDefinition(first)
	if !Accept(first, nil) || Accept(first, nil) {
		t.Error("the first acceptance is a change, the second is none")
	}
	for name, c := range map[string]struct {
		change func(*crd)
		want   string
	}{
		"none":        {func(c *crd) {}, "True NoConflicts no conflicts found"},
		"other group": {func(c *crd) { c.Spec.Group, c.Spec.Names = "example.net", first.Spec.Names }, "True NoConflicts no conflicts found"},
		"plural":      {func(c *crd) { c.Spec.Names.Plural = "widgets" }, `False PluralConflict "widgets" is already in use`},
		"short":       {func(c *crd) { c.Spec.Names.ShortNames = []string{"w", "x"} }, `False ShortNamesConflict "w" is already in use`},
		"kind":        {func(c *crd) { c.Spec.Names.Kind = "Widget" }, `False KindConflict "Widget" is already in use`},
	} {
		t.Run(name, func(t *testing.T) {
			second := widgetDefinition()
			second.Name = "things.example.com"
			second.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"}
			c.change(second)
			Accept(second, []*crd{first, second})
			got, established := "", false
			for _, condition := range second.Status.Conditions {
				switch condition.Type {
				case apiextensionsv1.NamesAccepted:
					got = string(condition.Status) + " " + condition.Reason + " " + condition.Message
				case apiextensionsv1.Established:
					established = condition.Status == apiextensionsv1.ConditionTrue
				}
			}
			if got != c.want || established != (got[0] == 'T') {
				t.Errorf("got %s, established %v, want %s", got, established, c.want)
			}
		})
	}
}
