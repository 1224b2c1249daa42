package lab

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Process is a program that a test runs. Its output is in a file.
type Process struct {
	t     *testing.T
	Name  string
	log   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// stopPatience is how long a program may take to end when it is asked to.
const stopPatience = 30 * time.Second

// Start runs a program until Stop, or the end of the test.
func Start(t *testing.T, dir, name string, argv ...string) *Process {
	t.Helper()
	p := &Process{t: t, Name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, dir
	// A test that is killed leaves nothing behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			p.tell()
		}
	})
	return p
}

// Stop asks the program to end and waits for that.
func (p *Process) Stop() {
	if p.HasEnded() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopPatience):
		p.t.Errorf("%s did not end within %s of being asked to", p.Name, stopPatience)
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// toldLines is how much of a log a failed test shows.
const toldLines = 40

func (p *Process) tell() {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	if keep := os.Getenv("LAB_LOGS"); keep != "" {
		to := filepath.Join(keep, p.t.Name())
		if err := os.MkdirAll(to, 0o755); err == nil {
			_ = os.WriteFile(filepath.Join(to, p.Name+".log"), data, 0o644)
		}
	}
	p.t.Logf("%s said at the end (all of it: set LAB_LOGS to a directory):\n%s", p.Name, bytes.Join(lines[max(0, len(lines)-toldLines):], []byte("\n")))
}

// FreePorts finds n consecutive ports on loopback that nobody uses now.
func FreePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := first.Addr().(*net.TCPAddr).Port
		free := true
		for i := 1; i < n; i++ {
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port + i})
			if err != nil {
				free = false
				break
			}
			l.Close()
		}
		first.Close()
		if free {
			return port
		}
	}
	t.Fatal("no free ports on loopback")
	return 0
}

// Eventually looks again and again until nothing is missing, or fails with what
// is.
func Eventually(ctx context.Context, look func(context.Context) (missing string, err error)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last unmet
	for {
		missing, err := look(ctx)
		if err == nil && missing == "" {
			return nil
		}
		if ctx.Err() == nil { // else it was only cut off
			last = unmet{missing, err}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &last
		}
	}
}

// unmet is what Eventually waited for in vain.
type unmet struct {
	missing string
	err     error
}

func (u *unmet) Error() string {
	if u.err != nil {
		return "waited in vain: " + u.err.Error()
	}
	return "waited in vain: " + u.missing
}
