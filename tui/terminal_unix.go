//go:build unix

package tui

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// withRawTerminal runs use with the terminal raw, and restores it. The input is
// a description of the terminal of our own: closing it ends a read, so no key
// typed after the session is swallowed by it.
func withRawTerminal(ctx context.Context, use func(io.Reader, remotecommand.TerminalSizeQueue) error) error {
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	tty := os.NewFile(uintptr(fd), "/dev/tty")
	defer tty.Close()
	was, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = term.Restore(fd, was) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	sizes := &sizeQueue{fd: fd, resized: resized, done: ctx.Done(), first: true}
	return use(tty, sizes)
}

// sizeQueue tells the size at once, so that the program starts with the right
// one, and then each change.
type sizeQueue struct {
	fd      int
	resized <-chan os.Signal
	done    <-chan struct{}
	first   bool
}

// Next implements remotecommand.TerminalSizeQueue.
func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	if !q.first {
		select {
		case <-q.done:
			return nil
		case <-q.resized:
		}
	}
	q.first = false
	w, h, err := term.GetSize(q.fd)
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(w), Height: uint16(h)}
}

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
