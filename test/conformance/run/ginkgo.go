package run

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"orrery.dev/test/conformance/report"
	"orrery.dev/test/conformance/suite"
)

// stopPatience is how long tests may clean up after themselves when the run is
// told to stop.
const stopPatience = 60 * time.Second

// runGroup has Ginkgo run the tests of a group, and keeps what each came to as
// soon as it has ended. Tests that fail are no error.
func (o Options) runGroup(ctx context.Context, g group, keep *keeper) error {
	raw, err := os.OpenFile(filepath.Join(keep.journal.Dir, "ginkgo-"+g.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer raw.Close()
	command := exec.CommandContext(ctx, o.Cache.Program("ginkgo"), o.ginkgoArgs(g)...)
	ownGroup(command)
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = stopPatience
	command.Env = append(os.Environ(), "KUBECONFIG="+o.Kubeconfig)
	command.Stderr = raw
	out, write, err := os.Pipe()
	if err != nil {
		return err
	}
	command.Stdout = write
	if err := command.Start(); err != nil {
		return fmt.Errorf("ginkgo: %w", err)
	}
	write.Close()
	var setup string
	var keepErr error
	read := make(chan error, 1)
	go func() {
		read <- readStream(io.TeeReader(out, raw), func(e ended) {
			if e.step != "" {
				if e.state == report.Failed && setup == "" {
					setup = e.err
				}
				return
			}
			if t, ok := g.find(e.name); ok {
				e.err = o.withoutPaths(e.err)
				keepErr = errors.Join(keepErr, keep.ended(t, e))
			}
		})
	}()
	waitErr := command.Wait()
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // what did not end in time
	if err := errors.Join(<-read, keepErr, out.Close()); err != nil {
		return err
	}
	if setup != "" && ctx.Err() == nil {
		return fmt.Errorf("the suite could not begin: %s (see %s)", setup, raw.Name())
	}
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) && ctx.Err() == nil {
		return fmt.Errorf("ginkgo: %w", waitErr)
	}
	return nil
}

// withoutPaths takes this machine's folders out of a message, so that it reads
// the same on any other.
func (o Options) withoutPaths(message string) string {
	return strings.NewReplacer(filepath.Dir(o.Cache.Program("kubectl"))+"/", "", "--kubeconfig="+o.Kubeconfig+" ", "").Replace(message)
}

func (o Options) ginkgoArgs(g group) []string {
	// Two processes at least: with one Ginkgo prints in another form. Serial
	// tests run on the first alone, after all others.
	return []string{
		fmt.Sprintf("-procs=%d", max(g.procs, 2)), "-v", "--no-color", "-timeout=24h", "-focus=" + g.focus(),
		o.Cache.Program("e2e.test"), "--",
		"--provider=skeleton", "--kubeconfig=" + o.Kubeconfig, "--kubectl-path=" + o.Cache.Program("kubectl"),
		fmt.Sprintf("--dump-logs-on-failure=%t", o.Dump), "--disable-log-dump",
	}
}

// ownGroup keeps signals of the terminal from a program; it is told what to do
// by us.
func ownGroup(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// keeper keeps results and tells of them.
type keeper struct {
	journal *report.Journal
	out     io.Writer
	start   time.Time

	mu                    sync.Mutex // groups run at the same time
	total, passed, failed int
	skipped               int
	said                  int // how many of all were in the last line
}

func (k *keeper) ended(t suite.Test, e ended) error {
	result := report.Result{Name: t.Name, State: e.state, Seconds: e.seconds, Finished: time.Now().UTC()}
	if e.state == report.Failed || e.state == report.Skipped {
		result.Error = e.err
		result.Log = filepath.Join("logs", logName(t.Name))
		path := filepath.Join(k.journal.Dir, result.Log)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(e.text), 0o644); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch e.state {
	case report.Passed:
		k.passed++
	case report.Failed:
		k.failed++
		fmt.Fprintf(k.out, "FAILED  %s\n        %s\n", t.Name, result.Error)
	case report.Skipped:
		k.skipped++
	}
	return k.journal.Add(result)
}

// tell prints a line if something has ended since the last one.
func (k *keeper) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	done := k.passed + k.failed + k.skipped
	if done == k.said {
		return
	}
	k.said = done
	fmt.Fprintf(k.out, "%7s  passed %d  failed %d  left %d\n", time.Since(k.start).Round(time.Second), k.passed, k.failed, k.total-done)
}

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// logName is a file name that tells the test, and no other one's.
func logName(test string) string {
	h := fnv.New32a()
	h.Write([]byte(test))
	name := strings.Trim(notInFileNames.ReplaceAllString(test, "-"), "-")
	return fmt.Sprintf("%.100s-%08x.log", name, h.Sum32())
}
