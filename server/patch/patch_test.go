package patch

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

func pod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "1"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "one", Image: "x:1"}, {Name: "two", Image: "y:1"}}},
	}
}

func TestApply(t *testing.T) {
	tests := []struct {
		name  string
		kind  types.PatchType
		patch string
		// summary of the outcome: labels and images, or the error
		want     string
		problems int
	}{
		{"json replaces all by nothing", types.JSONPatchType, `[{"op":"replace","path":""}]`, "422 the server rejected our request", 0},
		{"json tests all for nothing", types.JSONPatchType, `[{"op":"remove","path":"/spec"},{"op":"test","path":""}]`, "422 the server rejected our request", 0},
		{"strategic with a key of another kind", types.StrategicMergePatchType, `{"spec":{"containers":[{"name":[]}]}}`, "422 the server rejected our request", 0},
		{"json replaces", types.JSONPatchType, `[{"op":"replace","path":"/metadata/labels/a","value":"2"}]`, "map[a:2] [x:1 y:1]", 0},
		{"json tests", types.JSONPatchType, `[{"op":"test","path":"/metadata/labels/a","value":"2"}]`, "422 the server rejected our request due to an error in our request", 0},
		{"json of another kind", types.JSONPatchType, `{"op":"add"}`, "400 error decoding patch: json: cannot unmarshal object into Go value of type []patch.jsonPatchOp", 0},
		{"json with an unknown field", types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/b","value":"2","why":1}]`, "map[a:1 b:2] [x:1 y:1]", 1},
		{"merge removes", types.MergePatchType, `{"metadata":{"labels":{"a":null,"b":"2"}}}`, "map[b:2] [x:1 y:1]", 0},
		{"merge replaces lists", types.MergePatchType, `{"spec":{"containers":[{"name":"one","image":"z"}]}}`, "map[a:1] [z]", 0},
		{"merge with a duplicate", types.MergePatchType, `{"metadata":{"labels":{"a":"2"},"labels":{"a":"3"}}}`, "map[a:3] [x:1 y:1]", 1},
		{"merge with an unknown field", types.MergePatchType, `{"spec":{"foo":1}}`, "map[a:1] [x:1 y:1]", 1},
		{"merge of the wrong type", types.MergePatchType, `{"spec":{"containers":7}}`, "422", 0},
		{"strategic merges lists by key", types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"two","image":"z"}]}}`, "map[a:1] [x:1 z]", 0},
		{"strategic deletes from lists", types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"one","$patch":"delete"}]}}`, "map[a:1] [y:1]", 0},
		{"strategic with an unknown field", types.StrategicMergePatchType, `{"spec":{"foo":1}}`, "map[a:1] [x:1 y:1]", 1},
		{"strategic of several parts", types.StrategicMergePatchType, `{"metadata":{"labels":{"b":"2"}},"spec":{"containers":[{"name":"one","image":"z"}]}}`, "map[a:1 b:2] [z y:1]", 0},
		{"strategic of another part", types.StrategicMergePatchType, `{"status":{"message":"m"}}`, "map[a:1] [x:1 y:1]", 0},
		{"strategic of none", types.StrategicMergePatchType, `{}`, "map[a:1] [x:1 y:1]", 0},
		{"strategic of an unknown part", types.StrategicMergePatchType, `{"foo":1}`, "map[a:1] [x:1 y:1]", 1},
		{"strategic with a part that goes", types.StrategicMergePatchType, `{"spec":null}`, "map[a:1] []", 0},
		{"strategic with a directive about all", types.StrategicMergePatchType, `{"$patch":"replace","metadata":{"labels":{"c":"3"}}}`, "map[c:3] []", 0},
		{"strategic that is no object", types.StrategicMergePatchType, `[]`, "400", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, problems, err := apply(test.kind, test.patch)
			summary := ""
			if err != nil {
				summary = fmt.Sprintf("%d %s", apierrors.APIStatus(err.(*apierrors.StatusError)).Status().Code, err)
			} else {
				var images []string
				for _, c := range got.Spec.Containers {
					images = append(images, c.Image)
				}
				summary = fmt.Sprintf("%v %v", got.Labels, images)
			}
			if !strings.HasPrefix(summary, test.want) || len(problems) != test.problems {
				t.Errorf("got %s with %v, want %s with %d problems", summary, problems, test.want, test.problems)
			}
		})
	}
}

