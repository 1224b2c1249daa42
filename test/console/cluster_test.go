package console

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"orrery.dev/client"
)

// cluster is a simulated one that ends with the test, and may end before.
type cluster struct {
	kubeconfig string
	dir        string
	args       []string // its command line
	process    *exec.Cmd
}

// behind has a program wait for others that want the processors. Those of a session of
// its own would have as much of them as all others together.
var behind = []string{"setsid", "sh", "-c", `echo 5 2>/dev/null >/proc/self/autogroup; exec nice -n 5 "$@"`, "behind"}

// startCluster starts a cluster, under another program if one is named.
func startCluster(t *testing.T, nodes int, under ...string) *cluster {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c := &cluster{dir: t.TempDir()}
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig", "admin.conf")
	c.args = slices.Concat(under, []string{*binary, "up", "--simulate", "--nodes", strconv.Itoa(nodes), "--data-dir", c.dir, "--address", address})
	t.Cleanup(func() { c.end(syscall.SIGTERM) })
	c.start(t)
	return c
}

// start returns when the cluster is up, with what it had when it ended.
func (c *cluster) start(t *testing.T) {
	log, err := os.Create(filepath.Join(c.dir, "up.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.process = exec.Command(c.args[0], c.args[1:]...)
	c.process.Stdout, c.process.Stderr = log, log
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, 5*time.Minute, "the cluster is up", func() bool {
		said, _ := os.ReadFile(log.Name())
		return bytes.Contains(said, []byte("cluster is up"))
	})
}

func (c *cluster) end(how os.Signal) {
	if c.process.Process != nil && c.process.ProcessState == nil {
		_ = c.process.Process.Signal(how)
		_ = c.process.Wait()
	}
}

func connect(t *testing.T, kubeconfig string) kubernetes.Interface {
	cfg, err := client.Load(kubeconfig, "test")
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

func await(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", limit, what)
		}
	}
}
