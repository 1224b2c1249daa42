package tui

import (
	"regexp"
	"strings"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"
	"github.com/rivo/uniseg"
)

// pager draws lines: logs, YAML, descriptions. Only what is visible is parsed
// and wrapped. While it follows, the end stays in view.
type pager struct {
	*tview.Box
	theme  *theme
	words  words
	lines  *lines
	paint  func(line string) []span // of one line; nil is by its ANSI colours
	top    int                      // place of the first line shown
	left   int                      // cells scrolled to the right
	wrap   bool
	follow bool
	find   *regexp.Regexp
	found  int // place of the match gone to last, -1 if none
}

func newPager(a *app, l *lines) *pager {
	return &pager{Box: tview.NewBox(), theme: a.theme, words: a.words, lines: l, found: -1}
}

// Draw implements tview.Primitive.
func (p *pager) Draw(s tcell.Screen) {
	p.DrawForSubclass(s, p)
	x, y, w, h := p.GetInnerRect()
	if h <= 0 || w <= 0 {
		return
	}
	n, dropped := p.lines.size()
	if dropped > 0 {
		text := "… " + p.words.say("%d lines dropped", dropped)
		drawFit(s, x, y, w, text, false, p.theme.state("warning"))
		y, h = y+1, h-1
	}
	if p.follow {
		p.top = p.lastTop(n, w, h)
	}
	p.top = max(min(p.top, n-1), 0)
	for row, i := 0, p.top; row < h && i < n; i++ {
		line, _ := p.lines.at(i)
		for _, part := range p.layout(line, w) {
			if row >= h {
				break
			}
			at := 0
			for _, sp := range part {
				at += drawText(s, x+at, y+row, w-at, sp.text, sp.style)
			}
			if i == p.found {
				drawText(s, x-1, y+row, 1, "▸", p.theme.key)
			}
			row++
		}
	}
}

// lastTop is the first line to show so that the last is at the bottom.
func (p *pager) lastTop(n, w, h int) int {
	used := 0
	for i := n - 1; i >= 0; i-- {
		line, _ := p.lines.at(i)
		used += len(p.layout(line, w))
		if used > h {
			return i + 1
		}
	}
	return 0
}

// layout makes screen rows of a line.
func (p *pager) layout(line string, w int) [][]span {
	spans := p.spans(line)
	if p.find != nil {
		spans = highlight(spans, p.find, p.theme.found)
	}
	if p.wrap {
		return wrapSpans(spans, w)
	}
	return [][]span{skipSpans(spans, p.left)}
}

func (p *pager) spans(line string) []span {
	if p.paint != nil {
		return p.paint(line)
	}
	return parseANSI(line, p.theme.text)
}

// highlight gives the matches within the spans another style.
func highlight(spans []span, find *regexp.Regexp, style tcell.Style) []span {
	var out []span
	for _, sp := range spans {
		at := 0
		for _, m := range find.FindAllStringIndex(sp.text, -1) {
			if m[0] == m[1] {
				continue
			}
			out = append(out, span{sp.text[at:m[0]], sp.style}, span{sp.text[m[0]:m[1]], style})
			at = m[1]
		}
		out = append(out, span{sp.text[at:], sp.style})
	}
	return out
}

// wrapSpans breaks a line into rows of w cells, between words if there are any;
// an empty line is one row. Rows after the first begin where its text does.
func wrapSpans(spans []span, w int) [][]span {
	rows := [][]span{nil}
	used, indent := 0, hang(spans, w)
	for _, sp := range spans {
		text := sp.text
		for text != "" {
			fits := cutText(text, w-used)
			if at := strings.LastIndexByte(fits, ' '); len(fits) < len(text) && at >= len(fits)/2 && text[len(fits)] != ' ' {
				fits = fits[:at+1]
			}
			if fits == "" {
				if used == 0 || used == indent { // one character wider than the row
					break
				}
				var row []span
				if indent > 0 {
					row = []span{{strings.Repeat(" ", indent), sp.style}}
				}
				rows, used = append(rows, row), indent
				text = strings.TrimLeft(text, " ")
				continue
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], span{fits, sp.style})
			used += textWidth(fits)
			if text = text[len(fits):]; text != "" {
				used = w // the row is full
			}
		}
	}
	return rows
}

