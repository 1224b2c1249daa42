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

// mapPane is the architecture map: the control plane above, the nodes below,
// every box a real component. Boxes can be chosen; Enter goes closer.
type mapPane struct {
	*tview.Box
	app     *app
	model   *health
	now     pulseState
	pods    map[string][]gridRow // by node
	at      int
	closeUp string // "", "etcd" or a node's name
	boxes   []box
	stop    func()
}

// box is a component on the map: what it says, and what Enter opens.
type box struct {
	name, role string
	notes      []string
	state      api.State
	closeUp    string
	x, y, w, h int
}

func newMap(a *app) *mapPane {
	p := &mapPane{Box: tview.NewBox(), app: a, model: newHealth(a.dirty)}
	p.SetBorder(true).SetBorderStyle(a.theme.border)
	// Wide rows have the node of a pod.
	p.model.tables["pods"].show(func(v *view) { v.wide, v.namespaces = true, true })
	p.model.tables["nodes"].show(func(v *view) { v.wide = true })
	return p
}

func (p *mapPane) crumb() string {
	if p.closeUp != "" {
		return "map ‹" + p.closeUp + "›"
	}
	return "map"
}

func (p *mapPane) scopes() []string { return []string{"map"} }
func (p *mapPane) open()            { p.stop = p.model.open(p.app) }
func (p *mapPane) close()           { p.stop() }

func (p *mapPane) refresh(now time.Time) {
	p.now = p.model.state(now)
	p.pods = map[string][]gridRow{}
	snap := p.model.tables["pods"].snapshot(now)
	column := -1
	for i, c := range snap.columns {
		if c.name == "NODE" {
			column = i
		}
	}
	for _, r := range snap.rows {
		if column >= 0 {
			p.pods[r.cells[column]] = append(p.pods[r.cells[column]], r)
		}
	}
}

func (p *mapPane) enter() {
	if p.at >= len(p.boxes) {
		return
	}
	b := p.boxes[p.at]
	switch {
	case p.closeUp == "" && b.closeUp != "":
		near := newMap(p.app)
		near.closeUp = b.closeUp
		p.app.push(near)
	case p.closeUp != "" && p.closeUp != "etcd":
		name := p.closeUp
		p.app.push(p.app.tableOf("pods", origin{name: name}, func(t *tablePane) { t.fields = "spec.nodeName=" + name }))
	}
}

// Draw implements tview.Primitive.
func (p *mapPane) Draw(s tcell.Screen) {
	p.DrawForSubclass(s, p)
	x, y, w, h := p.GetInnerRect()
	t := p.app.theme
	title := p.app.words.say("Architecture")
	if p.closeUp != "" {
		title += " ‹" + p.closeUp + "›"
	}
	drawTitle(s, p.Box, t, title)
	p.boxes = nil
	if w < 8 || h < 1 {
		return
	}
	switch small := w < 62 || h < 14; {
	case p.closeUp == "" && small:
		p.list(s, x+1, y, w-2, h)
	case p.closeUp == "":
		p.whole(s, x+1, y, w-2, h)
	case p.closeUp == "etcd":
		p.etcd(s, x+1, y, w-2, h)
	default:
		p.node(s, x+1, y, w-2, h)
	}
	p.at = max(min(p.at, len(p.boxes)-1), 0)
	for i, b := range p.boxes {
		drawBox(s, t, b, i == p.at)
	}
}

const boxHeight = 5

// list is the picture where there is no room for it: a line a box.
func (p *mapPane) list(s tcell.Screen, x, y, w, h int) {
	for _, c := range p.now.components {
		p.boxes = append(p.boxes, box{name: c.name, notes: []string{c.note}, state: c.state})
	}
	p.boxes = append(p.boxes, p.etcdBox(0, 0, 0))
	for _, n := range p.now.nodes {
		p.boxes = append(p.boxes, box{name: n.row.Name, state: n.state, closeUp: n.row.Name, notes: []string{p.podCount(n.row.Name)}})
	}
	t, c := p.app.theme, cursor{s: s, x: x, y: y, w: w, end: y + h}
	for i := range p.boxes {
		b := &p.boxes[i]
		b.h = 0 // it is not drawn
		if i <= p.at-h {
			continue
		}
		style := t.text
		if i == p.at {
			style = t.chosen
		}
		c.line(span{glyphOf(b.state) + " ", t.state(b.state)}, span{fitText(b.name, 20), style}, span{" " + strings.Join(b.notes, "  "), t.faint})
	}
}

