package tui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// tablePane is the live table of a kind.
type tablePane struct {
	*grid
	app      *app
	kind     kind
	model    model
	rows     *rows   // the model, if it is one of rows
	selector string  // labels
	fields   string  // field selector
	parent   *origin // whose rows these are, if not all
	own      bool    // rows of the console's own making, which are no objects
	stop     func()
	// source feeds the table if it is not a view of the feed.
	source func(tell func(api.Tell)) (stop func())
	opens  func(name string) // what Enter does, if the kind does not say it
	// name is what the table is called, if not by its kind, and remarks what is said
	// below it.
	name    string
	remarks []string
	enters  func(target) // the same, where rows are of several kinds
	// stands says what a row stands for, if not for an object of the table's kind.
	stands func(*gridRow) target
	// mixed is the scope of a table whose rows are of several kinds, and the command
	// that opens it.
	mixed  string
	remark string               // on the border: what is missing, and why
	frame  func()               // follows each look at the model
	byNode bool                 // of usage
	chart  func(w int) [][]span // drawn below the rows
}

// model decides what a table shows.
type model interface {
	snapshot(now time.Time) *snapshot
	show(change func(*view))
	wanted() view
}

// origin says which object a table was opened from, and in which namespace its
// rows are.
type origin struct{ name, namespace string }

func newTable(a *app, k kind) *tablePane {
	t := &tablePane{grid: newGrid(a.theme), app: a, kind: k}
	t.rows = newRows(a.dirty)
	t.rows.words, t.model = a.words, t.rows
	if k.plural == "events" { // the newest is what one looks for
		t.rows.want.sortBy = "last seen"
	}
	t.rows.want.columns = a.settings.Columns[k.scope()]
	t.SetBorder(true).SetBorderStyle(a.theme.border)
	return t
}

// in is the namespace that the table is restricted to, or several with commas.
func (t *tablePane) in() string {
	switch {
	case !t.kind.namespaced:
		return ""
	case t.parent != nil:
		return t.parent.namespace
	}
	return t.app.namespace
}

func (t *tablePane) crumb() string {
	switch {
	case t.parent != nil:
		return t.kind.plural + " ‹" + t.parent.name + "›"
	case t.mixed == "xray":
		return "xray " + t.kind.plural
	}
	return cmp.Or(t.name, t.kind.plural)
}

func (t *tablePane) scopes() []string {
	if t.mixed == "" {
		return scopesOf(t.kind.scope(), !t.own)
	}
	var of target
	if r := t.current(); r != nil {
		of = t.stands(r)
	}
	return t.scopesFor(of)
}

// scopesFor are those of one object in a table of several kinds.
func (t *tablePane) scopesFor(of target) []string {
	return append([]string{t.mixed}, scopesOf(of.scope(), of.name != "")...)
}

// scopesOf are where the keys of a row are looked up, by what it stands for.
func scopesOf(scope string, object bool) []string {
	out := []string{scope}
	switch scope {
	case "deployments.apps", "statefulsets.apps":
		out = append(out, "workload", "scalable")
	case "daemonsets.apps":
		out = append(out, "workload")
	case "replicasets.apps", "replicationcontrollers":
		out = append(out, "scalable")
	case "pods", "nodes", "usage":
		out = append(out, "measured")
	}
	if scope != "nodes" {
		out = append(out, "plain")
	}
	if scope != "aliases" {
		out = append(out, "aged")
	}
	if object {
		out = append(out, "objects")
	}
	return append(out, "table")
}

func (t *tablePane) open() {
	v := t.viewOf(t.kind)
	v.LabelSelector, v.FieldSelector = t.selector, t.fields
	t.model.show(func(w *view) { w.namespaces = t.kind.namespaced && !t.own && len(v.Namespaces) != 1 })
	if t.source != nil {
		t.stop = t.source(t.rows.tell)
		return
	}
	measure := t.measure()
	stop := t.app.feed.Open(v, t.rows.tell)
	t.stop = func() { stop(); measure() }
}

// viewOf is the view of a kind where the table looks.
func (t *tablePane) viewOf(k kind) api.View {
	v := api.View{Group: k.group, Version: k.version, Resource: k.plural}
	if in := t.in(); in != "" {
		v.Namespaces = strings.Split(in, ",")
	}
	return v
}

func (t *tablePane) close() {
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
}

// reload opens the table anew.
func (t *tablePane) reload() {
	t.close()
	t.open()
}

