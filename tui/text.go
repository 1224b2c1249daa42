package tui

import (
	"strings"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"
	"github.com/rivo/uniseg"
)

// drawText writes text at x, y, at most width cells of it, and returns the
// cells used. It knows no style tags: names and logs may hold any bracket.
func drawText(s tcell.Screen, x, y, width int, text string, style tcell.Style) int {
	if isASCII(text) {
		n := min(len(text), width)
		for i := range n {
			s.SetContent(x+i, y, rune(text[i]), nil, style)
		}
		return max(n, 0)
	}
	used := 0
	for state := -1; text != ""; {
		var cluster string
		var w int
		cluster, text, w, state = uniseg.FirstGraphemeClusterInString(text, state)
		if w == 0 || cluster[0] < 0x20 {
			continue
		}
		if used+w > width {
			break
		}
		runes := []rune(cluster)
		s.SetContent(x+used, y, runes[0], runes[1:], style)
		used += w
	}
	return used
}

// drawFit writes text into exactly width cells: padded, or cut with an ellipsis.
func drawFit(s tcell.Screen, x, y, width int, text string, right bool, style tcell.Style) {
	if width <= 0 {
		return
	}
	w := textWidth(text)
	if w > width {
		text = cutText(text, width-1) + "…"
		w = textWidth(text)
	}
	left := 0
	if right {
		left = width - w
	}
	for i := range left {
		s.SetContent(x+i, y, ' ', nil, style)
	}
	used := left + drawText(s, x+left, y, width-left, text, style)
	for ; used < width; used++ {
		s.SetContent(x+used, y, ' ', nil, style)
	}
}

// fillRow paints n cells of a row.
func fillRow(s tcell.Screen, x, y, n int, style tcell.Style) {
	for i := range n {
		s.SetContent(x+i, y, ' ', nil, style)
	}
}

// textWidth is how many cells text takes.
func textWidth(text string) int {
	if isASCII(text) {
		return len(text)
	}
	return uniseg.StringWidth(text)
}

// cutText is as much of the beginning of text as fits into width cells.
func cutText(text string, width int) string {
	if isASCII(text) {
		return text[:max(min(len(text), width), 0)]
	}
	used, rest, state := 0, text, -1
	for rest != "" {
		var w int
		var next string
		_, next, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if used+w > width {
			break
		}
		used, rest = used+w, next
	}
	return text[:len(text)-len(rest)]
}

// fitText is text in exactly width cells, cut with an ellipsis if it is longer.
func fitText(text string, width int) string {
	if textWidth(text) > width {
		text = cutText(text, width-1) + "…"
	}
	return padText(text, width)
}

// drawTitle writes a title into the middle of the upper border of a pane.
func drawTitle(s tcell.Screen, b *tview.Box, t *theme, title string) {
	x, y, w, _ := b.GetRect()
	title = " " + title + " "
	wide := min(textWidth(title), w-4)
	drawFit(s, x+(w-wide)/2, y, wide, title, false, t.title)
}

func padText(text string, width int) string {
	if w := textWidth(text); w < width {
		return text + strings.Repeat(" ", width-w)
	}
	return text
}

// isASCII is also false for control characters, which no cell may hold.
func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x7f || text[i] < 0x20 {
			return false
		}
	}
	return true
}
