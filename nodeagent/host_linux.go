package nodeagent

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/pkg/cap"
	"golang.org/x/sys/unix"
)

// readLinux reads the machine's size and identity. What can't be read stays
// empty: no pod depends on it.
func (h *hostFacts) readLinux() {
	h.cores = int64(runtime.NumCPU())
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		h.kernel = string(bytes.TrimRight(name.Release[:], "\x00"))
	}
	h.oomScore, _ = strconv.ParseInt(line("/proc/self/oom_score_adj"), 10, 64)
	capabilities, _ := cap.Current()
	h.mayLowerOOM = slices.Contains(capabilities, "CAP_SYS_RESOURCE")
	h.machineID = line("/etc/machine-id")
	h.bootID = line("/proc/sys/kernel/random/boot_id")
	h.systemUUID = line("/sys/class/dmi/id/product_uuid")
	if h.systemUUID == "" {
		h.systemUUID = h.machineID
	}
	h.osImage = "Linux"
	data, _ := os.ReadFile("/etc/os-release")
	for _, l := range strings.Split(string(data), "\n") {
		if v, ok := strings.CutPrefix(l, "PRETTY_NAME="); ok {
			h.osImage = strings.Trim(v, `"`)
		}
	}
}

func line(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
