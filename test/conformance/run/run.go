// Package run runs the suite: it starts a cluster or takes the one it is given,
// serves the images, lets Ginkgo run first the tests that may run side by side
// and then those that must run alone, and keeps each result as it comes.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"orrery.dev/test/conformance/programs"
	"orrery.dev/test/conformance/report"
	"orrery.dev/test/conformance/suite"
)

// Options say what to run, and on what.
type Options struct {
	Out         io.Writer
	Cache       programs.Cache
	Results     string // folder of the runs
	Focus, Skip string // expressions for names of tests
	Procs       int
	Continue    bool   // go on with the newest run: only what has no result there
	Dump        bool   // let failing tests print events, pods and nodes
	Kubeconfig  string // of the cluster; empty: start one
	Orrery      string // the program that starts it
	Nodes       int    // of the started cluster
	Registry    string // address for the images; empty: not served
}

// Run runs the selected tests and prints what they came to. It returns an error
// if not all of them passed.
func Run(ctx context.Context, o Options) (err error) {
	tests, err := suite.Tests()
	if err != nil {
		return err
	}
	selected, err := suite.Select(tests, o.Focus, o.Skip)
	if err != nil {
		return err
	}
	dir := filepath.Join(o.Results, time.Now().UTC().Format("20060102-150405"))
	if o.Continue {
		if dir, selected, err = withoutResult(o.Results, selected); err != nil {
			return err
		}
	}
	if len(selected) == 0 {
		return errors.New("no test is left to run")
	}
	made := "a cluster of its own"
	if o.Kubeconfig == "" {
		made = fmt.Sprintf("orrery up --nodes %d", o.Nodes)
		kubeconfig, down, err := o.startCluster(ctx)
		if down != nil {
			defer func() { err = errors.Join(err, down()) }()
		}
		if err != nil {
			return err
		}
		o.Kubeconfig = kubeconfig
	}
	if o.Registry != "" {
		server, err := o.serveImages()
		if err != nil {
			return err
		}
		defer server.Close()
	}
	version, err := o.serverVersion(ctx)
	if err != nil {
		return err
	}
	if err := o.pullImages(ctx); err != nil {
		if o.Registry != "" || ctx.Err() != nil {
			return fmt.Errorf("images: %w", err) // a failing environment, not failing tests
		}
		fmt.Fprintf(o.Out, "images: %v; the suite runs all the same\n", err)
	}
	journal, err := report.OpenJournal(dir)
	if err != nil {
		return err
	}
	defer journal.Close()
	session := report.Session{
		Started: time.Now().UTC(), Cluster: made, Server: version,
		Procs: o.Procs, Cores: runtime.NumCPU(), MemoryGiB: memoryGiB(),
	}
	if err := journal.Begin(session); err != nil {
		return err
	}
	runErr := o.runPhases(ctx, selected, &keeper{journal: journal, out: o.Out, start: time.Now(), total: len(selected)})
	result, err := report.Read(dir)
	if err != nil {
		return errors.Join(runErr, err)
	}
	fmt.Fprint(o.Out, "\n", result.Summary(tests))
	if runErr != nil {
		return runErr
	}
	return verdict(selected, result)
}

// withoutResult is the newest run, and which of the tests have no result there.
func withoutResult(results string, tests []suite.Test) (string, []suite.Test, error) {
	dir, err := report.Newest(results)
	if err != nil {
		return "", nil, err
	}
	earlier, err := report.Read(dir)
	if err != nil {
		return "", nil, err
	}
	var left []suite.Test
	for _, t := range tests {
		if !earlier.Ended(t.Name) {
			left = append(left, t)
		}
	}
	return dir, left, nil
}

func (o Options) runPhases(ctx context.Context, tests []suite.Test, keep *keeper) error {
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		stopped := ctx.Done()
		for {
			select {
			case <-tick.C:
				keep.tell()
			case <-stopped:
				fmt.Fprintf(o.Out, "stopping: tests clean up, %s at most\n", stopPatience)
				stopped = nil // said once
			case <-ended:
				keep.tell()
				return
			}
		}
	})
	defer telling.Wait()
	defer close(ended)
	for _, phase := range plan(tests, o.Procs) {
		errs := make([]error, len(phase))
		var groups sync.WaitGroup
		for i, g := range phase {
			fmt.Fprintf(o.Out, "suite: %d %s tests, %d at a time\n", len(g.tests), g.name, g.procs)
			groups.Go(func() { errs[i] = o.runGroup(ctx, g, keep) })
		}
		groups.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.New("stopped; make conformance CONTINUE=1 runs what is left")
		}
	}
	return nil
}

func verdict(selected []suite.Test, result report.Run) error {
	passed := 0
	for _, t := range selected {
		if result.Results[t.Name].State == report.Passed {
			passed++
		}
	}
	if passed == len(selected) {
		return nil
	}
	return fmt.Errorf("%d of the %d selected tests did not pass", len(selected)-passed, len(selected))
}

// memoryGiB is the machine's memory, rounded.
func memoryGiB() int {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kiB int
	for line := range strings.Lines(string(data)) {
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kiB); n == 1 {
			break
		}
	}
	return (kiB + 1<<19) >> 20
}
