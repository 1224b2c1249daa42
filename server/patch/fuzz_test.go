package patch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// FuzzPatch applies anything to a pod and to a custom resource: there is no
// panic, and the result is not much larger than what went in.
func FuzzPatch(f *testing.F) {
	for _, body := range []string{
		`[{"op":"add","path":"/metadata/labels/x","value":"y"},{"op":"copy","from":"/spec","path":"/metadata/annotations"}]`,
		`[{"op":"remove","path":"/spec/containers/0"},{"op":"test","path":"/a~1b~0","value":null},{"op":"move","from":"","path":"/x"}]`,
		`[{"op":"add","path":"/spec/containers/-1","value":{}},{"op":"replace","path":"/spec/containers/99999999999999999999","value":1}]`,
		`[{"op":"replace","path":""}]`,
		`[{"op":"remove","path":"/spec"},{"op":"test","path":""}]`,
		`{"spec":{"containers":[{"name":[]}]}}`,
		`{"metadata":{"labels":null,"finalizers":["a"]},"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","ports":[{"containerPort":1,"protocol":"TCP"}]}],"$retainKeys":["containers"]}}`,
		`{"spec":{"tolerations":[{"$patch":"replace"}],"$deleteFromPrimitiveList/x":[1]}}`,
		"apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}",
		"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
		"\xa1\x61a\x81\xf6",
	} {
		for kind := range uint8(5) {
			f.Add(kind, []byte(body))
		}
	}
	kinds := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType, types.ApplyCBORPatchType}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		kind := kinds[int(which)%len(kinds)]
		if which := int(which) % len(kinds); which >= 3 {
			if intent, err := NewIntent(kind, body); err == nil {
				_, _ = intent.Object()
				_ = intent.Duplicates()
			}
			return
		}
		for _, current := range []runtime.Object{
			&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
			&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}}},
		} {
			p, err := New(kind, body, "Warn")
			if err != nil {
				continue
			}
			into, size := emptyLike(current), 0
			_, _ = p.Apply(current, into, func(doc []byte, into runtime.Object) ([]error, error) {
				size = len(doc)
				return kjson.UnmarshalStrict(doc, into)
			})
			if size > 2*maxCopied+10*len(body) {
				t.Errorf("%d bytes of %s become %d", len(body), kind, size)
			}
		}
	})
}

func emptyLike(obj runtime.Object) runtime.Object {
	if _, ok := obj.(*corev1.Pod); ok {
		return &corev1.Pod{}
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

// TestCopies: many small copies are fine, and copies of copies are not.
func TestCopies(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{"a0": strings.Repeat("x", 1000)}
	apply := func(operation func(n int) string) error {
		var ops []string
		for n := range 30 {
			ops = append(ops, operation(n))
		}
		p, err := New(types.JSONPatchType, []byte("["+strings.Join(ops, ",")+"]"), "Strict")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Apply(pod, &corev1.Pod{}, func(doc []byte, into runtime.Object) ([]error, error) { return kjson.UnmarshalStrict(doc, into) })
		return err
	}
	if err := apply(func(n int) string {
		return fmt.Sprintf(`{"op":"copy","from":"/metadata/annotations/a%d","path":"/metadata/annotations/a%d"}`, n, n+1)
	}); err != nil {
		t.Errorf("thirty small copies: %v", err)
	}
	err := apply(func(n int) string { return fmt.Sprintf(`{"op":"copy","from":"/metadata","path":"/metadata/m%d"}`, n) })
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != 422 {
		t.Errorf("copies of copies: %v", err)
	}
}
