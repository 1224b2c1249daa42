package cmd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a daemon that `orrery up` started: it outlives us, and is found
// again by its process file, which holds its id and the moment it started, so
// that a reused id is never taken for it.
type process struct {
	file string // process file
	log  string
	path string // put in front of PATH; may be empty
	// namespaces are clone(2)'s flags for those that it has of its own.
	namespaces uintptr
}

// start runs the command unless it runs already. Its output is appended to the
// log.
func (p process) start(argv ...string) error {
	if p.pid() != 0 {
		return nil
	}
	for _, path := range []string{p.file, p.log} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	// A caller's own directory for temporary files may go when the caller does.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
	if p.path != "" {
		cmd.Env = append(cmd.Env, "PATH="+p.path+":"+os.Getenv("PATH"))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: p.namespaces}
	if err := cmd.Start(); err != nil {
		return err
	}
	// The kernel reaps it for us only if we outlive it; wait in the background.
	go func() { _ = cmd.Wait() }()
	began, err := startTime(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("%s ended at once: see %s", filepath.Base(argv[0]), p.log)
	}
	return os.WriteFile(p.file, fmt.Appendf(nil, "%d %s\n", cmd.Process.Pid, began), 0o644)
}

// pid is the process id, or 0 if it does not run.
func (p process) pid() int {
	data, err := os.ReadFile(p.file)
	if err != nil {
		return 0
	}
	id, began, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err := strconv.Atoi(id)
	if err != nil {
		return 0
	}
	if now, err := startTime(pid); err != nil || now != began {
		return 0
	}
	return pid
}

// stop asks the process to end, and after patience kills it.
func (p process) stop(patience time.Duration) error {
	pid := p.pid()
	if pid == 0 {
		return removeIfThere(p.file)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	for end := time.Now().Add(patience); p.pid() != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			end = end.Add(patience)
		}
	}
	return removeIfThere(p.file)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// startTime is field 22 of /proc/PID/stat (proc(5)): clock ticks after boot. A
// zombie counts as gone.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command name, in parentheses, may hold spaces.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const state, start = 0, 19
	if len(fields) <= start || fields[state] == "Z" {
		return "", os.ErrProcessDone
	}
	return fields[start], nil
}
