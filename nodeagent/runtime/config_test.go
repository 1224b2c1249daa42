package runtime

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestContainerdConfig(t *testing.T) {
	c := Containerd{
		DataDir: "/var/lib/orrery/containerd", StateDir: "/run/orrery/containerd", HelperDir: "/var/lib/orrery/bin",
		CNIConfDir: "/var/lib/orrery/cni/net.d",
		facts:      &machine{overlay: true, sysResource: true, appArmor: true},
	}
	got, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "containerd.toml")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got; -update rewrites it):\n%s", diff)
	}

	c.facts = &machine{}
	c.StateDir = "/a/state/directory/that/is/too/long/for/sockets"
	poor, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`snapshotter = "native"`, "restrict_oom_score_adj = true", "disable_apparmor = true"} {
		if !strings.Contains(string(poor), line) {
			t.Errorf("a poorer machine's configuration lacks %s", line)
		}
	}
	if strings.Contains(string(poor), "socket_dir") {
		t.Error("a directory too long for sockets is used for them")
	}
}

func TestCNIConfig(t *testing.T) {
	dir := t.TempDir()
	if err := WriteCNIConfig(dir, "10.244.0.0", "10.244.0.0/16", 0); err == nil {
		t.Error("a range without its length is taken")
	}
	if err := WriteCNIConfig(dir, "10.244.3.0/24", "10.244.0.0/16", 1400); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "10-orrery.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"podCIDR": "10.244.3.0/24"`, `"mtu": 1400`, `"type": "orrery-cni"`, `"portMappings": true`, "/run/orrery/cni/10.244.3.0-24"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in\n%s", part, text)
		}
	}
}
