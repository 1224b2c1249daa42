package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/gdamore/tcell/v2"
	"github.com/gdamore/tcell/v2/terminfo"
	"github.com/go-logr/logr"
	"github.com/rivo/tview"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
)

// screen is that of the console's terminal, and who listens to this.
func (c *Config) screen() (tcell.Screen, *listener, error) {
	if c.Terminal == nil {
		// What the libraries log would draw over the screen.
		klog.SetLogger(logr.Discard())
		tcell.SetEncodingFallback(tcell.EncodingFallbackASCII) // for locales that tcell does not know
		tty, err := tcell.NewDevTty()
		if err != nil {
			return nil, nil, fmt.Errorf("terminal: %w", err)
		}
		ears := listenTo(ownTty(tty))
		under, err := tcell.NewTerminfoScreenFromTty(newHoldable(ears))
		if err != nil {
			return nil, nil, fmt.Errorf("terminal: %w (run it in a terminal, with TERM set to its type)", err)
		}
		return under, ears, nil
	}
	forgetTerminal()
	kind, err := c.terminalKind()
	if err != nil {
		return nil, nil, err
	}
	ears := listenTo(c.Terminal)
	under, err := tcell.NewTerminfoScreenFromTtyTerminfo(newHoldable(ears), kind)
	return under, ears, err
}

// holdable is a terminal whose input can be held back before a screen leaves it.
// tcell waits for ever for the goroutine that reads if that is about to hand on
// more than is taken any more.
type holdable struct {
	tcell.Tty
	changed *sync.Cond // its lock protects the fields below
	reading bool
	ended   bool // so has whoever reads
	held    bool
}

func newHoldable(t tcell.Tty) *holdable {
	return &holdable{Tty: t, changed: sync.NewCond(&sync.Mutex{}), ended: true}
}

func (t *holdable) set(reading, ended, held bool) {
	t.changed.L.Lock()
	defer t.changed.L.Unlock()
	t.reading, t.ended, t.held = reading, ended, held
	t.changed.Broadcast()
}

// Start implements tcell.Tty.
func (t *holdable) Start() error {
	if err := t.Tty.Start(); err != nil {
		return err // nobody will read
	}
	t.set(false, false, false)
	return nil
}

// Stop implements tcell.Tty.
func (t *holdable) Stop() error {
	t.set(false, true, false)
	return t.Tty.Stop()
}

// Read implements tcell.Tty. What comes while it is held is nobody's.
func (t *holdable) Read(p []byte) (n int, err error) {
	t.changed.L.Lock()
	defer t.changed.L.Unlock()
	t.reading = true
	t.changed.Broadcast()
	for again := true; again; again = t.held && err == nil {
		t.changed.L.Unlock()
		n, err = t.Tty.Read(p)
		t.changed.L.Lock()
	}
	t.reading, t.ended = false, err != nil
	t.changed.Broadcast()
	return n, err
}

// hold returns once whoever reads has handed on all that it will.
func (t *holdable) hold() {
	t.changed.L.Lock()
	defer t.changed.L.Unlock()
	t.held = true
	for !t.reading && !t.ended {
		t.changed.Wait()
	}
}

// forgetTerminal makes the process's environment say nothing of a terminal, and
// UTF-8: tcell looks there, but terminals of others are not the process's.
var forgetTerminal = sync.OnceFunc(func() {
	for _, name := range []string{"NO_COLOR", "COLORTERM", "TCELL_TRUECOLOR", "TCELL_ALTSCREEN", "LINES", "COLUMNS"} {
		_ = os.Unsetenv(name)
	}
	_ = os.Setenv("LC_ALL", "C.UTF-8")
})

// kindsMu protects tcell's entries of terminals, which it amends as it looks
// them up.
var kindsMu sync.Mutex

// terminalKind is what the user's terminal can do, by its name. Only what is
// built in is known: tcell would have a program of this machine look up others.
func (c *Config) terminalKind() (*terminfo.Terminfo, error) {
	name, direct := strings.CutSuffix(c.Term, "-truecolor")
	kindsMu.Lock()
	defer kindsMu.Unlock()
	known, err := terminfo.LookupTerminfo(name)
	if err != nil || known.SetCursor == "" {
		return nil, fmt.Errorf("terminals of the type %q are not known here: try TERM=xterm-256color", c.Term)
	}
	kind := *known // tcell writes into it
	if direct || c.ColorTerm == "truecolor" || c.ColorTerm == "24bit" {
		kind.SetFgRGB, kind.SetBgRGB = "\x1b[38;2;%p1%d;%p2%d;%p3%dm", "\x1b[48;2;%p1%d;%p2%d;%p3%dm"
	}
	return &kind, nil
}

// plainStyles are tview's, for all consoles of the process: colours are left to
// each one's theme, and the border of what has the focus, which tview draws
// double, is told by its colour.
var plainStyles = sync.OnceFunc(func() {
	tview.Styles = tview.Theme{} // of ColorDefault
	b := &tview.Borders
	b.HorizontalFocus, b.VerticalFocus = b.Horizontal, b.Vertical
	b.TopLeftFocus, b.TopRightFocus, b.BottomLeftFocus, b.BottomRightFocus = b.TopLeft, b.TopRight, b.BottomLeft, b.BottomRight
})

// lend leaves the terminal to use, raw. What is typed once that has returned is
// the console's again.
func (a *app) lend(use func(tty io.ReadWriter, sizes *sizeQueue) error) error {
	tty, ok := a.under.Tty()
	if !ok {
		return errors.New("this screen is no terminal")
	}
	if err := tty.Start(); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = tty.Stop() }()
	drain := func() { _ = tty.Drain() } // ends a read
	defer drain()
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, drain)() // told to end, the console waits for no key
	sizes := newSizeQueue(tty, ctx.Done())
	tty.NotifyResize(sizes.change)
	defer tty.NotifyResize(nil)
	return use(tty, sizes)
}

// sizeQueue tells the size of a terminal, and each change of it.
type sizeQueue struct {
	tty     tcell.Tty
	changed chan struct{} // one slot
	told    bool          // of the first size
	sent    chan struct{} // closed by release, once the first size is on its way
	release func()
	done    <-chan struct{}
}

func newSizeQueue(tty tcell.Tty, done <-chan struct{}) *sizeQueue {
	q := &sizeQueue{tty: tty, changed: make(chan struct{}, 1), sent: make(chan struct{}), done: done}
	q.release = sync.OnceFunc(func() { close(q.sent) })
	q.change() // so that the program starts with the right one
	return q
}

// Read reads the terminal, but not before its size is on its way: who types while
// the session is still being opened would be ahead of it, and the first program
// started would find a terminal of no size.
func (q *sizeQueue) Read(p []byte) (int, error) {
	select {
	case <-q.sent:
		return q.tty.Read(p)
	case <-q.done:
		return 0, io.EOF
	}
}

func (q *sizeQueue) change() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// Next implements remotecommand.TerminalSizeQueue. It is called again when the
// size before has been sent.
func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	if q.told {
		q.release()
	}
	select {
	case <-q.done:
		return nil
	case <-q.changed:
	}
	q.told = true
	size, err := q.tty.WindowSize()
	if err != nil {
		q.release() // without a size, then
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(size.Width), Height: uint16(size.Height)}
}
