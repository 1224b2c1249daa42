package main

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport is the architecture: which of our packages each package may import.
// A trailing "/*" takes in the packages below. A package without a row fails.
var mayImport = map[string][]string{
	"":                       {"cmd"},
	"api":                    {},
	"trace":                  {"api"},
	"client":                 {"trace", "api"},
	"client/words":           {"api"},
	"cluster":                {"client", "api"},
	"cluster/machine":        {},
	"scheduler":              {"trace", "scheduler/plugins", "client", "api"},
	"scheduler/plugins":      {"api"},
	"controllers":            {"trace", "client", "api"},
	"dns":                    {"client", "api"},
	"tui":                    {"edit", "client", "client/words", "api"},
	"sshd":                   {},
	"web":                    {"client", "api"},
	"nodeagent":              {"trace", "nodeagent/*", "client", "api"},
	"nodeagent/runtime":      {"nodeagent/helper/built", "api"},
	"nodeagent/volume":       {"api"},
	"nodeagent/probe":        {"api"},
	"nodeagent/simulate":     {"api"},
	"nodeagent/proxy":        {"trace", "client", "api"},
	"nodeagent/helper":       {},
	"nodeagent/helper/built": {},
	"nodeagent/helper/pause": {},
	"edit":                   {"api"},
	"why":                    {"scheduler/plugins", "api"}, // the scheduler's rules, asked again
	"server":                 {"trace", "server/*", "why", "api"},
	"server/registry":        {"api"},
	"server/storage":         {"trace", "api"},
	"server/patch":           {"api"},
	"server/auth":            {"api", "server/audit", "server/flowcontrol", "server/reload", "server/webhook"},
	"server/audit":           {"server/webhook"},
	"server/webhook":         {},
	"server/flowcontrol":     {},
	"server/encryption":      {"server/reload"},
	"server/reload":          {},
	"server/fake":            {},
	"server/admission":       {"trace", "server/registry", "server/webhook", "api"},
	"server/openapi":         {"server/registry", "api"},
	"server/openapi/gen":     {},
	"server/stream":          {"api"},
	"server/remote":          {"server/registry", "server/stream", "why", "edit", "api"},
	"cmd":                    {"edit", "trace", "cluster", "cluster/*", "server", "server/*", "scheduler", "scheduler/*", "controllers", "nodeagent", "nodeagent/*", "dns", "web", "tui", "sshd", "client", "api"},
}

// forbidden are the programs that this project is here to write; their
// libraries are welcome.
var forbidden = []string{
	"k8s.io/kubernetes", "k8s.io/kube-aggregator",
	"k8s.io/apiserver/pkg/server", "k8s.io/apiserver/pkg/endpoints", "k8s.io/apiserver/pkg/registry",
	"k8s.io/apiserver/pkg/storage/etcd3", "k8s.io/apiserver/pkg/storage/cacher", "k8s.io/apiserver/pkg/storage/storagebackend",
	"k8s.io/apiextensions-apiserver/pkg/apiserver",
}

// allowedBelow are leaf libraries below a forbidden path.
var allowedBelow = []string{
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema", "k8s.io/apiextensions-apiserver/pkg/apiserver/validation",
}

const module = "orrery.dev"

type goPackage struct {
	Dir, ImportPath, Doc string
	GoFiles, Imports     []string
}

func TestArchitecture(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "test" || strings.HasPrefix(name, "test/") {
			continue
		}
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("package %q has no row in mayImport", name)
			continue
		}
		for _, imp := range p.Imports {
			checkImport(t, name, imp, allowed)
		}
		if name != "" && p.Doc == "" {
			t.Errorf("package %q has no package comment", name)
		}
		for _, file := range p.GoFiles {
			checkFile(t, filepath.Join(p.Dir, file))
		}
	}
}

func checkImport(t *testing.T, from, imp string, allowed []string) {
	for _, f := range forbidden {
		if (imp == f || strings.HasPrefix(imp, f+"/")) && !slices.ContainsFunc(allowedBelow, func(ok string) bool { return strings.HasPrefix(imp, ok) }) {
			t.Errorf("%q imports %s, which is a program that this project writes itself", from, imp)
		}
	}
	ours, ok := strings.CutPrefix(imp, module+"/")
	if !ok {
		return
	}
	for _, a := range allowed {
		if base, below := strings.CutSuffix(a, "/*"); a == ours || below && strings.HasPrefix(ours, base+"/") {
			return
		}
	}
	t.Errorf("%q may not import %q", from, ours)
}

// checkFile holds a file to the budget of 1,000 lines, and refuses init
// functions: membership and order belong in visible lists.
func checkFile(t *testing.T, path string) {
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(src[:min(len(src), 200)], []byte("DO NOT EDIT")) {
		return
	}
	if n := bytes.Count(src, []byte("\n")); n > 1000 {
		t.Errorf("%s has %d lines; make it two files", path, n)
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if f.Scope.Lookup("init") != nil {
		t.Errorf("%s has an init function", path)
	}
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,Doc,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}
