package console

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"orrery.dev/client"
)

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

// pid is of the program that the terminal was opened for.
func (w *window) pid(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(w.tmux(t, "display-message", "-p", "#{pane_pid}")))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// child is of what that program started.
func (w *window) child(t *testing.T) int {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", w.pid(t)))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// past is what the terminal shows, and what has scrolled out of it.
func (w *window) past(t *testing.T) string {
	t.Helper()
	return w.tmux(t, "capture-pane", "-p", "-S", "-")
}

func (w *window) keys(t *testing.T, keys ...string) {
	t.Helper()
	w.tmux(t, append([]string{"send-keys"}, keys...)...)
}

// await waits until all texts are on the screen, and returns that.
func (w *window) await(t *testing.T, texts ...string) (screen string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		screen = w.tmux(t, "capture-pane", "-p")
		missing := ""
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
			}
		}
		if missing == "" {
			return screen
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q on\n%s", missing, screen)
		}
	}
}

// awaitGone waits until a text is not on the screen any more.
func (w *window) awaitGone(t *testing.T, text string) {
	t.Helper()
	await(t, time.Minute, "the screen is rid of "+text, func() bool { return !strings.Contains(w.tmux(t, "capture-pane", "-p"), text) })
}

// slack is what this machine, busy as it is now, may add to a limit of time: some
// times what the console, showing a table, takes to show its help and be back.
func (w *window) slack(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	w.keys(t, "?")
	w.await(t, ":describe")
	w.keys(t, "Escape")
	w.awaitGone(t, ":describe")
	return 10 * time.Since(began)
}

// ask types a line until its answer is on the screen.
func (w *window) ask(t *testing.T, line, answer string) {
	t.Helper()
	screen := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		w.keys(t, line, "Enter")
		for range 50 {
			if screen = w.tmux(t, "capture-pane", "-p"); strings.Contains(screen, answer) {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Fatalf("%q is not answered by %q:\n%s", line, answer, screen)
}

// line is a way to the API server that can be cut.
type line struct {
	mu    sync.Mutex // protects the fields below
	off   bool
	conns map[net.Conn]bool
}

// cutLine makes a line, and a kubeconfig that leads through it.
func cutLine(t *testing.T, kubeconfig string) (l *line, through string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &line{conns: map[net.Conn]bool{}}
	var target string
	through = alter(t, kubeconfig, func(cfg *clientcmdapi.Config) {
		for _, c := range cfg.Clusters {
			u, err := url.Parse(c.Server)
			if err != nil {
				t.Fatal(err)
			}
			target, c.Server = u.Host, "https://"+listener.Addr().String()
		}
	})
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

// alter writes another kubeconfig.
func alter(t *testing.T, kubeconfig string, how func(*clientcmdapi.Config)) (path string) {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	how(cfg)
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// openly leads to an API server without TLS or credentials, and keeps all that
// comes back. What hide is a prefix of is not there.
func openly(t *testing.T, kubeconfig, hide string) (through string, sent *sentBytes) {
	t.Helper()
	cfg, err := client.Load(kubeconfig, "test")
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: &http.Transport{TLSClientConfig: trust}, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Del("Accept-Encoding")
		r.Out.Header.Del("Sec-WebSocket-Extensions")
	}}
	sent = &sentBytes{}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hide != "" && strings.HasPrefix(r.URL.Path, hide) {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	web.Listener = recording{web.Listener, sent}
	web.Start()
	t.Cleanup(web.Close)
	return alter(t, kubeconfig, func(cfg *clientcmdapi.Config) {
		for _, c := range cfg.Clusters {
			c.Server, c.CertificateAuthority, c.CertificateAuthorityData, c.TLSServerName = web.URL, "", nil, ""
		}
		for _, who := range cfg.AuthInfos {
			*who = clientcmdapi.AuthInfo{}
		}
	}), sent
}

// sentBytes are what connections sent.
type sentBytes struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (b *sentBytes) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *sentBytes) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type recording struct {
	net.Listener
	to io.Writer
}

func (r recording) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return recorded{conn, r.to}, nil
}

type recorded struct {
	net.Conn
	to io.Writer
}

func (r recorded) Write(p []byte) (int, error) {
	_, _ = r.to.Write(p)
	return r.Conn.Write(p)
}
