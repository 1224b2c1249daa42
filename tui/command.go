package tui

import (
	"slices"
	"strings"
)

// command is a line typed after ":".
type command struct {
	word      string
	args      []string
	namespace string // of a kind: where to look
	all       bool   // all namespaces
	filter    string // what follows "/", or a flagged filter
	labels    string // a label selector for the server
}

// parseCommand reads a line: a word, then a namespace, "/text", "-n namespace",
// "-f text", "-l labels" or "a=b".
func parseCommand(line string) command {
	line = strings.TrimSpace(line)
	var c command
	if head, text, ok := strings.Cut(line, " /"); ok {
		c.filter, line = text, head
	} else if at := strings.Index(line, " -f "); at >= 0 {
		c.filter, line = line[at+1:], line[:at]
	}
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return c
	}
	c.word, c.args = strings.ToLower(fields[0]), fields[1:]
	for i := 0; i < len(c.args); i++ {
		arg := c.args[i]
		switch {
		case arg == "-l" && i+1 < len(c.args):
			c.labels = strings.Join(c.args[i+1:], "")
			return c
		case strings.ContainsAny(arg, "=!,("):
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

// suggest completes a line: its first word from words, its second from
// namespaces. It returns the rest to be added.
func suggest(line string, words, namespaces []string) string {
	head, last, second := strings.Cut(line, " ")
	list := words
	if second {
		list = namespaces
	} else {
		last = head
	}
	if last == "" || strings.Contains(last, " ") {
		return ""
	}
	for _, w := range list {
		if rest, ok := strings.CutPrefix(w, last); ok && rest != "" {
			return rest
		}
	}
	return ""
}

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
