package differential

import (
	"fmt"
	"regexp"
	"strings"
)

// known are differences that are expected: a pattern of case names, where * is
// anything, and why.
type known struct {
	pattern, reason string
	match           *regexp.Regexp
	met             bool
}

// parseKnown reads lines of "pattern: reason".
func parseKnown(text string) ([]*known, error) {
	var all []*known
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("line %d has no reason", n+1)
		}
		match, err := regexp.Compile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if err != nil {
			return nil, err
		}
		all = append(all, &known{pattern: pattern, reason: reason, match: match})
	}
	return all, nil
}

// knows tells whether a case may differ.
func knows(all []*known, name string) bool {
	found := false
	for _, k := range all {
		if k.match.MatchString(name) {
			k.met, found = true, true
		}
	}
	return found
}
