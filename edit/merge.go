package edit

import (
	"fmt"
	"slices"
	"strings"

	"orrery.dev/api"
)

// absent stands for a field that is not there, which is not the same as null.
type absent struct{}

type fields = map[string]any

// Merge does to theirs what was done from base to mine; lists whose items have names go
// by the names. A field that both changed is a conflict, and stays theirs unless the
// choice for its path is otherwise. The values are those of decoded JSON; none of them
// is changed, and merged shares with them.
func Merge(base, mine, theirs any, choices map[string]api.Side) (merged any, conflicts []api.Conflict) {
	m := merging{choices: choices}
	merged = m.value("", base, mine, theirs)
	return merged, m.conflicts
}

type merging struct {
	choices   map[string]api.Side
	conflicts []api.Conflict
}

func (m *merging) value(path string, base, mine, theirs any) any {
	switch {
	case same(base, mine):
		return theirs
	case same(base, theirs), same(mine, theirs):
		return mine
	}
	if mine, theirs, ok := both[fields](mine, theirs); ok {
		was, _ := base.(fields)
		return m.fields(path, was, mine, theirs)
	}
	if mine, theirs, ok := both[[]any](mine, theirs); ok {
		was, _ := base.([]any)
		if key := keyOf(was, mine, theirs); key != "" {
			return m.list(path, key, was, mine, theirs)
		}
	}
	m.conflicts = append(m.conflicts, api.Conflict{Path: path, Base: told(base), Mine: told(mine), Theirs: told(theirs)})
	if m.choices[path] == api.Mine {
		return mine
	}
	return theirs
}

func both[T any](a, b any) (x, y T, ok bool) {
	x, first := a.(T)
	y, second := b.(T)
	return x, y, first && second
}

func told(v any) *any {
	if v == any(absent{}) {
		return nil
	}
	return &v
}

func (m *merging) fields(path string, base, mine, theirs fields) fields {
	out := fields{}
	for _, name := range sortedKeys(mine, theirs) {
		if v := m.value(below(path, name), field(base, name), field(mine, name), field(theirs, name)); v != any(absent{}) {
			out[name] = v
		}
	}
	return out
}

func field(f fields, name string) any {
	if v, ok := f[name]; ok {
		return v
	}
	return absent{}
}

func sortedKeys(all ...fields) (out []string) {
	for _, f := range all {
		for name := range f {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// below is the path of a field of what is at path, as the server writes it.
func below(path, name string) string {
	switch {
	case strings.ContainsAny(name, ".[]"):
		return path + "[" + name + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

func (m *merging) list(path, key string, base, mine, theirs []any) []any {
	out := []any{}
	for _, name := range order(names(base, key), names(mine, key), names(theirs, key)) {
		at := fmt.Sprintf("%s[%s=%v]", path, key, name)
		if v := m.value(at, item(base, key, name), item(mine, key, name), item(theirs, key, name)); v != any(absent{}) {
			out = append(out, v)
		}
	}
	return out
}

func item(list []any, key string, name any) any {
	for _, x := range list {
		if nameOf(x, key) == name {
			return x
		}
	}
	return absent{}
}

// keys are what tells the items of a list apart, where they have it: as the API's own
// list-map-keys are, for nearly all kinds.
var keys = []string{"name", "mountPath", "containerPort", "port", "type", "key", "uid", "ip", "topologyKey", "host", "path"}

// keyOf finds the field by which all the lists are keyed, without doubles.
func keyOf(lists ...[]any) string {
	at := slices.IndexFunc(keys, func(key string) bool {
		return !slices.ContainsFunc(lists, func(list []any) bool { return !keyed(list, key) })
	})
	if at < 0 {
		return ""
	}
	return keys[at]
}

func keyed(list []any, key string) bool {
	seen := map[any]bool{}
	for _, x := range list {
		name := nameOf(x, key)
		if name == nil || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

func names(list []any, key string) (out []any) {
	for _, x := range list {
		out = append(out, nameOf(x, key))
	}
	return out
}

// nameOf is the value of an item's key; nil if it has none that can be one.
func nameOf(x any, key string) any {
	f, _ := x.(fields)
	switch v := f[key].(type) {
	case string, bool:
		return v
	case int64, float64:
		return number(v)
	}
	return nil
}

// order is that of theirs, or of mine if the user moved what was there before; what
// only the other has stands behind what it stands behind there.
func order(base, mine, theirs []any) []any {
	out, other := slices.Clone(theirs), mine
	if !slices.Equal(among(base, mine), among(mine, base)) {
		out, other = slices.Clone(mine), theirs
	}
	at := 0
	for _, name := range other {
		if i := slices.Index(out, name); i >= 0 {
			at = i + 1
			continue
		}
		out = slices.Insert(out, at, name)
		at++
	}
	return out
}

// among are those of names that are also in others.
func among(names, others []any) (out []any) {
	for _, n := range names {
		if slices.Contains(others, n) {
			out = append(out, n)
		}
	}
	return out
}

// same compares as JSON does: 1 is 1.0.
func same(a, b any) bool {
	switch a := a.(type) {
	case fields:
		b, ok := b.(fields)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, v := range a {
			if other, ok := b[name]; !ok || !same(v, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	}
	return number(a) == number(b)
}

// number makes an integer of a float that is one.
func number(v any) any {
	if f, ok := v.(float64); ok && f >= -1<<63 && f < 1<<63 && f == float64(int64(f)) {
		return int64(f)
	}
	return v
}
