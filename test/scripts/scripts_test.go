package scripts

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var (
	binary  = flag.String("orrery", "", "the orrery binary to test; make e2e builds and names it")
	kubectl = flag.String("kubectl", "", "the kubectl of the stories, default orrery's own")
)

// TestSimulated plays its stories on one cluster with simulated nodes.
func TestSimulated(t *testing.T) {
	orrery := program(t)
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	console := freeAddress(t)
	_, port, _ := net.SplitHostPort(console)
	t.Setenv("CONSOLE_PORT", port)
	output := &lockedBuffer{}
	cluster := exec.Command(orrery, "up", "--simulate", "--nodes", "3", "--data-dir", dir, "--address", freeAddress(t), "--console-ssh", console, "--console-keys", keys)
	cluster.Stdout, cluster.Stderr = output, output
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cluster.Wait() }()
	t.Cleanup(func() {
		_ = cluster.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Error("the cluster did not stop within 20s of being asked to")
			_ = cluster.Process.Kill()
		}
	})
	if !waitFor(60*time.Second, func() bool { return strings.Contains(output.String(), "cluster is up") }) {
		t.Fatalf("the simulated cluster did not come up:\n%s", output)
	}
	play(t, "testdata/simulated", orrery, filepath.Join(dir, "kubeconfig", "admin.conf"), dir)
}

// TestReal plays its stories on a cluster with real containers, which it makes
// and takes away again without a trace.
func TestReal(t *testing.T) {
	orrery := program(t)
	if os.Geteuid() != 0 {
		t.Skip("real containers need root")
	}
	dir := "/var/lib/orrery-test"
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, orrery, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("orrery %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if _, err := os.Stat(dir); err == nil {
		run("down", "--purge", "--data-dir", dir) // what a run that was killed left
	}
	t.Cleanup(func() {
		if t.Failed() {
			tellWhy(t, dir)
		}
		run("down", "--purge", "--data-dir", dir)
		nothingLeft(t, dir)
	})
	t.Log(run("up", "--data-dir", dir, "--node-name", "node-1"))
	images := makeImages(t)
	run(append([]string{"image", "import", "--data-dir", dir}, images...)...)
	kubeconfig := filepath.Join(dir, "kubeconfig", "admin.conf")
	t.Run("commands", func(t *testing.T) { play(t, "testdata/commands", orrery, kubeconfig, dir) })
	// Only the commands need to see the taint of the control plane.
	_ = exec.Command(orrery, "kubectl", "--kubeconfig", kubeconfig, "taint", "nodes", "node-1", "node-role.kubernetes.io/control-plane:NoSchedule-").Run()
	t.Run("workloads", func(t *testing.T) { play(t, "testdata/workloads", orrery, kubeconfig, dir) })
	t.Run("crash", func(t *testing.T) { play(t, "testdata/crash", orrery, kubeconfig, dir) })
	t.Log(run("up", "--data-dir", dir, "--node-name", "node-1", "--nodes", "3"))
	run(append([]string{"image", "import", "--data-dir", dir}, images...)...)
	t.Run("machines", func(t *testing.T) { play(t, "testdata/machines", orrery, kubeconfig, dir) })
}

// makeImages builds the tests' program into two image files, versions 1 and 2 of
// the same thing, and makes one for shells on nodes.
func makeImages(t *testing.T) (files []string) {
	t.Helper()
	dir := t.TempDir()
	app, tool := filepath.Join(dir, "app"), filepath.Join(dir, "image")
	for out, source := range map[string]string{app: "orrery.dev/test/app", tool: "orrery.dev/test/image"} {
		must(t, "go", "build", "-o", out, source)
	}
	for _, version := range []string{"1", "2"} {
		file := filepath.Join(dir, version+".tar")
		must(t, tool, "-name", "example.org/app:"+version, "-o", file, app)
		files = append(files, file)
	}
	shell := filepath.Join(dir, "shell.tar")
	must(t, tool, "-name", "example.org/shell:1", "-o", shell)
	return append(files, shell)
}

func must(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

// tellWhy prints what helps to understand a failure before the cluster is gone.
func tellWhy(t *testing.T, dir string) {
	kubeconfig := filepath.Join(dir, "kubeconfig", "admin.conf")
	for _, command := range [][]string{
		{*binary, "status", "--data-dir", dir},
		{*binary, "kubectl", "--kubeconfig", kubeconfig, "get", "pods", "-A", "-o", "wide"},
		{*binary, "kubectl", "--kubeconfig", kubeconfig, "get", "events", "-A"},
		{"tail", "-n", "40", filepath.Join(dir, "log", "kubelet.log")},
	} {
		out, _ := exec.Command(command[0], command[1:]...).CombinedOutput()
		t.Logf("%s\n%s", strings.Join(command[1:], " "), out)
	}
}

// nothingLeft fails if something of the cluster is still there.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there after down --purge", dir)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			t.Errorf("still mounted: %s", line)
		}
	}
	if _, err := net.InterfaceByName("orrery0"); err == nil {
		t.Error("the bridge orrery0 is still there")
	}
	out, err := exec.Command("pgrep", "-af", dir).CombinedOutput()
	if err == nil {
		t.Errorf("still running:\n%s", out)
	}
}

// play runs a directory of stories.
func play(t *testing.T, dir, orrery, kubeconfig, dataDir string) {
	bin := t.TempDir()
	programs := map[string]string{"orrery": orrery, "kubectl": orrery + " kubectl", "etcdctl": orrery + " etcdctl"}
	if *kubectl != "" {
		programs["kubectl"] = *kubectl
	}
	for name, command := range programs {
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", command)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			// Each story may choose its own namespace in its own copy.
			own := filepath.Join(e.WorkDir, ".kubeconfig")
			data, err := os.ReadFile(kubeconfig)
			if err != nil {
				return err
			}
			if err := os.WriteFile(own, data, 0o600); err != nil {
				return err
			}
			e.Setenv("KUBECONFIG", own)
			e.Setenv("DATA", dataDir)
			e.Setenv("CONSOLE_PORT", os.Getenv("CONSOLE_PORT"))
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": await, "get": get},
	})
}

// await runs a command again and again until its output matches (or, negated,
// matches no more).
func await(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: await DURATION REGEXP COMMAND...")
	}
	patience, err := time.ParseDuration(args[0])
	ts.Check(err)
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var last string
	if waitFor(patience, func() bool {
		err := ts.Exec(args[2], args[3:]...)
		last = ts.ReadFile("stdout") + ts.ReadFile("stderr")
		return (err == nil || neg) && want.MatchString(last) != neg
	}) {
		return
	}
	word := "no match for"
	if neg {
		word = "still a match for"
	}
	ts.Fatalf("%s %q after %s:\n%s", word, args[1], patience, last)
}

// get prints what an HTTP server answers.
func get(ts *testscript.TestScript, neg bool, args []string) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + args[0])
	if err != nil {
		if neg {
			return
		}
		ts.Fatalf("%v", err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	ts.Check(err)
	if neg {
		ts.Fatalf("unexpected answer: %s", body)
	}
	_, err = ts.Stdout().Write(body)
	ts.Check(err)
}

func waitFor(patience time.Duration, done func() bool) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if done() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func program(t *testing.T) string {
	t.Helper()
	if *binary == "" {
		t.Skip("no binary: run make e2e")
	}
	return *binary
}

// freeAddress is a port on loopback that nobody uses now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// lockedBuffer takes a process' output while the test reads it.
type lockedBuffer struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
