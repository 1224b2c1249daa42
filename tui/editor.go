package tui

import (
	"regexp"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"orrery.dev/api"
	"orrery.dev/edit"
)

// editorPane edits a text where the user has no editor, or none on the machine
// that the console runs on. Letters are text there: its keys are its own alone.
type editorPane struct {
	*tview.TextArea
	app   *app
	name  string
	was   string
	typed string // the search
	done  func(text string)

	refused []string // why, in lines below the text
	marked  []int    // the lines that it is about, from 1, until the text is another
}

func (a *app) newEditor(name, text string, done func(text string)) *editorPane {
	e := &editorPane{TextArea: tview.NewTextArea(), app: a, name: name, was: text, done: done}
	e.SetText(text, false).SetWrap(false).SetTextStyle(a.theme.text).SetSelectedStyle(a.theme.found)
	e.SetBorder(true).SetBorderStyle(a.theme.border).SetBorderPadding(0, 0, 1, 1)
	e.SetChangedFunc(func() { e.marked = nil })
	cut := ""
	e.SetClipboard(func(text string) { cut = text; a.copy(text) }, func() string { return cut })
	return e
}

func (e *editorPane) save()             { e.done(e.GetText()) }
func (e *editorPane) crumb() string     { return e.name }
func (e *editorPane) scopes() []string  { return []string{"editor"} }
func (e *editorPane) open()             {}
func (e *editorPane) close()            {}
func (e *editorPane) refresh(time.Time) {}

func (e *editorPane) filterText() string { return e.typed }

// setFilter searches: the match at or after the cursor is selected.
func (e *editorPane) setFilter(text string) {
	e.typed = text
	_, from, _ := e.GetSelection()
	e.find(from)
}

// find goes to the first match from a place on, or else from the beginning.
func (e *editorPane) find(from int) {
	if e.typed == "" {
		return
	}
	expr, text := regexp.MustCompile("(?i)"+regexp.QuoteMeta(e.typed)), e.GetText()
	at := expr.FindStringIndex(text[min(from, len(text)):])
	if at == nil {
		if from, at = 0, expr.FindStringIndex(text); at == nil {
			return
		}
	}
	e.Select(from+at[0], from+at[1])
	e.reveal()
}

// reveal brings the cursor into view.
func (e *editorPane) reveal() {
	row, _, _, _ := e.GetCursor()
	_, _, _, height := e.GetInnerRect()
	if top, _ := e.GetOffset(); row < top || row >= top+height {
		e.SetOffset(max(row-height/3, 0), 0)
	}
}

// mostRefused is how many lines at the bottom tell why an edit was refused.
const mostRefused = 6

// refuse tells what speaks against the text, if anything does, and goes to the first
// place of it.
func (e *editorPane) refuse(reasons []edit.Reason) {
	e.refused, e.marked = nil, nil
	_, _, w, _ := e.GetInnerRect()
	for _, r := range reasons {
		e.refused = append(e.refused, wrapText("✗ "+r.String(), w)...)
		if r.Line > 0 {
			e.marked = append(e.marked, r.Line)
		}
	}
	if len(e.refused) > mostRefused {
		e.refused = append(e.refused[:mostRefused-1], "…")
	}
	e.SetBorderPadding(0, len(e.refused), 1, 1)
	if len(e.marked) > 0 {
		at := startOfLine(e.GetText(), e.marked[0])
		e.Select(at, at)
		e.reveal()
	}
}

// startOfLine is where a line begins in a text, in bytes; the first is 1.
func startOfLine(text string, line int) (at int) {
	for ; line > 1; line-- {
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return at
}

// Draw implements tview.Primitive.
func (e *editorPane) Draw(s tcell.Screen) {
	e.TextArea.Draw(s)
	title := e.name
	if e.typed != "" {
		title += " /" + e.typed
	}
	drawTitle(s, e.Box, e.app.theme, title)
	e.drawRefusal(s)
}

// drawRefusal writes the reasons below the text, and marks their lines.
func (e *editorPane) drawRefusal(s tcell.Screen) {
	x, y, w, h := e.GetInnerRect()
	style := e.app.theme.state(api.StateError)
	top, _ := e.GetOffset()
	for _, line := range e.marked {
		if row := line - 1 - top; row >= 0 && row < h {
			drawText(s, x-1, y+row, 1, "✗", style)
		}
	}
	for i, text := range e.refused {
		drawFit(s, x, y+h+i, w, text, false, style)
	}
}

// leave closes the editor, after asking if something would be lost.
func (e *editorPane) leave() {
	if e.GetText() == e.was {
		e.app.back()
		return
	}
	e.app.question(question{title: e.name, text: []string{e.app.words.say("what you changed is not saved"), ""}, yes: "Discard",
		do: func(string) { e.app.back() }})
}

func editorActions() []action {
	on, choosing := []string{"editor"}, []string{"conflicts"}
	do := func(f func(e *editorPane)) func(*app, call) {
		return func(a *app, _ call) {
			if e, ok := a.top().(*editorPane); ok {
				f(e)
			}
		}
	}
	choose := func(f func(c *conflictPane)) func(*app, call) {
		return func(a *app, _ call) {
			if c, ok := a.top().(*conflictPane); ok {
				f(c)
			}
		}
	}
	return []action{
		{name: "save", hint: "save", help: "look at what changed, and save it", on: editScopes, run: func(a *app, _ call) {
			if p, ok := a.top().(interface{ save() }); ok {
				p.save()
			}
		}},
		{name: "search", hint: "search", help: "search in the text", on: on, run: func(a *app, _ call) { a.askFilter() }},
		{name: "next-found", hint: "next", help: "the next match of the search", on: on, run: do(func(e *editorPane) {
			_, _, after := e.GetSelection()
			e.find(after)
		})},
		{name: "cancel-edit", hint: "cancel", help: "leave the editor", on: editScopes, run: func(a *app, _ call) {
			if p, ok := a.top().(interface{ leave() }); ok {
				p.leave()
			}
		}},
		{name: "edit-again", hint: "edit", help: "go back to the editor", on: []string{"review", "conflicts"}, run: func(a *app, _ call) {
			if p, ok := a.top().(interface{ edits() *editing }); ok {
				p.edits().again()
			}
		}},
		{name: "mine", hint: "yours", help: "take your value of the field", on: choosing, run: choose(func(c *conflictPane) { c.choose(api.Mine, false) })},
		{name: "theirs", hint: "theirs", help: "take the other value of the field", on: choosing, run: choose(func(c *conflictPane) { c.choose(api.Theirs, false) })},
		{name: "all-mine", hint: "all yours", help: "take your values of all fields", on: choosing, run: choose(func(c *conflictPane) { c.choose(api.Mine, true) })},
		{name: "all-theirs", hint: "all theirs", help: "take the other values of all fields", on: choosing, run: choose(func(c *conflictPane) { c.choose(api.Theirs, true) })},
		{name: "next-conflict", help: "the next field to choose for", on: choosing, run: choose(func(c *conflictPane) { c.move(1) })},
		{name: "previous-conflict", help: "the field before", on: choosing, run: choose(func(c *conflictPane) { c.move(-1) })},
	}
}
