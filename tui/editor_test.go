package tui

import (
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

func TestDiffLines(t *testing.T) {
	for _, c := range [][3]string{
		{"a b c", "a b c", ""},
		{"a b c", "a x c", "- b,+ x"},
		{"a b c d e", "x b c d y", "- a,+ x,- e,+ y"},
		{"a", "a b", "+ b"},
		{"a b", "b", "- a"},
		{"a b a b", "b a", "- a,- b"},
	} {
		if got := strings.Join(diffLines(strings.Fields(c[0]), strings.Fields(c[1])), ","); got != c[2] {
			t.Errorf("%s to %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

func TestEditorOfItsOwn(t *testing.T) {
	object := unstructuredOf(fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": "shop", "namespace": "data"}, "data": fields{"door": "closed"}})
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	s := newShow(t, Config{Terminal: elsewhere{}, Editor: "not-to-be-run"}, 120, 40)
	s.await("db-0")
	of := target{kind: kind{plural: "configmaps", singular: "configmap", version: "v1", namespaced: true}, namespace: "data", name: "shop"}
	s.app.post(func() {
		s.app.cluster.any = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "ConfigMapList"}, object)
		s.app.edit(of)
	})
	s.await("edit data/shop", "door: closed", "<ctrl-s>")
	s.keys(tcell.KeyCtrlF, "closed", tcell.KeyEnter)
	s.await("edit data/shop /closed")
	s.keys("op:en?") // letters are no commands; they replace what was found
	s.await("door: op:en?")
	s.keys(tcell.KeyBackspace2, tcell.KeyCtrlS)
	s.await("-   door: closed", "+   door: op:en", "Save", "Cancel")
	s.keys(tcell.KeyEscape)
	s.keys(tcell.KeyEscape)
	s.await("what you changed is not saved", "Discard")
	s.keys(tcell.KeyEscape, tcell.KeyCtrlS)
	s.await("+   door: op:en")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("saved", "pods(all)")
	saved, err := s.app.cluster.any.Resource(gvr).Namespace("data").Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil || saved.Object["data"].(fields)["door"] != "op:en" {
		t.Errorf("%v, %v", saved, err)
	}
	s.app.post(func() { s.app.edit(of) })
	s.await("door: op:en")
	s.keys(tcell.KeyCtrlC) // nothing is lost
	s.await("pods(all)")
}
