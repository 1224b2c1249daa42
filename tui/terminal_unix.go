//go:build unix

package tui

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/term"
)

// stopProcess is what Ctrl-Z does: the shell gets its terminal back, and fg
// continues here.
func (a *app) stopProcess() {
	a.aside(func() error {
		woken := make(chan os.Signal, 1)
		signal.Notify(woken, syscall.SIGCONT)
		defer signal.Stop(woken)
		if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
			return err
		}
		select {
		case <-woken:
		case <-time.After(300 * time.Millisecond): // nobody could stop us: no shell waits
		}
		return nil
	})
}

// watchStops takes the terminal again when the process goes on after a stop that
// it did not hear of: another has used it meanwhile.
func (a *app) watchStops(ctx context.Context) {
	if a.config.Terminal != nil {
		return
	}
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	a.work.Go(func() {
		defer signal.Stop(woken)
		for {
			select {
			case <-ctx.Done():
				return
			case <-woken:
				if !a.suspended.Load() {
					a.post(func() { a.aside(func() error { return nil }) })
				}
			}
		}
	})
}

// ownTerminal is the process's own. tcell hears of no stop, and of a size only if
// it waits for one just then, so that the last of several may be lost.
type ownTerminal struct {
	tcell.Tty
	over chan struct{} // closed by Stop
	work sync.WaitGroup

	mu      sync.Mutex // protects resized
	resized func()
}

func ownTty(tty tcell.Tty) tcell.Tty { return &ownTerminal{Tty: tty} }

// NotifyResize implements tcell.Tty.
func (t *ownTerminal) NotifyResize(resized func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resized = resized
}

// Start implements tcell.Tty.
func (t *ownTerminal) Start() error {
	if err := t.Tty.Start(); err != nil {
		return err
	}
	sized, woken, over := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(sized, syscall.SIGWINCH)
	signal.Notify(woken, syscall.SIGCONT)
	t.over = over
	t.work.Go(func() {
		defer signal.Stop(sized)
		defer signal.Stop(woken)
		for {
			select {
			case <-over:
				return
			case <-sized:
			case <-woken: // a shell has had the terminal meanwhile, as it likes it
				makeRaw()
			}
			t.mu.Lock()
			tell := t.resized
			t.mu.Unlock()
			if tell != nil {
				tell()
			}
		}
	})
	return nil
}

// Stop implements tcell.Tty.
func (t *ownTerminal) Stop() error {
	close(t.over)
	t.work.Wait() // or the terminal would be raw when it is another's
	return t.Tty.Stop()
}

func makeRaw() {
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		_, _ = term.MakeRaw(int(tty.Fd()))
		_ = tty.Close()
	}
}
