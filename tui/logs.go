package tui

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
)

const (
	logBytes = 8 << 20 // kept on screen; what is older is dropped and counted
	logTail  = 500
)

// logPane shows the logs of one container, or of several merged.
type logPane struct {
	*pager
	app        *app
	of         target
	previous   bool
	timestamps bool
	allOf      bool // all containers
	since      int64
	headFirst  bool
	typed      string
	stop       context.CancelFunc
	lag        *lag
	paused     int // lines there were when following stopped
}

func (a *app) showLogs(t target, previous bool) {
	p := &logPane{app: a, of: t, previous: previous}
	p.pager = newPager(a, newLines(logBytes, a.dirty))
	p.showStamps()
	p.follow, p.wrap = true, a.logColumn == nil
	if a.logColumn != nil {
		p.left = *a.logColumn
	}
	p.allOf = t.container == ""
	p.SetBorder(true).SetBorderStyle(a.theme.border)
	p.SetBorderPadding(0, 0, 1, 1)
	a.push(p)
}

func (p *logPane) crumb() string    { return "logs " + p.of.name }
func (p *logPane) scopes() []string { return []string{"log"} }
func (p *logPane) open()            { p.restart() }

func (p *logPane) refresh(time.Time) {
	if p.follow {
		p.paused = p.lines.end()
	}
}

func (p *logPane) close() {
	if p.app.logColumn != nil {
		*p.app.logColumn = p.left
	}
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
}

// restart reads anew with the options of now.
func (p *logPane) restart() {
	p.close()
	p.lines.set(nil)
	ctx, stop := context.WithCancel(p.app.ctx)
	p.stop = stop
	p.lag, p.paused = newLag(), 0
	read := logReader{cluster: p.app.cluster, of: p.of, to: p.lines, lag: p.lag, words: p.app.words, options: corev1.PodLogOptions{Follow: !p.previous, Previous: p.previous}}
	if !p.allOf {
		read.options.Container = p.of.container
	}
	switch {
	case p.since > 0:
		read.options.SinceSeconds = &p.since
	case !p.headFirst:
		tail := int64(logTail)
		read.options.TailLines = &tail
	}
	p.app.work.Go(func() { read.run(ctx) })
}

// showStamps shows or hides when each line was written.
func (p *logPane) showStamps() {
	p.lines.show(func(line string) string {
		stamp, text := cutStamp(line)
		if stamp == "" || !p.timestamps {
			return text
		}
		return stamp + " " + text
	})
}

// jump goes to now: the end comes into view, and what would only be caught up
// with is left out, which the log says.
func (p *logPane) jump() {
	p.follow = true
	if late := p.lag.behind(time.Now()); late > 0 {
		p.since, p.headFirst = 0, false
		p.restart()
		p.lines.add(divider(p.app.words.say("left out %s to be at now", late)))
	}
}

// lockColumn keeps the column that the log is scrolled to, for other logs too.
func (p *logPane) lockColumn() {
	if p.app.logColumn != nil {
		p.app.logColumn = nil
		return
	}
	p.wrap, p.app.logColumn = false, new(p.left)
}

// Draw implements tview.Primitive.
func (p *logPane) Draw(s tcell.Screen) {
	p.pager.Draw(s)
	title := "logs " + p.of.String()
	if p.of.container != "" && !p.allOf {
		title += ":" + p.of.container
	}
	flag := func(on bool, name string) {
		if on {
			title += " [" + name + "]"
		}
	}
	flag(p.previous, p.app.words.say("previous"))
	flag(p.follow, p.app.words.say("follow"))
	flag(!p.follow, p.app.words.say("paused, %d more", p.lines.end()-p.paused))
	if late := p.lag.behind(time.Now()); late > 0 {
		flag(true, p.app.words.say("%s behind, G jumps to now", late))
	}
	flag(p.timestamps, p.app.words.say("timestamps"))
	flag(p.wrap, p.app.words.say("wrap"))
	flag(p.app.logColumn != nil, p.app.words.say("column locked"))
	flag(p.since > 0, p.app.words.say("since %s", time.Duration(p.since)*time.Second))
	if p.typed != "" {
		title += " /" + p.typed
	}
	drawTitle(s, p.Box, p.theme, title)
}

func (p *logPane) filterText() string { return p.typed }

// setFilter keeps the lines that match, "!" those that don't, and marks matches.
func (p *logPane) setFilter(text string) {
	p.typed, p.find, p.found = text, nil, -1
	pattern, inverse := strings.CutPrefix(text, "!")
	if pattern == "" {
		p.lines.keep(nil, false)
		return
	}
	expr, err := regexp.Compile("(?i)" + pattern)
	if err != nil {
		expr = regexp.MustCompile("(?i)" + regexp.QuoteMeta(pattern))
	}
	p.lines.keep(expr, inverse)
	if !inverse {
		p.find = expr
	}
}

func logActions() []action {
	on := []string{"log"}
	do := func(f func(*logPane)) func(*app, call) {
		return func(a *app, _ call) { f(a.top().(*logPane)) }
	}
	since := func(seconds int64, head bool) func(*app, call) {
		return do(func(p *logPane) { p.since, p.headFirst, p.follow = seconds, head, !head; p.restart() })
	}
	return []action{
		{name: "tail", hint: "tail", help: "the last lines", on: on, run: since(0, false)},
		{name: "head", hint: "head", help: "from the beginning", on: on, run: since(0, true)},
		{name: "since-1m", hint: "1m", help: "the last minute", on: on, run: since(60, false)},
		{name: "since-5m", hint: "5m", help: "the last 5 minutes", on: on, run: since(300, false)},
		{name: "since-15m", hint: "15m", help: "the last 15 minutes", on: on, run: since(900, false)},
		{name: "since-30m", hint: "30m", help: "the last 30 minutes", on: on, run: since(1800, false)},
		{name: "since-1h", hint: "1h", help: "the last hour", on: on, run: since(3600, false)},
		{name: "follow", hint: "follow", help: "keep the end in view", on: on, run: do(func(p *logPane) { p.follow = !p.follow })},
		{name: "now", hint: "now", help: "jump to the end and follow; a backlog is left out", on: on, run: do((*logPane).jump)},
		{name: "timestamps", hint: "timestamps", help: "with timestamps", on: on, run: do(func(p *logPane) { p.timestamps = !p.timestamps; p.showStamps() })},
		{name: "lock-column", help: "all logs begin at the column that this one is scrolled to, or no longer", on: on, run: do((*logPane).lockColumn)},
		{name: "mark-log", help: "draw a line under what came so far", on: on, run: do(func(p *logPane) { p.lines.add(dividerHead + strings.Repeat("─", 58) + "\x1b[0m") })},
		{name: "clear-log", help: "empty the screen", on: on, run: do(func(p *logPane) { p.lines.set(nil) })},
		{name: "all-containers", hint: "all containers", help: "all containers, or the one chosen", on: on, run: do(func(p *logPane) { p.allOf = !p.allOf || p.of.container == ""; p.restart() })},
		{name: "filter-log", help: "only lines that match", on: on, run: func(a *app, _ call) { a.askFilter() }},
	}
}
