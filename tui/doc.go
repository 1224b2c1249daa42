// Package tui is the console: the cluster in a terminal, live.
//
// Run (run.go) makes an app (app.go): a header, a stack of panes and a line at
// the bottom. A pane is a live table of any kind (tablepane.go), a text
// (textpane.go), the overview (pulse.go) or the architecture map (map.go). What
// a table shows is decided by pure models without a terminal: rows.go applies
// what the feed tells, filter.go and order.go choose and sort. tview does
// layout, focus and forms; tables and logs draw themselves (grid.go, pager.go),
// and screen.go sends only what changed to the terminal, in the colours of the
// theme (theme.go) and in the characters that it has (ascii.go).
//
// Keys are data (keys.go) that name actions (actions.go); each action is a
// command too. Only the goroutine of tview touches panes: others leave a
// function with app.post or mark the app dirty, and one painter (painter.go)
// draws at most every frameSlot.
package tui
