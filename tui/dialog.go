package tui

import (
	"slices"
	"strings"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"
)

const dialogPage = "dialog"

func (a *app) dialogOpen() bool { return a.root.HasPage(dialogPage) }

func (a *app) closeDialog() {
	a.root.RemovePage(dialogPage)
	if p := a.top(); p != nil {
		a.tv.SetFocus(p)
	}
}

// show puts a dialog of w by h cells in the middle.
func (a *app) show(p tview.Primitive, w, h int) {
	a.root.AddPage(dialogPage, &centred{p, w, h}, true, true)
	a.tv.SetFocus(p)
}

// centred is in the middle of the room that it is given, and no larger.
type centred struct {
	tview.Primitive
	w, h int
}

// Draw implements tview.Primitive: nothing shows through.
func (c *centred) Draw(s tcell.Screen) {
	x, y, w, h := c.GetRect()
	for i := range h {
		fillRow(s, x, y+i, w, tcell.StyleDefault)
	}
	c.Primitive.Draw(s)
}

// SetRect implements tview.Primitive.
func (c *centred) SetRect(x, y, w, h int) {
	wide, high := min(c.w, w), min(c.h, h)
	c.Primitive.SetRect(x+(w-wide)/2, y+(h-high)/2, wide, high)
}

// question is a dialog: a text, perhaps a line to type, and two buttons of
// which Cancel has the focus when nothing is to be typed.
type question struct {
	title string
	text  []string
	ask   string // label of the line; empty for none
	value string // what the line begins with
	// also is the label of a second line, and with what the two are done.
	also, alsoValue string
	with            func(typed, also string)
	must            string // what must be typed, if anything
	// choice is the label of a choice of options, of which the first holds until picked
	// is told another.
	choice  string
	options []string
	picked  func(option int)

	yes string
	do  func(typed string)
}

func (a *app) question(q question) {
	f := tview.NewForm().SetButtonsAlign(tview.AlignCenter).SetItemPadding(0)
	f.SetBorderPadding(0, 0, 1, 1)
	f.SetFieldStyle(tcell.StyleDefault.Underline(true)).SetLabelColor(tcell.ColorDefault)
	f.SetButtonStyle(tcell.StyleDefault).SetButtonActivatedStyle(a.theme.chosen)
	f.SetBackgroundColor(tcell.ColorDefault)
	width := max(textWidth(q.title)+6, 44)
	for len(q.text) > 0 && q.text[len(q.text)-1] == "" { // room before the buttons there is anyway
		q.text = q.text[:len(q.text)-1]
	}
	lines := 0
	for _, line := range q.text {
		width = max(width, min(textWidth(line)+6, 76))
		lines += len(wrapText(line, 70))
	}
	height := 2 // of the form
	typed := func() string { return "" }
	if q.must != "" {
		q.ask = a.words.say("type %q to confirm", q.must)
		width = max(width, textWidth(q.ask)+30)
	}
	if len(q.options) > 0 {
		options := tview.NewDropDown().SetLabel(a.words.say(q.choice)+" ").SetOptions(q.options, func(_ string, i int) { q.picked(i) })
		options.SetFieldStyle(tcell.StyleDefault.Underline(true)).SetFocusedStyle(a.theme.chosen).SetListStyles(a.theme.text, a.theme.chosen)
		f.AddFormItem(options.SetCurrentOption(0))
		for _, o := range q.options {
			width = max(width, textWidth(a.words.say(q.choice)+o)+10)
		}
		height++
	}
	first := f.GetFormItemCount()
	if q.ask != "" {
		field := tview.NewInputField().SetLabel(a.words.say(q.ask) + " ").SetText(q.value)
		f.AddFormItem(field)
		typed = field.GetText
		height++
	}
	second := tview.NewInputField().SetLabel(q.also + " ").SetText(q.alsoValue)
	if q.also != "" {
		f.AddFormItem(second)
		width, height = 70, height+1
		q.do = func(typed string) { q.with(typed, second.GetText()) }
	}
	yes := func() {
		line := typed()
		if q.must != "" && line != q.must {
			return
		}
		a.closeDialog()
		q.do(line)
	}
	f.AddButton(a.words.say("Cancel"), a.closeDialog)
	f.AddButton(a.words.say(q.yes), yes)
	f.SetCancelFunc(a.closeDialog)
	f.SetFocus(first) // the line, or Cancel
	// Enter in the line is the answer; in tview it would only move on.
	f.SetInputCapture(func(e *tcell.EventKey) *tcell.EventKey {
		item, button := f.GetFocusedItemIndex()
		switch {
		case e.Key() == tcell.KeyEnter && button < 0 && item >= first:
			yes()
			return nil
		case button >= 0 && (e.Key() == tcell.KeyLeft):
			return tcell.NewEventKey(tcell.KeyBacktab, 0, tcell.ModNone)
		case button >= 0 && (e.Key() == tcell.KeyRight):
			return tcell.NewEventKey(tcell.KeyTab, 0, tcell.ModNone)
		}
		return e
	})
	text := tview.NewTextView().SetText(strings.Join(q.text, "\n")) // without tags: names may hold brackets
	text.SetBackgroundColor(tcell.ColorDefault)
	frame := tview.NewFlex().SetDirection(tview.FlexRow).AddItem(text, 0, 1, false).AddItem(f, height, 0, true)
	frame.SetBorder(true).SetBorderStyle(a.theme.border).SetBorderPadding(1, 0, 2, 2)
	frame.SetTitle(" " + tview.Escape(q.title) + " ").SetTitleColor(tcell.ColorDefault)
	a.show(frame, width+2, lines+height+3)
}

// choose lets the user pick one of some; a single one is picked at once.
func (a *app) choose(title string, options []string, do func(string)) {
	if len(options) == 1 {
		do(options[0])
		return
	}
	var labels []string
	for _, o := range options {
		labels = append(labels, tview.Escape(o))
	}
	a.pick(title, labels, func(_ *tview.List, i int) { a.closeDialog(); do(options[i]) })
}

// pick lists what Enter does something with, until Esc.
func (a *app) pick(title string, labels []string, do func(list *tview.List, i int)) {
	list := tview.NewList().ShowSecondaryText(false).SetHighlightFullLine(true)
	list.SetSelectedStyle(a.theme.chosen).SetMainTextStyle(a.theme.text)
	list.SetBorder(true).SetBorderStyle(a.theme.border).SetTitle(" " + tview.Escape(title) + " ").SetTitleColor(tcell.ColorDefault)
	list.SetBackgroundColor(tcell.ColorDefault)
	list.SetBorderPadding(0, 0, 1, 1)
	width := textWidth(title) + 8
	for i, label := range labels {
		width = max(width, textWidth(label)+8)
		list.AddItem(label, "", 0, func() { do(list, i) })
	}
	list.SetDoneFunc(a.closeDialog)
	a.show(list, min(width, 76), min(len(labels)+2, 18))
}

// names lists the objects of a call for a dialog, the first ten by name.
func (a *app) names(on []target) []string {
	var out []string
	for i, t := range on {
		if i == 10 && len(on) > 11 {
			return append(out, "  "+a.words.say("… %d more", len(on)-i))
		}
		if mixed(on) {
			out = append(out, "  "+t.kind.singular+" "+t.String())
			continue
		}
		out = append(out, "  "+t.String())
	}
	return out
}

// mixed says whether they are of several kinds.
func mixed(on []target) bool {
	return slices.ContainsFunc(on, func(t target) bool { return t.kind.scope() != on[0].kind.scope() })
}
