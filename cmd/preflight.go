package cmd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/api/resource"
)

// check is one thing that must be right before a cluster can start here. fail
// returns what is wrong and how to mend it, in one line.
type check struct {
	name string
	fail func() error
}

// minFreeDisk is what etcd, the images and a few pods need to begin with; the
// node agent evicts pods well above zero.
const minFreeDisk = 2 << 30

// preflight lists what `orrery up` needs of a machine, cheapest first.
func preflight(dataDir, nodeIP string, ownRuntime bool) []check {
	checks := []check{
		{"linux", func() error {
			if runtime.GOOS != "linux" {
				return fmt.Errorf("a real cluster needs Linux; `orrery up --simulate` runs anywhere")
			}
			return nil
		}},
		{"root", func() error {
			if os.Geteuid() != 0 {
				return errors.New("a real cluster needs root: run it with sudo, or try `orrery up --simulate`")
			}
			return nil
		}},
		{"capabilities", missingCapabilities},
		{"cgroups", missingCgroups},
		{"disk", func() error { return diskFull(dataDir) }},
	}
	if ownRuntime {
		checks = append(checks, check{"runc", func() error {
			if _, err := exec.LookPath("runc"); err != nil {
				return errors.New("runc is not installed: apt-get install runc (or name another runtime with --container-runtime-endpoint)")
			}
			return nil
		}})
	}
	return append(checks, check{"iptables", func() error {
		for _, tool := range []string{"nft", "iptables"} {
			if _, err := exec.LookPath(tool); err == nil {
				return nil
			}
		}
		return errors.New("neither nft nor iptables is installed: apt-get install nftables iptables")
	}}, check{"ports", func() error { return portTaken(nodeIP) }})
}

// missingCapabilities checks those that containers cannot do without; see
// capabilities(7) for the numbers. CAP_SYS_RESOURCE is not among them: we do
// without it.
func missingCapabilities() error {
	need := map[string]uint{"CAP_CHOWN": 0, "CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		hex, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		have, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return fmt.Errorf("read capabilities: %w", err)
		}
		for name, bit := range need {
			if have&(1<<bit) == 0 {
				return fmt.Errorf("%s is missing: run in a privileged container (docker run --privileged) or on the host", name)
			}
		}
	}
	return nil
}

func missingCgroups() error {
	if exists("/sys/fs/cgroup/cgroup.controllers") {
		return nil // version 2
	}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if !exists("/sys/fs/cgroup/" + controller + "/cgroup.procs") {
			return fmt.Errorf("the %s cgroup is not mounted at /sys/fs/cgroup/%s: mount -t cgroup -o %s cgroup /sys/fs/cgroup/%s", controller, controller, controller, controller)
		}
	}
	return nil
}

func diskFull(dataDir string) error {
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return fmt.Errorf("data directory: %w; name another with --data-dir", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dataDir, &fs); err != nil {
		return fmt.Errorf("data directory %s: %w", dataDir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < minFreeDisk {
		return fmt.Errorf("only %s free at %s, %s needed: free some, or name another place with --data-dir",
			resource.NewQuantity(free>>20<<20, resource.BinarySI), dataDir, resource.NewQuantity(minFreeDisk, resource.BinarySI))
	}
	return nil
}

// controlPlanePorts are the ports that the parts listen on, and for whom.
var controlPlanePorts = []struct {
	port int
	part string
}{{6443, "API server"}, {2379, "etcd"}, {2380, "etcd"}, {10250, "node agent"}, {10248, "node agent"}, {10257, "controller manager"}, {10259, "scheduler"}, {10256, "kube-proxy"}}

func portTaken(nodeIP string) error {
	for _, p := range controlPlanePorts {
		l, err := net.Listen("tcp", net.JoinHostPort(nodeIP, strconv.Itoa(p.port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("port %d, which the %s needs, is taken (see: ss -ltnp sport = %d): stop that program first", p.port, p.part, p.port)
		}
		if err != nil {
			return fmt.Errorf("listen on %s: %w; name this machine's address with --node-ip", nodeIP, err)
		}
		l.Close()
	}
	return nil
}
