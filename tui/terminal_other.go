//go:build !unix

package tui

import (
	"context"

	"github.com/gdamore/tcell/v2"
)

func (a *app) stopProcess() {}

func (a *app) watchStops(context.Context) {}

func ownTty(tty tcell.Tty) tcell.Tty { return tty }
