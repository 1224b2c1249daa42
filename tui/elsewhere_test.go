package tui

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
)

// A console that is shown to somebody elsewhere leaves this machine alone. These
// files have to do with it, and how they know; another needs a line here, and an
// action.instead if it is one.
var ofTheMachine = map[string]string{
	"shell.go":         "an editor is started only where there is no Config.Terminal",
	"forward.go":       "port-forward has an instead",
	"saves.go":         "its actions have an instead",
	"favourites.go":    "such a console has no Config.Settings",
	"transfer.go":      "transfer has an instead",
	"folder.go":        "its actions have an instead",
	"terminal.go":      "sets the environment that tcell reads",
	"terminal_unix.go": "suspend has an instead",
}

func TestWhoHasToDoWithTheMachine(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || ofTheMachine[name] != "" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			if slices.Contains([]string{"os", "os/exec", "os/signal", "syscall", "net", "io/ioutil", "path/filepath", "k8s.io/client-go/tools/portforward", "k8s.io/client-go/tools/clientcmd"}, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// elsewhere is somebody's terminal at the other end of a connection.
type elsewhere struct{ tcell.Tty }

func TestConsoleOfSomebodyElsewhereLeavesTheMachineAlone(t *testing.T) {
	s := newShow(t, Config{Terminal: elsewhere{}, Machine: "node-7"}, 150, 60)
	s.await("db-0")
	s.keys("F")
	s.await("port-forward: the console runs on node-7, not on your machine; use kubectl port-forward there")
	s.screen.InjectKey(tcell.KeyCtrlZ, 0, tcell.ModCtrl)
	s.await("suspend: the console runs on node-7")
	s.keys("?")
	s.await("Keys and commands of pods", "✗ the console runs on node-7")
}

// typedAhead is a terminal on which somebody has typed already.
type typedAhead struct{ tcell.Tty }

func (typedAhead) Read(p []byte) (int, error) { return copy(p, "stty size\r"), nil }

func (typedAhead) WindowSize() (tcell.WindowSize, error) {
	return tcell.WindowSize{Width: 120, Height: 40}, nil
}

func TestSizeOfTheTerminalIsAheadOfWhatWasTyped(t *testing.T) {
	done := make(chan struct{})
	q := newSizeQueue(typedAhead{}, done)
	order := make(chan string, 2)
	go func() {
		p := make([]byte, 100)
		n, _ := q.Read(p)
		order <- string(p[:n])
	}()
	size := q.Next()
	order <- fmt.Sprintf("%dx%d", size.Width, size.Height) // sent, as the session does
	go q.Next()
	if first, second := <-order, <-order; first != "120x40" || second != "stty size\r" {
		t.Errorf("sent %q, then %q", first, second)
	}
	close(done)
}

func TestTerminalsAreKnownByTheirNames(t *testing.T) {
	for term, colours := range map[string]string{"xterm-256color": "", "xterm-256color-truecolor": "", "screen-256color": "truecolor", "vt100": "", "linux": ""} {
		c := Config{Term: term, ColorTerm: colours}
		kind, err := c.terminalKind()
		if err != nil || (kind.SetFgRGB != "") != (colours != "" || strings.HasSuffix(term, "-truecolor")) {
			t.Errorf("%s: %v, colours %q", term, err, kind.SetFgRGB)
		}
	}
	for _, term := range []string{"", "nonsense", "-A/etc", "-truecolor"} {
		c := Config{Term: term}
		if _, err := c.terminalKind(); err == nil || !strings.Contains(err.Error(), "TERM=xterm-256color") {
			t.Errorf("%q: %v", term, err)
		}
	}
}
