// Package tui is the terminal console, on tview.
package tui
