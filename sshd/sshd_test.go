package sshd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func lineOf(options string, key ssh.Signer) string {
	return options + string(ssh.MarshalAuthorizedKey(key.PublicKey()))
}

// served is a server whose program tells of its session, and echoes what is typed.
type served struct {
	t       *testing.T
	keys    string
	address string
	program func(context.Context, *Session) error
	tell    func(*Session, error) string
	said    *lockedBuffer
	stop    func()
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func serve(t *testing.T, lines string, changes ...func(*served)) *served {
	t.Helper()
	s := &served{t: t, keys: filepath.Join(t.TempDir(), "keys"), program: echo, said: &lockedBuffer{}}
	for _, change := range changes {
		change(s)
	}
	s.write(lines)
	log := slog.New(slog.NewTextHandler(s.said, nil))
	keys, err := OpenKeys(s.keys, log)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{HostKey: newKey(t), Keys: keys, Log: log, Program: s.program, Tell: s.tell}, l)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *served) write(lines string) {
	s.t.Helper()
	if err := os.WriteFile(s.keys, []byte(lines), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func echo(ctx context.Context, s *Session) error {
	if s.Command == "panic" {
		panic("broken")
	}
	changed := make(chan struct{}, 1)
	s.NotifyResize(func() { changed <- struct{}{} })
	_ = s.Start()
	size, _ := s.WindowSize()
	fmt.Fprintf(s, "%s %q %s %s %dx%d %q\r\n", s.User, s.Groups, s.Getenv("TERM"), s.Getenv("LANG"), size.Width, size.Height, s.Command)
	typed := make(chan string)
	go func() {
		defer close(typed)
		for lines := bufio.NewScanner(s); lines.Scan(); {
			typed <- lines.Text()
		}
	}()
	defer func() { _ = s.Drain(); <-typed }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			size, _ := s.WindowSize()
			fmt.Fprintf(s, "now %dx%d\r\n", size.Width, size.Height)
		case line, more := <-typed:
			if line == "fail" {
				return errors.New("as you said")
			}
			if line == "quit" || !more {
				return nil
			}
			fmt.Fprintf(s, "you said %s\r\n", line)
		}
	}
}

