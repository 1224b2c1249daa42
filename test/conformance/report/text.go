package report

import (
	"fmt"
	"path/filepath"
	"strings"

	"orrery.dev/test/conformance/suite"
)

// Summary is what a run prints at its end.
func (r Run) Summary(tests []suite.Test) string {
	var b strings.Builder
	for _, t := range tests {
		if result := r.Results[t.Name]; result.State == Failed {
			fmt.Fprintf(&b, "FAILED  %s\n        %s\n        %s\n", t.Name, result.Error, filepath.Join(r.Dir, result.Log))
		}
	}
	for _, t := range tests {
		if result := r.Results[t.Name]; result.State == Skipped {
			fmt.Fprintf(&b, "SKIPPED %s\n        %s\n", t.Name, result.Error)
		}
	}
	rows, sum := r.counts(tests)
	fmt.Fprintf(&b, "\n%-16s %6s %6s %6s %7s\n", "", "tests", "passed", "failed", "not run")
	for _, c := range append(rows, sum) {
		fmt.Fprintf(&b, "%-16s %6d %6d %6d %7d\n", c.sig, c.tests, c.passed, c.failed, c.notRun)
	}
	fmt.Fprintf(&b, "\n%d of %d passed in %s; results in %s\n", sum.passed, sum.tests, seconds(r.Wall), r.Dir)
	return b.String()
}

// notRunListed is up to how many tests without a result are named one by one.
const notRunListed = 40

// Markdown is the page docs/conformance.md. It names no date and no path, so it
// changes only when the results do.
func (r Run) Markdown(tests []suite.Test) string {
	rows, sum := r.counts(tests)
	var b strings.Builder
	fmt.Fprintf(&b, `# Conformance

The conformance suite of Kubernetes %s, as it was released, against orrery:
**%d of %d passed**, %d failed, %d not run.

Cluster: %s, which calls itself %s. Machine: %d cores, %d GiB. Wall time %s, with %d
tests at a time where the suite allows it. How to run it: [CONTRIBUTING.md](../CONTRIBUTING.md).
This page is written by %s.

| SIG | tests | passed | failed | not run |
| --- | ---: | ---: | ---: | ---: |
`, strings.TrimPrefix(suite.Version, "v"), sum.passed, sum.tests, sum.failed, sum.notRun,
		"`"+r.Session.Cluster+"`", r.Session.Server, r.Session.Cores, r.Session.MemoryGiB, seconds(r.Wall), r.Session.Procs,
		"`make conformance-report`")
	for _, c := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", c.sig, c.tests, c.passed, c.failed, c.notRun)
	}
	fmt.Fprintf(&b, "| **all** | **%d** | **%d** | **%d** | **%d** |\n", sum.tests, sum.passed, sum.failed, sum.notRun)
	r.list(&b, "Failed", tests, Failed)
	r.list(&b, "Skipped by the test itself", tests, Skipped)
	without := r.with(tests, notRun, Stopped)
	switch {
	case len(without) > notRunListed:
		fmt.Fprintf(&b, "\n## Not run\n\n%d tests; the run was of a part, or was stopped.\n", len(without))
	case len(without) > 0:
		fmt.Fprint(&b, "\n## Not run\n\n")
		for _, t := range without {
			fmt.Fprintf(&b, "- %s\n", code(t.Name))
		}
	}
	return b.String()
}

func (r Run) list(b *strings.Builder, title string, tests []suite.Test, state State) {
	listed := r.with(tests, state)
	if len(listed) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, t := range listed {
		fmt.Fprintf(b, "- %s\n  %s\n", code(t.Name), code(r.Results[t.Name].Error))
	}
}

// with are the tests in one of these states.
func (r Run) with(tests []suite.Test, states ...State) []suite.Test {
	var found []suite.Test
	for _, t := range tests {
		for _, s := range states {
			if r.Results[t.Name].State == s {
				found = append(found, t)
			}
		}
	}
	return found
}

// code shows text as it is, backquotes and all.
func code(text string) string {
	return "`" + strings.ReplaceAll(text, "`", "'") + "`"
}
