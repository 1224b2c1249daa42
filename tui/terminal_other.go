//go:build !unix

package tui

func (a *app) stopProcess() {}
