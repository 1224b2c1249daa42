package tui

import (
	"slices"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"
)

// grid draws a snapshot of rows. Its columns are as wide as the snapshot says,
// so nothing jumps; the selection is a UID, so it stays on its object whatever
// is added above it.
type grid struct {
	*tview.Box
	theme    *theme
	snap     *snapshot
	selected string
	at       int // index of selected in snap, or where it was
	top      int // first row shown
	left     int // first column shown after the pinned ones
	marks    map[string]bool
	empty    string // what to say without rows
	// emptyStyle is how it is said.
	emptyStyle tcell.Style
}

func newGrid(t *theme) *grid {
	return &grid{Box: tview.NewBox(), theme: t, marks: map[string]bool{}, snap: &snapshot{loading: true}}
}

// set shows a snapshot.
func (g *grid) set(s *snapshot) {
	if s == g.snap {
		return
	}
	g.snap = s
	g.resolve()
}

// resolve finds the selected row again; if it is gone, its place is kept.
func (g *grid) resolve() {
	if g.selected != "" {
		for i := range g.snap.rows {
			if g.snap.rows[i].uid == g.selected {
				g.at = i
				return
			}
		}
	}
	g.move(0)
}

// move selects the row n below the selected one.
func (g *grid) move(n int) {
	g.at = max(min(g.at+n, len(g.snap.rows)-1), 0)
	g.selected = ""
	if g.at < len(g.snap.rows) {
		g.selected = g.snap.rows[g.at].uid
	}
}

// current is the selected row, or nil.
func (g *grid) current() *gridRow {
	if g.at < len(g.snap.rows) && g.snap.rows[g.at].uid == g.selected {
		return &g.snap.rows[g.at]
	}
	return nil
}

// targets are the marked rows, or else the selected one: exactly what is
// visible as such.
func (g *grid) targets() []*gridRow {
	var out []*gridRow
	for i := range g.snap.rows {
		if g.marks[g.snap.rows[i].uid] {
			out = append(out, &g.snap.rows[i])
		}
	}
	if len(out) == 0 {
		if r := g.current(); r != nil {
			out = append(out, r)
		}
	}
	return out
}

func (g *grid) mark() {
	if r := g.current(); r != nil {
		if g.marks[r.uid] {
			delete(g.marks, r.uid)
		} else {
			g.marks[r.uid] = true
		}
		g.move(1)
	}
}

// markRange marks from the last mark above to the selection.
func (g *grid) markRange() {
	for from := g.at; from >= 0 && from < len(g.snap.rows); from-- {
		if g.marks[g.snap.rows[from].uid] {
			for ; from <= g.at; from++ {
				g.marks[g.snap.rows[from].uid] = true
			}
			return
		}
	}
	g.mark()
}

// Draw implements tview.Primitive.
func (g *grid) Draw(s tcell.Screen) {
	g.DrawForSubclass(s, g)
	x, y, w, h := g.GetInnerRect()
	if h < 2 || w < 4 {
		return
	}
	page := h - 1
	if g.at < g.top {
		g.top = g.at
	}
	if g.at >= g.top+page {
		g.top = g.at - page + 1
	}
	g.top = max(min(g.top, len(g.snap.rows)-page), 0)
	cols := g.place(w - 2)
	if len(g.snap.rows) == 0 && g.empty != "" {
		if len(cols) > 1 { // the namespace alone is known before all others
			g.header(s, x, y, w, cols)
		}
		c := cursor{s: s, x: x + 2, y: y + 2, w: w - 4, end: y + h}
		for _, line := range wrapSpans([]span{{g.empty, g.emptyStyle}}, w-4) {
			c.line(line...)
		}
		return
	}
	g.header(s, x, y, w, cols)
	for i := range min(page, len(g.snap.rows)-g.top) {
		g.row(s, x, y+1+i, w, g.top+i, cols)
	}
}

// placed is a column at its place on screen.
type placed struct{ column, x, width int }

// order are the columns from left to right, of which the first are pinned. Where
// there is no room for all, what is used comes before restarts and age.
func (g *grid) order(w int) (order []int, pinned int) {
	need, behind := 0, -1
	for i, c := range g.snap.columns {
		order = append(order, i)
		need += c.width + 1
		switch {
		case c.name == "NAME" && pinned == 0:
			pinned = i + 1
		case c.name == "STATUS" && behind < 0:
			behind = i + 1
		}
	}
	if need <= w || behind < pinned {
		return order, pinned
	}
	var early, late []int
	for _, i := range order[behind:] {
		if g.snap.columns[i].early {
			early = append(early, i)
		} else {
			late = append(late, i)
		}
	}
	return slices.Concat(order[:behind], early, late), pinned
}

