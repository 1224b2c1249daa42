package tui

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"orrery.dev/api"
)

const (
	journeyAgain = 2 * time.Second
	mostBars     = 500 // lines of a waterfall
)

// showJourney shows what became of the last change of an object.
func (a *app) showJourney(t target) {
	if t.uid == "" {
		a.note("%s", a.words.say("not for %s", a.top().crumb()))
		return
	}
	var p *textPane
	p = newText(a, "journey "+t.String(), func(ctx context.Context) ([]string, error) {
		var j api.Journey
		err := a.ask(ctx, api.JourneyPath, url.Values{"uid": {t.uid}}, &j)
		switch {
		case apierrors.IsNotFound(err):
			return []string{a.shared.Say("journey.foreign", nil)}, nil
		case err != nil:
			return nil, err
		}
		return a.journeyLines(j, int(p.width.Load())), nil
	})
	p.of, p.again, p.wrap = t, journeyAgain, false
	p.pager.paint = a.theme.paintWhy
	a.push(p)
}

// bar is a span in the waterfall, and how deep it is within what it is a part of.
type bar struct {
	api.Span
	depth int
}

// barsOf are an object's spans in the order of time, parts below their wholes.
// A delivery is no part of what it delivers.
func barsOf(j api.Journey, uid string, until int64) []bar {
	known := map[string]api.Span{}
	for _, s := range j.Spans {
		known[s.ID] = s
	}
	parts := map[string][]api.Span{}
	for _, s := range j.Spans {
		whole, ok := known[s.Parent]
		if !ok || whole.Component != s.Component || whole.Object != s.Object || s.Name == "watch delivery" {
			whole = api.Span{}
		}
		if s.Object == uid && s.Start <= until {
			parts[whole.ID] = append(parts[whole.ID], s)
		}
	}
	var out []bar
	var add func(id string, depth int)
	add = func(id string, depth int) {
		slices.SortStableFunc(parts[id], func(x, y api.Span) int { return cmp.Compare(x.Start, y.Start) })
		for _, s := range parts[id] {
			out = append(out, bar{s, depth})
			if s.ID != "" {
				add(s.ID, depth+1)
			}
		}
	}
	add("", 0)
	return out
}

func spanEnd(s api.Span) int64 { return s.Start + s.Duration }

func spanDetail(s api.Span, key string) string {
	for _, d := range s.Details {
		if d.Key == key {
			return d.Value
		}
	}
	return ""
}

const milestone = "orrery.milestone"

// arrival is when the last thing that users wait for was there; 0: not yet.
func arrival(j api.Journey) int64 {
	var at int64
	for _, s := range j.Spans {
		if spanDetail(s, milestone) != "" || s.Name == "program routes" || strings.HasSuffix(s.Name, " endpointslices") {
			at = max(at, spanEnd(s))
		}
	}
	return at
}

// journeyLines is the waterfall in lines of width cells.
func (a *app) journeyLines(j api.Journey, width int) []string {
	if len(j.Spans) == 0 {
		if j.Since == 0 {
			return []string{a.shared.Say("journey.empty", nil)}
		}
		return []string{a.shared.Say("journey.none", map[string]string{"time": time.UnixMicro(j.Since).Format(time.DateTime)})}
	}
	from, until := j.Spans[0].Start, int64(0)
	for _, s := range j.Spans {
		from, until = min(from, s.Start), max(until, spanEnd(s))
	}
	verdict, glyph := "journey.underway", api.StateProgressing
	if there := arrival(j); there > 0 {
		verdict, glyph, until = "journey.took", api.StateOK, there
	}
	out := []string{glyphOf(glyph) + " " + a.shared.Say(verdict, map[string]string{"time": millis(until - from)})}
	for _, c := range j.Changes {
		if c.Span == j.Change {
			out[0] += "   " + c.Name + "  " + c.User
		}
	}
	for _, o := range j.Objects {
		bars := barsOf(j, o.UID, until)
		if len(bars) == 0 {
			continue
		}
		out = append(out, "", o.Resource+" "+target{namespace: o.Namespace, name: o.Name}.String())
		for _, b := range bars {
			out = append(out, a.barLine(b, from, until, width))
			if b.Error != "" {
				out = append(out, "    "+oneLine(b.Error))
			}
		}
	}
	out = out[:min(len(out), mostBars)]
	if j.Hidden > 0 {
		out = append(out, "", a.shared.Say("journey.hidden", map[string]string{"count": fmt.Sprint(j.Hidden)}))
	}
	return out
}

