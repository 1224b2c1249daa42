package lab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ticks are the kernel's units of CPU time per second, on every machine that Go
// runs on.
const ticks = 100

// CPU is the processor time that the program has taken so far.
func (p *Process) CPU() (time.Duration, error) {
	data, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; user and system time are the
	// 14th and 15th of all fields.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	var sum int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// Memory is what the program has in memory, in bytes. What it shares with others
// counts in part.
func (p *Process) Memory() (int64, error) {
	data, err := os.ReadFile(p.proc("smaps_rollup"))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			kib, err := strconv.ParseInt(string(bytes.Fields(value)[0]), 10, 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no Pss", p.proc("smaps_rollup"))
}

func (p *Process) proc(file string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file)
}