// read is the Decode of the tests.
func read(doc []byte, into runtime.Object) ([]error, error) {
	if u, ok := into.(*unstructured.Unstructured); ok {
		return kjson.UnmarshalStrict(doc, &u.Object)
	}
	return kjson.UnmarshalStrict(doc, into)
}

func apply(kind types.PatchType, body string) (*corev1.Pod, []error, error) {
	p, err := New(kind, []byte(body), metav1.FieldValidationWarn)
	if err != nil {
		return nil, nil, err
	}
	// Twice, as a patch is applied again when another writer interfered.
	if _, err := p.Apply(pod(), &corev1.Pod{}, read); err != nil {
		return nil, nil, err
	}
	current, into := pod(), &corev1.Pod{}
	problems, err := p.Apply(current, into, read)
	if fmt.Sprint(current) != fmt.Sprint(pod()) {
		return nil, nil, fmt.Errorf("the current object was changed")
	}
	return into, problems, err
}

func TestLimits(t *testing.T) {
	op := `{"op":"add","path":"/metadata/labels/b","value":"2"}`
	many := "[" + strings.Repeat(op+",", maxOperations) + op + "]"
	if _, _, err := apply(types.JSONPatchType, many); !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "The allowed maximum operations in a JSON patch is 10000, got 10001") {
		t.Errorf("too many operations: %v", err)
	}
}

// Validation decides what becomes of unknown fields.
func TestValidation(t *testing.T) {
	for validation, want := range map[string]string{
		metav1.FieldValidationStrict: `"" is invalid: patch: Invalid value: "map[spec:map[foo:1]]": strict decoding error: unknown field "spec.foo" []`,
		metav1.FieldValidationWarn:   `<nil> [unknown field "spec.foo"]`,
		metav1.FieldValidationIgnore: `<nil> []`,
	} {
		p, err := New(types.StrategicMergePatchType, []byte(`{"spec":{"foo":1}}`), validation)
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := p.Apply(pod(), &corev1.Pod{}, read)
		if got := strings.TrimSpace(fmt.Sprint(err, " ", warnings)); got != want {
			t.Errorf("%s: got  %s\nwant %s", validation, got, want)
		}
	}
}

func TestCustomObjects(t *testing.T) {
	current := &unstructured.Unstructured{Object: map[string]any{"kind": "Widget", "spec": map[string]any{"size": int64(1), "color": "red"}}}
	p, err := New(types.MergePatchType, []byte(`{"spec":{"size":2,"color":null}}`), metav1.FieldValidationStrict)
	if err != nil {
		t.Fatal(err)
	}
	into := &unstructured.Unstructured{}
	if _, err := p.Apply(current, into, read); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(into.Object); got != "map[kind:Widget spec:map[size:2]]" {
		t.Error(got)
	}
}

func TestIntent(t *testing.T) {
	for body, want := range map[string]string{
		"kind: ConfigMap\ndata: {a: b}\n": "map[data:map[a:b] kind:ConfigMap]",
		`{"kind":"ConfigMap"}`:            "map[kind:ConfigMap]",
		"a: 1\na: 2\n":                    "map[a:2] twice",
		"a: [":                            "error encoding patch: yaml: line 1: did not find expected node content",
		"- a":                             "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
		"":                                "map[]",
	} {
		if got := readIntent(body); got != want {
			t.Errorf("%q: got %s, want %s", body, got, want)
		}
	}
}

func readIntent(body string) string {
	intent, err := NewIntent(types.ApplyYAMLPatchType, []byte(body))
	if err != nil {
		return err.Error()
	}
	obj, err := intent.Object()
	if err != nil {
		return err.Error()
	}
	got := fmt.Sprint(obj.Object)
	if intent.Duplicates() != nil {
		got += " twice"
	}
	return got
}

// Rules of custom resources tell 1 from 1.0.
func TestIntentKeepsWholeNumbers(t *testing.T) {
	intent, err := NewIntent(types.ApplyYAMLPatchType, []byte("spec: {whole: 10, broken: 1.5}"))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := intent.Object()
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]any{"whole": int64(10), "broken": 1.5}; !reflect.DeepEqual(obj.Object["spec"], want) {
		t.Errorf("got %#v", obj.Object["spec"])
	}
}