// barLine is one span: who did what, when and for how long, and a bar of it.
func (a *app) barLine(b bar, from, until int64, width int) string {
	wide, long := 22, 28
	switch {
	case width < 90:
		wide, long = 14, 20
	case width < 110:
		wide = 16
	}
	glyph := " "
	switch {
	case b.Failed:
		glyph = glyphOf(api.StateError)
	case spanDetail(b.Span, milestone) != "":
		glyph = glyphOf(api.StateOK)
	}
	who := ""
	if b.depth == 0 {
		who = whoDid(b.Span)
	}
	line := fmt.Sprintf("%s %s %s %9s %9s  ", glyph, fitText(who, wide), fitText(strings.Repeat("  ", b.depth)+a.whatDone(b.Span), long), millis(b.Start-from), millis(b.Duration))
	return line + waterfall(b.Start-from, b.Duration, until-from, width-textWidth(line))
}

// waterfall is a bar from start on, of a whole that takes width cells.
func waterfall(start, duration, whole int64, width int) string {
	if width < 4 || whole <= 0 {
		return ""
	}
	at := min(int(start*int64(width)/whole), width-1)
	n := max(min(int(duration*int64(width)/whole), width-at), 1)
	mark := "█"
	if duration*int64(width) < whole {
		mark = "▏"
	}
	return strings.Repeat(" ", at) + strings.Repeat(mark, n)
}

// whoDid is a component, of a node if it is one of many.
func whoDid(s api.Span) string {
	name := strings.TrimPrefix(s.Component, "kube-")
	switch {
	case s.Component == "kube-apiserver":
		return "API server"
	case s.Component == "kube-controller-manager":
		return "controllers"
	case s.Node != "":
		return name + " " + s.Node
	}
	return name
}

var wordBreak = regexp.MustCompile(`[^a-z]+[A-Za-z0-9_]`)

// whatDone is what a span is of, in the user's language; requests are in
// kubectl's words.
func (a *app) whatDone(s api.Span) string {
	key := wordBreak.ReplaceAllStringFunc(s.Name, func(m string) string { return strings.ToUpper(m[len(m)-1:]) })
	text, ok := a.shared["journey.span."+key]
	if !ok {
		text = s.Name
	}
	switch {
	case spanDetail(s, milestone) != "":
		mark := spanDetail(s, milestone)
		if word, ok := a.shared["journey.milestone."+mark]; ok {
			mark = word
		}
		return text + ": " + mark
	case s.Name == "sync" && spanDetail(s, "controller") != "":
		return strings.TrimSuffix(spanDetail(s, "controller"), "-controller")
	case s.Name == "watch delivery":
		return text + " → " + whoDid(api.Span{Component: spanDetail(s, "to")})
	case s.Name == "webhook":
		return text + " " + spanDetail(s, "webhook")
	case spanDetail(s, "container") != "":
		return text + " " + spanDetail(s, "container")
	}
	return text
}

// millis says microseconds as people do: "0.4 ms", "23 ms", "1.25 s", "3 min 5 s".
func millis(us int64) string {
	ms, s := float64(us)/1e3, float64(us)/1e6
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	case s < 10:
		return fmt.Sprintf("%.2f s", s)
	case s < 60:
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
}
