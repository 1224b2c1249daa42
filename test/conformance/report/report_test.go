package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orrery.dev/test/conformance/suite"
)

var tests = []suite.Test{
	{Name: "[sig-node] a", SIG: "node"}, {Name: "[sig-node] b", SIG: "node"}, {Name: "[sig-node] c", SIG: "node"},
	{Name: "[sig-apps] d", SIG: "apps"}, {Name: "[sig-apps] e", SIG: "apps"},
}

// run is one that was stopped in the middle of c, and continued.
func run(t *testing.T) Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "20260101-000000")
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, results := range [][]Result{
		{
			{Name: "[sig-node] a", State: Passed, Finished: start.Add(time.Minute)},
			{Name: "[sig-node] b", State: Failed, Error: "no `b`", Log: "logs/b.log", Finished: start.Add(2 * time.Minute)},
			{Name: "[sig-node] c", State: Stopped, Finished: start.Add(3 * time.Minute)},
		},
		{
			{Name: "[sig-node] c", State: Passed, Finished: start.Add(61 * time.Minute)},
			{Name: "[sig-apps] d", State: Skipped, Error: "two nodes", Finished: start.Add(62 * time.Minute)},
		},
	} {
		journal, err := OpenJournal(dir)
		if err != nil {
			t.Fatal(err)
		}
		session := Session{Started: start.Add(time.Duration(i) * time.Hour), Cluster: "orrery up", Server: "v1.37.2", Procs: 8, Cores: 2, MemoryGiB: 24}
		if err := journal.Begin(session); err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if err := journal.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := journal.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cutOff(t, dir)
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cutOff leaves half a line at the end, as a run that is killed may.
func cutOff(t *testing.T, dir string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, resultsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"result":{"name":"[sig-apps] e","sta`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	r := run(t)
	if r.Wall != 5*time.Minute {
		t.Errorf("wall time %s, want 5m: the hour between the sessions does not count", r.Wall)
	}
	for name, want := range map[string]State{"[sig-node] a": Passed, "[sig-node] b": Failed, "[sig-node] c": Passed, "[sig-apps] d": Skipped, "[sig-apps] e": notRun} {
		if got := r.Results[name].State; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.Ended("[sig-apps] e") || !r.Ended("[sig-node] b") {
		t.Error("what is left to run is wrong")
	}
	if dir, err := Newest(filepath.Dir(r.Dir)); err != nil || dir != r.Dir {
		t.Errorf("newest run: %s, %v", dir, err)
	}
}

func TestText(t *testing.T) {
	r := run(t)
	summary, page := r.Summary(tests), r.Markdown(tests)
	for _, want := range []string{
		"FAILED  [sig-node] b\n        no `b`\n        " + filepath.Join(r.Dir, "logs/b.log"),
		"SKIPPED [sig-apps] d\n        two nodes",
		"node                  3      2      1       0",
		"all                   5      2      1       2",
		"2 of 5 passed in 5m0s",
	} {
		if !strings.Contains(summary, want) {
			t.Errorf("the summary lacks %q:\n%s", want, summary)
		}
	}
	for _, want := range []string{
		"**2 of 5 passed**, 1 failed, 2 not run",
		"| node | 3 | 2 | 1 | 0 |\n| apps | 2 | 0 | 0 | 2 |\n| **all** | **5** | **2** | **1** | **2** |",
		"## Failed\n\n- `[sig-node] b`\n  `no 'b'`",
		"## Skipped by the test itself\n\n- `[sig-apps] d`\n  `two nodes`",
		"## Not run\n\n- `[sig-apps] e`",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}
