package tui

import (
	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"
)

// prompt is the line that ":" and "/" open. What would complete it is shown
// after the cursor; Tab or the right arrow takes it.
type prompt struct {
	*tview.InputField
	app     *app
	active  bool
	history *history
	rest    string // the suggestion
	suggest func(line string) string
	changed func(line string)
	done    func(line string)
	undo    func()
}

func newPrompt(a *app) *prompt {
	p := &prompt{InputField: tview.NewInputField(), app: a}
	p.dress()
	p.SetBorder(false)
	p.SetChangedFunc(func(line string) {
		p.rest = ""
		if p.suggest != nil && line != "" {
			p.rest = p.suggest(line)
		}
		if p.changed != nil {
			p.changed(line)
		}
	})
	p.SetDoneFunc(func(k tcell.Key) {
		switch k {
		case tcell.KeyEnter:
			p.finish()
		case tcell.KeyEscape:
			p.cancel()
		}
	})
	return p
}

func (p *prompt) dress() {
	p.SetLabelStyle(p.app.theme.key).SetFieldStyle(p.app.theme.strong)
}

// ask opens the prompt; what is answered goes into the history, which the arrows
// walk.
func (p *prompt) ask(label, text string, h *history) {
	p.active, p.history = true, h
	h.at = len(h.lines)
	p.suggest, p.changed, p.done, p.undo = nil, nil, nil, nil
	p.SetLabel(label)
	p.SetText(text)
	p.app.layout.ResizeItem(p, 1, 0)
	p.app.tv.SetFocus(p)
}

func (p *prompt) hide() {
	p.active, p.rest = false, ""
	p.changed = nil
	p.app.layout.ResizeItem(p, 0, 0)
	if top := p.app.top(); top != nil {
		p.app.tv.SetFocus(top)
	}
}

func (p *prompt) finish() {
	line, done := p.GetText(), p.done
	p.history.add(line)
	p.hide()
	if done != nil {
		done(line)
	}
}

func (p *prompt) cancel() {
	undo := p.undo
	p.hide()
	if undo != nil {
		undo()
	}
}

// Draw implements tview.Primitive.
func (p *prompt) Draw(s tcell.Screen) {
	p.InputField.Draw(s)
	x, y, w, h := p.GetInnerRect()
	if h > 0 && p.rest != "" {
		at := textWidth(p.GetLabel()) + textWidth(p.GetText())
		drawText(s, x+at, y, w-at, p.rest, p.app.theme.faint)
	}
}

// InputHandler implements tview.Primitive.
func (p *prompt) InputHandler() func(*tcell.EventKey, func(tview.Primitive)) {
	inner := p.InputField.InputHandler()
	return func(e *tcell.EventKey, focus func(tview.Primitive)) {
		switch e.Key() {
		case tcell.KeyTab, tcell.KeyRight, tcell.KeyCtrlF:
			if p.rest != "" {
				p.SetText(p.GetText() + p.rest)
				return
			}
			if e.Key() == tcell.KeyTab {
				return
			}
		case tcell.KeyUp:
			p.SetText(p.history.walk(-1))
			return
		case tcell.KeyDown:
			p.SetText(p.history.walk(1))
			return
		case tcell.KeyBackspace, tcell.KeyBackspace2:
			if p.GetText() == "" {
				p.cancel()
				return
			}
		}
		inner(e, focus)
	}
}
