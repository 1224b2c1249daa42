// Package report keeps the results of runs and tells about them.
//
// A run is a folder: results.jsonl with a line per thing that happened, written
// as it happens so that a run that is killed keeps what it found; and beside it
// the output of the suite and of each test that failed.
package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"orrery.dev/test/conformance/suite"
)

// State is how a test ended.
type State string

const (
	Passed  State = "passed"
	Failed  State = "failed"
	Skipped State = "skipped" // it found that it cannot run on this cluster
	Stopped State = "stopped" // the run ended in the middle of it
	notRun  State = ""
)

// Session is a time in which tests were run. A run has more than one if it was
// continued.
type Session struct {
	Started   time.Time `json:"started"`
	Cluster   string    `json:"cluster"` // how it was made
	Server    string    `json:"server"`  // version it gives
	Procs     int       `json:"procs"`
	Cores     int       `json:"cores"`
	MemoryGiB int       `json:"memoryGiB"`
}

// Result is what one test came to.
type Result struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Seconds  float64   `json:"seconds"`
	Error    string    `json:"error,omitempty"` // the first line
	Log      string    `json:"log,omitempty"`   // file in the run's folder
	Finished time.Time `json:"finished"`
}

type record struct {
	Session *Session `json:"session,omitempty"`
	Result  *Result  `json:"result,omitempty"`
}

// Journal writes a run's results.
type Journal struct {
	Dir  string
	mu   sync.Mutex // tests end at the same time
	file *os.File
}

const resultsFile = "results.jsonl"

// OpenJournal goes on with the run in dir, or begins it.
func OpenJournal(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, resultsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Journal{Dir: dir, file: file}, nil
}

func (j *Journal) Close() error { return j.file.Close() }

func (j *Journal) Begin(s Session) error { return j.write(record{Session: &s}) }

func (j *Journal) Add(r Result) error { return j.write(record{Result: &r}) }

func (j *Journal) write(r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// Run is what is known about a run.
type Run struct {
	Dir     string
	Session Session // the last one
	Wall    time.Duration
	Results map[string]Result // by name of the test
}

// Read merges the lines of a run: of a test that was run again, what it came to
// last. A line that was cut off counts for nothing.
func Read(dir string) (Run, error) {
	file, err := os.Open(filepath.Join(dir, resultsFile))
	if err != nil {
		return Run{}, err
	}
	defer file.Close()
	run := Run{Dir: dir, Results: map[string]Result{}}
	var session time.Duration
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r record
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		if r.Session != nil {
			run.Session = *r.Session
			run.Wall += session
			session = 0
		}
		if r.Result != nil {
			run.Results[r.Result.Name] = *r.Result
			session = max(session, r.Result.Finished.Sub(run.Session.Started))
		}
	}
	run.Wall += session
	return run, lines.Err()
}

// Ended tells whether a test need not be run again when the run is continued.
func (r Run) Ended(name string) bool {
	state := r.Results[name].State
	return state == Passed || state == Failed || state == Skipped
}

// Newest is the folder of the last run below dir. Their names are times.
func Newest(dir string) (string, error) {
	runs, err := filepath.Glob(filepath.Join(dir, "*", resultsFile))
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", errors.New("there is no run yet: make conformance")
	}
	slices.Sort(runs)
	return filepath.Dir(runs[len(runs)-1]), nil
}

// count is a row of the table.
type count struct {
	sig                           string
	tests, passed, failed, notRun int
}

func (c *count) add(s State) {
	c.tests++
	switch s {
	case Passed:
		c.passed++
	case Failed:
		c.failed++
	default:
		c.notRun++
	}
}

// counts are the rows by SIG, and their sum.
func (r Run) counts(tests []suite.Test) ([]count, count) {
	bySIG := map[string]*count{}
	sum := count{sig: "all"}
	for _, t := range tests {
		if bySIG[t.SIG] == nil {
			bySIG[t.SIG] = &count{sig: t.SIG}
		}
		bySIG[t.SIG].add(r.Results[t.Name].State)
		sum.add(r.Results[t.Name].State)
	}
	var rows []count
	for _, c := range bySIG {
		rows = append(rows, *c)
	}
	slices.SortFunc(rows, func(a, b count) int {
		if a.tests != b.tests {
			return b.tests - a.tests
		}
		return strings.Compare(a.sig, b.sig)
	})
	return rows, sum
}

func seconds(d time.Duration) string { return fmt.Sprint(d.Round(time.Second)) }
