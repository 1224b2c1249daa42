// Package programs builds upstream's programs from the modules that go.mod
// names, once, into a cache outside the tree.
package programs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orrery.dev/test/conformance/suite"
)

// Cache is the folder of what was built for this release of the suite.
type Cache string

// DefaultCache is CONFORMANCE_CACHE, or else in the user's cache folder.
func DefaultCache() (Cache, error) {
	if dir := os.Getenv("CONFORMANCE_CACHE"); dir != "" {
		dir, err := filepath.Abs(dir)
		return Cache(dir), err
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for what is built (set CONFORMANCE_CACHE): %w", err)
	}
	return Cache(filepath.Join(dir, "orrery", "conformance", suite.Version)), nil
}

// Program is the path of a built program.
func (c Cache) Program(name string) string { return filepath.Join(string(c), "bin", name) }

type program struct {
	name, pkg string
	test      bool // a test binary
	extra     bool // not needed by the suite: built when it is named
}

// list has the quick ones first, so that what is wrong with a machine shows
// before the long wait.
var list = []program{
	{name: "ginkgo", pkg: "github.com/onsi/ginkgo/v2/ginkgo"},
	{name: "nonewprivs", pkg: "k8s.io/kubernetes/test/images/nonewprivs"},
	{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
	{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
	{name: "etcdctl", pkg: "go.etcd.io/etcd/etcdctl/v3"},
	{name: "agnhost", pkg: "k8s.io/kubernetes/test/images/agnhost"},
	{name: "sample-apiserver", pkg: "k8s.io/sample-apiserver"},
	{name: "e2e.test", pkg: "k8s.io/kubernetes/test/e2e", test: true},
	{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", extra: true},
	{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", extra: true},
	{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler", extra: true},
}

// Build makes the programs of these names, or those that the suite needs, where
// they are not in the cache yet.
func Build(ctx context.Context, out io.Writer, cache Cache, moduleDir string, names ...string) error {
	for _, name := range names {
		if !slices.ContainsFunc(list, func(p program) bool { return p.name == name }) {
			return fmt.Errorf("no program is called %q", name)
		}
	}
	for _, p := range list {
		wanted := !p.extra
		if len(names) > 0 {
			wanted = slices.Contains(names, p.name)
		}
		path := cache.Program(p.name)
		if _, err := os.Stat(path); err == nil || !wanted {
			continue
		}
		if err := p.build(ctx, out, moduleDir, path); err != nil {
			return err
		}
	}
	return nil
}

func (p program) build(ctx context.Context, out io.Writer, moduleDir, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished := path + ".unfinished"
	args := []string{"build"}
	if p.test {
		// Without -vet=off go vets all packages below the test, which takes
		// longer than building them.
		args = []string{"test", "-c", "-vet=off"}
	}
	args = append(args, "-ldflags", ldflags(), "-o", unfinished, p.pkg)
	if err := goCommand(ctx, out, "build "+p.name, moduleDir, args...); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// ldflags gives the programs the version that they ask themselves for, and the
// one that they tell the server.
func ldflags() string {
	const own, told = "k8s.io/component-base/version.", "k8s.io/client-go/pkg/version."
	minor := strings.Split(suite.Version, ".")[1]
	return fmt.Sprintf("-s -w -X %[1]sgitVersion=%[3]s -X %[1]sgitMajor=1 -X %[1]sgitMinor=%[4]s -X %[2]sgitVersion=%[3]s", own, told, suite.Version, minor)
}

// goCommand runs it, and says from time to time that it still does.
func goCommand(ctx context.Context, out io.Writer, what, dir string, args ...string) error {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	start := time.Now()
	fmt.Fprintf(out, "%s\n", what)
	done := make(chan error, 1)
	go func() { done <- command.Run() }()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintf(out, "%s ... %s\n", what, time.Since(start).Round(time.Second))
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", what, err, &said)
			}
			return nil
		}
	}
}