// place lays out the columns in w cells: namespace and name are pinned, the
// others scroll. Spare room goes between the columns, up to three cells each.
func (g *grid) place(w int) []placed {
	order, pinned := g.order(w)
	g.left = max(min(g.left, len(order)-pinned-1), 0)
	order = slices.Delete(order, pinned, pinned+g.left)
	need, count := 0, len(order)
	for _, i := range order {
		need += g.snap.columns[i].width + 1
	}
	gap := 1
	if count > 0 {
		gap += max(min((w-need)/count, 3), 0)
	}
	var out []placed
	at := 0
	for _, i := range order {
		c := g.snap.columns[i]
		width := c.width
		if c.sort == 0 && need > w && width == textWidth(c.name)+1 { // no room for arrows that are not there
			width--
		}
		if i < pinned && need > w { // leave room for the others
			width = min(width, max(w*2/5, 12))
		}
		if at >= w || w-at < min(width, 4) { // nothing of it could be read
			break
		}
		width = min(width, w-at)
		out = append(out, placed{i, at, width})
		at += width + gap
	}
	return out
}

func (g *grid) header(s tcell.Screen, x, y, w int, cols []placed) {
	fillRow(s, x, y, w, g.theme.head)
	for _, p := range cols {
		c := g.snap.columns[p.column]
		name, style := c.name, g.theme.head
		switch c.sort {
		case 1:
			name, style = name+"↑", g.theme.key.Bold(true)
		case -1:
			name, style = name+"↓", g.theme.key.Bold(true)
		}
		drawFit(s, x+2+p.x, y, p.width, name, c.right, style)
	}
}

func (g *grid) row(s tcell.Screen, x, y, w, i int, cols []placed) {
	r := &g.snap.rows[i]
	style := g.theme.state(r.state)
	glyph := glyphOf(r.state)
	if g.marks[r.uid] {
		style = g.theme.marked
		glyph = "◆"
	}
	if i == g.at {
		style = g.theme.chosen
		if r.state == "error" || r.state == "warning" {
			style = style.Bold(true)
		}
	}
	fillRow(s, x, y, w, style)
	drawText(s, x, y, 1, glyph, style)
	if r.fresh {
		drawText(s, x+1, y, 1, "·", style)
	}
	for _, p := range cols {
		drawFit(s, x+2+p.x, y, p.width, r.cells[p.column], g.snap.columns[p.column].right, style)
	}
}

// InputHandler implements tview.Primitive: arrows, vi and emacs keys move.
func (g *grid) InputHandler() func(*tcell.EventKey, func(tview.Primitive)) {
	return g.WrapInputHandler(func(e *tcell.EventKey, _ func(tview.Primitive)) {
		_, _, _, h := g.GetInnerRect()
		page := max(h-2, 1)
		switch e.Key() {
		case tcell.KeyUp, tcell.KeyCtrlP:
			g.move(-1)
		case tcell.KeyDown, tcell.KeyCtrlN:
			g.move(1)
		case tcell.KeyPgUp, tcell.KeyCtrlB:
			g.move(-page)
		case tcell.KeyPgDn, tcell.KeyCtrlF:
			g.move(page)
		case tcell.KeyHome:
			g.move(-len(g.snap.rows))
		case tcell.KeyEnd:
			g.move(len(g.snap.rows))
		case tcell.KeyLeft:
			g.left--
		case tcell.KeyRight:
			g.left++
		case tcell.KeyRune:
			g.rune(e.Rune())
		}
	})
}

func (g *grid) rune(r rune) {
	switch r {
	case 'j':
		g.move(1)
	case 'k':
		g.move(-1)
	case 'g':
		g.move(-len(g.snap.rows))
	case 'G':
		g.move(len(g.snap.rows))
	case 'h':
		g.left--
	}
}

// MouseHandler implements tview.Primitive: a click selects, the wheel moves.
func (g *grid) MouseHandler() func(tview.MouseAction, *tcell.EventMouse, func(tview.Primitive)) (bool, tview.Primitive) {
	return g.WrapMouseHandler(func(a tview.MouseAction, e *tcell.EventMouse, focus func(tview.Primitive)) (bool, tview.Primitive) {
		x, y := e.Position()
		if !g.InRect(x, y) {
			return false, nil
		}
		_, top, _, _ := g.GetInnerRect()
		switch a {
		case tview.MouseLeftClick:
			if i := g.top + y - top - 1; i >= 0 && i < len(g.snap.rows) {
				g.at, g.selected = i, g.snap.rows[i].uid
			}
			focus(g)
		case tview.MouseScrollUp:
			g.move(-3)
		case tview.MouseScrollDown:
			g.move(3)
		default:
			return false, nil
		}
		return true, nil
	})
}
