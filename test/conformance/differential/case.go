package differential

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Case is a number of requests, in order, in a namespace of its own. In the text
// form, "=== name" begins a case and "METHOD /path" a step; lines with > after it
// are headers, lines with < keep a value of the answer for later steps, lines with
// ? name a value that the answer must have, or else the step is sent again, and the
// rest is the body:
//
//	=== configmaps/stale
//	POST /api/v1/namespaces/${ns}/configmaps
//	> Accept: application/json
//	< version = metadata.resourceVersion
//	? code = 201
//	metadata: {name: a}
//
// A body is YAML, sent as JSON, unless a Content-Type is given; ${ns} is the case's
// namespace. A line with # in front of everything is a comment.
type Case struct {
	Name  string
	Steps []Step
	Kind  string // that it is about: cases of different kinds may be played at once

	// Cases with the same Shared have one namespace, and Prepare is played in it
	// before the first.
	Shared  string
	Prepare []Step
}

// Step is one request.
type Step struct {
	Method, Path string
	Header       map[string]string
	Body         string
	Keep         map[string]string // name to path in the answer
	Until        map[string]string // path in the answer, or "code", to what it must be
	Quiet        bool              // prepares; is not compared
	Valid        bool              // upstream must accept it
}

var request = regexp.MustCompile(`^(-?)(GET|POST|PUT|PATCH|DELETE|OPTIONS|HEAD|FOO) (/\S*)$`)

// parse reads the text form.
func parse(r io.Reader) ([]Case, error) {
	var cases []Case
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "=== "); ok {
			cases = append(cases, Case{Name: name})
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		if len(cases) == 0 {
			if strings.TrimSpace(line) != "" {
				return nil, fmt.Errorf("line %d: no case yet", n)
			}
			continue
		}
		if err := cases[len(cases)-1].line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return cases, lines.Err()
}

func (c *Case) line(line string) error {
	if m := request.FindStringSubmatch(line); m != nil {
		c.Steps = append(c.Steps, Step{Quiet: m[1] != "", Method: m[2], Path: m[3], Header: map[string]string{}, Keep: map[string]string{}, Until: map[string]string{}})
		return nil
	}
	if len(c.Steps) == 0 {
		if strings.TrimSpace(line) == "" {
			return nil
		}
		return fmt.Errorf("%q is no request", line)
	}
	s := &c.Steps[len(c.Steps)-1]
	if header, ok := strings.CutPrefix(line, "> "); ok && s.Body == "" {
		key, value, _ := strings.Cut(header, ":")
		s.Header[key] = strings.TrimSpace(value)
		return nil
	}
	if keep, ok := strings.CutPrefix(line, "< "); ok && s.Body == "" {
		name, path, _ := strings.Cut(keep, " = ")
		s.Keep[name] = path
		return nil
	}
	if until, ok := strings.CutPrefix(line, "? "); ok && s.Body == "" {
		path, value, _ := strings.Cut(until, " = ")
		s.Until[path] = value
		return nil
	}
	if s.Body != "" || strings.TrimSpace(line) != "" {
		s.Body += line + "\n"
	}
	return nil
}
