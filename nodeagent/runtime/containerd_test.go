package runtime

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"orrery.dev/nodeagent/helper/built"
)

// serveEnv makes this test binary a containerd server instead.
const serveEnv = "ORRERY_TEST_CONTAINERD_CONFIG"

func TestMain(m *testing.M) {
	if path := os.Getenv(serveEnv); path != "" {
		if err := ServeContainerd(context.Background(), []string{"--config", path}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node is a running containerd and its network.
type node struct {
	Containerd
	runtime internalapi.RuntimeService
	images  internalapi.ImageManagerService
	netns   string
}

// dial connects from the node's network.
func (n node) dial(t *testing.T, address string) error {
	t.Helper()
	var dialErr error
	err := ns.WithNetNSPath(n.netns, func(ns.NetNS) error {
		conn, err := net.DialTimeout("tcp", address, 3*time.Second)
		if err == nil {
			conn.Close()
		}
		dialErr = err
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dialErr
}

// startContainerd runs our containerd with everything of its own.
func startContainerd(t *testing.T) node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: containerd mounts and makes namespaces")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("needs runc")
	}
	if _, err := built.Helper(); err != nil {
		t.Skip(err)
	}
	state, err := os.MkdirTemp("/run", "orr")
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	c := Containerd{
		DataDir: data, StateDir: state, HelperDir: filepath.Join(data, "bin"), CNIConfDir: filepath.Join(data, "net.d"),
	}
	if err := WriteHelper(c.HelperDir); err != nil {
		t.Fatal(err)
	}
	config, err := c.WriteConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteCNIConfig(c.CNIConfDir, "10.250.7.0/24", "10.250.0.0/16", 0); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+config)
	cmd.Stderr = &log
	// A network of its own: the machine may be running a cluster.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(reservationsDir("10.250.7.0/24")); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	var rt internalapi.RuntimeService
	var im internalapi.ImageManagerService
	deadline := time.Now().Add(60 * time.Second)
	for {
		if _, err := os.Stat(c.Socket()); err == nil {
			if rt, im, err = Connect(ctx, c.Socket()); err == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("containerd does not answer")
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	n := node{c, rt, im, fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)}
	err = ns.WithNetNSPath(n.netns, func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPodOnOurContainerd(t *testing.T) {
	n := startContainerd(t)
	c, rt, im := n.Containerd, n.runtime, n.images
	ctx := t.Context()
	began := time.Now()
	if err := ImportPause(ctx, c.Socket(), PauseImage); err != nil {
		t.Fatal(err)
	}
	t.Logf("import pause: %v", time.Since(began))

	// Our own test binary stands in for the big binary.
	began = time.Now()
	if err := ImportBinary(ctx, c.Socket(), "orrery.dev/orrery:test", os.Args[0]); err != nil {
		t.Fatal(err)
	}
	t.Logf("import binary: %v", time.Since(began))
	began = time.Now()
	if err := ImportBinary(ctx, c.Socket(), "orrery.dev/orrery:test", os.Args[0]); err != nil {
		t.Fatal(err)
	}
	t.Logf("import binary again: %v", time.Since(began))
	images, err := im.ListImages(ctx, nil)
	if err != nil || len(images) != 2 {
		t.Fatalf("images: %v %v", images, err)
	}
	for _, i := range images {
		if !i.Pinned {
			t.Errorf("image %v is not pinned", i.RepoTags)
		}
	}

	t.Run("import", func(t *testing.T) { testImport(t, n) })

	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1"},
		Hostname:     "web",
		LogDirectory: t.TempDir(),
		PortMappings: []*runtimeapi.PortMapping{{HostPort: 18080, ContainerPort: 80}},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/orrery-test"},
	}
	for i := range 3 {
		began = time.Now()
		config.Metadata.Uid = fmt.Sprint("u", i)
		pod, err := rt.RunPodSandbox(ctx, config, []string{"", "test-handler", ""}[i])
		if err != nil {
			t.Fatal(err)
		}
		up := time.Since(began)
		status, err := rt.PodSandboxStatus(ctx, pod, false)
		if err != nil {
			t.Fatal(err)
		}
		ip := status.Status.Network.Ip
		t.Logf("pod %s has %s after %v", pod[:8], ip, up)
		if !strings.HasPrefix(ip, "10.250.7.") {
			t.Errorf("pod address %q", ip)
		}
		// The kernel of the pod's namespace answers: refused, not timed out.
		for _, address := range []string{net.JoinHostPort(ip, "80"), "127.0.0.1:18080"} {
			err := n.dial(t, address)
			if err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("dial %s: %v, want refused by the pod", address, err)
			}
		}
		began = time.Now()
		if err := rt.StopPodSandbox(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if err := rt.RemovePodSandbox(ctx, pod); err != nil {
			t.Fatal(err)
		}
		t.Logf("pod stopped and removed after %v", time.Since(began))
	}
}
