package bench

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"orrery.dev/test/conformance/lab"
	"orrery.dev/test/conformance/programs"
)

var (
	orrery  = flag.String("orrery", "", "our program; make bench-compare builds and names it")
	focus   = flag.String("focus", "", "only measures whose name this regular expression matches")
	rounds  = flag.Int("rounds", 3, "how often each is measured")
	results = flag.String("results", "", "keep the result in this file")
	profile = flag.String("profile", "", "directory for CPU profiles of our server, one for each measure, and of its heap")
)

// How long a server is left alone before its memory is looked at: longer after it
// has been written to, so that what only the writes needed is gone.
const (
	rest     = 15 * time.Second
	longRest = 40 * time.Second
)

// Both servers are measured in turns.
func TestCompare(t *testing.T) {
	if *orrery == "" {
		t.Skip("no binary: run make bench-compare")
	}
	cache, err := programs.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	program := cache.Program("kube-apiserver")
	if _, err := os.Stat(program); err != nil {
		t.Skip("upstream's kube-apiserver is not built: run make bench-compare")
	}
	wanted, err := regexp.Compile(*focus)
	if err != nil {
		t.Fatal("-focus:", err)
	}
	pki := lab.NewPKI(t)
	both := pair{
		ours:     startServer(t, pki, *orrery, "orrery", *orrery, "kube-apiserver"),
		upstream: startServer(t, pki, *orrery, "upstream", program),
	}
	result := &Result{Cores: runtime.NumCPU(), MemoryGiB: machineMemory(t), Rounds: *rounds}
	memory := func(name string, after time.Duration) {
		if wanted.MatchString(name) {
			time.Sleep(after)
			result.Memory = append(result.Memory, both.memory(t, name))
		}
	}
	memory("memory: idle", rest)
	both.fill(t)
	pod, err := both.ours.clients[0].must(getPod(0))
	if err != nil {
		t.Fatal(err)
	}
	result.PodBytes = pod.size
	memory("memory: 10,000 pods", longRest)
	for _, kind := range []string{"list", "watch", ""} {
		result.Measures = append(result.Measures, both.measure(t, kind, wanted)...)
		if kind != "" {
			memory("memory: 10,000 pods, after "+map[string]string{"list": "lists", "watch": "watches"}[kind], rest)
		}
	}
	if *profile != "" {
		both.ours.profile(t, "heap", "heap?gc=1")
	}
	fmt.Println(result.Text())
	if *results != "" {
		if err := result.Write(*results); err != nil {
			t.Fatal(err)
		}
	}
}

// pair are the two servers.
type pair struct{ ours, upstream *server }

func (p pair) each(do func(s *server)) {
	do(p.ours)
	do(p.upstream)
}

func (p pair) memory(t *testing.T, name string) Memory {
	t.Helper()
	m := Memory{Name: name}
	var err error
	if m.Ours, err = p.ours.Memory(); err == nil {
		m.Upstream, err = p.upstream.Memory()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fill makes the pods of both at once: this is not measured.
func (p pair) fill(t *testing.T) {
	var filling sync.WaitGroup
	p.each(func(s *server) {
		s.furnish(t)
		filling.Go(func() {
			if err := s.fill(); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		})
	})
	filling.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// measure runs the measures of a kind ("": those of no other) in several rounds.
// Who comes first changes, so that what one does to the machine hits both.
func (p pair) measure(t *testing.T, kind string, wanted *regexp.Regexp) []Measured {
	var rows []Measured
	var runs []func(s *server) (sample, error)
	for _, m := range measures() {
		prefix, _, _ := strings.Cut(m.name, ":")
		if own := prefix == "list" || prefix == "watch"; wanted.MatchString(m.name) && (prefix == kind || !own && kind == "") {
			rows, runs = append(rows, Measured{Name: m.name}), append(runs, m.run)
		}
	}
	for round := range *rounds {
		for i, run := range runs {
			row := &rows[i]
			turns := []func(){
				func() { row.Ours = append(row.Ours, p.take(t, p.ours, row.Name, run)) },
				func() { row.Upstream = append(row.Upstream, p.take(t, p.upstream, row.Name, run)) },
			}
			turns[round%2]()
			turns[1-round%2]()
			t.Logf("%d. %s: ours %s, upstream %s", round+1, row.Name, row.Ours[round], row.Upstream[round])
		}
	}
	return rows
}

func (p pair) take(t *testing.T, s *server, name string, run func(*server) (sample, error)) sample {
	t.Helper()
	if *profile != "" && s == p.ours {
		var profiling sync.WaitGroup
		s.begun = func() { profiling.Go(func() { s.profile(t, name, "profile?seconds=2") }) }
		defer profiling.Wait()
	}
	err := s.reconnect()
	var taken sample
	if err == nil {
		taken, err = run(s)
	}
	if err != nil {
		t.Fatalf("%s of %s: %v", name, s.Name, err)
	}
	return taken
}

// profile keeps one of a server's profiles.
func (s *server) profile(t *testing.T, name, what string) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls}}
	answer, err := client.Get(s.URL + "/debug/pprof/" + what)
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	defer client.CloseIdleConnections()
	file, err := os.Create(filepath.Join(*profile, strings.NewReplacer(" ", "-", ":", "", ",", "").Replace(name)+".pprof"))
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	if _, err := io.Copy(file, answer.Body); err != nil {
		t.Error(err)
	}
}

// machineMemory is in GiB.
func machineMemory(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return (kib + 1<<19) >> 20
}
