package tui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/api"
)

const (
	logBytes     = 8 << 20 // kept on screen; what is older is dropped and counted
	logTail      = 500
	logMaxPods   = 20
	logBatchEach = 50 * time.Millisecond
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
}

func (a *app) showLogs(t target, previous bool) {
	p := &logPane{app: a, of: t, previous: previous}
	p.pager = newPager(a.theme, newLines(logBytes, a.dirty))
	p.follow, p.wrap = true, true
	p.allOf = t.container == ""
	p.SetBorder(true).SetBorderStyle(a.theme.border)
	p.SetBorderPadding(0, 0, 1, 1)
	a.push(p)
}

func (p *logPane) crumb() string     { return "logs " + p.of.name }
func (p *logPane) scopes() []string  { return []string{"log"} }
func (p *logPane) refresh(time.Time) {}
func (p *logPane) open()             { p.restart() }

func (p *logPane) close() {
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
	read := logReader{cluster: p.app.cluster, of: p.of, to: p.lines, options: corev1.PodLogOptions{Follow: !p.previous, Previous: p.previous, Timestamps: p.timestamps}}
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
	p.follow = !p.headFirst
	p.app.work.Go(func() { read.run(ctx) })
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
	flag(p.timestamps, p.app.words.say("timestamps"))
	flag(p.wrap, p.app.words.say("wrap"))
	flag(p.since > 0, "since "+(time.Duration(p.since)*time.Second).String())
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
		return do(func(p *logPane) { p.since, p.headFirst = seconds, head; p.restart() })
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
		{name: "timestamps", hint: "timestamps", help: "with timestamps", on: on, run: do(func(p *logPane) { p.timestamps = !p.timestamps; p.restart() })},
		{name: "mark-log", help: "draw a line under what came so far", on: on, run: do(func(p *logPane) { p.lines.add("\x1b[2m" + strings.Repeat("─", 60) + "\x1b[0m") })},
		{name: "clear-log", help: "empty the screen", on: on, run: do(func(p *logPane) { p.lines.set(nil) })},
		{name: "all-containers", hint: "all containers", help: "all containers, or the one chosen", on: on, run: do(func(p *logPane) { p.allOf = !p.allOf || p.of.container == ""; p.restart() })},
		{name: "filter-log", help: "only lines that match", on: on, run: func(a *app, _ call) { a.askFilter() }},
	}
}

// logReader follows the logs of pods and merges them into lines.
type logReader struct {
	cluster *cluster
	of      target
	to      *lines
	options corev1.PodLogOptions
}

// source is one container's log.
type logSource struct{ pod, container, prefix string }

func (r *logReader) run(ctx context.Context) {
	sources, err := r.sources(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.to.add("✗ " + err.Error())
		}
		return
	}
	if len(sources) == 0 {
		r.to.add("(no containers)")
	}
	var work sync.WaitGroup
	for _, s := range sources {
		work.Go(func() { r.follow(ctx, s) })
	}
	work.Wait()
}

// sources are the containers to read: those of the pod, or of the first pods of
// a workload.
func (r *logReader) sources(ctx context.Context) ([]logSource, error) {
	pods := []corev1.Pod{}
	if r.of.kind.plural == "pods" {
		pod, err := r.cluster.kube.CoreV1().Pods(r.of.namespace).Get(ctx, r.of.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		pods = append(pods, *pod)
	} else {
		selector, err := r.cluster.podSelector(ctx, r.of)
		if err != nil || selector == "" {
			return nil, err
		}
		list, err := r.cluster.kube.CoreV1().Pods(r.of.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: logMaxPods})
		if err != nil {
			return nil, err
		}
		pods = list.Items
	}
	var out []logSource
	for _, pod := range pods {
		all := append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
		for _, c := range all {
			if r.options.Container != "" && c.Name != r.options.Container {
				continue
			}
			s := logSource{pod: pod.Name, container: c.Name}
			switch {
			case len(pods) > 1:
				s.prefix = pod.Name + ":" + c.Name + " "
			case len(all) > 1 && r.options.Container == "":
				s.prefix = c.Name + " "
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// follow reads one log, again after a break from where it was.
func (r *logReader) follow(ctx context.Context, s logSource) {
	options := r.options
	options.Container = s.container
	for first := true; ctx.Err() == nil; first = false {
		body, err := r.cluster.kube.CoreV1().Pods(r.of.namespace).GetLogs(s.pod, &options).Stream(ctx)
		if err == nil {
			err = r.copy(ctx, s, body)
			body.Close()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && first:
			r.to.add("✗ " + s.prefix + err.Error())
		case err == nil || errors.Is(err, io.EOF):
			if !options.Follow {
				return
			}
			if r.ended(ctx, s) {
				r.to.add("\x1b[2m── " + s.prefix + "ended ──\x1b[0m")
				return
			}
			r.to.add("\x1b[2m── " + s.prefix + "reading again ──\x1b[0m")
		}
		since := metav1.Now()
		options.SinceTime, options.SinceSeconds, options.TailLines = &since, nil, nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// ended says whether the container will write no more.
func (r *logReader) ended(ctx context.Context, s logSource) bool {
	pod, err := r.cluster.kube.CoreV1().Pods(r.of.namespace).Get(ctx, s.pod, metav1.GetOptions{})
	if err != nil {
		return strings.Contains(err.Error(), "not found")
	}
	for _, c := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
		if c.Name == s.container {
			return c.State.Terminated != nil && (api.IsPodTerminal(pod) || c.State.Terminated.ExitCode == 0)
		}
	}
	return false
}

// copy adds lines in batches, so that a flood costs few wake-ups.
func (r *logReader) copy(ctx context.Context, s logSource, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	prefix := ""
	if s.prefix != "" {
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", 31+hue(s.prefix)%6, s.prefix)
	}
	var batch []string
	last := time.Now()
	for ctx.Err() == nil {
		line, err := in.ReadString('\n')
		if line != "" {
			batch = append(batch, prefix+strings.TrimRight(line, "\r\n"))
		}
		if len(batch) > 0 && (err != nil || in.Buffered() == 0 || time.Since(last) > logBatchEach) {
			r.to.add(batch...)
			batch, last = nil, time.Now()
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// hue gives a name always the same colour.
func hue(name string) int {
	h := 0
	for _, c := range name {
		h = (h*31 + int(c)) & 0xffff
	}
	return h
}