// whole is the picture of everything: scheduler and controllers left of the API
// server, etcd right of it, the nodes below, with the connections between.
func (p *mapPane) whole(s tcell.Screen, x, y, w, h int) {
	t, say := p.app.theme, p.app.words.say
	side := max(min(w/3-4, 34), 18)
	mid := x + (w-side)/2
	right := x + w - side
	var left []part
	server := part{name: "kube-apiserver", state: api.StateUnknown}
	for _, c := range p.now.components {
		switch {
		case c.name == "kube-apiserver":
			server = c
		case !strings.HasPrefix(c.name, "etcd"):
			left = append(left, c)
		}
	}
	for i, c := range left[:min(len(left), 2)] {
		p.boxes = append(p.boxes, box{name: c.name, notes: []string{c.note}, state: c.state, x: x, y: y + i*4, w: side, h: 4})
		arrow(s, x+side, y+i*4+1, mid-x-side, "watch", t.border)
	}
	p.boxes = append(p.boxes, box{name: server.name, notes: []string{server.note, hostOf(p.app.config.REST)}, state: server.state, x: mid, y: y, w: side, h: 8})
	arrow(s, mid+side, y+3, right-mid-side, "gRPC", t.border)
	p.boxes = append(p.boxes, p.etcdBox(right, y, side))

	trunk := y + 8
	drawText(s, mid+side/2, trunk, 1, "│", t.border)
	drawText(s, mid+side/2+2, trunk, w, say("Network traffic")+" ↕", t.faint)
	p.nodeBoxes(s, x, trunk+1, w, y+h-trunk-1, mid+side/2)
}

func (p *mapPane) etcdBox(x, y, w int) box {
	b := box{name: "etcd", state: api.StateUnknown, closeUp: "etcd", x: x, y: y, w: w, h: 8}
	if len(p.now.etcd) > 0 {
		b.state = api.StateOK
	}
	for _, m := range p.now.etcd {
		mark := "○ "
		if m.Leader {
			mark = "★ "
		}
		b.notes = append(b.notes, mark+m.Name+" "+p.app.words.say(m.role()))
		if m.state() != api.StateOK {
			b.state = m.state()
		}
	}
	if p.now.etcdError != "" {
		b.notes = append(b.notes, p.app.words.say(p.now.etcdError))
	}
	return b
}

// nodeBoxes lays the nodes out in rows, joined to the trunk from above.
func (p *mapPane) nodeBoxes(s tcell.Screen, x, y, w, h, trunk int) {
	t := p.app.theme
	const width = 26
	perRow, step := max((w+2)/(width+2), 1), boxHeight+1
	if rows := (len(p.now.nodes) + perRow - 1) / perRow; rows*step > h {
		step-- // rather close together than left out
	}
	rowsFit := max((h-1)/step, 1)
	shown := min(len(p.now.nodes), perRow*rowsFit)
	if shown == 0 {
		return
	}
	used := min(shown, perRow)*(width+2) - 2
	left := x + (w-used)/2
	var ends []int
	for i, n := range p.now.nodes[:shown] {
		bx, by := left+(i%perRow)*(width+2), y+1+(i/perRow)*step
		if i < perRow {
			ends = append(ends, bx+width/2)
		}
		pods := p.pods[n.row.Name]
		counts := map[api.State]int{}
		for _, r := range pods {
			counts[r.state]++
		}
		p.boxes = append(p.boxes, box{name: n.row.Name, state: n.state, closeUp: n.row.Name, x: bx, y: by, w: width, h: boxHeight,
			notes: []string{"kubelet · kube-proxy", p.podCount(n.row.Name), dots(pods, width-4)}})
	}
	bus(s, y, trunk, ends, t.border)
	if more := len(p.now.nodes) - shown; more > 0 {
		drawText(s, x, y+h-1, w, p.app.words.say("… %d more nodes; :nodes lists them", more), t.faint)
	}
}

// dots is a node's pods, one glyph each.
func dots(pods []gridRow, width int) string {
	var b strings.Builder
	for i, r := range pods {
		if i == width-1 {
			b.WriteString("…")
			break
		}
		b.WriteString(glyphOf(r.state))
	}
	return b.String()
}

