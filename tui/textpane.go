package tui

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gdamore/tcell/v2"
)

const liveEach = 2 * time.Second

// textPane shows a text: YAML, a description, the help.
type textPane struct {
	*pager
	app    *app
	name   string
	scope  []string
	of     target // the object it is about, if one
	load   func(ctx context.Context) ([]string, error)
	typed  string // the search
	yaml   bool
	busy   bool
	before []string
	// whole has the YAML with managed fields, and decoded says that a Secret's
	// data are shown in clear.
	managed, decoded bool
	again            time.Duration // how often it is loaded anew; 0 is never
	live             bool          // because the user wants it
	loaded           time.Time
	command          string       // that mends what the text tells of
	width            atomic.Int64 // of a line, for texts that are laid out by it
}

func newText(a *app, name string, load func(ctx context.Context) ([]string, error)) *textPane {
	t := &textPane{app: a, name: name, load: load, scope: []string{"text"}}
	t.pager = newPager(a, newLines(0, func() {}))
	t.wrap = true
	t.SetBorder(true).SetBorderStyle(a.theme.border)
	t.SetBorderPadding(0, 0, 1, 1)
	return t
}

func (t *textPane) crumb() string    { return t.name }
func (t *textPane) scopes() []string { return t.scope }
func (t *textPane) close()           {}

func (t *textPane) open() {
	if t.busy {
		return
	}
	t.busy, t.loaded = true, t.app.now()
	t.app.async(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		text, err := t.load(ctx)
		return func() {
			t.busy = false
			if err != nil {
				text = []string{t.app.words.told(err.Error())}
			}
			t.lines.set(text)
			t.app.dirty()
		}
	})
}

func (t *textPane) refresh(now time.Time) {
	if t.again > 0 && now.Sub(t.loaded) >= t.again {
		t.open()
	}
}

func (t *textPane) filterText() string { return t.typed }

// setFilter searches: "/" in a text marks matches and goes to the first.
func (t *textPane) setFilter(text string) {
	t.typed, t.find, t.found = text, nil, -1
	if text == "" {
		return
	}
	expr, err := regexp.Compile("(?i)" + text)
	if err != nil {
		expr = regexp.MustCompile("(?i)" + regexp.QuoteMeta(text))
	}
	t.find = expr
	t.search(1)
}

// Draw implements tview.Primitive.
func (t *textPane) Draw(s tcell.Screen) {
	t.pager.Draw(s)
	if _, _, inner, _ := t.GetInnerRect(); t.width.Swap(int64(inner)) != int64(inner) {
		t.loaded = time.Time{} // what is loaded again is at once
	}
	title := t.name
	if t.live {
		title += " [" + t.app.words.say("live") + "]"
	}
	if t.typed != "" {
		title += " /" + t.typed
	}
	drawTitle(s, t.Box, t.theme, title)
}

// paintYAML colours the keys of a line of YAML.
func (t *theme) paintYAML(line string) []span {
	if t.plain {
		return []span{{plainText(line), t.text}}
	}
	key, value, ok := strings.Cut(line, ":")
	if !ok || strings.ContainsAny(key, "\"'{") || value != "" && value[0] != ' ' {
		return []span{{plainText(line), t.text}}
	}
	return []span{{plainText(key), t.title}, {":", t.faint}, {plainText(value), t.text}}
}

func textActions() []action {
	text := func(a *app) *pager {
		switch p := a.top().(type) {
		case *logPane:
			return p.pager
		case interface{ text() *pager }:
			return p.text()
		}
		return nil
	}
	both := []string{"text", "log"}
	return append([]action{
		{name: "next-match", help: "the next match of the search", on: both, run: func(a *app, _ call) { text(a).search(1) }},
		{name: "previous-match", help: "the match before", on: both, run: func(a *app, _ call) { text(a).search(-1) }},
		{name: "copy-text", hint: "copy", help: "copy the text", on: both, run: func(a *app, _ call) {
			var plain []string
			for _, l := range text(a).lines.all() {
				plain = append(plain, stripANSI(l))
			}
			a.copy(strings.Join(plain, "\n"))
		}},
		{name: "auto-refresh", hint: "live", help: "load the text anew every two seconds, or no longer", on: []string{"describe", "yaml"}, run: func(a *app, _ call) {
			t := a.top().(*textPane)
			if t.live, t.again = !t.live, 0; t.live {
				t.again = liveEach
				t.open()
			}
		}},
		{name: "wrap", hint: "wrap", help: "wrap long lines", on: both, run: func(a *app, _ call) { p := text(a); p.wrap = !p.wrap }},
		{name: "full-screen", help: "the whole screen", on: both, run: func(a *app, _ call) { a.fullScreen = !a.fullScreen }},
		{name: "managed-fields", hint: "managed fields", help: "show or hide managedFields", on: []string{"yaml"}, run: func(a *app, _ call) {
			t := a.top().(*textPane)
			t.managed = !t.managed
			t.open()
		}},
	}, logActions()...)
}

// showHelp lists what the keys of the pane do, and why some can't.
func (a *app) showHelp() {
	p := a.top()
	var on *target
	table, _ := p.(*tablePane)
	if table != nil {
		if r := table.current(); r != nil {
			of := a.targetOf(table, r)
			on = &of
		}
	}
	scopes, crumb, home := keyScopes(p.scopes()), p.crumb(), a.home()
	help := newText(a, a.words.say("help"), func(ctx context.Context) ([]string, error) {
		return a.helpLines(ctx, crumb, scopes, on, home), nil
	})
	a.push(help)
}

func (a *app) helpLines(ctx context.Context, crumb string, scopes []string, on *target, home string) []string {
	keys := map[string][]string{}
	for _, scope := range scopes {
		for _, b := range a.bindings {
			if name, _ := lookup(a.bindings, scopes, b.key); b.scope == scope && name == b.action {
				keys[b.action] = append(keys[b.action], keyLabel(b.key))
			}
		}
	}
	var out, others []string
	for _, act := range allActions() {
		if n := act.name[len(act.name)-1]; n >= '2' && n <= '9' {
			continue // one stands for all nine
		}
		line := fmt.Sprintf("  %-20s %-18s   %s", strings.Join(keys[act.name], ", "), ":"+act.name, a.words.say(act.help))
		why := a.refuses(act, scopes, crumb)
		if why == "" && act.verb != "" && on != nil {
			why = a.rights.refusal(ctx, a.cluster, act, *on, home)
		}
		switch {
		case why == "":
			out = append(out, line)
		case len(keys[act.name]) > 0:
			out = append(out, line+"   ✗ "+why)
		default:
			others = append(others, line+"   ✗ "+why)
		}
	}
	head := []string{"", "  " + a.words.say("Keys and commands of %s", crumb), ""}
	views := []string{"", "  " + a.words.say("Views"), ""}
	for _, s := range scenes() {
		views = append(views, fmt.Sprintf("  %-39s   %s", ":"+strings.Join(s.words, ", :"), a.words.say(s.help)))
	}
	tail := []string{"", "  " + a.words.say("Not here"), ""}
	return slices.Concat(head, out, views, tail, others)
}

// workPane tells how some work goes, which adds lines to it. What ends the work is
// called when it is left.
type workPane struct {
	*textPane
	left func()
}

func (a *app) newWork(name string, left func()) *workPane {
	p := &workPane{newText(a, name, nil), left}
	p.lines = newLines(1<<20, a.dirty)
	p.follow = true
	return p
}

func (p *workPane) open()  {}
func (p *workPane) close() { p.left() }
