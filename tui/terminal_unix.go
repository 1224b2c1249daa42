//go:build unix

package tui

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
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
