package edit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
	"orrery.dev/edit"
)

const base = `{"spec":{"replicas":1,"list":[{"name":"a","image":"1"},{"name":"b","image":"1"}],"args":["x"]},"metadata":{"labels":{"a":"1"}}}`

func read(t *testing.T, text string) map[string]any {
	t.Helper()
	object, err := edit.Read(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

func written(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func paths(conflicts []api.Conflict) string {
	var out []string
	for _, c := range conflicts {
		out = append(out, c.Path)
	}
	return strings.Join(out, " ")
}

// Each side's change is what is replaced in base, as "old > new".
func TestMergeByField(t *testing.T) {
	const a, b = `{"name":"a","image":"1"}`, `{"name":"b","image":"1"}`
	for name, c := range map[string]struct{ mine, theirs, want, conflicts string }{
		"different fields":             {`"replicas":1 > "replicas":2`, `"a":"1" > "a":"1","b":"2"`, `"replicas":1 > "replicas":2; "a":"1" > "a":"1","b":"2"`, ""},
		"items of a list by name":      {a + ` > {"name":"a","image":"2"}`, b + ` > {"name":"b","image":"3"}`, a + ` > {"name":"a","image":"2"}; ` + b + ` > {"name":"b","image":"3"}`, ""},
		"an item that went":            {a + `, > `, b + ` > {"name":"b","image":"3"}`, a + `, > ; ` + b + ` > {"name":"b","image":"3"}`, ""},
		"an item that came":            {b + ` > ` + b + `,{"name":"c"}`, `"replicas":1 > "replicas":3`, b + ` > ` + b + `,{"name":"c"}; "replicas":1 > "replicas":3`, ""},
		"an item that they put first":  {a + ` > {"name":"a","image":"2"}`, a + ` > {"name":"0"},` + a, a + ` > {"name":"0"},{"name":"a","image":"2"}`, ""},
		"items that were moved":        {a + `,` + b + ` > ` + b + `,` + a, b + ` > {"name":"b","image":"3"},{"name":"c"}`, a + `,` + b + ` > {"name":"b","image":"3"},{"name":"c"},` + a, ""},
		"a field that went":            {`"replicas":1, > `, ``, `"replicas":1, > `, ""},
		"the same change":              {`"replicas":1 > "replicas":2`, `"replicas":1 > "replicas":2`, `"replicas":1 > "replicas":2`, ""},
		"1 is 1.0":                     {`"replicas":1 > "replicas":1.0`, `"replicas":1 > "replicas":2`, `"replicas":1 > "replicas":2`, ""},
		"a true conflict stays theirs": {`"replicas":1 > "replicas":2`, `"replicas":1 > "replicas":3`, `"replicas":1 > "replicas":3`, "spec.replicas"},
		"changed and taken away":       {`"replicas":1, > `, `"replicas":1 > "replicas":3`, `"replicas":1 > "replicas":3`, "spec.replicas"},
		"null is not taken away":       {`"replicas":1 > "replicas":null`, `"replicas":1, > `, `"replicas":1, > `, "spec.replicas"},
		"null is a value":              {`"replicas":1 > "replicas":null`, ``, `"replicas":1 > "replicas":null`, ""},
		"both add the same field":      {`"args" > "more":{"x":1},"args"`, `"args" > "more":{"y":1},"args"`, `"args" > "more":{"x":1,"y":1},"args"`, ""},
		"lists without names":          {`["x"] > ["x","y"]`, `["x"] > ["x","z"]`, `["x"] > ["x","z"]`, "spec.args"},
		"an item both changed":         {a + ` > {"name":"a","image":"2"}`, a + ` > {"name":"a","image":"3"}`, a + ` > {"name":"a","image":"3"}`, "spec.list[name=a].image"},
		"names with dots":              {`"a":"1" > "x.dev/a":"1"`, `"a":"1" > "a":"1","x.dev/a":"2"`, `"a":"1" > "x.dev/a":"2"`, "metadata.labels[x.dev/a]"},
		"a kind of value for another":  {`["x"] > {"x":1}`, `["x"] > "x"`, `["x"] > "x"`, "spec.args"},
	} {
		t.Run(name, func(t *testing.T) {
			merged, conflicts := edit.Merge(read(t, base), changed(t, c.mine), changed(t, c.theirs), nil)
			if got, want := written(t, merged), written(t, changed(t, c.want)); got != want {
				t.Errorf("merged:\n%s, want\n%s", got, want)
			}
			if got := paths(conflicts); got != c.conflicts {
				t.Errorf("conflicts: %q, want %q", got, c.conflicts)
			}
		})
	}
}

func changed(t *testing.T, changes string) map[string]any {
	text := base
	for change := range strings.SplitSeq(changes, "; ") {
		was, now, ok := strings.Cut(change, " > ")
		if ok && !strings.Contains(text, was) {
			t.Fatalf("%s is not in %s", was, text)
		}
		text = strings.Replace(text, was, now, 1)
	}
	return read(t, text)
}

func TestWhatKeysAList(t *testing.T) {
	for name, c := range map[string]struct{ base, mine, theirs, want string }{
		"a volume mounted twice, by its paths": {`[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b"}]`, `[{"name":"v","mountPath":"/a","readOnly":true},{"name":"v","mountPath":"/b"}]`,
			`[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b"},{"name":"w","mountPath":"/c"}]`, `[{"mountPath":"/a","name":"v","readOnly":true},{"mountPath":"/b","name":"v"},{"mountPath":"/c","name":"w"}]`},
		"ports that a number tells apart": {`[{"port":80}]`, `[{"port":80.0,"name":"web"}]`, `[{"port":80,"nodePort":30000}]`, `[{"name":"web","nodePort":30000,"port":80}]`},
		"an empty list":                   {`[]`, `[{"name":"a"}]`, `[{"name":"b"}]`, `[{"name":"a"},{"name":"b"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			list := func(text string) map[string]any { return read(t, `{"list":`+text+`}`) }
			merged, conflicts := edit.Merge(list(c.base), list(c.mine), list(c.theirs), nil)
			if got := written(t, merged); got != `{"list":`+c.want+`}` || len(conflicts) > 0 {
				t.Errorf("%s, %q, want %s", got, paths(conflicts), c.want)
			}
		})
	}
}

func TestAChoiceSettlesAConflict(t *testing.T) {
	was, mine, theirs := read(t, `{"a":1,"b":1}`), read(t, `{"a":2,"b":null}`), read(t, `{"a":3}`)
	merged, conflicts := edit.Merge(was, mine, theirs, map[string]api.Side{"a": api.Mine, "b": api.Theirs})
	if got := written(t, merged); got != `{"a":2}` {
		t.Errorf("merged: %s", got)
	}
	// A side without the field says nothing, one that has it as null says so.
	if got := written(t, conflicts); got != `[{"path":"a","base":1,"mine":2,"theirs":3},{"path":"b","base":1,"mine":null}]` {
		t.Errorf("conflicts: %s", got)
	}
}

func TestHandler(t *testing.T) {
	ask := func(method, body string) (int, string) {
		w := httptest.NewRecorder()
		edit.Handler().ServeHTTP(w, httptest.NewRequest(method, api.MergePath, strings.NewReader(body)))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	const large = `9007199254740993` // no float64 holds it
	code, got := ask(http.MethodPost, `{"base":{"a":1,"b":1,"n":`+large+`},"mine":{"a":2,"b":1,"n":`+large+`},"theirs":{"a":1,"b":3,"n":`+large+`}}`)
	if want := `{"object":{"a":2,"b":3,"n":` + large + `},"conflicts":[]}`; code != 200 || got != want {
		t.Errorf("%d %s, want %s", code, got, want)
	}
	code, got = ask(http.MethodPost, `{"base":{"a":1},"mine":{"a":2},"theirs":{"a":3},"choices":{"a":"mine"}}`)
	if want := `{"object":{"a":2},"conflicts":[{"path":"a","base":1,"mine":2,"theirs":3}]}`; code != 200 || got != want {
		t.Errorf("%d %s, want %s", code, got, want)
	}
	for body, want := range map[string]int{`{"base":`: 400, `{"base":"` + strings.Repeat("x", 11<<20) + `"}`: 413} {
		if code, got := ask(http.MethodPost, body); code != want || !strings.Contains(got, `"kind":"Status"`) {
			t.Errorf("%d %s, want %d", code, got, want)
		}
	}
	if code, _ := ask(http.MethodGet, ""); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", code)
	}
}

func TestRead(t *testing.T) {
	object := read(t, "a: 9007199254740993\nb: 1.0\nc: null\nd: \"1\"\n# e: 1\n")
	if got := written(t, object); got != `{"a":9007199254740993,"b":1,"c":null,"d":"1"}` {
		t.Errorf("%s", got)
	}
	for _, text := range []string{"", "a: 1\na: 2", "a: [", "just text"} {
		if object, err := edit.Read(text); err == nil {
			t.Errorf("%q: %v", text, object)
		}
	}
}

func TestReasonsHaveTheirPlaces(t *testing.T) {
	const text = `kind: Deployment
metadata:
  annotations:
    example.dev/a: x
spec:
  replicas: two
  template:
    spec:
      containers:
      - image: web:1
        name: web
      - name: side
        image: side:1
        ports:
        - containerPort: many
`
	kind := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	_, broken := edit.Read("a: 1\nb: [\n")
	_, twice := edit.Read("a: 1\nb: 1\na: 2\n")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"invalid fields": {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), -1, "too few"),
			field.Required(field.NewPath("spec", "template", "spec", "containers").Index(1).Child("image"), "")}), "6 spec.replicas, 13 spec.template.spec.containers[1].image"},
		"a key with dots":          {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key("example.dev/a"), "x", "bad")}), "4 metadata.annotations[example.dev/a]"},
		"what is missing is above": {apierrors.NewInvalid(kind, "web", field.ErrorList{field.Required(field.NewPath("spec", "selector"), "")}), "5 spec.selector"},
		"unknown fields":           {apierrors.NewBadRequest(`strict decoding error: unknown field "spec.template.spec.containers[0].name", unknown field "metadata.x"`), "11 spec.template.spec.containers[0].name, 2 metadata.x"},
		"another type":             {errors.New("json: cannot unmarshal string into Go struct field DeploymentSpec.spec.template.spec.containers.ports.containerPort of type int32"), "15 spec.template.spec.containers.ports.containerPort"},
		"no field":                 {apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no")), "0 "},
		"broken YAML":              {broken, "2 "},
		"a field twice":            {twice, "3 "},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range edit.Reasons(c.err, text) {
				if r.Text == "" {
					t.Errorf("%+v says nothing", r)
				}
				got = append(got, fmt.Sprint(r.Line, " ", r.Field))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%q, want %q (of %v)", strings.Join(got, ", "), c.want, c.err)
			}
		})
	}
}
