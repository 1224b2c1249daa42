// Command conformance measures a cluster with the conformance suite of
// Kubernetes, as it was released. make conformance runs it from the root of the
// repository.
//
//	conformance build [PROGRAM...]   upstream's programs, into the cache
//	conformance images               the images that the suite asks for, into the cache
//	conformance run [-focus R] ...   the suite, on a cluster that it starts or is given
//	conformance report [RUN]         docs/conformance.md, from the newest run or this one
//	conformance bench-report         docs/bench.md, from the newest go of make bench-compare
//
// Each step does what is missing of those before it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"orrery.dev/test/conformance/bench"
	"orrery.dev/test/conformance/images"
	"orrery.dev/test/conformance/programs"
	"orrery.dev/test/conformance/report"
	"orrery.dev/test/conformance/run"
	"orrery.dev/test/conformance/suite"
)

// Paths from the root of the repository.
const (
	moduleDir = "test/conformance"
	results   = "bin/conformance"
	page      = "docs/conformance.md"
	benched   = results + "/bench.json"
	benchPage = "docs/bench.md"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: conformance build|images|run|report|bench-report")
	}
	cache, err := programs.DefaultCache()
	if err != nil {
		return err
	}
	switch args[0] {
	case "build":
		return programs.Build(ctx, os.Stdout, cache, moduleDir, args[1:]...)
	case "images":
		return buildAll(ctx, cache)
	case "run":
		return runSuite(ctx, cache, args[1:])
	case "report":
		return writeReport(args[1:])
	case "bench-report":
		return writeBenchReport()
	}
	return fmt.Errorf("no such step: %s", args[0])
}

func buildAll(ctx context.Context, cache programs.Cache) error {
	if err := programs.Build(ctx, os.Stdout, cache, moduleDir); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	return images.Build(ctx, os.Stdout, cache, moduleDir, root)
}

// defaultRegistry is on the bridge between the nodes of orrery up --nodes.
const defaultRegistry = "10.245.0.1:5000"

func runSuite(ctx context.Context, cache programs.Cache, args []string) error {
	o := run.Options{Out: os.Stdout, Cache: cache, Results: results}
	f := flag.NewFlagSet("conformance run", flag.ExitOnError)
	f.StringVar(&o.Focus, "focus", "", "run only tests whose names match this expression")
	f.StringVar(&o.Skip, "skip", "", "do not run tests whose names match this expression")
	f.IntVar(&o.Procs, "procs", 8, "tests at a time, where the suite allows it")
	f.BoolVar(&o.Continue, "continue", false, "go on with the newest run: only tests without a result")
	f.BoolVar(&o.Dump, "dump", false, "let failing tests print events, pods and nodes into their logs")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "run against this cluster, and leave it alone (default: start one)")
	f.StringVar(&o.Orrery, "orrery", "bin/orrery", "the program that starts the cluster")
	f.IntVar(&o.Nodes, "nodes", 3, "nodes of the cluster that is started")
	f.StringVar(&o.Registry, "registry", "", "serve the images at this address (default for a started cluster: "+defaultRegistry+")")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 || o.Procs < 1 {
		return errors.New("usage: conformance run [-focus R] [-skip R] [-procs N] [-kubeconfig FILE]; see -help")
	}
	if o.Kubeconfig == "" && o.Registry == "" {
		o.Registry = defaultRegistry
	}
	if o.Kubeconfig != "" {
		path, err := filepath.Abs(o.Kubeconfig)
		if err != nil {
			return err
		}
		o.Kubeconfig = path
	}
	if err := buildAll(ctx, cache); err != nil {
		return err
	}
	return run.Run(ctx, o)
}

func writeReport(args []string) error {
	tests, err := suite.Tests()
	if err != nil {
		return err
	}
	var dir string
	if len(args) > 0 {
		dir = filepath.Join(results, filepath.Base(args[0]))
	} else if dir, err = report.Newest(results); err != nil {
		return err
	}
	result, err := report.Read(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(page, []byte(result.Markdown(tests)), 0o644); err != nil {
		return err
	}
	fmt.Print(result.Summary(tests))
	return nil
}

func writeBenchReport() error {
	result, err := bench.Read(benched)
	if err != nil {
		return err
	}
	return os.WriteFile(benchPage, []byte(result.Markdown()), 0o644)
}
