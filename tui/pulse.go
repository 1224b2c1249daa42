package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"orrery.dev/api"
)

// pulse is the overview: the control plane, the nodes, the workloads, and what
// is wrong now. The list of what is wrong has a selection; Enter opens it.
type pulse struct {
	*tview.Box
	app   *app
	model *health
	now   pulseState
	keys  numbered
	at    int
	top   int
	stop  func()
}

// numbered are the problems that the keys 1 to 9 open. One keeps its key for as long
// as it is there, whatever is found besides.
type numbered [9]string

// give frees the keys of what is gone, and gives free ones to what has none.
func (d *numbered) give(problems []problem) {
	var ids []string
	for _, w := range problems {
		ids = append(ids, w.id())
	}
	for i, id := range d {
		if !slices.Contains(ids, id) {
			d[i] = ""
		}
	}
	for _, id := range ids {
		if free := slices.Index(d[:], ""); free >= 0 && !slices.Contains(d[:], id) {
			d[free] = id
		}
	}
}

func newPulse(a *app) *pulse {
	p := &pulse{Box: tview.NewBox(), app: a, model: newHealth(a.dirty)}
	p.SetBorder(true).SetBorderStyle(a.theme.border)
	return p
}

func (p *pulse) crumb() string    { return "pulse" }
func (p *pulse) scopes() []string { return []string{"pulse"} }
func (p *pulse) open()            { p.stop = p.model.open(p.app) }
func (p *pulse) close()           { p.stop() }

func (p *pulse) refresh(now time.Time) {
	chosen := ""
	if p.at < len(p.now.wrong) {
		chosen = p.now.wrong[p.at].id()
	}
	p.now = p.model.state(now)
	if i := p.find(chosen); i >= 0 && p.at > 0 {
		p.at = i
	}
	if p.now.settled {
		p.keys.give(p.now.wrong)
	}
	p.at = max(min(p.at, len(p.now.wrong)-1), 0)
}

// find is the place of a problem in the list, or -1.
func (p *pulse) find(id string) int {
	return slices.IndexFunc(p.now.wrong, func(w problem) bool { return w.id() == id })
}

// enter opens the object that is wrong.
func (p *pulse) enter() {
	if p.at >= len(p.now.wrong) {
		return
	}
	w := p.now.wrong[p.at]
	switch {
	case w.trouble != nil:
		p.app.showWhy(p.app.targetOfRef(w.trouble.Object))
		return
	case w.row == nil:
		return
	}
	p.app.describe(target{kind: p.app.kinds.byPlural(w.kind), namespace: w.row.Namespace, name: w.row.Name})
}

// Draw implements tview.Primitive.
func (p *pulse) Draw(s tcell.Screen) {
	p.DrawForSubclass(s, p)
	x, y, w, h := p.GetInnerRect()
	t, say := p.app.theme, p.app.words.say
	drawTitle(s, p.Box, t, "pulse")
	c := cursor{s: s, x: x + 1, y: y, w: w - 2, end: y + h}
	components, etcd, counts, brief := p.now.components, p.now.etcd, p.now.counts, 0
	lines := func() int { return len(components) + len(etcd) + len(counts) + 6 }
	room := max(min(len(p.now.wrong), h/3), 3) // for what is wrong
	if lines()+room > h {
		brief = len(components) + len(etcd)
		components = slices.DeleteFunc(slices.Clone(components), func(c part) bool { return c.state == api.StateOK && c.name != "kube-apiserver" })
		etcd = slices.DeleteFunc(slices.Clone(etcd), func(m member) bool { return m.state() == api.StateOK })
		counts = slices.DeleteFunc(slices.Clone(counts), func(n tally) bool {
			return n.fault == nil && n.counts[api.StateOK]+n.counts[api.StateDone] == n.total && n.kind != "nodes" && n.kind != "pods"
		})
	}
	if lines()+room <= h {
		p.parts(&c, components, etcd, brief)
		c.y++
		c.line(span{say("Nodes"), t.head}, span{" · ", t.faint}, span{say("Workloads"), t.head})
		for _, n := range counts {
			p.tallyLine(&c, n)
		}
		c.y++
	}
	head := []span{{say("What is wrong now"), t.head}, {fmt.Sprintf("  %d", len(p.now.wrong)), t.faint}}
	if p.now.unread {
		head = append(head, span{"  " + p.app.shared.Say("why.unread", nil), t.state(api.StateWarning)})
	}
	c.line(head...)
	p.problems(&c)
}

// parts are the control plane's; if it is brief, those of brief that are not well.
func (p *pulse) parts(c *cursor, components []part, etcd []member, brief int) {
	t, say := p.app.theme, p.app.words.say
	head := []span{{say("Control plane"), t.head}}
	if well := brief - len(components) - len(etcd); well > 0 {
		head = append(head, span{"  " + say("%d more are well", well), t.faint})
	}
	c.line(head...)
	for _, part := range components {
		c.line(span{" " + glyphOf(part.state) + " ", t.state(part.state)}, span{fitText(part.name, 26), t.text}, span{part.note, t.faint})
	}
	for _, m := range etcd {
		c.line(etcdLine(t, say, m)...)
	}
	if p.now.etcdError != "" {
		c.line(span{"   etcd: " + say(p.now.etcdError), t.faint})
	}
}

