package run

import (
	"regexp"
	"testing"

	"orrery.dev/test/conformance/suite"
)

// TestPlan holds the plan to the real suite: each test is in one group, and each
// expression for a group matches its tests and those only.
func TestPlan(t *testing.T) {
	tests, err := suite.Tests()
	if err != nil {
		t.Fatal(err)
	}
	phases := plan(tests, 8)
	planned := map[string]int{}
	for i, phase := range phases {
		for _, g := range phase {
			focus := regexp.MustCompile(g.focus())
			for _, test := range g.tests {
				planned[test.Name]++
				if (i == len(phases)-1) != test.Serial {
					t.Errorf("phase %d has %s", i, test.Name)
				}
				if found, _ := g.find(test.Name + " [sig-x, Label]"); found != test {
					t.Errorf("found %q for %q", found.Name, test.Name)
				}
			}
			matched := 0
			for _, test := range tests {
				if focus.MatchString("Kubernetes e2e suite " + test.Name) {
					matched++
				}
			}
			if matched != len(g.tests) {
				t.Errorf("group %s of %d tests matches %d", g.name, len(g.tests), matched)
			}
		}
	}
	for _, test := range tests {
		if planned[test.Name] != 1 {
			t.Errorf("planned %d times: %s", planned[test.Name], test.Name)
		}
	}
	if long := phases[0][0]; long.name != "long" || len(long.tests) != 12 || long.procs != waitingProcs {
		t.Errorf("the first group is %s with %d tests", long.name, len(long.tests))
	}
}

func TestPlanOfFew(t *testing.T) {
	one := []suite.Test{{Name: "[sig-node] Pods should run [Conformance]", SIG: "node"}}
	phases := plan(one, 8)
	if len(phases) != 1 || len(phases[0]) != 1 || phases[0][0].procs != 1 {
		t.Errorf("plan of one test: %+v", phases)
	}
}
