package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// allPods is how many pods there are, those apart that creating is measured with.
const allPods = 10_000

// Result is what one go of the benchmarks found.
type Result struct {
	Cores, MemoryGiB, Rounds int
	PodBytes                 int // of one pod's JSON
	Measures                 []Measured
	Memory                   []Memory
}

// Measured is the samples of one measure.
type Measured struct {
	Name           string
	Ours, Upstream []sample
}

// Memory is what the servers had in memory at one time.
type Memory struct {
	Name           string
	Ours, Upstream int64
}

// sample is what one run of a measure took, and how many operations it did.
type sample struct {
	Done int64
	Wall time.Duration
	CPU  time.Duration // of the API server
	Etcd time.Duration // CPU of its etcd
}

// String is a sample as the log shows it.
func (s sample) String() string {
	return fmt.Sprintf("%.0f/s %s of CPU each", s.rate(), round(s.each()))
}

func (s sample) rate() float64       { return float64(s.Done) / s.Wall.Seconds() }
func (s sample) each() time.Duration { return s.CPU / time.Duration(s.Done) }

// middle is the median of the rates, and the CPU times of all rounds together:
// rates suffer from what else the machine does, CPU times from their coarse
// units.
func middle(all []sample) (rate float64, cpu, etcd time.Duration) {
	rates := make([]float64, len(all))
	var sum sample
	for i, s := range all {
		rates[i] = s.rate()
		sum.Done, sum.CPU, sum.Etcd = sum.Done+s.Done, sum.CPU+s.CPU, sum.Etcd+s.Etcd
	}
	slices.SortFunc(rates, cmp.Compare)
	return rates[len(rates)/2], sum.each(), sum.Etcd / time.Duration(sum.Done)
}

var (
	measureHead = []string{"measure", "ours/s", "upstream/s", "ratio", "CPU, ours", "upstream", "ratio", "etcd, ours", "upstream"}
	memoryHead  = []string{"memory", "ours", "upstream", "ratio"}
)

func (m Measured) cells() []string {
	ours, ourCPU, ourEtcd := middle(m.Ours)
	theirs, theirCPU, theirEtcd := middle(m.Upstream)
	return []string{m.Name, perSecond(ours), perSecond(theirs), times(ours, theirs),
		round(ourCPU), round(theirCPU), times(float64(theirCPU), float64(ourCPU)), round(ourEtcd), round(theirEtcd)}
}

func (m Memory) cells() []string {
	mib := func(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
	return []string{strings.TrimPrefix(m.Name, "memory: "), mib(m.Ours), mib(m.Upstream), times(float64(m.Upstream), float64(m.Ours))}
}

func perSecond(rate float64) string {
	if rate < 100 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

func times(a, b float64) string { return fmt.Sprintf("%.1f", a/b) }

func round(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.3g µs", d.Seconds()*1e6)
}

// tables are the result as heads and rows.
func (r *Result) tables() (tables [][][]string) {
	if len(r.Measures) > 0 {
		table := [][]string{measureHead}
		for _, m := range r.Measures {
			table = append(table, m.cells())
		}
		tables = append(tables, table)
	}
	if len(r.Memory) > 0 {
		table := [][]string{memoryHead}
		for _, m := range r.Memory {
			table = append(table, m.cells())
		}
		tables = append(tables, table)
	}
	return tables
}

// Text is the result for a terminal.
func (r *Result) Text() string {
	var b strings.Builder
	for _, table := range r.tables() {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range table {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		w.Flush()
		b.WriteByte('\n')
	}
	return b.String()
}

// Markdown is the result as the page that make bench-report writes.
func (r *Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks

Upstream's kube-apiserver 1.37.2 and ours in turns, each on an etcd of its own (ours, embedded), in one go of
%d rounds, by `+"`make bench-compare`"+`; this page is written by `+"`make bench-report`"+`. Machine: %d cores, %d GiB, shared by client,
servers and etcd. There are %d pods of %.1f KiB of JSON each, with status and managedFields.

CPU is what the server took for one operation, that of its etcd apart; a list is all pods, a watch's operation the
delivery of one change to one watcher. The first list of each kind is not counted: ours keeps for a while what it has
encoded, so that it costs about as much as upstream's, and those that follow a fraction. Ratios above 1 are in our favour. Memory is the proportional set size, after a
rest.
`, r.Rounds, r.Cores, r.MemoryGiB, allPods, float64(r.PodBytes)/1024)
	for _, table := range r.tables() {
		b.WriteByte('\n')
		for i, row := range table {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				b.WriteString("| ---" + strings.Repeat(" | ---:", len(row)-1) + " |\n")
			}
		}
	}
	return b.String()
}

// Write keeps the result in a file.
func (r *Result) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Read reads what Write has kept.
func Read(path string) (*Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Result
	return &r, json.Unmarshal(data, &r)
}
