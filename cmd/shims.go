package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killShims ends every shim that was started from a directory, with all that
// runs below it. The runtime has stopped its pods before; what is left is what it
// lost sight of in a crash.
func killShims(bin string) error {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	children := map[int][]int{}
	var shims []int
	for _, stat := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			continue
		}
		if parent, ok := parentOf(stat); ok {
			children[parent] = append(children[parent], pid)
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		program, _, _ := bytes.Cut(command, []byte{0})
		if string(program) == filepath.Join(bin, "containerd-shim-runc-v2") {
			shims = append(shims, pid)
		}
	}
	for _, shim := range shims {
		killTree(shim, children)
	}
	return nil
}

// killTree kills parents first, so that none starts its child anew.
func killTree(pid int, children map[int][]int) {
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	for _, child := range children[pid] {
		killTree(child, children)
	}
}

// parentOf is field 4 of /proc/PID/stat (proc(5)).
func parentOf(stat string) (int, bool) {
	data, err := os.ReadFile(stat)
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
