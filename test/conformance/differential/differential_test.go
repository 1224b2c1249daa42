package differential

import (
	"cmp"
	"context"
	"embed"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"orrery.dev/test/conformance/lab"
	"orrery.dev/test/conformance/programs"
)

var (
	orrery  = flag.String("orrery", "", "our program; make differential builds and names it")
	answers = flag.Bool("answers", false, "tell what upstream says to every request")
	focus   = flag.String("focus", "", "only cases whose name this regular expression matches")
)

//go:embed cases/*.txt objects.yaml known.txt
var files embed.FS

// pair are the two servers.
type pair struct {
	upstream, ours *server
	pki            *lab.PKI
	kubectl        string
	kept           sync.Map // values kept by what cases share, by Shared
	prepared       sync.Map // the Shared of cases that were prepared
}

// start starts both, with further flags for both.
func start(t *testing.T, flags ...string) *pair {
	t.Helper()
	if *orrery == "" {
		t.Skip("no binary: run make differential")
	}
	cache, err := programs.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	program, kubectl := cache.Program("kube-apiserver"), cache.Program("kubectl")
	for _, p := range []string{program, kubectl} {
		if _, err := os.Stat(p); err != nil {
			t.Skip("upstream's programs are not built: bin/conformance/conformance build kube-apiserver kubectl, of make conformance-runner")
		}
	}
	pki := lab.NewPKI(t)
	serve := func(name string, argv ...string) *server {
		return newServer(t, pki, lab.StartAPIServer(t, pki, *orrery, name, append(argv, flags...)...).URL)
	}
	return &pair{upstream: serve("upstream", program), ours: serve("orrery", *orrery, "kube-apiserver"), pki: pki, kubectl: kubectl}
}

// Both servers give the same answers.
func TestDifferential(t *testing.T) {
	cases, err := allCases()
	if err != nil {
		t.Fatal(err)
	}
	text, err := files.ReadFile("known.txt")
	if err != nil {
		t.Fatal(err)
	}
	list, err := parseKnown(string(text))
	if err != nil {
		t.Fatal("known.txt:", err)
	}
	wanted, err := regexp.Compile(*focus)
	if err != nil {
		t.Fatal("-focus:", err)
	}
	var plain, cbor, warming []Case
	for _, c := range cases {
		if busy.MatchString(c.Name) {
			warming = append(warming, c)
		}
		switch {
		case !wanted.MatchString(c.Name):
		case strings.HasPrefix(c.Name, "cbor/"):
			cbor = append(cbor, c)
		default:
			plain = append(plain, c)
		}
	}
	commands := wantedCommands(wanted)
	var results []result
	measured := wanted.MatchString("metrics/")
	if len(plain)+len(commands) > 0 || measured {
		both := start(t)
		results = append(both.playAll(t.Context(), plain), both.playCommands(t, commands)...)
		if measured && len(plain) == 0 {
			both.playAll(t.Context(), warming)
		}
		if measured {
			results = append(results, both.playMetrics(t, wanted)...)
		}
	}
	if len(cbor) > 0 {
		results = append(results, start(t, "--feature-gates=CBORServingAndStorage=true").playAll(t.Context(), cbor)...)
	}
	report := reporter(t)
	counts := map[string]*[2]int{}
	for _, r := range results {
		area, _, _ := strings.Cut(r.name, "/")
		if counts[area] == nil {
			counts[area] = new([2]int)
		}
		counts[area][0]++
		if len(r.found) == 0 {
			continue
		}
		counts[area][1]++
		text := r.name + "\n\t" + strings.Join(r.found, "\n\t")
		fmt.Fprintln(report, text)
		if !knows(list, r.name) {
			t.Error(text)
		}
	}
	for _, k := range list {
		if !k.met && *focus == "" {
			t.Errorf("known.txt: %s differs no more (%s)", k.pattern, k.reason)
		}
	}
	summary(t, counts)
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(b.took, a.took) })
	for _, r := range results[:min(5, len(results))] {
		t.Logf("%-60s %s", r.name, r.took.Round(time.Millisecond))
	}
}

// result is what differed in a case.
type result struct {
	name  string
	found []string
	took  time.Duration
}

// players is how many cases are played at a time. Many wait for what the servers do
// by and by.
const players = 12

