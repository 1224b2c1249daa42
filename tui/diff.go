package tui

import (
	"fmt"
	"slices"
	"strings"

	"orrery.dev/api"
)

// mostEdits bounds the work for texts that have little in common.
const mostEdits = 1000

// diffLines are the lines of two texts in their order, with "- " before those that
// only the first has, "+ " before those that only the second has, and "  " before
// what both have. It finds the fewest changes (Myers): reach is how far into the first
// text d of them get on each diagonal, and the way back tells which they were.
func diffLines(was, now []string) (out []string) {
	most := min(len(was)+len(now), mostEdits)
	reach := make([]int, 2*most+3)
	var steps [][]int // reach before each step, from diagonal -d-1 on
	for d := 0; d <= most; d++ {
		steps = append(steps, slices.Clone(reach[most-d:most+d+3]))
		for k := -d; k <= d; k += 2 {
			x, _ := stepTo(reach[most+k:], k, d)
			for x < len(was) && x-k < len(now) && was[x] == now[x-k] {
				x++
			}
			reach[most+1+k] = x
			if x == len(was) && x-k == len(now) {
				return wayBack(was, now, steps)
			}
		}
	}
	for _, line := range was {
		out = append(out, "- "+line)
	}
	for _, line := range now {
		out = append(out, "+ "+line)
	}
	return out
}

// stepTo is where diagonal k is entered by change d, and whether that adds a line;
// beside has what is reached on the diagonals k-1, k and k+1.
func stepTo(beside []int, k, d int) (x int, adds bool) {
	if k == -d || k != d && beside[0] < beside[2] {
		return beside[2], true
	}
	return beside[0] + 1, false
}

func wayBack(was, now []string, steps [][]int) (out []string) {
	x, y := len(was), len(now)
	for d := len(steps) - 1; d >= 0; d-- {
		k := x - y
		start, adds := stepTo(steps[d][d+k:], k, d)
		for ; x > start; x, y = x-1, y-1 {
			out = append(out, "  "+was[x-1])
		}
		switch {
		case d == 0:
		case adds:
			y--
			out = append(out, "+ "+now[y])
		default:
			x--
			out = append(out, "- "+was[x])
		}
	}
	slices.Reverse(out)
	return out
}

// hunks leaves out what is far from any change; of equal texts, everything.
func hunks(lines []string, around int) (out []string) {
	until, last := 0, -1 // what is kept for a change before; the last line kept
	for i, line := range lines {
		if !strings.HasPrefix(line, "  ") {
			until = i + around + 1
		}
		ahead := slices.ContainsFunc(lines[i:min(i+around+1, len(lines))], func(l string) bool { return !strings.HasPrefix(l, "  ") })
		if i >= until && !ahead {
			continue
		}
		if last >= 0 && i > last+1 {
			out = append(out, "…")
		}
		out, last = append(out, line), i
	}
	return out
}

// shownChanges are the first lines that differ between two texts, for a dialog.
func shownChanges(was, now string) []string {
	changes := slices.DeleteFunc(diffLines(strings.Split(was, "\n"), strings.Split(now, "\n")), func(line string) bool { return strings.HasPrefix(line, "  ") })
	const most = 12
	if more := len(changes) - most; more > 1 {
		changes = append(changes[:most], fmt.Sprintf("… %d more", more))
	}
	for i, line := range changes {
		changes[i] = cutText(plainText(line), 70)
	}
	return changes
}

// paintDiff colours a line by its sign.
func (t *theme) paintDiff(line string) []span {
	style := t.faint
	switch {
	case strings.HasPrefix(line, "- "):
		style = t.state(api.StateError)
	case strings.HasPrefix(line, "+ "):
		style = t.state(api.StateOK)
	}
	return []span{{plainText(line), style}}
}

// paintConflict colours a line of the conflicts: their fields, and what is chosen.
func (t *theme) paintConflict(line string) []span {
	style := t.faint
	switch {
	case strings.HasPrefix(line, "▸ "):
		style = t.title
	case strings.HasPrefix(line, "    ● "):
		style = t.strong
	case !strings.HasPrefix(line, "    "):
		style = t.text
	}
	return []span{{plainText(line), style}}
}
