package tui

import (
	"strings"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// theme is how things look: a palette as styles. With NO_COLOR everything is
// told by glyphs and attributes alone.
type theme struct {
	plain      bool
	back, fore tcell.Color // of what has no colours of its own
	text       tcell.Style
	faint      tcell.Style
	strong     tcell.Style
	title      tcell.Style
	key        tcell.Style
	head       tcell.Style // of a table
	chosen     tcell.Style // the selected row
	marked     tcell.Style
	border     tcell.Style
	crumb      tcell.Style
	found      tcell.Style // a match of the search
	states     map[api.State]tcell.Style
	programs   [8]tcell.Style // what the eight colours of programs become
}

// glyphs tell the states without colour; all are one cell wide everywhere.
var glyphs = map[api.State]string{
	api.StateOK: "●", api.StateProgressing: "◐", api.StateWarning: "▲", api.StateError: "✗",
	api.StateTerminating: "▽", api.StateDone: "○", api.StateUnknown: "?",
}

// colour is one of the 256 that all but the oldest terminals show as they are,
// and the one of sixteen that stands for it on those. What sixteen look like is
// the terminal's choice.
type colour struct {
	rgb   int32
	named tcell.Color
}

// palette is a theme as data.
type palette struct {
	name                                          string
	back, text, faint, title, key, marked, border colour
	ok, progressing, warning, err, terminating    colour
	done, unknown                                 colour
}

// palettes are the themes; the first is what a terminal that tells nothing gets.
// In each of them the states have hues that the common kinds of colour blindness
// tell apart, in the one named after it by far.
func palettes() []palette {
	return []palette{
		{name: "dark",
			back: colour{0x121212, tcell.ColorBlack}, text: colour{0xdadada, tcell.ColorSilver}, faint: colour{0x9e9e9e, tcell.ColorGray},
			title: colour{0x87d7ff, tcell.ColorAqua}, key: colour{0xffaf5f, tcell.ColorYellow}, marked: colour{0xffff5f, tcell.ColorYellow}, border: colour{0x5f87af, tcell.ColorTeal},
			ok: colour{0x5fafff, tcell.ColorAqua}, progressing: colour{0x5fd7af, tcell.ColorLime}, warning: colour{0xffaf00, tcell.ColorYellow},
			err: colour{0xff5f5f, tcell.ColorRed}, terminating: colour{0xd787d7, tcell.ColorFuchsia}, done: colour{0x8a8a8a, tcell.ColorGray}, unknown: colour{0xffff87, tcell.ColorWhite}},
		{name: "light",
			back: colour{0xffffff, tcell.ColorWhite}, text: colour{0x1c1c1c, tcell.ColorBlack}, faint: colour{0x626262, tcell.ColorGray},
			title: colour{0x005faf, tcell.ColorNavy}, key: colour{0x875f00, tcell.ColorPurple}, marked: colour{0xaf0087, tcell.ColorPurple}, border: colour{0x878787, tcell.ColorTeal},
			ok: colour{0x005fd7, tcell.ColorNavy}, progressing: colour{0x00875f, tcell.ColorTeal}, warning: colour{0xaf5f00, tcell.ColorOlive},
			err: colour{0xaf0000, tcell.ColorMaroon}, terminating: colour{0xaf00d7, tcell.ColorPurple}, done: colour{0x585858, tcell.ColorGray}, unknown: colour{0x875faf, tcell.ColorBlack}},
		{name: "high-contrast",
			back: colour{0x000000, tcell.ColorBlack}, text: colour{0xffffff, tcell.ColorWhite}, faint: colour{0xd0d0d0, tcell.ColorSilver},
			title: colour{0x87ffff, tcell.ColorAqua}, key: colour{0xffd75f, tcell.ColorYellow}, marked: colour{0xffff00, tcell.ColorYellow}, border: colour{0xbcbcbc, tcell.ColorWhite},
			ok: colour{0x5fafff, tcell.ColorAqua}, progressing: colour{0xafffd7, tcell.ColorLime}, warning: colour{0xd78700, tcell.ColorYellow},
			err: colour{0xff5f5f, tcell.ColorRed}, terminating: colour{0xffafff, tcell.ColorFuchsia}, done: colour{0x9e9e9e, tcell.ColorSilver}, unknown: colour{0xffff5f, tcell.ColorWhite}},
		{name: "deuteranopia",
			back: colour{0x121212, tcell.ColorBlack}, text: colour{0xdadada, tcell.ColorSilver}, faint: colour{0x9e9e9e, tcell.ColorGray},
			title: colour{0x87afff, tcell.ColorAqua}, key: colour{0xffd75f, tcell.ColorYellow}, marked: colour{0xffff5f, tcell.ColorYellow}, border: colour{0x5f87af, tcell.ColorTeal},
			ok: colour{0x0087ff, tcell.ColorTeal}, progressing: colour{0x87ffd7, tcell.ColorAqua}, warning: colour{0xff8700, tcell.ColorYellow},
			err: colour{0xff5f5f, tcell.ColorRed}, terminating: colour{0xff87ff, tcell.ColorFuchsia}, done: colour{0x878787, tcell.ColorGray}, unknown: colour{0xffff87, tcell.ColorWhite}},
	}
}

// themeNames are what a user can ask for.
func themeNames() []string {
	var out []string
	for _, p := range palettes() {
		out = append(out, p.name)
	}
	return out
}

// paletteOf is the palette of a name; "auto" is the first, until the terminal
// has told better.
func paletteOf(name string) (palette, bool) {
	all := palettes()
	for _, p := range all {
		if p.name == name {
			return p, true
		}
	}
	return all[0], name == "" || name == themeAuto
}

const themeAuto = "auto"

// lightBackground reads what some terminals tell in COLORFGBG: the number of the
// background's colour, after that of the text.
func lightBackground(told string) bool {
	back := told[strings.LastIndex(told, ";")+1:]
	return back == "7" || back == "15"
}

// newTheme makes the styles of a palette for a terminal of so many colours.
func newTheme(p palette, colours int) *theme {
	if colours <= 1 {
		return plainTheme()
	}
	fore := func(c colour) tcell.Style { return c.style(colours) }
	on := func(c colour) tcell.Style {
		return tcell.StyleDefault.Background(c.of(colours)).Foreground(p.back.of(colours))
	}
	t := &theme{
		back: p.back.of(colours), fore: p.text.of(colours),
		text: tcell.StyleDefault, faint: fore(p.faint), strong: tcell.StyleDefault.Bold(true), title: fore(p.title).Bold(true), key: fore(p.key),
		head: tcell.StyleDefault.Bold(true), chosen: on(p.title), marked: fore(p.marked).Bold(true), border: fore(p.border), crumb: on(p.key), found: on(p.marked),
		states: map[api.State]tcell.Style{
			api.StateOK: fore(p.ok), api.StateProgressing: fore(p.progressing), api.StateWarning: fore(p.warning), api.StateError: fore(p.err),
			api.StateTerminating: fore(p.terminating), api.StateDone: fore(p.done), api.StateUnknown: fore(p.unknown),
		},
	}
	t.programs = [8]tcell.Style{t.faint, fore(p.err), fore(p.progressing), fore(p.warning), fore(p.ok), fore(p.terminating), fore(p.title), t.text}
	return t
}

// plainTheme has no colours.
func plainTheme() *theme {
	base := tcell.StyleDefault
	t := &theme{plain: true, text: base, faint: base.Dim(true), strong: base.Bold(true), title: base.Bold(true), key: base.Bold(true),
		head: base.Bold(true).Underline(true), chosen: base.Reverse(true), marked: base.Bold(true).Underline(true),
		border: base, crumb: base.Reverse(true), found: base.Reverse(true), states: map[api.State]tcell.Style{}}
	for s := range glyphs {
		t.states[s] = base
	}
	t.states[api.StateError] = base.Bold(true)
	return t
}

// of is what a terminal of so many colours shows. With eight the bright ones
// are the dark ones in bold.
func (c colour) of(colours int) tcell.Color {
	switch {
	case colours > 256:
		return tcell.NewHexColor(c.rgb)
	case colours > 16:
		return tcell.FindColor(tcell.NewHexColor(c.rgb), fixedColours())
	case colours < 16 && c.named >= tcell.ColorGray:
		return c.named - 8
	}
	return c.named
}

// fixedColours are those of 256 that no terminal lets its user change.
func fixedColours() []tcell.Color {
	var out []tcell.Color
	for i := 16; i < 256; i++ {
		out = append(out, tcell.PaletteColor(i))
	}
	return out
}

// style is text in the colour.
func (c colour) style(colours int) tcell.Style {
	base := tcell.StyleDefault
	if colours < 16 && c.named == tcell.ColorGray { // a bright black, which may be on black
		return base.Dim(true)
	}
	return base.Foreground(c.of(colours)).Bold(colours < 16 && c.named > tcell.ColorGray)
}

// dress gives a style the theme's colours where it has none of its own. The
// eight colours that programs write their logs in are made for a terminal that
// is not this one: each becomes one of the theme's.
func (t *theme) dress(s tcell.Style) tcell.Style {
	if t.plain {
		return s.Foreground(tcell.ColorDefault).Background(tcell.ColorDefault)
	}
	fore, back, _ := s.Decompose()
	if back == tcell.ColorDefault {
		s = s.Background(t.back)
		if t.back > tcell.ColorWhite && fore >= tcell.ColorBlack && fore <= tcell.ColorWhite {
			fore, _, _ = t.programs[(fore-tcell.ColorBlack)%8].Decompose()
			s = s.Foreground(fore)
		}
	}
	if fore == tcell.ColorDefault || fore == t.back && back == tcell.ColorDefault {
		s = s.Foreground(t.fore)
	}
	return s
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
