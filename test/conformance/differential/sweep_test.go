package differential

import (
	"fmt"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// sweepCases give every field of the object values that are wrong in one way or
// another, on create and on update.
func (o object) sweepCases() []Case {
	var all []Case
	item := o.collection + "/" + o.name
	shared := "sweep-" + strings.NewReplacer(".", "-", "/", "-").Replace(o.label)
	prepare := append([]Step{{Method: "POST", Path: o.collection, Body: text(o.Object), Quiet: true, Valid: true}}, o.settled()...)
	// The servers may have written a status in between.
	current := Step{Method: "GET", Path: item, Quiet: true, Keep: map[string]string{"version": "metadata.resourceVersion"}}
	add := func(at, how string, root map[string]any) {
		body := text(root)
		root["metadata"].(map[string]any)["resourceVersion"] = "${version}"
		versioned := text(root)
		all = append(all,
			Case{Name: fmt.Sprintf("sweep/%s/%s/%s", o.label, at, how), Shared: shared, Prepare: prepare, Steps: []Step{{Method: "POST", Path: o.collection + "?dryRun=All", Body: body}}},
			Case{Name: fmt.Sprintf("update/%s/%s/%s", o.label, at, how), Shared: shared, Prepare: prepare, Steps: []Step{current, {Method: "PUT", Path: item + "?dryRun=All", Body: versioned}}})
	}
	for _, key := range sorted(o.Object) {
		if key == "apiVersion" || key == "kind" || key == "metadata" {
			continue
		}
		o.vary(key, []any{key}, o.Object[key], add)
	}
	return all
}

// vary calls add with what the object is when the value at a path is another.
func (o object) vary(at string, path []any, value any, add func(at, how string, root map[string]any)) {
	set := func(how string, v any) {
		root := o.DeepCopy().Object
		replace(root, path, v)
		add(at, how, root)
	}
	set("none", nil)
	switch v := value.(type) {
	case map[string]any:
		set("empty", map[string]any{})
		for _, key := range sorted(v) {
			o.vary(at+"."+key, append(path[:len(path):len(path)], key), v[key], add)
		}
	case []any:
		set("empty", []any{})
		if len(v) > 0 {
			set("twice", append(runtime.DeepCopyJSONValue(v).([]any), runtime.DeepCopyJSONValue(v[0])))
		}
		for i := range v {
			o.vary(fmt.Sprintf("%s[%d]", at, i), append(path[:len(path):len(path)], i), v[i], add)
		}
	case string:
		set("empty", "")
		set("bad", "Bad_Value! ")
		set("number", int64(3))
	case int64, float64:
		set("zero", int64(0))
		set("negative", int64(-1))
		set("large", int64(1<<31-1))
		set("text", "text")
	case bool:
		set("other", !v)
	}
}

// replace sets what is at a path, or takes it away.
func replace(root any, path []any, v any) {
	for _, step := range path[:len(path)-1] {
		switch at := step.(type) {
		case string:
			root = root.(map[string]any)[at]
		case int:
			root = root.([]any)[at]
		}
	}
	switch at := path[len(path)-1].(type) {
	case string:
		if v == nil {
			delete(root.(map[string]any), at)
			return
		}
		root.(map[string]any)[at] = v
	case int:
		if v == nil {
			v = map[string]any{}
		}
		root.([]any)[at] = v
	}
}

func sorted(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