func etcdLine(t *theme, say func(string, ...any) string, m member) []span {
	facts := padText(say(m.role()), 9) + "  " + say("term %d  revision %d  %s  %.0f writes/s  v%s", m.Term, m.Revision, bytesText(m.Size), m.rate, m.Version)
	if m.Error != "" {
		facts = m.Error
	}
	role := t.text
	if m.Leader {
		role = t.key
	}
	return []span{{" " + glyphOf(m.state()) + " ", t.state(m.state())}, {padText("etcd "+m.Name, 26), role}, {facts, t.faint}}
}

// tallyLine is a kind with a bar of its states.
func (p *pulse) tallyLine(c *cursor, n tally) {
	t := p.app.theme
	if n.fault != nil {
		c.line(span{fitText(" "+n.kind, 24), t.text}, span{p.app.words.told(n.fault.Message), t.faint})
		return
	}
	line := []span{{fitText(" "+n.kind, 24), t.text}, {fmt.Sprintf("%5d  ", n.total), t.strong}}
	order := []api.State{api.StateError, api.StateWarning, api.StateProgressing, api.StateTerminating, api.StateUnknown, api.StateOK, api.StateDone}
	width := max(min(c.w-64, 24), 8)
	for i, cells := range shares(n.counts, order, width) {
		line = append(line, span{strings.Repeat("█", cells), t.state(order[i])})
		width -= cells
	}
	line = append(line, span{strings.Repeat(" ", width+2), t.text})
	for _, state := range order {
		if k := n.counts[state]; k > 0 {
			line = append(line, span{fmt.Sprintf("%s %d  ", glyphOf(state), k), t.state(state)})
		}
	}
	c.line(line...)
}

// shares are how many of so many cells each of the states gets: at least one, and
// together all.
func shares(counts map[api.State]int, order []api.State, cells int) []int {
	out, total, most := make([]int, len(order)), 0, 0
	for i, state := range order {
		total += counts[state]
		if counts[state] > counts[order[most]] {
			most = i
		}
	}
	if total == 0 {
		return out
	}
	rest := cells
	for i, state := range order {
		if n := counts[state]; n > 0 {
			out[i] = max(n*cells/total, 1)
		}
		rest -= out[i]
	}
	out[most] += rest
	return out
}

func (p *pulse) problems(c *cursor) {
	t := p.app.theme
	if len(p.now.wrong) == 0 {
		c.line(span{" ● " + p.app.words.say("Everything is well."), t.state(api.StateOK)})
		return
	}
	room := max(c.end-c.y, 1)
	if p.at < p.top {
		p.top = p.at
	}
	if p.at >= p.top+room {
		p.top = p.at - room + 1
	}
	for i := p.top; i < min(len(p.now.wrong), p.top+room); i++ {
		w := p.now.wrong[i]
		style := t.state(w.state)
		if i == p.at {
			style = t.chosen
		}
		number := " "
		if key := slices.Index(p.keys[:], w.id()); key >= 0 {
			number = fmt.Sprint(key + 1) // the key that opens it
		}
		about, text := p.tell(w)
		c.line(span{fitText(number+" "+glyphOf(w.state)+" "+fitText(w.kind, 14)+" "+fitText(about, 28)+" "+text, c.w), style})
	}
}

// tell says which object a problem is about, and what is wrong.
func (p *pulse) tell(w problem) (about, text string) {
	switch {
	case w.trouble != nil:
		o := target{namespace: w.trouble.Object.Namespace, name: w.trouble.Object.Name}
		return o.String(), p.app.shared.Say("why.link."+w.trouble.Link, nil) + ": " + p.app.shared.Finding(w.trouble.Finding)
	case w.row != nil:
		return target{namespace: w.row.Namespace, name: w.row.Name}.String(), w.text
	}
	return "", w.text
}

// cursor writes lines downwards until there is no more room.
type cursor struct {
	s       tcell.Screen
	x, y, w int
	end     int
}

func (c *cursor) line(spans ...span) {
	if c.y < c.end {
		at := 0
		for _, sp := range spans {
			at += drawText(c.s, c.x+at, c.y, c.w-at, sp.text, sp.style)
		}
	}
	c.y++
}

// InputHandler implements tview.Primitive.
func (p *pulse) InputHandler() func(*tcell.EventKey, func(tview.Primitive)) {
	return p.WrapInputHandler(func(e *tcell.EventKey, _ func(tview.Primitive)) {
		p.at = max(min(p.at+step(e), len(p.now.wrong)-1), 0)
	})
}

// step is how far a key moves a selection.
func step(e *tcell.EventKey) int {
	switch {
	case e.Key() == tcell.KeyUp, e.Key() == tcell.KeyBacktab, e.Rune() == 'k' && e.Key() == tcell.KeyRune:
		return -1
	case e.Key() == tcell.KeyDown, e.Key() == tcell.KeyTab, e.Rune() == 'j' && e.Key() == tcell.KeyRune:
		return 1
	case e.Key() == tcell.KeyPgUp:
		return -10
	case e.Key() == tcell.KeyPgDn:
		return 10
	case e.Key() == tcell.KeyHome, e.Rune() == 'g' && e.Key() == tcell.KeyRune:
		return -maxProblems
	case e.Key() == tcell.KeyEnd, e.Rune() == 'G' && e.Key() == tcell.KeyRune:
		return maxProblems
	}
	return 0
}
