package console

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
)

// TestTerminal plays what only a real terminal shows. Names are the complaints
// about other consoles that a part answers.
func TestTerminal(t *testing.T) {
	if *binary == "" {
		t.Skip("make console names the binary")
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is missing (apt-get install tmux)")
	}
	kubeconfig := startCluster(t, 3)
	kube := connect(t, kubeconfig)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}}}
	if _, err := kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, time.Minute, "the pod runs", func() bool {
		p, err := kube.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning
	})
	console := fmt.Sprintf("%s tui --kubeconfig %s --command 'pods default'", *binary, kubeconfig)

	t.Run("T32 a shell has the size of its terminal, at once and after a change", func(t *testing.T) {
		w := newWindow(t, "xterm-256color", console)
		w.await(t, "web", "Running")
		w.keys(t, "s")
		w.await(t, "exit or ctrl-d comes back")
		w.keys(t, "stty size", "Enter")
		w.await(t, "40 120")
		w.tmux(t, "resize-window", "-x", "101", "-y", "33")
		w.keys(t, "clear; stty size", "Enter")
		w.await(t, "33 101")
		w.keys(t, "exit", "Enter")
		w.await(t, "pods(default)") // the table, in its new size
	})
	t.Run("a shell on a node leaves nothing behind", func(t *testing.T) {
		w := newWindow(t, "xterm-256color", fmt.Sprintf("%s tui --kubeconfig %s --command nodes", *binary, kubeconfig))
		w.await(t, "Ready", "● live")
		w.keys(t, "s")
		w.await(t, "privileged", "Cancel")
		w.keys(t, "Enter")
		w.await(t, "exit or ctrl-d comes back", "/ #")
		w.keys(t, "hostname", "Enter")
		w.await(t, "/ # hostname")
		w.keys(t, "exit", "Enter")
		w.await(t, "the pod of the shell is removed", "nodes[")
		await(t, time.Minute, "the job goes", func() bool {
			jobs, err := kube.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
			return err == nil && len(jobs.Items) == 0
		})
	})
	t.Run("files go to a container and come back", func(t *testing.T) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "there"), []byte("and back"), 0o600); err != nil {
			t.Fatal(err)
		}
		w := newWindow(t, "xterm-256color", console)
		w.await(t, "web", "Running")
		w.keys(t, "t")
		w.await(t, "from here to the container")
		w.keys(t, "Down", "Enter")
		w.await(t, "path here")
		w.keys(t, "tmp/", "Tab", "C-u", filepath.Join(folder, "there"), "Enter")
		w.await(t, "● done in", "1 files   8 B")
		w.keys(t, "Escape")
		w.await(t, "pods(default)")
		w.keys(t, "t")
		w.await(t, "from the container to here")
		w.keys(t, "Enter")
		w.await(t, "path here")
		w.keys(t, "tmp/there", "Tab", "C-u", filepath.Join(folder, "back"), "Enter")
		w.await(t, "● done in", "1 files   8 B")
		if data, err := os.ReadFile(filepath.Join(folder, "back")); err != nil || string(data) != "and back" {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("T49 it can be suspended, and comes back whole", func(t *testing.T) {
		w := newWindow(t, "xterm-256color", "bash --norc")
		w.keys(t, "PS1='shell> '", "Enter", console, "Enter")
		w.await(t, "web", "Running")
		w.keys(t, "C-z")
		w.await(t, "Stopped", "shell>")
		w.keys(t, "clear; fg", "Enter")
		w.await(t, "● live", "Cluster", "<:>", "pods(default)", "Running", "└───", "\n pods")
		w.keys(t, "?")
		w.await(t, ":describe")
		w.keys(t, "Escape")
		w.await(t, "pods(default)", "Running")
		w.keys(t, ":q", "Enter")
		w.await(t, "shell>")
	})
	t.Run("T16 the API server goes and comes, and nothing is missed", func(t *testing.T) {
		line, through := cutLine(t, kubeconfig)
		w := newWindow(t, "xterm-256color", fmt.Sprintf("%s tui --kubeconfig %s --command 'pods default'", *binary, through))
		w.await(t, "web", "Running", "● live")
		line.cut(true)
		began := time.Now()
		w.await(t, "reconnecting")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a break is told after %s", took)
		}
		patch := []byte(`{"metadata":{"name":"late"},"spec":{"containers":[{"name":"c","image":"registry.example/late:1"}]}}`)
		if _, err := kube.CoreV1().Pods("default").Patch(t.Context(), "late", types.ApplyPatchType, append([]byte(`{"apiVersion":"v1","kind":"Pod",`), patch[1:]...), metav1.PatchOptions{FieldManager: "test"}); err != nil {
			t.Fatal(err)
		}
		line.cut(false)
		began = time.Now()
		w.await(t, "● live", "late")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("live again after %s", took)
		}
	})
	t.Run("T48 what is copied goes to the terminal's clipboard", func(t *testing.T) {
		c := open(t, kubeconfig)
		c.await(t, "Running")
		c.write(t, "/^web\r")
		c.await(t, "[1/")
		c.write(t, "c")
		c.await(t, "\x1b]52;c;"+base64.StdEncoding.EncodeToString([]byte("web")))
	})
	for _, term := range []struct{ name, env, want string }{
		{"xterm-256color", "", "●"}, {"screen-256color", "", "●"}, {"linux", "", "web"}, {"xterm-256color", "NO_COLOR=1", "●"}, {"dumb", "", ""},
	} {
		t.Run(strings.TrimSpace("terminal "+term.name+" "+term.env), func(t *testing.T) {
			w := newWindow(t, term.name, "bash --norc")
			w.keys(t, "PS1='shell> '; clear", "Enter", term.env+" TERM="+term.name+" LANG=C.UTF-8 "+console, "Enter")
			if term.name == "dumb" { // it has no cursor to move
				w.await(t, "with TERM set to its type")
				return
			}
			w.await(t, "Running", term.want, "pods(default)")
			coloured := colour.MatchString(w.tmux(t, "capture-pane", "-e", "-p"))
			if coloured == (term.env != "") {
				t.Errorf("coloured: %v", coloured)
			}
		})
	}
}

