package simulate

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

type output struct{ bytes.Buffer }

func (*output) Close() error { return nil }

// withStreams is a runtime with one container, and its streams.
func withStreams(t *testing.T) (streams *Streams, r *Runtime, id string) {
	t.Helper()
	streams, err := NewStreams()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { streams.listener.Close() })
	if r, err = New("10.1.0.0/24"); err != nil {
		t.Fatal(err)
	}
	streams.Add(r)
	_, id = run(t, r, nil, nil)
	r.containers[id].config.Envs = []*runtimeapi.KeyValue{{Key: "COLOUR", Value: []byte("green")}}
	return streams, r, id
}

func TestShell(t *testing.T) {
	streams, r, id := withStreams(t)
	for _, c := range []struct {
		cmd, in, out, errOut string
		code                 int
	}{
		{cmd: "echo hi there", out: "hi there\n"},
		{cmd: "/bin/hostname", out: "p\n"},
		{cmd: "false", code: 1},
		{cmd: "exit 4", code: 4},
		{cmd: "reboot", errOut: "reboot: not found", code: 127},
		{cmd: "stty size", errOut: "not a terminal", code: 1},
		{cmd: "cat", in: "as it is", out: "as it is"},
		{cmd: "cat /etc/passwd", errOut: "no such file", code: 1},
		{cmd: "ls -1p /", out: "bin/\ndev/\netc/\nhome/\nproc/\nroot/\nsys/\ntmp/\nusr/\nvar/\n"},
		{cmd: "ls -1ap /tmp", out: "./\n../\n"},
		{cmd: "ls /nowhere", errOut: "no such file", code: 1},
		{cmd: "test -d /tmp"},
		{cmd: "test -d /tmp/none", code: 1},
		{cmd: "tar cf - /tmp/none", errOut: "no such file", code: 1},
		{cmd: "sh", in: "echo one\necho two; exit 3\necho three\n", out: "one\ntwo\n", code: 3},
		{cmd: "sh -c|X=1; export X; echo \"$X ${COLOUR}y\" '$X' a\\ b", out: "1 greeny $X a b\n"},
		{cmd: "sh -c|false && echo no || echo yes", out: "yes\n"},
		{cmd: "sh -c|echo unseen >/dev/null 2>&1; true", out: ""},
		{cmd: "sh -c|if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh", in: "echo inside\n", out: "inside\n"},
		{cmd: "sh -c|command -v bash >/dev/null && exec bash || exec sh", in: "exit 2\n", code: 2},
	} {
		t.Run(c.cmd, func(t *testing.T) {
			first, script, scripted := strings.Cut(c.cmd, "|")
			cmd := strings.Fields(first)
			if scripted && strings.HasPrefix(first, "sh -c") {
				cmd = append(cmd, script)
			}
			var in io.Reader
			if c.in != "" {
				in = strings.NewReader(c.in)
			}
			var out, errOut output
			err := streams.Exec(t.Context(), r.scope(id), cmd, in, &out, &errOut, false, nil)
			code := 0
			var ended utilexec.CodeExitError
			if errors.As(err, &ended) {
				code, err = ended.Code, nil
			}
			if err != nil || out.String() != c.out || !strings.Contains(errOut.String(), c.errOut) || code != c.code {
				t.Errorf("got %q, %q, %d (%v)", out.String(), errOut.String(), code, err)
			}
		})
	}
}

// What is copied into a container by way of tar is there, and comes out again.
func TestFiles(t *testing.T) {
	streams, r, id := withStreams(t)
	do := func(cmd, in string) string {
		t.Helper()
		var out, errOut output
		if err := streams.Exec(t.Context(), r.scope(id), strings.Fields(cmd), strings.NewReader(in), &out, &errOut, false, nil); err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, errOut.String())
		}
		return out.String()
	}
	packed := func(name, text string) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}), second(io.WriteString(w, text)), w.Close())
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	do("tar -xmf - -C /tmp", packed("in/a.txt", "hello"))
	do("tar xf - -C /tmp/in", packed("b.txt", "there"))
	if got := do("ls -1ap /tmp", "") + do("ls /tmp/in", "") + do("cat /tmp/in/a.txt /tmp/in/b.txt", ""); got != "./\n../\nin/\na.txt  b.txt\nhellothere" {
		t.Errorf("got %q", got)
	}
	for cmd, want := range map[string]string{"tar cf - /tmp/in": "tmp/in/a.txt tmp/in/b.txt", "tar cf - -C /tmp in": "in/a.txt in/b.txt", "tar cf - -C /tmp/in b.txt": "b.txt"} {
		var names []string
		unpacked := tar.NewReader(strings.NewReader(do(cmd, "")))
		for head, err := unpacked.Next(); err == nil; head, err = unpacked.Next() {
			names = append(names, head.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", cmd, got, want)
		}
	}
}

func second(_ int, err error) error { return err }

// A terminal has a size, and its shell ends with its container.
func TestTerminal(t *testing.T) {
	streams, r, id := withStreams(t)
	typed, keys := io.Pipe()
	screen, out := io.Pipe()
	sizes := make(chan remotecommand.TerminalSize)
	done := make(chan error, 1)
	go func() { done <- streams.Exec(t.Context(), r.scope(id), []string{"sh"}, typed, out, nil, true, sizes) }()
	seen := make(chan string, 100)
	go func() {
		buf := make([]byte, 1000)
		for {
			n, err := screen.Read(buf)
			if err != nil {
				close(seen)
				return
			}
			seen <- string(buf[:n])
		}
	}()
	until := func(want string) {
		t.Helper()
		var all string
		for deadline := time.After(time.Minute); !strings.Contains(all, want); {
			select {
			case s := <-seen:
				all += s
			case <-deadline:
				t.Fatalf("no %q in %q", want, all)
			}
		}
	}
	until("simulated")
	sizes <- remotecommand.TerminalSize{Width: 90, Height: 30}
	for range 2 { // one is in force when the next is taken
		sizes <- remotecommand.TerminalSize{Width: 100, Height: 31}
	}
	until("# ")
	io.WriteString(keys, "never sent\x03stty size\r")
	until("31 100\r\n")
	if err := r.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	var ended utilexec.CodeExitError
	if err := <-done; !errors.As(err, &ended) || ended.Code != 137 {
		t.Errorf("the shell of a stopped container ended with %v", err)
	}
	keys.Close()
	out.Close()
	streams.sessions.Wait()
}

// A client's keys and sizes come by channels of their own.
func TestSizeIsAheadOfWhatWasTyped(t *testing.T) {
	streams, r, id := withStreams(t)
	typed, keys := io.Pipe()
	screen, out := io.Pipe()
	sizes := make(chan remotecommand.TerminalSize, 1)
	done := make(chan error, 1)
	go func() {
		done <- streams.Exec(t.Context(), r.scope(id), []string{"sh"}, typed, out, nil, true, sizes)
		out.Close()
	}()
	go func() {
		io.WriteString(keys, "stty size\rexit\r") // blocks until somebody reads
	}()
	time.AfterFunc(20*time.Millisecond, func() { sizes <- remotecommand.TerminalSize{Width: 90, Height: 30} })
	text, _ := io.ReadAll(screen)
	if !strings.Contains(string(text), "30 90\r\n") {
		t.Errorf("on the screen: %q", text)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	keys.Close()
	streams.sessions.Wait()
}
