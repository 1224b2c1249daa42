package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"orrery.dev/api"
	"orrery.dev/client"
)

const (
	headerHeight = 7
	headerSmall  = 3
)

// header shows whose cluster this is, how fresh the data are, and what keys do.
type header struct {
	*tview.Box
	app *app
}

func newHeader(a *app) *header { return &header{Box: tview.NewBox(), app: a} }

// Draw implements tview.Primitive.
func (h *header) Draw(s tcell.Screen) {
	h.DrawForSubclass(s, h)
	x, y, w, height := h.GetInnerRect()
	if height <= 0 {
		return
	}
	a := h.app
	facts := h.lines()
	left := 31
	for _, line := range facts { // in steps, so that hints don't move with each revision
		left = max(left, (textWidth(line.value)+14+3)/4*4)
	}
	left = min(left, max(w/2, 31))
	for i, line := range facts[:min(len(facts), height)] {
		at := drawText(s, x+1, y+i, left, padText(a.words.say(line.name), 9)+" ", a.theme.faint)
		drawText(s, x+1+at, y+i, left-at-2, line.value, line.style)
	}
	h.hints(s, x+left, y, w-left, height)
}

type headerLine struct {
	name, value string
	style       tcell.Style
}

func (h *header) lines() []headerLine {
	a := h.app
	link := a.feed.Link()
	text, state := a.linkText(link)
	namespace := a.namespace
	if namespace == "" {
		namespace = a.words.say("all")
	}
	who, user := "User", a.facts.user
	if a.config.self != nil {
		who = "Seen as"
	}
	if a.config.ReadOnly {
		user += "  [" + a.words.say("read only") + "]"
	}
	return []headerLine{
		{"Data", text, a.theme.state(state).Bold(true)},
		{"Cluster", strings.TrimSpace(a.config.Context + "  " + hostOf(a.config.REST) + "  " + a.facts.version), a.theme.strong},
		{who, user, a.theme.text},
		{"Space", namespace, a.theme.text},
	}
}

// linkText is how fresh what is on screen is, with the revision it reflects.
func (a *app) linkText(link client.Link) (string, api.State) {
	revision, live, refused := "", true, false
	if t, ok := a.top().(*tablePane); ok && t.grid.snap != nil {
		refused = t.grid.snap.fault != nil
		revision, live = t.grid.snap.revision, t.grid.snap.live || t.grid.snap.loading
	}
	if revision != "" {
		revision = "  " + a.words.say("revision") + " " + revision
	}
	since := a.now().Sub(link.Since).Round(time.Second)
	switch {
	case link.State == client.LinkLive && refused:
		return "✗ " + a.words.say("refused"), api.StateError
	case link.State == client.LinkLive && !live:
		return "◐ " + a.words.say("behind") + revision, api.StateWarning
	case link.State == client.LinkLive:
		return "● " + a.words.say("live") + revision, api.StateOK
	case link.State == client.LinkConnecting:
		return fmt.Sprintf("◐ %s %s", a.words.say("connecting"), since), api.StateProgressing
	case link.State == client.LinkReconnecting:
		return fmt.Sprintf("◐ %s %s%s", a.words.say("reconnecting"), since, revision), api.StateWarning
	}
	return fmt.Sprintf("✗ %s %s%s", a.words.say("stale"), since, revision), api.StateError
}

// hints lists the keys of the pane in columns, as many as fit.
func (h *header) hints(s tcell.Screen, x, y, w, height int) {
	a := h.app
	p := a.top()
	if p == nil || w < 16 {
		return
	}
	type hint struct{ key, text string }
	var all []hint
	for i, ns := range a.favourites() {
		if t, ok := p.(*tablePane); ok && t.kind.namespaced && t.parent == nil && i < height-2 {
			if i == 0 {
				all = append(all, hint{"0", a.words.say("all")})
			}
			all = append(all, hint{fmt.Sprint(i + 1), ns})
		}
	}
	for len(all)%height != 0 {
		all = append(all, hint{})
	}
	for _, b := range a.hinted(keyScopes(p.scopes())) {
		all = append(all, hint{keyLabel(b.key), a.words.say(a.actions[b.action].hint)})
	}
	for i := 0; i < len(all); i += height {
		column := all[i:min(i+height, len(all))]
		keyWidth, textWide := 0, 0
		for _, c := range column {
			keyWidth, textWide = max(keyWidth, textWidth(c.key)+2), max(textWide, textWidth(c.text))
		}
		if keyWidth+1+textWide > w {
			return
		}
		for j, c := range column {
			if c.key != "" {
				drawText(s, x, y+j, keyWidth, "<"+c.key+">", a.theme.key)
				drawText(s, x+keyWidth+1, y+j, textWide, c.text, a.theme.faint)
			}
		}
		x, w = x+keyWidth+textWide+3, w-keyWidth-textWide-3
	}
}

// hinted are the bindings worth a place in the header: those with a hint, each
// action once, first those of everywhere.
func (a *app) hinted(scopes []string) []binding {
	var out []binding
	seen := map[string]bool{}
	if last := len(scopes) - 1; scopes[last] == "global" {
		scopes = slices.Concat(scopes[last:], scopes[:last])
	}
	for _, scope := range scopes {
		for _, b := range a.bindings {
			act := a.actions[b.action]
			if b.scope != scope || act.hint == "" || seen[b.action] {
				continue
			}
			if name, _ := lookup(a.bindings, scopes, b.key); name == b.action {
				seen[b.action] = true
				out = append(out, b)
			}
		}
	}
	return out
}

// footer shows the way to the pane on screen, and what was said last.
type footer struct {
	*tview.Box
	app   *app
	text  string
	bad   bool
	until time.Time
}

func newFooter(a *app) *footer { return &footer{Box: tview.NewBox(), app: a} }

// say shows text for a while, longer if it is bad news.
func (f *footer) say(bad bool, text string) {
	f.text, f.bad = oneLine(text), bad
	f.until = f.app.now().Add(4 * time.Second)
	if bad {
		f.until = f.until.Add(6 * time.Second)
	}
	f.app.dirty()
}

func (f *footer) silent() bool { return f.text == "" || f.app.now().After(f.until) }

// Draw implements tview.Primitive.
func (f *footer) Draw(s tcell.Screen) {
	f.DrawForSubclass(s, f)
	x, y, w, h := f.GetInnerRect()
	if h == 0 {
		return
	}
	at := 0
	if !f.app.crumbsOff {
		for i, p := range f.app.stack {
			style := f.app.theme.faint
			if i == len(f.app.stack)-1 {
				style = f.app.theme.crumb
			}
			at += drawText(s, x+at, y, w-at, " "+p.crumb()+" ", style) + 1
		}
	}
	if f.silent() {
		if link := f.app.feed.Link(); link.State != client.LinkLive && link.Err != nil {
			drawFit(s, x+at+1, y, w-at-1, oneLine(f.app.words.told(link.Err.Error())), false, f.app.theme.faint)
		}
		return
	}
	style := f.app.theme.state(api.StateOK)
	text := f.text
	if f.bad {
		style, text = f.app.theme.state(api.StateError).Bold(true), "✗ "+text
	}
	if textWidth(text) > w-at-1 { // what is said is worth more than the way
		fillRow(s, x, y, w, tcell.StyleDefault)
		at = 0
	}
	drawFit(s, x+at+1, y, w-at-1, text, false, style)
}
