//go:build unix

package tui

import (
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
