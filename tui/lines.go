package tui

import (
	"regexp"
	"strings"
	"sync"
)

// lines is what a pager shows: a ring of raw lines with a bound in bytes. Lines
// have numbers that never change: the first that is still there is first.
// It is safe for concurrent use, and knows nothing of terminals.
type lines struct {
	changed func()
	limit   int

	mu      sync.Mutex // protects the fields below
	text    []string
	first   int // number of text[0]
	bytes   int
	dropped int // lines that went because of limit
	filter  *regexp.Regexp
	inverse bool
	match   []int                    // numbers of the lines that the filter keeps, if there is one
	view    func(line string) string // how a line is shown; nil is as it is
}

func newLines(limit int, changed func()) *lines { return &lines{limit: limit, changed: changed} }

// add appends lines; the oldest go when there are too many bytes.
func (l *lines) add(more ...string) {
	l.mu.Lock()
	for _, line := range more {
		l.text = append(l.text, line)
		l.bytes += len(line) + 1
		if l.filter != nil && l.keepsLocked(line) {
			l.match = append(l.match, l.first+len(l.text)-1)
		}
	}
	gone := 0
	for l.limit > 0 && l.bytes > l.limit && gone < len(l.text)-1 {
		l.bytes -= len(l.text[gone]) + 1
		l.text[gone] = ""
		gone++
	}
	if gone > 0 {
		l.text = l.text[gone:]
		l.first += gone
		l.dropped += gone
		for len(l.match) > 0 && l.match[0] < l.first {
			l.match = l.match[1:]
		}
	}
	l.mu.Unlock()
	l.changed()
}

// set replaces everything.
func (l *lines) set(text []string) {
	l.mu.Lock()
	l.text, l.first, l.bytes, l.dropped, l.match = nil, 0, 0, 0, nil
	l.mu.Unlock()
	l.add(text...)
}

// keep shows only the lines that expr matches, or does not; nil shows all.
func (l *lines) keep(expr *regexp.Regexp, inverse bool) {
	l.mu.Lock()
	l.filter, l.inverse = expr, inverse
	l.sieveLocked()
	l.mu.Unlock()
	l.changed()
}

// show changes how lines are shown, and with it what a filter sees of them.
func (l *lines) show(view func(line string) string) {
	l.mu.Lock()
	l.view = view
	l.sieveLocked()
	l.mu.Unlock()
	l.changed()
}

func (l *lines) sieveLocked() {
	l.match = nil
	if l.filter == nil {
		return
	}
	for i, line := range l.text {
		if l.keepsLocked(line) {
			l.match = append(l.match, l.first+i)
		}
	}
}

func (l *lines) keepsLocked(line string) bool {
	return strings.HasPrefix(line, dividerHead) || l.filter.MatchString(stripANSI(l.shownLocked(line))) != l.inverse
}

func (l *lines) shownLocked(line string) string {
	if l.view == nil {
		return line
	}
	return l.view(line)
}

// end is the number that the next line will have.
func (l *lines) end() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first + len(l.text)
}

// size is how many lines there are to show, and how many were dropped.
func (l *lines) size() (n, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filter != nil {
		return len(l.match), l.dropped
	}
	return len(l.text), l.dropped
}

// at is the line shown in place i, and its number.
func (l *lines) at(i int) (line string, number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filter != nil {
		if i >= len(l.match) {
			return "", 0
		}
		i = l.match[i] - l.first
	}
	if i < 0 || i >= len(l.text) {
		return "", 0
	}
	return l.shownLocked(l.text[i]), l.first + i
}

// all is everything shown.
func (l *lines) all() []string {
	n, _ := l.size()
	out := make([]string, 0, n)
	for i := range n {
		line, _ := l.at(i)
		out = append(out, line)
	}
	return out
}
