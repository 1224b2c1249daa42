package cmd

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/client"
	"orrery.dev/cluster"
)

// sshUser is somebody with a key.
type sshUser struct {
	t    *testing.T
	key  ssh.Signer
	line string // of the file of keys
}

func newSSHUser(t *testing.T, options string) sshUser {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return sshUser{t, key, options + " " + string(ssh.MarshalAuthorizedKey(key.PublicKey()))}
}

// sshConsole is a console at the other end of a connection.
type sshConsole struct {
	t       *testing.T
	conn    *ssh.Client
	session *ssh.Session
	in      io.Writer
	ended   chan error

	mu  sync.Mutex // protects out
	out strings.Builder
}

// open runs `ssh -t ADDRESS COMMAND` and checks that it is answered by the host key
// that was told.
func (u sshUser) open(address, hostKey, command string) *sshConsole {
	u.t.Helper()
	conn, err := ssh.Dial("tcp", address, &ssh.ClientConfig{Auth: []ssh.AuthMethod{ssh.PublicKeys(u.key)},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if ssh.FingerprintSHA256(key) != hostKey {
				return fmt.Errorf("host key %s, told was %s", ssh.FingerprintSHA256(key), hostKey)
			}
			return nil
		}})
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { conn.Close() })
	x := &sshConsole{t: u.t, conn: conn, ended: make(chan error, 1)}
	if x.session, err = conn.NewSession(); err != nil {
		u.t.Fatal(err)
	}
	x.in, _ = x.session.StdinPipe()
	x.session.Stdout, x.session.Stderr = x, x
	_ = x.session.Setenv("NO_COLOR", "1")
	if err := x.session.RequestPty("xterm-256color", 40, 140, nil); err != nil {
		u.t.Fatal(err)
	}
	if err := x.session.Start(command); err != nil {
		u.t.Fatal(err)
	}
	go func() { x.ended <- x.session.Wait() }()
	return x
}

func (x *sshConsole) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.Write(p)
}

// controls are what moves the cursor and colours the text.
var controls = regexp.MustCompile("\x1b\\[[0-9;:?<>]*[ -/]*[@-~]|\x1b[]P].*?(\x1b\\\\|\a)|\x1b[()=>].?")

// await waits until texts were drawn, and forgets what was.
func (x *sshConsole) await(texts ...string) {
	x.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		x.mu.Lock()
		drawn := controls.ReplaceAllString(x.out.String(), "")
		missing := ""
		for _, text := range texts {
			if !strings.Contains(drawn, text) {
				missing = text
			}
		}
		if missing == "" {
			x.out.Reset()
		}
		x.mu.Unlock()
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("waited for %q in\n%s", missing, drawn)
		}
	}
}

func (x *sshConsole) keys(text string) { _, _ = io.WriteString(x.in, text) }