func (t *tablePane) refresh(now time.Time) {
	t.set(t.model.snapshot(now))
	t.SetTitle("")
	s := t.snap
	say := t.app.words.say
	t.empty, t.emptyStyle = "", t.theme.faint
	switch {
	case s.fault != nil:
		t.empty, t.emptyStyle = glyphOf(api.StateError)+" "+t.app.words.told(s.fault.Message), t.theme.state(api.StateError)
	case s.loading:
		t.empty = say("loading…")
	case len(s.rows) == 0 && s.total > 0 && t.model.wanted().filter == "":
		t.empty = say("nothing here is amiss")
	case len(s.rows) == 0 && s.total > 0:
		t.empty = say("nothing matches the filter; Esc clears it")
	case len(s.rows) == 0 && t.kind.namespaced && t.parent == nil && t.in() != "":
		t.empty = say("there are none in %s; 0 looks in all namespaces", t.in())
	case len(s.rows) == 0:
		t.empty = say("there are none")
	}
	if t.frame != nil {
		t.frame()
	}
}

// Draw implements tview.Primitive: the grid, with a title on its border.
func (t *tablePane) Draw(s tcell.Screen) {
	below := t.below()
	t.SetBorderPadding(0, len(below), 0, 0)
	t.grid.Draw(s)
	x, y, w, h := t.GetInnerRect()
	c := cursor{s: s, x: x + 2, y: y + h, w: w - 4, end: y + h + len(below)}
	for _, line := range below {
		c.line(line...)
	}
	drawTitle(s, t.Box, t.theme, t.title())
	if at := t.tally(s); t.remark != "" {
		x, y, _, h := t.GetRect()
		drawText(s, x+2, y+h-1, at-x-3, " "+glyphOf(api.StateWarning)+" "+t.remark+" ", t.theme.state(api.StateWarning))
	}
}

func (t *tablePane) title() string {
	in := t.in()
	if in == "" {
		in = t.app.words.say("all")
	}
	name := cmp.Or(t.name, t.kind.plural)
	if t.mixed == "xray" {
		name = "xray " + name
	}
	if t.kind.namespaced {
		name += "(" + in + ")"
	}
	if t.parent != nil {
		name += " ‹" + t.parent.name + "›"
	}
	n := fmt.Sprint(len(t.snap.rows))
	if len(t.snap.rows) != t.snap.total {
		n += "/" + fmt.Sprint(t.snap.total)
	}
	if t.snap.loading {
		n = "…"
	}
	title := name + "[" + n + "]"
	want := t.model.wanted()
	if want.filter != "" {
		title += " /" + want.filter
		if t.snap.filterOK != nil {
			title += " ✗"
		}
	}
	if t.selector != "" {
		title += " -l " + t.selector
	}
	if want.faultsOnly {
		title += " " + t.app.words.say("faults only")
	}
	return title
}

// below are chart and remarks in lines, if there is room for them.
func (t *tablePane) below() (out [][]span) {
	_, _, w, h := t.GetRect()
	if t.chart != nil {
		out = t.chart(w - 6)
	}
	for _, r := range t.remarks {
		out = append(out, wrapSpans([]span{{"· " + r, t.theme.faint}}, w-6)...)
	}
	if 2*len(out) > h-2 {
		return nil
	}
	return out
}

// tally shows at the right of the bottom border how many rows are in which
// state that needs a look, and says where that begins.
func (t *tablePane) tally(s tcell.Screen) int {
	x, y, w, h := t.GetRect()
	at := x + w - 2
	for _, state := range []api.State{api.StateError, api.StateWarning, api.StateProgressing, api.StateTerminating, api.StateUnknown} {
		if n := t.snap.counts[state]; n > 0 {
			text := fmt.Sprintf(" %s %d ", glyphOf(state), n)
			if at-textWidth(text) <= x {
				break
			}
			at -= textWidth(text)
			drawText(s, at, y+h-1, textWidth(text), text, t.theme.state(state))
		}
	}
	return at
}

// setFilter restricts the rows shown.
func (t *tablePane) setFilter(text string) {
	t.model.show(func(w *view) { w.filter = text })
}

// sortBy sorts by a column; the same column again turns the order.
func (t *tablePane) sortBy(column string) {
	t.model.show(func(w *view) {
		if strings.EqualFold(w.sortBy, column) {
			w.descending = !w.descending
			return
		}
		w.sortBy, w.descending = column, false
	})
}

// sortBeside sorts by the column n to the right of the one sorted by.
func (t *tablePane) sortBeside(n int) {
	cols := t.snap.columns
	if len(cols) == 0 {
		return
	}
	at := -1
	for i, c := range cols {
		if c.sort != 0 {
			at = i
		}
	}
	if at < 0 && n < 0 {
		at = 0
	}
	name := cols[(at+n+len(cols))%len(cols)].name
	t.model.show(func(w *view) { w.sortBy, w.descending = name, false })
}
