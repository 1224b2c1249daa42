package tui

import (
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// newTimeline is the table of events, newest first, over a chart of the last hour.
func (a *app) newTimeline() *tablePane {
	t := newTable(a, a.kinds.byPlural("events"))
	t.name = "timeline"
	var drawn struct {
		of    *snapshot
		w     int
		lines [][]span
	}
	t.chart = func(w int) [][]span { // a frame asks more than once, and most show what the one before did
		if drawn.of != t.snap || drawn.w != w {
			drawn.of, drawn.w, drawn.lines = t.snap, w, t.hour(w)
		}
		return drawn.lines
	}
	return t
}

// hour draws how many of the events shown were seen last in each minute of the last hour,
// or of as many as there is room for: warnings, and others.
func (t *tablePane) hour(w int) [][]span {
	const label = 10
	minutes := min(60, w-label)
	names := t.rows.names()
	seen, kind := slices.Index(names, "Last Seen"), slices.Index(names, "Type")
	if minutes < 10 || seen < 0 || kind < 0 {
		return nil
	}
	now := t.app.now()
	counts := map[bool][]int{true: make([]int, minutes), false: make([]int, minutes)}
	for _, r := range t.snap.rows {
		stamp, _ := r.row.Cells[seen].(string)
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			at = r.row.Created
		}
		if slot := minutes - 1 - int(now.Sub(at)/time.Minute); slot >= 0 && slot < minutes {
			counts[r.row.Cells[kind] == "Warning"][slot]++
		}
	}
	most := max(1, slices.Max(counts[true]), slices.Max(counts[false]))
	line := func(name string, n []int, style tcell.Style) []span {
		return []span{{padText(name, label), t.theme.faint}, {bars(n, most), style}}
	}
	axis := now.Add(-time.Duration(minutes) * time.Minute).Format("15:04")
	axis += strings.Repeat(" ", max(minutes-2*len(axis), 1)) + now.Format("15:04")
	say := t.app.words.say
	return [][]span{
		line(say("Warning"), counts[true], t.theme.state(api.StateWarning)),
		line(say("Normal"), counts[false], t.theme.state(api.StateOK)),
		{{padText("", label) + axis, t.theme.faint}},
	}
}

// bars draws numbers up to most as a line of bars; nothing is a dot.
func bars(n []int, most int) string {
	heights := []rune("▁▂▃▄▅▆▇█")
	var out strings.Builder
	for _, v := range n {
		if v == 0 {
			out.WriteRune('·')
			continue
		}
		out.WriteRune(heights[(v*len(heights)-1)/most])
	}
	return out.String()
}