// etcd is the close-up of the store: a box a member, with its raft state.
func (p *mapPane) etcd(s tcell.Screen, x, y, w, h int) {
	t, say := p.app.theme, p.app.words.say
	width := min(44, w)
	perRow := (w + 3) / (width + 3)
	rows := max((len(p.now.etcd)+perRow-1)/perRow, 1)
	height := max(min((h-1)/rows-1, 12), min(h-1, 5))
	first := max(p.at/perRow-max((h-1)/(height+1), 1)+1, 0) // row on screen
	for i, m := range p.now.etcd {
		bx, by := x+(i%perRow)*(width+3), y+1+(i/perRow-first)*(height+1)
		if i/perRow < first || by+height > y+h {
			p.boxes = append(p.boxes, box{name: m.Name})
			continue
		}
		if i > 0 && i%perRow > 0 {
			drawText(s, bx-3, by+3, 3, raftArrow(p.now.etcd[i-1], m), t.border)
		}
		notes := etcdNotes(say, m)
		if m.Error != "" {
			notes = append(wrapText(m.Error, width-4), notes[len(notes)-2:]...)
		}
		p.boxes = append(p.boxes, box{name: m.Name, role: say(m.role()), notes: notes, state: m.state(), x: bx, y: by, w: width, h: height})
	}
	if p.now.etcdError != "" {
		drawText(s, x, y+h-1, w, say(p.now.etcdError), t.state(api.StateWarning))
	}
}

// raftArrow shows which way the log goes between two members beside each other:
// from the leader to its followers.
func raftArrow(left, right member) string {
	switch {
	case left.Error != "" || right.Error != "":
		return " ╳ "
	case left.Leader:
		return "──▶"
	case right.Leader:
		return "◀──"
	}
	return "┄┄┄"
}