// playAll plays those of the files one by one, as some look at the whole server,
// and then several kinds at a time.
func (p *pair) playAll(ctx context.Context, cases []Case) []result {
	results := make([]result, len(cases))
	groups := map[string][]int{}
	play := func(i int) {
		began := time.Now()
		found := p.play(ctx, cases[i], fmt.Sprintf("case-%d", i))
		results[i] = result{cases[i].Name, found, time.Since(began)}
	}
	for i, c := range cases {
		if c.Kind == "" {
			play(i)
			continue
		}
		groups[c.Kind] = append(groups[c.Kind], i)
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, players)
	for _, group := range groups {
		slots <- struct{}{}
		wait.Go(func() {
			for _, i := range group {
				play(i)
			}
			<-slots
		})
	}
	wait.Wait()
	return results
}

// reporter is where all differences go.
func reporter(t *testing.T) io.Writer {
	t.Helper()
	path := os.Getenv("DIFFERENTIAL_REPORT")
	if path == "" {
		return io.Discard
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func summary(t *testing.T, counts map[string]*[2]int) {
	areas := make([]string, 0, len(counts))
	for area := range counts {
		areas = append(areas, area)
	}
	slices.Sort(areas)
	var all [2]int
	for _, area := range areas {
		t.Logf("%-20s %5d cases %5d differ", area, counts[area][0], counts[area][1])
		all[0] += counts[area][0]
		all[1] += counts[area][1]
	}
	t.Logf("%-20s %5d cases %5d differ", "all", all[0], all[1])
}

// play sends the steps of a case to both, and returns the differences.
func (p *pair) play(ctx context.Context, c Case, ns string) []string {
	steps := c.Steps
	prepared := false
	if c.Shared != "" {
		ns = c.Shared
		if _, prepared = p.prepared.LoadOrStore(c.Shared, true); !prepared {
			steps = append(slices.Clone(c.Prepare), steps...)
		}
	}
	if c.inNamespace() && !prepared {
		steps = append(slices.Clone(namespace), steps...)
	}
	theirs, our := map[string]string{"ns": ns}, map[string]string{"ns": ns}
	if kept, ok := p.kept.Load(c.Shared); ok && c.Shared != "" {
		theirs, our = kept.([2]map[string]string)[0], kept.([2]map[string]string)[1]
	}
	p.kept.Store(c.Shared, [2]map[string]string{theirs, our})
	var found []string
	for _, step := range steps {
		var wait sync.WaitGroup
		var a, b Answer
		var aErr, bErr error
		wait.Go(func() { a, aErr = p.upstream.do(ctx, step, theirs) })
		wait.Go(func() { b, bErr = p.ours.do(ctx, step, our) })
		wait.Wait()
		at := step.Method + " " + step.Path + ": "
		if aErr != nil || bErr != nil {
			found = append(found, fmt.Sprintf("%supstream %v, ours %v", at, aErr, bErr))
			continue
		}
		if *answers {
			fmt.Fprintf(os.Stderr, "%s: %s %s: %d %s\n", c.Name, step.Method, step.Path, a.Code, show(a.Body))
		}
		if step.Valid && a.Code >= 300 {
			found = append(found, fmt.Sprintf("%supstream must accept it, and says %d: %s", at, a.Code, show(a.Body)))
		}
		if step.Quiet && a.Code < 300 && b.Code < 300 {
			continue
		}
		for _, d := range differences(a, b) {
			found = append(found, at+d)
		}
	}
	return found
}

// namespace makes one, with what admission wants to be in it.
var namespace = []Step{
	{Method: "POST", Path: "/api/v1/namespaces", Body: "metadata: {name: \"${ns}\"}", Quiet: true},
	{Method: "POST", Path: "/api/v1/namespaces/${ns}/serviceaccounts", Body: "metadata: {name: default}", Quiet: true},
}

func (c Case) inNamespace() bool {
	return slices.ContainsFunc(c.Steps, func(s Step) bool { return strings.Contains(s.Path+s.Body, "${ns}") })
}

// ofWholeServer are the files whose cases see what others make: they are played
// alone.
var ofWholeServer = []string{"discovery.txt", "openapi.txt", "requests.txt"}

// allCases are those of the files, of every kind and of every field.
func allCases() ([]Case, error) {
	var all []Case
	dir, err := files.ReadDir("cases")
	if err != nil {
		return nil, err
	}
	for _, entry := range dir {
		f, err := files.Open("cases/" + entry.Name())
		if err != nil {
			return nil, err
		}
		cases, err := parse(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		for i := range cases {
			if !slices.Contains(ofWholeServer, entry.Name()) {
				cases[i].Kind = cases[i].Name
			}
		}
		all = append(all, cases...)
	}
	objects, err := readObjects()
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		for _, c := range append(o.kindCases(), o.sweepCases()...) {
			c.Kind = o.label
			if o.settled() != nil && c.Shared == "" {
				c.Kind = c.Name // each has an object of its own to wait for
			}
			all = append(all, c)
		}
	}
	return all, nil
}