// colour is what sets a colour, of text or behind it.
var colour = regexp.MustCompile(`\x1b\[(?:[0-9;]*;)?[34][0-8](?:;[0-9;]*)?m`)

// window is a terminal in a tmux server of its own.
type window struct{ socket string }

func newWindow(t *testing.T, term, command string) *window {
	dir, err := os.MkdirTemp("", "tmux") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	w := &window{filepath.Join(dir, "s")}
	w.tmux(t, "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "env TERM="+term+" LANG=C.UTF-8 "+command)
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", w.socket, "kill-server").Run()
		os.RemoveAll(dir)
	})
	return w
}

func (w *window) tmux(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", w.socket}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %s: %v\n%s", args, err, out)
	}
	return string(out)
}

func (w *window) keys(t *testing.T, keys ...string) {
	t.Helper()
	w.tmux(t, append([]string{"send-keys"}, keys...)...)
}

// await waits until all texts are on the screen.
func (w *window) await(t *testing.T, texts ...string) {
	t.Helper()
	screen := ""
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		screen = w.tmux(t, "capture-pane", "-p")
		missing := ""
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q on\n%s", missing, screen)
		}
	}
}

// line is a way to the API server that can be cut.
type line struct {
	mu    sync.Mutex // protects the fields below
	off   bool
	conns map[net.Conn]bool
}

// cutLine makes a line, and a kubeconfig that leads through it.
func cutLine(t *testing.T, kubeconfig string) (l *line, through string) {
	cfg, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &line{conns: map[net.Conn]bool{}}
	var target string
	for _, c := range cfg.Clusters {
		u, err := url.Parse(c.Server)
		if err != nil {
			t.Fatal(err)
		}
		target, c.Server = u.Host, "https://"+listener.Addr().String()
	}
	through = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, through); err != nil {
		t.Fatal(err)
	}
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			carrying.Go(func() { l.carry(conn, target) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.cut(true)
		carrying.Wait()
	})
	return l, through
}

// cut cuts the line, or mends it.
func (l *line) cut(off bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.off = off
	for c := range l.conns {
		if off {
			c.Close()
		}
	}
}

// join says whether the line is whole, and takes note of its ends if so.
func (l *line) join(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range ends {
		l.conns[c] = true
	}
	return !l.off
}

func (l *line) carry(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if !l.join(client, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); server.Close() })
	both.Go(func() { _, _ = io.Copy(client, server); client.Close() })
	both.Wait()
}