// wrapText breaks a text of one line.
func wrapText(text string, w int) []string {
	var out []string
	for _, row := range wrapSpans([]span{{text: oneLine(text)}}, max(w, 1)) {
		line := ""
		for _, sp := range row {
			line += sp.text
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}

// hang is the column at which a line's text begins: behind its last gap of three
// spaces within the first half, or else behind its indentation.
func hang(spans []span, w int) int {
	text := ""
	for _, sp := range spans {
		text += sp.text
	}
	if textWidth(text) <= w {
		return 0
	}
	head := cutText(text, w*3/5)
	if at := strings.LastIndex(head, "   "); at >= 0 && strings.TrimLeft(head[at:], " ") != "" {
		return textWidth(head) - textWidth(strings.TrimLeft(head[at:], " "))
	}
	return textWidth(head) - textWidth(strings.TrimLeft(head, " "))
}

// skipSpans leaves out the first n cells.
func skipSpans(spans []span, n int) []span {
	for n > 0 && len(spans) > 0 {
		w := textWidth(spans[0].text)
		if w > n {
			text, state := spans[0].text, -1
			for n > 0 && text != "" {
				var cells int
				_, text, cells, state = uniseg.FirstGraphemeClusterInString(text, state)
				n -= cells
			}
			return append([]span{{text, spans[0].style}}, spans[1:]...)
		}
		n -= w
		spans = spans[1:]
	}
	return spans
}

// search goes to the next line that matches, from below or above.
func (p *pager) search(step int) bool {
	n, _ := p.lines.size()
	if p.find == nil || n == 0 {
		return false
	}
	from := p.found
	if from < 0 {
		from = p.top - step
	}
	for k := 1; k <= n; k++ {
		i := ((from+step*k)%n + n) % n
		if line, _ := p.lines.at(i); p.find.MatchString(stripANSI(line)) {
			p.found, p.follow = i, false
			_, _, _, h := p.GetInnerRect()
			if i < p.top || i >= p.top+h {
				p.top = max(i-h/3, 0)
			}
			return true
		}
	}
	return false
}

// scroll moves n lines; going up stops following, reaching the end does not
// resume it.
func (p *pager) scroll(n int) {
	size, _ := p.lines.size()
	_, _, w, h := p.GetInnerRect()
	if n < 0 {
		p.follow = false
	}
	p.top = max(min(p.top+n, p.lastTop(size, w, h)), 0)
}

// InputHandler implements tview.Primitive.
func (p *pager) InputHandler() func(*tcell.EventKey, func(tview.Primitive)) {
	return p.WrapInputHandler(func(e *tcell.EventKey, _ func(tview.Primitive)) {
		_, _, _, h := p.GetInnerRect()
		size, _ := p.lines.size()
		switch e.Key() {
		case tcell.KeyUp, tcell.KeyCtrlP:
			p.scroll(-1)
		case tcell.KeyDown, tcell.KeyCtrlN:
			p.scroll(1)
		case tcell.KeyPgUp, tcell.KeyCtrlB:
			p.scroll(1 - h)
		case tcell.KeyPgDn, tcell.KeyCtrlF:
			p.scroll(h - 1)
		case tcell.KeyHome:
			p.scroll(-size)
		case tcell.KeyEnd:
			p.scroll(size)
		case tcell.KeyLeft:
			p.left = max(p.left-8, 0)
		case tcell.KeyRight:
			p.left += 8
		case tcell.KeyRune:
			switch e.Rune() {
			case 'k':
				p.scroll(-1)
			case 'j':
				p.scroll(1)
			case 'g':
				p.scroll(-size)
			case 'G':
				p.scroll(size)
			case ' ':
				p.scroll(h - 1)
			}
		}
	})
}