func TestConsoleBySSH(t *testing.T) {
	ann, bob, eve := newSSHUser(t, `user="ann",group="admins"`), newSSHUser(t, `user="bob"`), newSSHUser(t, `user="eve"`)
	dir, address := t.TempDir(), freeAddress(t)
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte(ann.line+bob.line), 0o600); err != nil {
		t.Fatal(err)
	}
	layout := cluster.Layout{Dir: filepath.Join(dir, "data")}
	policy, audited := filepath.Join(dir, "policy"), filepath.Join(dir, "audit")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, resources: [{resources: [pods/exec]}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	clients := simulated(t, func(o *upOptions) {
		o.dataDir, o.console = layout.Dir, cluster.Console{Address: address, Keys: keys}
		o.apiServerArgs = []string{"--audit-policy-file=" + policy, "--audit-log-path=" + audited}
	})
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}))
	for _, ns := range []string{"shop", "default"} {
		must(clients.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-of-" + ns},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}}}, metav1.CreateOptions{}))
	}
	must(clients.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "admins"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "admins"}}}, metav1.CreateOptions{}))
	must(clients.RbacV1().RoleBindings("shop").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bob"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "bob"}}}, metav1.CreateOptions{}))
	host, err := cluster.EnsureHostKey(layout.ConsoleHostKey())
	must(host, err)
	info, err := os.Stat(layout.ConsoleHostKey())
	must(info, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the host key's mode is %v", info.Mode())
	}
	fingerprint := ssh.FingerprintSHA256(host.PublicKey())

	t.Run("an administrator", func(t *testing.T) {
		x := sshUser{t, ann.key, ""}.open(address, fingerprint, "")
		x.await("pods(all)", "web-of-shop", "web-of-default", "ann")
		x.keys("/web-of-shop\r")
		x.await("/web-of-shop")
		x.keys("F")
		x.await("not on your machine")
		if err := x.session.WindowChange(30, 100); err != nil {
			t.Fatal(err)
		}
		x.await("web-of-shop")
		x.keys("s")
		x.await("exec shop/web-of-shop: exit or ctrl-d comes back", "# ")
		x.keys("exit\r")
		x.await("pods(all)")
		e := eventIn(t, audited)
		if by := e.ImpersonatedUser; by == nil || by.Username != "ann" || !slices.Contains(by.Groups, "admins") || e.User.Username != "system:orrery:console" {
			t.Errorf("the shell is recorded as that of %+v, asked for by %s", by, e.User.Username)
		}
		x.keys(":q\r")
		if err := <-x.ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("somebody with few rights", func(t *testing.T) {
		x := sshUser{t, bob.key, ""}.open(address, fingerprint, ":pods -n shop")
		x.await("pods(shop)", "web-of-shop", "bob")
		x.keys(":pods default\r")
		x.await("forbidden")
		x.keys("\x03")
		if err := <-x.ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("somebody who is new", func(t *testing.T) {
		if _, err := ssh.Dial("tcp", address, &ssh.ClientConfig{Auth: []ssh.AuthMethod{ssh.PublicKeys(eve.key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}); err == nil {
			t.Fatal("eve is known too early")
		}
		if err := os.WriteFile(keys, []byte(ann.line+eve.line), 0o600); err != nil {
			t.Fatal(err)
		}
		sshUser{t, eve.key, ""}.open(address, fingerprint, "pods").await("eve", "forbidden")
	})
	t.Run("somebody who goes in the middle of it", func(t *testing.T) {
		x := sshUser{t, ann.key, ""}.open(address, fingerprint, "")
		x.await("web-of-shop")
		x.keys(strings.Repeat("jk", 20000))
		_ = x.conn.Close()
		y := sshUser{t, ann.key, ""}.open(address, fingerprint, "")
		y.await("web-of-shop")
		y.keys("/web-of-shop\r")
		y.await("/web-of-shop")
		y.keys("s")
		y.await("# ")
		y.conn.Close()
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			left := consoleGoroutines(t)
			if left == "" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("after all consoles there are still\n%s", left)
			}
		}
	})
	t.Run("the server itself", func(t *testing.T) {
		cfg, err := client.Load(layout.Kubeconfig("console"), "test")
		must(cfg, err)
		for _, c := range []struct {
			as   rest.ImpersonationConfig
			may  bool
			name string
		}{
			{rest.ImpersonationConfig{}, false, "as itself"},
			{rest.ImpersonationConfig{UserName: "ann", Groups: []string{"admins"}}, true, "ann"},
			{rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}, false, "masters"},
			{rest.ImpersonationConfig{UserName: "system:node:node-1", Groups: []string{"system:nodes"}}, false, "a node"},
			{rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:default"}, false, "an account"},
		} {
			own := rest.CopyConfig(cfg)
			own.Impersonate = c.as
			one, err := kubernetes.NewForConfig(own)
			must(one, err)
			_, err = one.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
			if (err == nil) != c.may || (err != nil && !apierrors.IsForbidden(err)) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

// eventIn waits for the first event in a file of them.
func eventIn(t *testing.T, path string) (e auditv1.Event) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(path)
		if line, _, whole := bytes.Cut(data, []byte("\n")); whole {
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		if time.Now().After(end) {
			t.Fatalf("nothing is recorded: %v", err)
		}
	}
}

// consoleGoroutines are those of consoles and their connections.
func consoleGoroutines(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, one := range strings.Split(all.String(), "\n\n") {
		if strings.Contains(one, "orrery.dev/tui.") || strings.Contains(one, "tview.") || strings.Contains(one, "sshd.(*server).serve") {
			left = append(left, one)
		}
	}
	return strings.Join(left, "\n\n")
}

func TestConsoleFlags(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("ssh-ed25519 AAAA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]cluster.Console{
		"go together":         {Address: "127.0.0.1:2222"},
		"to whom":             {Keys: keys},
		"of the form":         {Address: "localhost:ssh", Keys: keys},
		"no such file":        {Address: "[::]:22", Keys: keys + "x"},
		"line 1 is no public": {Address: "[::]:22", Keys: keys},
	} {
		if err := checkConsole(&o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
