package tui

import (
	"slices"
	"strings"
)

// command is a line typed after ":".
type command struct {
	word      string
	args      []string
	namespace string // of a kind: where to look; several with commas
	all       bool   // all namespaces
	context   string // what follows "@": which cluster
	filter    string // what follows "/", or a flagged filter
	labels    string // a label selector for the server
}

// parseCommand reads a line: a word, then namespaces, "/text", "-n namespace",
// "-f text", "-l labels", "a=b" or "@context". After dir it is a path.
func parseCommand(line string) command {
	line = strings.TrimSpace(line)
	var c command
	if word, path, ok := strings.Cut(line, " "); ok && word == "dir" {
		return command{word: word, args: []string{strings.TrimSpace(path)}}
	}
	if head, text, ok := strings.Cut(line, " /"); ok {
		c.filter, line = text, head
	} else if at := strings.Index(line, " -f "); at >= 0 {
		c.filter, line = line[at+1:], line[:at]
	}
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return c
	}
	fields = slices.DeleteFunc(fields, func(f string) bool {
		context, ok := strings.CutPrefix(f, "@")
		if ok {
			c.context = context
		}
		return ok
	})
	if len(fields) == 0 {
		return c
	}
	c.word, c.args = strings.ToLower(fields[0]), fields[1:]
	for i, arg := range c.args {
		switch {
		case arg == "-l":
			c.labels = strings.Join(c.args[i+1:], " ")
			return c
		case beginsSelector(c.args[i:]):
			c.labels = strings.Join(c.args[i:], " ")
			return c
		case arg == "all" || arg == "-A":
			c.all = true
		case arg == "-n": // as in kubectl; what follows is the namespace
		case c.namespace == "":
			c.namespace = arg
		}
	}
	return c
}

// beginsSelector tells a label selector from namespaces.
func beginsSelector(args []string) bool {
	return strings.ContainsAny(args[0], "=!(") || len(args) > 1 && (args[1] == "in" || args[1] == "notin")
}

// suggest completes the last word of a line: the first from words, others from
// what the first one takes. It returns the rest to be added.
func suggest(line string, words []string, arguments func(word string, n int) []string) string {
	done := strings.Fields(line)
	if len(done) == 0 || strings.HasSuffix(line, " ") {
		return ""
	}
	last, list := done[len(done)-1], words
	if n := len(done) - 1; n > 0 {
		list = arguments(done[0], n)
		if at := strings.LastIndexByte(last, ','); at >= 0 {
			last = last[at+1:]
		}
		if last == "" {
			return ""
		}
	}
	for _, w := range list {
		if rest, ok := strings.CutPrefix(w, last); ok && rest != "" {
			return rest
		}
	}
	return ""
}

// trail is the way that the commands went: "[" and "]" walk it, "-" turns
// between the last two places.
type trail struct {
	lines      []string
	at, before int
}

// add goes on to a new place; what was ahead is forgotten.
func (t *trail) add(line string) {
	if len(t.lines) > 0 && t.lines[t.at] == line {
		return
	}
	t.before = t.at
	t.lines = append(t.lines[:min(t.at+1, len(t.lines))], line)
	t.at = len(t.lines) - 1
}

// keep says what brings this place back as it is now.
func (t *trail) keep(line string) {
	if len(t.lines) > 0 {
		t.lines[t.at] = line
	}
}

// here is the place; nowhere is the empty line.
func (t *trail) here() string {
	if len(t.lines) == 0 {
		return ""
	}
	return t.lines[t.at]
}

// walk goes n places on; nowhere is the empty line.
func (t *trail) walk(n int) string {
	if t.at+n < 0 || t.at+n >= len(t.lines) {
		return ""
	}
	t.before, t.at = t.at, t.at+n
	return t.lines[t.at]
}

// turn goes to where it was before.
func (t *trail) turn() string { return t.walk(t.before - t.at) }

// history remembers lines, newest last, each once.
type history struct {
	lines []string
	at    int
}

func (h *history) add(line string) {
	if line == "" {
		return
	}
	h.lines = slices.DeleteFunc(h.lines, func(l string) bool { return l == line })
	h.lines = append(h.lines, line)
	h.at = len(h.lines)
}

// walk goes n lines on; past the newest is an empty line.
func (h *history) walk(n int) string {
	h.at = max(min(h.at+n, len(h.lines)), 0)
	if h.at == len(h.lines) {
		return ""
	}
	return h.lines[h.at]
}
