package run

import (
	"regexp"
	"strings"

	"orrery.dev/test/conformance/suite"
)

// group is tests that one Ginkgo runs.
type group struct {
	name  string
	tests []suite.Test
	procs int
}

// waiting are the tests that take minutes, nearly all of it waiting for
// something not to happen. Ginkgo shuffles, and one of these begun last would
// prolong the run by all its time; so they have processes of their own from the
// start.
var waiting = regexp.MustCompile(strings.Join([]string{
	`chunking should support continue listing .* compacted away`,
	`Scaling should happen in predictable order`,
	`issue 500 podspec updates`,
	`CronJob should not schedule jobs when suspended`,
	`ImageVolume should succeed with pod and pull policy of Always`,
	`should \*not\* be restarted with a`,
	`should perform rolling updates and roll backs`,
	`failing subpath expansion can be modified`,
	`monotonically increasing restart count`,
}, "|"))

// waitingProcs is enough for each of them to wait at the same time: they need next
// to no processor, and the longest alone takes ten minutes.
const waitingProcs = 12

// plan sorts the tests into phases. The groups of a phase run at the same time,
// the phases one after another.
func plan(tests []suite.Test, procs int) [][]group {
	long, short, serial := group{name: "long"}, group{name: "parallel", procs: procs}, group{name: "serial"}
	for _, t := range tests {
		switch {
		case t.Serial:
			serial.tests = append(serial.tests, t)
		case procs > 1 && waiting.MatchString(t.Name):
			long.tests = append(long.tests, t)
		default:
			short.tests = append(short.tests, t)
		}
	}
	long.procs = min(waitingProcs, len(long.tests))
	short.procs = min(procs, len(short.tests))
	serial.procs = 1
	var phases [][]group
	for _, phase := range [][]group{{long, short}, {serial}} {
		var groups []group
		for _, g := range phase {
			if len(g.tests) > 0 {
				groups = append(groups, g)
			}
		}
		if len(groups) > 0 {
			phases = append(phases, groups)
		}
	}
	return phases
}

// focus is an expression that matches these tests and no other.
func (g group) focus() string {
	names := make([]string, 0, len(g.tests))
	for _, t := range g.tests {
		names = append(names, regexp.QuoteMeta(t.Name))
	}
	return "(" + strings.Join(names, "|") + ")$"
}

// find is the test whose name Ginkgo printed with labels behind it. Names may
// begin alike, so the longest counts.
func (g group) find(printed string) (suite.Test, bool) {
	var found suite.Test
	for _, t := range g.tests {
		if strings.HasPrefix(printed, t.Name) && len(t.Name) > len(found.Name) {
			found = t
		}
	}
	return found, found.Name != ""
}
