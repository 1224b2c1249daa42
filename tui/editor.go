package tui

import (
	"context"
	"regexp"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"
)

// editorPane edits a text where the user has no editor, or none on the machine
// that the console runs on. Letters are text there: its keys are its own alone.
type editorPane struct {
	*tview.TextArea
	app   *app
	name  string
	was   string
	typed string // the search
	save  func(text string)
}

func (a *app) newEditor(name, text string, save func(text string)) *editorPane {
	e := &editorPane{TextArea: tview.NewTextArea(), app: a, name: name, was: text, save: save}
	e.SetText(text, false).SetWrap(false).SetTextStyle(a.theme.text).SetSelectedStyle(a.theme.found)
	e.SetBorder(true).SetBorderStyle(a.theme.border).SetBorderPadding(0, 0, 1, 1)
	cut := ""
	e.SetClipboard(func(text string) { cut = text; a.copy(text) }, func() string { return cut })
	return e
}

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
	row, _, _, _ := e.GetCursor()
	_, _, _, height := e.GetInnerRect()
	if top, _ := e.GetOffset(); row < top || row >= top+height {
		e.SetOffset(max(row-height/3, 0), 0)
	}
}

// Draw implements tview.Primitive.
func (e *editorPane) Draw(s tcell.Screen) {
	e.TextArea.Draw(s)
	title := e.name
	if e.typed != "" {
		title += " /" + e.typed
	}
	drawTitle(s, e.Box, e.app.theme, title)
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
	on := []string{"editor"}
	do := func(f func(e *editorPane)) func(*app, call) {
		return func(a *app, _ call) {
			if e, ok := a.top().(*editorPane); ok {
				f(e)
			}
		}
	}
	return []action{
		{name: "save", hint: "save", help: "look at what changed, and save it", on: on, run: do(func(e *editorPane) { e.save(e.GetText()) })},
		{name: "search", hint: "search", help: "search in the text", on: on, run: func(a *app, _ call) { a.askFilter() }},
		{name: "next-found", hint: "next", help: "the next match of the search", on: on, run: do(func(e *editorPane) {
			_, _, after := e.GetSelection()
			e.find(after)
		})},
		{name: "cancel-edit", hint: "cancel", help: "leave the editor", on: on, run: do((*editorPane).leave)},
	}
}

// editHere edits an object in an editor of our own. What changed is shown before
// it is saved; what the server refuses can be edited on.
func (a *app) editHere(t target, text string) {
	var e *editorPane
	e = a.newEditor(a.words.say("edit")+" "+t.String(), text, func(edited string) {
		if edited == text {
			a.note("%s", a.words.say("unchanged"))
			return
		}
		a.question(question{title: e.name, text: append(shownChanges(text, edited), ""), yes: "Save", do: func(string) { a.saveHere(e, t, edited) }})
	})
	a.push(e)
}

func (a *app) saveHere(e *editorPane, t target, edited string) {
	a.async(func(ctx context.Context) func() {
		err := a.cluster.save(ctx, t, edited)
		return func() {
			if err != nil {
				a.question(question{title: e.name, text: append(wrapText(err.Error(), 64), ""), yes: "OK", do: func(string) {}})
				return
			}
			if a.top() == pane(e) {
				a.back()
			}
			a.note("%s", a.words.say("saved"))
		}
	})
}
