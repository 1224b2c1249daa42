package tui

import (
	"time"

	"github.com/rivo/tview"
)

// mapPane is the architecture map.
type mapPane struct {
	*tview.Box
	app     *app
	closeUp string
}

func newMap(a *app) *mapPane             { return &mapPane{Box: tview.NewBox(), app: a} }
func (p *mapPane) crumb() string         { return "map" }
func (p *mapPane) scopes() []string      { return []string{"map"} }
func (p *mapPane) open()                 {}
func (p *mapPane) close()                {}
func (p *mapPane) refresh(now time.Time) {}