// dial connects with some keys, and tells the banners.
func (s *served) dial(keys ...ssh.Signer) (*ssh.Client, string, error) {
	s.t.Helper()
	var banners strings.Builder
	client, err := ssh.Dial("tcp", s.address, &ssh.ClientConfig{
		User: "whoever", Auth: []ssh.AuthMethod{ssh.PublicKeys(keys...)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: time.Minute,
		BannerCallback: func(text string) error { banners.WriteString(text); return nil },
	})
	if err == nil {
		s.t.Cleanup(func() { client.Close() })
	}
	return client, banners.String(), err
}

// terminal is a session as a user sees it.
type terminal struct {
	t       *testing.T
	session *ssh.Session
	in      io.WriteCloser
	out     *bufio.Reader
	errors  bytes.Buffer
}

func (s *served) open(client *ssh.Client, command string, variables ...string) *terminal {
	s.t.Helper()
	session, err := client.NewSession()
	if err != nil {
		s.t.Fatal(err)
	}
	x := &terminal{t: s.t, session: session}
	session.Stderr = &x.errors
	x.in, _ = session.StdinPipe()
	out, _ := session.StdoutPipe()
	x.out = bufio.NewReader(out)
	for i := 0; i < len(variables); i += 2 {
		if err := session.Setenv(variables[i], variables[i+1]); err != nil {
			s.t.Logf("%s: %v", variables[i], err)
		}
	}
	if err := session.RequestPty("xterm", 30, 100, ssh.TerminalModes{}); err != nil {
		s.t.Fatal(err)
	}
	start := session.Shell
	if command != "" {
		start = func() error { return session.Start(command) }
	}
	if err := start(); err != nil {
		s.t.Fatal(err)
	}
	return x
}

// await reads lines until one is wanted.
func (x *terminal) await(want string) {
	x.t.Helper()
	patience := time.AfterFunc(time.Minute, func() { _ = x.session.Close() })
	defer patience.Stop()
	for {
		line, err := x.out.ReadString('\n')
		if strings.TrimRight(line, "\r\n") == want {
			return
		}
		if err != nil {
			x.t.Fatalf("waited for %q, then: %v %s", want, err, x.errors.String())
		}
		x.t.Logf("%q", line)
	}
}

// ends waits for the end, which tells an exit code.
func (x *terminal) ends(code int) string {
	x.t.Helper()
	err := x.session.Wait()
	var failed *ssh.ExitError
	if (code == 0 && err != nil) || (code != 0 && (!errors.As(err, &failed) || failed.ExitStatus() != code)) {
		x.t.Errorf("it ended with %v, want %d", err, code)
	}
	return x.errors.String()
}

func TestTerminalOfAUser(t *testing.T) {
	ann := newKey(t)
	s := serve(t, lineOf(`user="ann, the first",group="dev",group="ops" `, ann))
	client, _, err := s.dial(ann)
	if err != nil {
		t.Fatal(err)
	}
	x := s.open(client, "", "LANG", "zh_TW.UTF-8", "PATH", "/bin")
	x.await(`ann, the first ["dev" "ops"] xterm zh_TW.UTF-8 100x30 ""`)
	fmt.Fprint(x.in, "hello\n")
	x.await("you said hello")
	if err := x.session.WindowChange(40, 120); err != nil {
		t.Fatal(err)
	}
	x.await("now 120x40")
	_ = x.session.WindowChange(1<<30, 1<<30)
	x.await("now 800x250") // no client makes the server keep more
	_ = x.session.WindowChange(0, 0)
	x.await("now 80x24")
	y := s.open(client, ":nodes") // beside it
	y.await(`ann, the first ["dev" "ops"] xterm C.UTF-8 100x30 ":nodes"`)
	fmt.Fprint(y.in, "fail\n")
	if said := y.ends(1); said != "orrery: as you said\r\n" {
		t.Errorf("%q", said)
	}
	fmt.Fprint(x.in, "quit\n")
	x.ends(0)
	z := s.open(client, "panic")
	if said := z.ends(1); !strings.Contains(said, "broke down") || !strings.Contains(s.said.String(), "err=broken") {
		t.Errorf("%q\n%s", said, s.said)
	}
	s.open(client, "").await(`ann, the first ["dev" "ops"] xterm C.UTF-8 100x30 ""`) // nobody else is harmed
}

func TestOnlyKnownKeysAreAdmitted(t *testing.T) {
	ann, eve := newKey(t), newKey(t)
	s := serve(t, lineOf(`user="ann" `, ann))
	_, banner, err := s.dial(eve)
	if want := "nobody is known by the key " + ssh.FingerprintSHA256(eve.PublicKey()); err == nil || !strings.Contains(banner, want) {
		t.Errorf("%v, %q", err, banner)
	}
	if _, _, err := s.dial(eve, ann); err != nil {
		t.Errorf("a known key after another: %v", err)
	}
	for what, method := range map[string]ssh.AuthMethod{
		"a password": ssh.Password("x"),
		"a question": ssh.KeyboardInteractive(func(string, string, []string, []bool) ([]string, error) { return nil, nil }),
	} {
		if _, err := ssh.Dial("tcp", s.address, &ssh.ClientConfig{Auth: []ssh.AuthMethod{method}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	signed := &ssh.Certificate{Key: ann.PublicKey(), CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity}
	if err := signed.SignCert(rand.Reader, eve); err != nil {
		t.Fatal(err)
	}
	certified, err := ssh.NewCertSigner(signed, ann)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.dial(certified); err == nil {
		t.Error("a certificate is accepted")
	}
}

func TestNothingButAConsole(t *testing.T) {
	ann := newKey(t)
	s := serve(t, lineOf(`user="ann" `, ann))
	client, _, err := s.dial(ann)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Dial("tcp", s.address); err == nil || !strings.Contains(err.Error(), "nothing is forwarded") {
		t.Errorf("forwarding from here: %v", err)
	}
	if _, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("forwarding to here is granted")
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"auth-agent-req@openssh.com", "x11-req", "subsystem"} {
		if ok, _ := session.SendRequest(kind, true, ssh.Marshal(struct{ Name string }{"sftp"})); ok {
			t.Errorf("%s is granted", kind)
		}
	}
	var said bytes.Buffer
	session.Stderr = &said
	if err := session.Run("ls"); err == nil || !strings.Contains(said.String(), "needs a terminal: ssh -t") {
		t.Errorf("without a terminal: %v, %q", err, said.String())
	}
	for range sessionsPerUser {
		s.open(client, "").await(`ann [] xterm C.UTF-8 100x30 ""`)
	}
	if _, err := client.NewSession(); err == nil || !strings.Contains(err.Error(), "8 consoles open already") {
		t.Errorf("one too many: %v", err)
	}
}

func TestKeysAreReadAgain(t *testing.T) {
	aliveEvery = time.Second // ann has two of them to open her session
	t.Cleanup(func() { aliveEvery = 15 * time.Second })
	ann, bob := newKey(t), newKey(t)
	s := serve(t, lineOf(`user="ann" `, ann))
	client, _, err := s.dial(ann)
	if err != nil {
		t.Fatal(err)
	}
	x := s.open(client, "")
	x.await(`ann [] xterm C.UTF-8 100x30 ""`)
	if _, _, err := s.dial(bob); err == nil {
		t.Fatal("bob is known too early")
	}
	s.write(lineOf("", ann) + lineOf(`user="bob" `, bob))
	if said := x.ends(1); !strings.Contains(said, "taken out of the console's file") {
		t.Errorf("ann is told %q", said)
	}
	if _, _, err := s.dial(ann); err == nil || !strings.Contains(s.said.String(), "line 1: it does not say whose key it is") {
		t.Errorf("ann: %v\n%s", err, s.said)
	}
	if _, _, err := s.dial(bob); err != nil {
		t.Errorf("bob, on a line that is right: %v", err)
	}
	if err := os.Remove(s.keys); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.dial(bob); err == nil {
		t.Error("bob is known without a file")
	}
}

func TestWhoLooksIsToldThatTheServerStops(t *testing.T) {
	ann := newKey(t)
	s := serve(t, lineOf(`user="ann" `, ann), func(s *served) {
		s.tell = func(s *Session, err error) string { return "in " + s.Getenv("LANG") + ": " + err.Error() }
	})
	client, _, err := s.dial(ann)
	if err != nil {
		t.Fatal(err)
	}
	x := s.open(client, "", "LANG", "zh_TW.UTF-8")
	x.await(`ann [] xterm zh_TW.UTF-8 100x30 ""`)
	s.stop()
	if said := x.ends(1); said != "orrery: in zh_TW.UTF-8: the server of the consoles stops\r\n" {
		t.Errorf("ann is told %q", said)
	}
}

func TestClientsThatAreOfNoUseAreLeft(t *testing.T) {
	aliveEvery = 10 * time.Millisecond
	t.Cleanup(func() { aliveEvery = 15 * time.Second })
	ann := newKey(t)
	s := serve(t, lineOf(`user="ann" `, ann))
	client, _, err := s.dial(ann)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = client.Wait() }()
	select {
	case <-ended: // it opened no session
	case <-time.After(time.Minute):
		t.Fatal("an idle connection stays")
	}
}

func TestLinesOfKeys(t *testing.T) {
	key := newKey(t)
	for options, want := range map[string]string{
		`user="ann" `:                        "",
		`user="ann",group="dev" `:            "",
		"":                                   "line 2: it does not say whose key it is",
		`group="dev" `:                       "line 2: it does not say whose key it is",
		`user="ann",user="bob" `:             "two users, ann and bob",
		`user=ann `:                          `is not of the form user="name"`,
		`user="" `:                           `is not of the form user="name"`,
		`user="a\nb" `:                       `is not of the form user="name"`,
		`user="ann",no-pty `:                 "the option no-pty is not known here",
		`user="ann",from="::1" `:             "the option from is not known here",
		`user="system:admin" `:               "names that begin with system: are Kubernetes' own",
		`user="ann",group="system:masters" `: "names that begin with system: are Kubernetes' own",
		"# a comment\n\n" + `user="ann" nonsense AAAA #`:     "line 4 is no public key",
		lineOf(`user="ann" `, key) + `user="bob",group="x" `: "line 3: the key is on another line already",
	} {
		users, problems := parseKeys([]byte("\n" + lineOf(options, key)))
		got := fmt.Sprint(problems)
		if len(problems) == 0 != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", options, got, want)
		}
		if want == "" && users[string(key.PublicKey().Marshal())].User != "ann" {
			t.Errorf("%s: %v", options, users)
		}
	}
	path := filepath.Join(t.TempDir(), "keys")
	if _, err := OpenKeys(path, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no file, no error")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "anybody may write to it") {
		t.Errorf("%v", err)
	}
}
