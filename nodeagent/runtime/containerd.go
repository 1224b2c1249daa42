package runtime

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/containerd/containerd/v2/pkg/cap"
	"golang.org/x/sys/unix"
)

// PauseImage is the default sandbox image. It is made here (ImportPause), under
// the name that upstream's tools expect.
const PauseImage = "registry.k8s.io/pause:3.10.2"

// Containerd says where the containerd that comes along keeps its things.
// Nothing of it touches a containerd that the machine may have already.
type Containerd struct {
	DataDir            string // images and snapshots; survives a reboot
	StateDir           string // sockets and what runs; on a tmpfs
	Address            string // the CRI socket; empty: StateDir/containerd.sock
	HelperDir          string // where WriteHelper put the shim and the CNI plugin
	CNIConfDir         string
	RegistryConfigPath string // hosts.toml directories; empty: /etc/containerd/certs.d
	PauseImage         string // empty: PauseImage
	Snapshotter        string // empty: overlayfs where it works, else native

	facts *machine // for tests; nil: probe
}

// machine is what containerd's configuration depends on.
type machine struct {
	overlay     bool
	sysResource bool // CAP_SYS_RESOURCE: may lower an oom_score_adj
	appArmor    bool
}

// maxSocketDir is what containerd allows for the directory of shim sockets,
// so that a name in it fits a unix socket address.
const maxSocketDir = 38

func (c Containerd) withDefaults() Containerd {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&c.Address, filepath.Join(c.StateDir, "containerd.sock"))
	set(&c.RegistryConfigPath, "/etc/containerd/certs.d")
	set(&c.PauseImage, PauseImage)
	return c
}

// Socket is the address at which this containerd answers.
func (c Containerd) Socket() string { return c.withDefaults().Address }

// ConfigPath is where WriteConfig writes.
func (c Containerd) ConfigPath() string { return filepath.Join(c.DataDir, "config.toml") }

// WriteConfig probes the machine, writes containerd's configuration and returns
// its path.
func (c Containerd) WriteConfig() (string, error) {
	for _, dir := range []string{c.DataDir, c.StateDir, c.CNIConfDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return "", fmt.Errorf("containerd configuration: %w", err)
		}
	}
	if c.facts == nil {
		facts := probeMachine(c.DataDir)
		c.facts = &facts
	}
	text, err := c.config()
	if err != nil {
		return "", err
	}
	if err := writeIfChanged(c.ConfigPath(), text, 0o600); err != nil {
		return "", fmt.Errorf("containerd configuration: %w", err)
	}
	return c.ConfigPath(), nil
}

func (c Containerd) config() ([]byte, error) {
	c = c.withDefaults()
	if c.Snapshotter == "" {
		c.Snapshotter = "overlayfs"
		if !c.facts.overlay {
			c.Snapshotter = "native"
		}
	}
	socketDir := filepath.Join(c.StateDir, "s")
	if len(socketDir) > maxSocketDir {
		socketDir = "" // containerd chooses one
	}
	t, err := template.New("config").Funcs(template.FuncMap{"q": strconv.Quote}).Parse(containerdTemplate)
	if err != nil {
		return nil, fmt.Errorf("containerd configuration: %w", err)
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"C": c, "SocketDir": socketDir,
		"Shim":           filepath.Join(c.HelperDir, "containerd-shim-runc-v2"),
		"RuncRoot":       filepath.Join(c.StateDir, "runc"),
		"RestrictOOM":    !c.facts.sysResource,
		"NoAppArmor":     !c.facts.appArmor,
		"Runtimes":       []string{"runc", "test-handler"},
		"DisablePlugins": disabledPlugins(c.Snapshotter),
	})
	if err != nil {
		return nil, fmt.Errorf("containerd configuration: %w", err)
	}
	return out.Bytes(), nil
}

// disabledPlugins are the parts of containerd that a Kubernetes node does not
// use; each would cost memory and a line of log at every start.
func disabledPlugins(snapshotter string) []string {
	all := []string{
		"io.containerd.internal.v1.restart",
		"io.containerd.internal.v1.tracing",
		"io.containerd.tracing.processor.v1.otlp",
		"io.containerd.image-verifier.v1.bindir",
		"io.containerd.monitor.task.v1.cgroups",
		"io.containerd.nri.v1.nri",
		"io.containerd.differ.v1.erofs",
		"io.containerd.mount-handler.v1.erofs",
	}
	for _, name := range []string{"btrfs", "blockfile", "devmapper", "erofs", "zfs", "native", "overlayfs"} {
		if name != snapshotter && name != "overlayfs" && name != "native" {
			all = append(all, "io.containerd.snapshotter.v1."+name)
		}
	}
	return all
}

// containerdTemplate notes:
// oom_score is 0 because a lower one needs CAP_SYS_RESOURCE, and the node agent
// sets those of its system processes itself.
// netns_mounts_under_state_dir keeps network namespaces out of /run/netns, where
// a later `ip netns add` would mount over the ones in use and make them
// undeletable.
// use_internal_loopback needs no loopback plugin.
const containerdTemplate = `# Written by orrery at every start; changes are lost.
version = 4
root = {{q .C.DataDir}}
state = {{q .C.StateDir}}
temp = ""
oom_score = 0
imports = []
disabled_plugins = [{{range $i, $p := .DisablePlugins}}{{if $i}}, {{end}}{{q $p}}{{end}}]

[debug]
  level = "info"

[plugins.'io.containerd.server.v1.grpc']
  address = {{q .C.Address}}
[plugins.'io.containerd.server.v1.ttrpc']
  address = {{q (printf "%s.ttrpc" .C.Address)}}
[plugins.'io.containerd.server.v1.debug']
  address = ""
{{- if .SocketDir}}
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = {{q .SocketDir}}
{{- end}}
[plugins.'io.containerd.internal.v1.opt']
  path = {{q (printf "%s/opt" .C.DataDir)}}

[plugins.'io.containerd.cri.v1.images']
  snapshotter = {{q .C.Snapshotter}}
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = {{q .C.PauseImage}}
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = {{q .C.RegistryConfigPath}}

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = {{.RestrictOOM}}
  disable_apparmor = {{.NoAppArmor}}
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    conf_dir = {{q .C.CNIConfDir}}
    bin_dirs = [{{q .C.HelperDir}}]
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
{{- range .Runtimes}}
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.}}]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = {{q $.Shim}}
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{.}}.options]
        Root = {{q $.RuncRoot}}
        SystemdCgroup = false
{{- end}}
`

func probeMachine(dir string) machine {
	capabilities, _ := cap.Current()
	return machine{
		overlay:     overlayWorks(dir),
		sysResource: slices.Contains(capabilities, "CAP_SYS_RESOURCE"),
		appArmor:    appArmorWorks(),
	}
}

// overlayWorks tries it on the file system that will hold the images: the
// module may be there and the file system still not fit.
func overlayWorks(dir string) bool {
	tmp, err := os.MkdirTemp(dir, "overlay-probe-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(tmp)
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if os.Mkdir(filepath.Join(tmp, d), 0o700) != nil {
			return false
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", tmp)
	merged := filepath.Join(tmp, "merged")
	if unix.Mount("overlay", merged, "overlay", 0, options) != nil {
		return false
	}
	return unix.Unmount(merged, unix.MNT_DETACH) == nil
}

func appArmorWorks() bool {
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || !strings.HasPrefix(string(enabled), "Y") {
		return false
	}
	_, err = os.Stat("/sbin/apparmor_parser")
	return err == nil
}
