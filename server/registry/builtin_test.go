package registry

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestKindsMatchDiscovery compares every row and subresource with what an
// upstream control plane's discovery says (testdata/kinds.txt).
func TestKindsMatchDiscovery(t *testing.T) {
	all := sets.New("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
	var got []string
	for _, k := range NewBuiltinTable().Kinds() {
		got = append(got, discoveryLine(k, k.Plural, k.GroupVersionKind.Kind, k.Verbs, all, k.Singular, k.Short, k.Categories))
		for name, sub := range k.Sub {
			kind := k.GroupVersionKind.Kind
			if !sub.Kind.Empty() {
				kind = sub.Kind.Kind
				if sub.Kind.GroupVersion() != k.GroupVersion() {
					kind = sub.Kind.GroupVersion().String() + " " + kind
				}
			}
			got = append(got, discoveryLine(k, k.Plural+"/"+name, kind, sub.Verbs, all, "", nil, nil))
		}
	}
	compareLines(t, "testdata/kinds.txt", got)
}

func discoveryLine(k *Kind, name, kind string, verbs []string, all sets.Set[string], singular string, short, categories []string) string {
	scope := "cluster"
	if k.Namespaced {
		scope = "namespaced"
	}
	v := strings.Join(verbs, ",")
	if verbs == nil || sets.New(verbs...).Equal(all) {
		v = "*"
	}
	dash := func(s string) string { return orElse(s, "-") }
	return fmt.Sprintf("%s %s %s %s %s %s %s %s", k.GroupVersion(), name, kind, scope, v, dash(singular), dash(strings.Join(short, ",")), dash(strings.Join(categories, ",")))
}

func compareLines(t *testing.T, file string, got []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(got)
	want := strings.Split(strings.TrimSpace(string(data)), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-%s +table):\n%s", file, diff)
	}
}

// TestRowsAreWhole checks what every row must have.
func TestRowsAreWhole(t *testing.T) {
	scheme := Scheme()
	prefixes := map[string]string{}
	for _, k := range NewBuiltinTable().Kinds() {
		name := k.GroupVersionKind.String()
		checkType(t, scheme, k, k.New(), k.GroupVersionKind.Kind)
		if k.Can("list") {
			checkType(t, scheme, k, k.NewList(), k.GroupVersionKind.Kind+"List")
		}
		if k.Store == nil && k.Can("create") {
			if other := prefixes[k.Prefix]; other != "" {
				t.Errorf("%s and %s share the prefix %q", name, other, k.Prefix)
			}
			prefixes[k.Prefix] = name
		}
		for sub, s := range k.Sub {
			if s.New == nil || len(s.Verbs) == 0 {
				t.Errorf("%s/%s has no type or no verbs", name, sub)
			}
			if (s.Get == nil) != (s.Put == nil) {
				t.Errorf("%s/%s has one of Get and Put", name, sub)
			}
		}
		if cells := k.Row(k.New()); k.Can("list") && len(cells) != len(k.Columns) {
			t.Errorf("%s: %d cells for %d columns", name, len(cells), len(k.Columns))
		}
		// Nothing falls over an empty object, which a client may send.
		obj := k.New()
		if k.Default != nil {
			k.Default(obj)
		}
		if k.Validate != nil {
			hub := k.Hub()
			empty := hub.New()
			if hub == k {
				empty = obj
			}
			k.Validate(empty, nil)
			k.Validate(empty, hub.New())
			k.Validate(hub.New(), nil)
		}
		if k.Fields != nil && len(k.Fields(obj)) == 0 {
			t.Errorf("%s: no fields of an empty object", name)
		}
	}
}

func checkType(t *testing.T, scheme *runtime.Scheme, k *Kind, obj runtime.Object, kind string) {
	t.Helper()
	gvks, _, err := scheme.ObjectKinds(obj)
	if err != nil || gvks[0] != k.GroupVersion().WithKind(kind) {
		t.Errorf("%s of %s: scheme knows %T as %v, %v", kind, k.GroupVersion(), obj, gvks, err)
	}
}

// TestPrepareGuardsStatus checks for every kind with a /status that writing the
// one half leaves the other alone, and that the object keeps its type.
func TestPrepareGuardsStatus(t *testing.T) {
	for _, k := range NewBuiltinTable().Kinds() {
		status, ok := k.Sub["status"]
		if !ok {
			continue
		}
		old := k.New()
		k.Prepare(t.Context(), old, nil)
		obj := old.DeepCopyObject()
		k.Prepare(t.Context(), obj, old)
		if diff := cmp.Diff(old, obj); diff != "" {
			t.Errorf("%s: preparing an unchanged object changes it:\n%s", k.GroupVersionKind, diff)
		}
		status.Prepare(t.Context(), obj, old)
		if g := obj.(metav1.Object).GetGeneration(); g != old.(metav1.Object).GetGeneration() {
			t.Errorf("%s: a status write changes the generation to %d", k.GroupVersionKind, g)
		}
	}
}

// Go clients speak protobuf to every built-in kind.
func TestProtobufForms(t *testing.T) {
	type form interface {
		Marshal() ([]byte, error)
		Unmarshal([]byte) error
	}
	for _, k := range NewBuiltinTable().Kinds() {
		if _, ok := k.New().(form); !ok {
			t.Errorf("%s has no protobuf form", k.GroupVersionKind)
		}
		for name, sub := range k.Sub {
			if sub.New == nil {
				continue
			}
			if _, ok := sub.New().(form); !ok {
				t.Errorf("%s/%s has no protobuf form", k.GroupVersionKind, name)
			}
		}
	}
}
