package tui

import (
	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// theme is how things look. With NO_COLOR everything is told by glyphs and
// attributes alone.
type theme struct {
	plain  bool
	text   tcell.Style
	faint  tcell.Style
	strong tcell.Style
	title  tcell.Style
	key    tcell.Style
	head   tcell.Style // of a table
	chosen tcell.Style // the selected row
	marked tcell.Style
	border tcell.Style
	crumb  tcell.Style
	found  tcell.Style // a match of the search
	states map[api.State]tcell.Style
}

// glyphs tell the states without colour; all are one cell wide everywhere.
var glyphs = map[api.State]string{
	api.StateOK: "●", api.StateProgressing: "◐", api.StateWarning: "▲", api.StateError: "✗",
	api.StateTerminating: "▽", api.StateDone: "○", api.StateUnknown: "?",
}

// newTheme has hues that the common kinds of colour blindness tell apart (after
// Okabe and Ito); tcell maps them to what the terminal has.
func newTheme(noColour bool) *theme {
	base := tcell.StyleDefault
	if noColour {
		t := &theme{plain: true, text: base, faint: base.Dim(true), strong: base.Bold(true), title: base.Bold(true), key: base.Bold(true),
			head: base.Bold(true).Underline(true), chosen: base.Reverse(true), marked: base.Bold(true).Underline(true),
			border: base, crumb: base.Reverse(true), found: base.Reverse(true), states: map[api.State]tcell.Style{}}
		for s := range glyphs {
			t.states[s] = base
		}
		t.states[api.StateError] = base.Bold(true)
		return t
	}
	fg := func(r, g, b int32) tcell.Style { return base.Foreground(tcell.NewRGBColor(r, g, b)) }
	return &theme{
		text: base, faint: fg(138, 138, 138), strong: base.Bold(true),
		title: fg(86, 180, 233).Bold(true), key: fg(230, 159, 0), head: base.Bold(true),
		chosen: tcell.StyleDefault.Background(tcell.NewRGBColor(86, 180, 233)).Foreground(tcell.ColorBlack),
		marked: fg(240, 228, 66).Bold(true), border: fg(78, 118, 148),
		crumb: tcell.StyleDefault.Background(tcell.NewRGBColor(230, 159, 0)).Foreground(tcell.ColorBlack),
		found: tcell.StyleDefault.Background(tcell.NewRGBColor(240, 228, 66)).Foreground(tcell.ColorBlack),
		states: map[api.State]tcell.Style{
			api.StateOK: fg(110, 190, 235), api.StateProgressing: fg(0, 190, 145), api.StateWarning: fg(240, 165, 30),
			api.StateError: fg(235, 105, 40), api.StateTerminating: fg(204, 121, 167), api.StateDone: fg(150, 150, 150),
			api.StateUnknown: fg(240, 228, 66),
		},
	}
}

func (t *theme) state(s api.State) tcell.Style {
	if style, ok := t.states[s]; ok {
		return style
	}
	return t.text
}

func glyphOf(s api.State) string {
	if g, ok := glyphs[s]; ok {
		return g
	}
	return " "
}
