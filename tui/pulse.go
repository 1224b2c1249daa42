package tui

import (
	"time"

	"github.com/rivo/tview"
)

// pulse is the overview.
type pulse struct {
	*tview.Box
	app *app
}

func newPulse(a *app) *pulse           { return &pulse{Box: tview.NewBox(), app: a} }
func (p *pulse) crumb() string         { return "pulse" }
func (p *pulse) scopes() []string      { return []string{"pulse"} }
func (p *pulse) open()                 {}
func (p *pulse) close()                {}
func (p *pulse) refresh(now time.Time) {}
func (p *pulse) enter()                {}