// gauge is a bar of a part of a whole.
func gauge(part, whole int64, width int) string {
	if whole <= 0 {
		return ""
	}
	n := int(min(part*int64(width)/whole, int64(width)))
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

// etcdNotes are what a member tells, its addresses last.
func etcdNotes(say func(string, ...any) string, m member) []string {
	note := func(name, format string, args ...any) string {
		return padText(say(name), 9) + " " + fmt.Sprintf(format, args...)
	}
	return []string{
		note("term", "%d", m.Term), note("committed", "%d", m.Index),
		note("applied", "%d  (%s)", m.Applied, say("%d behind", m.Index-min(m.Applied, m.Index))), note("revision", "%d", m.Revision),
		note("writes", "%.1f/s", m.rate), note("database", "%s, %s", bytesText(m.Size), say("%s in use", bytesText(m.InUse))),
		note("quota", "%s %s", bytesText(m.Quota), gauge(m.Size, m.Quota, 14)), note("id", "%s", m.ID), note("peers", "%s", m.PeerURL), note("clients", "%s", m.ClientURL),
	}
}

func (p *mapPane) podCount(node string) string { return p.app.words.say("%d pods", len(p.pods[node])) }

// node is the close-up of a node: its agents, and its pods.
func (p *mapPane) node(s tcell.Screen, x, y, w, h int) {
	t, say := p.app.theme, p.app.words.say
	var node *gridRow
	for i := range p.now.nodes {
		if p.now.nodes[i].row.Name == p.closeUp {
			node = &p.now.nodes[i]
		}
	}
	if node == nil {
		drawText(s, x, y+1, w, say("there are none"), t.faint)
		return
	}
	snap := p.model.tables["nodes"].snapshot(p.app.now())
	var facts []string
	for i, c := range snap.columns {
		if i < len(node.cells) && c.name != "NAME" && node.cells[i] != "<none>" {
			facts = append(facts, padText(strings.ToLower(c.name), 18)+" "+node.cells[i])
		}
	}
	if w < 60 || h < 14 {
		c := cursor{s: s, x: x, y: y, w: w, end: y + h}
		c.line(span{glyphOf(node.state) + " " + node.row.Name, t.state(node.state)}, span{"  " + strings.Join(node.cells[1:], "  "), t.faint})
		p.podLines(&c)
		return
	}
	side := max(min(w/2-2, 56), 30)
	p.boxes = append(p.boxes, box{name: "kubelet", role: node.row.Name, notes: facts, state: node.state, x: x, y: y, w: side, h: min(len(facts)+2, h-8)})
	b := p.boxes[0]
	drawText(s, x+side, b.y+1, w-side, "◀─▶ kube-apiserver", t.border)
	proxy, run := b.y+b.h, b.y+b.h+4
	p.boxes = append(p.boxes, box{name: "kube-proxy", role: say("Network traffic"), state: node.state, x: x, y: proxy, w: side, h: 3, notes: []string{"Service → EndpointSlice → Pod"}})
	drawText(s, x+4, proxy+3, w, "▼ CRI", t.border)
	p.boxes = append(p.boxes, box{name: "container runtime", role: say("Container execution"), state: node.state, x: x, y: run, w: side, h: 3,
		notes: []string{p.podCount(p.closeUp)}})
	arrow(s, x+side, proxy+1, 4, "", t.border)
	arrow(s, x+side, run+1, 4, "", t.border)
	c := cursor{s: s, x: x + side + 5, y: y + 3, w: w - side - 5, end: y + h}
	p.podLines(&c)
}

// podLines list a node's pods.
func (p *mapPane) podLines(c *cursor) {
	t := p.app.theme
	c.line(span{"pods", t.head}, span{fmt.Sprintf("  %d", len(p.pods[p.closeUp])), t.faint})
	for _, r := range p.pods[p.closeUp] {
		c.line(span{" " + glyphOf(r.state) + " " + r.row.Namespace + "/" + r.row.Name, t.state(r.state)})
	}
}

// drawBox draws a component: its name on the border, its state as a glyph.
func drawBox(s tcell.Screen, t *theme, b box, chosen bool) {
	if b.w < 6 || b.h < 2 {
		return
	}
	style := t.border
	if b.state == api.StateError || b.state == api.StateWarning {
		style = t.state(b.state)
	}
	if chosen {
		style = t.key.Bold(true)
	}
	drawText(s, b.x, b.y, b.w, "┌"+strings.Repeat("─", b.w-2)+"┐", style)
	for i := 1; i < b.h-1; i++ {
		fillRow(s, b.x, b.y+i, b.w, t.text)
		drawText(s, b.x, b.y+i, 1, "│", style)
		drawText(s, b.x+b.w-1, b.y+i, 1, "│", style)
		if i-1 < len(b.notes) {
			drawFit(s, b.x+2, b.y+i, b.w-4, b.notes[i-1], false, t.faint)
		}
	}
	drawText(s, b.x, b.y+b.h-1, b.w, "└"+strings.Repeat("─", b.w-2)+"┘", style)
	at := drawText(s, b.x+2, b.y, b.w-4, " "+glyphOf(b.state), t.state(b.state))
	name := t.strong
	if chosen {
		name = t.chosen
	}
	at += drawText(s, b.x+2+at, b.y, b.w-4-at, " "+b.name+" ", name)
	if b.role != "" {
		drawText(s, b.x+2+at, b.y, b.w-4-at, b.role+" ", t.key)
	}
}

// arrow is a connection to the right.
func arrow(s tcell.Screen, x, y, w int, label string, style tcell.Style) {
	if w < 2 {
		return
	}
	drawText(s, x, y, w, strings.Repeat("─", w-1)+"▶", style)
	if len(label)+3 <= w {
		drawText(s, x+(w-len(label)-1)/2, y, w-2, label, style)
	}
}

// bus joins the trunk from above to the ends below.
func bus(s tcell.Screen, y, trunk int, ends []int, style tcell.Style) {
	from, to := min(trunk, slices.Min(ends)), max(trunk, slices.Max(ends))
	for x := from; x <= to; x++ {
		up, down := x == trunk, slices.Contains(ends, x)
		mark := "─"
		switch {
		case up && down && from == to:
			mark = "│"
		case up && down && x == from:
			mark = "├"
		case up && down && x == to:
			mark = "┤"
		case up && down:
			mark = "┼"
		case up && x == from:
			mark = "└"
		case up && x == to:
			mark = "┘"
		case up:
			mark = "┴"
		case down && x == from:
			mark = "┌"
		case down && x == to:
			mark = "┐"
		case down:
			mark = "┬"
		}
		drawText(s, x, y, 1, mark, style)
	}
}

// InputHandler implements tview.Primitive.
func (p *mapPane) InputHandler() func(*tcell.EventKey, func(tview.Primitive)) {
	return p.WrapInputHandler(func(e *tcell.EventKey, _ func(tview.Primitive)) {
		n := step(e)
		switch e.Key() {
		case tcell.KeyLeft:
			n = -1
		case tcell.KeyRight:
			n = 1
		}
		p.at = max(min(p.at+n, len(p.boxes)-1), 0)
	})
}
