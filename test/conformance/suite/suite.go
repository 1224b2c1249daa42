// Package suite knows the conformance suite of Kubernetes: its release and the
// names of its tests, as the release itself lists them.
package suite

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/kubernetes/test/conformance/testdata"
	"sigs.k8s.io/yaml"
)

// Version is the release of Kubernetes whose suite this is. go.mod names the
// same one.
const Version = "v1.37.2"

// Test is one test of the suite.
type Test struct {
	Name   string // as Ginkgo and the suite's own list have it
	SIG    string // the group that owns it, without "sig-"
	Serial bool   // disturbs others: runs alone
}

// Tests lists the whole suite in its own order.
func Tests() ([]Test, error) {
	list, err := testdata.GetConformanceTestdataFS().EmbeddedFS.ReadFile("conformance.yaml")
	if err != nil {
		return nil, fmt.Errorf("the suite's list of tests: %w", err)
	}
	var entries []struct{ Codename string }
	if err := yaml.Unmarshal(list, &entries); err != nil {
		return nil, fmt.Errorf("the suite's list of tests: %w", err)
	}
	tests := make([]Test, 0, len(entries))
	for _, e := range entries {
		tests = append(tests, newTest(e.Codename))
	}
	return tests, nil
}

func newTest(name string) Test {
	sig, _, _ := strings.Cut(strings.TrimPrefix(name, "[sig-"), "]")
	return Test{Name: name, SIG: sig, Serial: strings.Contains(name, "[Serial]")}
}

// Select returns the tests whose names match focus and do not match skip. An
// empty expression is none.
func Select(tests []Test, focus, skip string) ([]Test, error) {
	focused, err := regexp.Compile(focus)
	if err != nil {
		return nil, fmt.Errorf("focus: %w", err)
	}
	skipped, err := regexp.Compile(skip)
	if err != nil {
		return nil, fmt.Errorf("skip: %w", err)
	}
	var selected []Test
	for _, t := range tests {
		if focused.MatchString(t.Name) && (skip == "" || !skipped.MatchString(t.Name)) {
			selected = append(selected, t)
		}
	}
	return selected, nil
}
