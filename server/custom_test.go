package server

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"orrery.dev/server/registry"
)

// widgets is a custom kind as a CustomResourceDefinition would make it.
func widgets() *registry.Kind {
	kind := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}
	return &registry.Kind{
		GroupVersionKind: kind, Plural: "widgets", Singular: "widget", Namespaced: true, JSON: true, Prefix: "example.org/widgets",
		New: func() runtime.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(kind)
			return u
		},
		NewList: func() runtime.Object { return &unstructured.UnstructuredList{} },
	}
}

// TestCustomKind goes through the life of objects of a kind that comes and goes
// while the server runs.
func TestCustomKind(t *testing.T) {
	c := start(t)
	row := widgets()
	c.server.Kinds.Put(row)
	c.await("the new kind", func() bool { return c.store.Collection(row.GroupResource()) != nil })
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	things := client.Resource(row.GroupVersionResource()).Namespace("default")
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": "one"}, "spec": map[string]any{"size": int64(1)},
	}}
	made, err := things.Create(ctx, widget, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.GetUID() == "" || len(made.GetManagedFields()) != 1 {
		t.Errorf("metadata: %v", made.Object["metadata"])
	}
	patched, err := things.Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(patched.Object, "spec", "size"); size != 2 {
		t.Errorf("patched: %v", patched.Object)
	}
	if _, err := things.Patch(ctx, "one", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("strategic merge patch: %v", err)
	}
	applied, err := things.Apply(ctx, "two", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": "two"}, "spec": map[string]any{"color": "red"},
	}}, metav1.ApplyOptions{FieldManager: "m"})
	if err != nil || applied.GetUID() == "" {
		t.Fatalf("apply: %v %v", applied, err)
	}
	list, err := things.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.GetKind() != "WidgetList" || list.Items[0].GetKind() != "Widget" {
		t.Errorf("list: %+v %v", list, err)
	}
	as := map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
	if _, body := c.do("GET", "/apis/example.org/v1/widgets", "", as); !strings.Contains(body, `"cells":["one",`) {
		t.Errorf("table: %s", body)
	}
	code, body := c.do("POST", "/apis/example.org/v1/namespaces/default/widgets", `{"metadata":{"name":"x"}}`, nil)
	if s := status(t, body); code != 400 || !strings.HasPrefix(s.Message, "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing") {
		t.Errorf("%d %s", code, body)
	}
	if err := things.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	c.server.Kinds.Remove(row.GroupVersionResource())
	if code, body := c.do("GET", "/apis/example.org/v1/widgets", "", nil); code != 404 || body != "404 page not found\n" {
		t.Errorf("after removal: %d %s", code, body)
	}
}
