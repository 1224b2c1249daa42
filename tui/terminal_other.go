//go:build !unix

package tui

import "context"

func (a *app) stopProcess() {}

func (a *app) watchStops(context.Context) {}
