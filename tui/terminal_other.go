//go:build !unix

package tui

import (
	"context"
	"io"
	"os"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// withRawTerminal runs use with the terminal raw, and restores it.
func withRawTerminal(_ context.Context, use func(io.Reader, remotecommand.TerminalSizeQueue) error) error {
	was, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(int(os.Stdin.Fd()), was) }()
	return use(os.Stdin, nil)
}

func (a *app) stopProcess() {}
