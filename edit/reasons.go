package edit

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Reason is something that speaks against an edit.
type Reason struct {
	Field string // its path; empty if it is about no field
	Text  string
	Line  int // in the text that was refused, from 1; 0 if it has no place there
}

func (r Reason) String() string {
	if r.Field == "" {
		return r.Text
	}
	return r.Field + ": " + r.Text
}

// Reasons are those of a refusal, each with its place in the text that was refused.
func Reasons(refusal error, text string) []Reason {
	reasons := reasonsOf(refusal)
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) != nil || len(doc.Content) == 0 {
		return reasons
	}
	for i, r := range reasons {
		if r.Field != "" {
			_, reasons[i].Line = place(doc.Content[0], pathOf(r.Field))
		}
	}
	return reasons
}

var (
	unknownField = regexp.MustCompile(`(unknown|duplicate) field "([^"]+)"`)
	wrongType    = regexp.MustCompile(`cannot unmarshal .* into Go struct field \w+\.(\S+) of type`)
	lineNumber   = regexp.MustCompile(`^(?:error converting YAML to JSON: )?(?:yaml: )?(?:unmarshal errors:\s+)?line (\d+): `)
)

// reasonsOf reads what the server names: the causes of an invalid object, fields that it
// does not know, one of another type. Otherwise there is the message alone.
func reasonsOf(refusal error) (out []Reason) {
	text := refusal.Error()
	var status apierrors.APIStatus
	if errors.As(refusal, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Field != "" {
				out = append(out, Reason{Field: c.Field, Text: c.Message})
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, m := range unknownField.FindAllStringSubmatch(text, -1) {
		out = append(out, Reason{Field: m[2], Text: m[1] + " field"})
	}
	if len(out) > 0 {
		return out
	}
	r := Reason{Text: text}
	if m := wrongType.FindStringSubmatch(text); m != nil {
		r.Field = m[1]
	} else if m := lineNumber.FindStringSubmatch(text); m != nil {
		r.Line, _ = strconv.Atoi(m[1])
	}
	return []Reason{r}
}

var pathPart = regexp.MustCompile(`\[[^\]]*\]|[^.\[\]]+`)

// pathOf takes a path apart: a.b[0].c, a[b.c/d].
func pathOf(path string) []string {
	parts := pathPart.FindAllString(path, -1)
	for i, part := range parts {
		parts[i] = strings.Trim(part, "[]")
	}
	return parts
}

// place is the line of what is at path below n, or of the nearest above it, and how many
// parts of the path there are. A list without an index is searched.
func place(n *yaml.Node, path []string) (depth, line int) {
	if len(path) == 0 {
		return 0, 0
	}
	try := func(key, value *yaml.Node, rest []string, parts int) {
		deep, at := place(value, rest)
		if at == 0 {
			at = key.Line
		}
		if line == 0 || deep+parts > depth {
			depth, line = deep+parts, at
		}
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == path[0] {
				try(n.Content[i], n.Content[i+1], path[1:], 1)
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(path[0]); err == nil {
			if i >= 0 && i < len(n.Content) {
				try(n.Content[i], n.Content[i], path[1:], 1)
			}
			break
		}
		for _, item := range n.Content {
			if deep, at := place(item, path); deep > depth {
				depth, line = deep, at
			}
		}
	}
	return depth, line
}
