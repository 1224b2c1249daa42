package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// lookup finds a value in an object by a simple JSON path (".spec.size").
type lookup struct {
	mu   sync.Mutex // JSONPath keeps notes while it runs
	path *jsonpath.JSONPath
}

// newLookup makes a lookup; a path that cannot be parsed finds nothing.
func newLookup(path string) *lookup {
	p := jsonpath.New(path).AllowMissingKeys(true)
	if err := p.Parse("{" + path + "}"); err != nil {
		return &lookup{}
	}
	return &lookup{path: p}
}

// first is the first value that the path leads to.
func (l *lookup) first(obj runtime.Object) (any, bool) {
	u, ok := obj.(runtime.Unstructured)
	if !ok || l.path == nil {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found, err := l.path.FindResults(u.UnstructuredContent())
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil, false
	}
	return found[0][0].Interface(), true
}

// text is a value as the path would print it.
func (l *lookup) text(value any) any {
	var b strings.Builder
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.path.PrintResults(&b, []reflect.Value{reflect.ValueOf(value)}); err != nil {
		return nil
	}
	return b.String()
}

// printed are the columns that the author asks for, or the age if they don't
// ask for any.
func (v *customVersion) printed() []apiextensionsv1.CustomResourceColumnDefinition {
	if len(v.spec.AdditionalPrinterColumns) > 0 {
		return v.spec.AdditionalPrinterColumns
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}}
}

func (v *customVersion) columns() []Column {
	columns := []Column{nameColumn}
	for _, c := range v.printed() {
		if c.Description == "" {
			c.Description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		columns = append(columns, Column{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority})
	}
	return columns
}

func (v *customVersion) cells() func(runtime.Object) []any {
	printed := v.printed()
	paths := make([]*lookup, len(printed))
	for i, c := range printed {
		paths[i] = newLookup(c.JSONPath)
	}
	return func(obj runtime.Object) []any {
		cells := []any{obj.(metav1.Object).GetName()}
		for i, c := range printed {
			value, ok := paths[i].first(obj)
			switch {
			case !ok || value == nil && c.Type != "string":
				cells = append(cells, nil)
			case c.Type == "string":
				cells = append(cells, paths[i].text(value))
			default:
				cells = append(cells, cell(c.Type, value))
			}
		}
		return cells
	}
}

// cell is a value as a cell of a column type other than string; nil if it is
// of another type.
func cell(columnType string, value any) any {
	switch columnType {
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		case json.Number:
			if i, err := n.Int64(); err == nil {
				return i
			}
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		case json.Number:
			if f, err := n.Float64(); err == nil {
				return f
			}
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		if text, ok := value.(string); ok {
			var t metav1.Time
			if err := t.UnmarshalQueryParameter(text); err != nil {
				return "<invalid>"
			}
			return t
		}
	}
	return nil
}

func pathParts(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// scaleSub is the /scale row: the definition says where the numbers are.
func (v *customVersion) scaleSub() Subresource {
	return Subresource{
		Kind: scaleKind(), Verbs: readWrite,
		New: newObject[autoscalingv1.Scale], Path: pathParts(v.scale.SpecReplicasPath),
		Get: v.readScale, // the object's own check knows the number
		Put: func(obj, sub runtime.Object) error {
			return unstructured.SetNestedField(obj.(*unstructured.Unstructured).Object, int64(sub.(*autoscalingv1.Scale).Spec.Replicas), pathParts(v.scale.SpecReplicasPath)...)
		},
	}
}

// readScale makes the Scale of an object. If the object has no number of
// replicas it is returned all the same, for a write to set one.
func (v *customVersion) readScale(obj runtime.Object) (runtime.Object, error) {
	u := obj.(*unstructured.Unstructured)
	want, set, err1 := unstructured.NestedInt64(u.Object, pathParts(v.scale.SpecReplicasPath)...)
	have, _, err2 := unstructured.NestedInt64(u.Object, pathParts(v.scale.StatusReplicasPath)...)
	selector, err3 := "", error(nil)
	if p := v.scale.LabelSelectorPath; p != nil && *p != "" {
		selector, _, err3 = unstructured.NestedString(u.Object, pathParts(*p)...)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	s := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
			ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(want)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(have), Selector: selector},
	}
	s.SetGroupVersionKind(scaleKind())
	if !set {
		return s, fmt.Errorf("the spec replicas field %q does not exist", v.scale.SpecReplicasPath)
	}
	return s, nil
}
