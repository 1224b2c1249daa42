package tui

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// action is something a key or a ":name" does.
type action struct {
	name string
	hint string // a word for the header; empty if it is not worth the room
	help string
	// on is where it applies: scopes of panes; nil is everywhere.
	on []string
	// verb and sub are the right it needs on the kind of the table, as the
	// authoriser names them; resource ("pods", "jobs.batch") if it is another
	// kind's.
	verb, sub, resource string
	writes              bool // refused when read-only
	// home: what it makes is in the namespace that one works in.
	home bool
	// never says why there is no such thing here, and what to use.
	never string
	// instead says what to do where the console is shown elsewhere than where it
	// runs, for what concerns that machine.
	instead string
	run     func(a *app, c call)
}

// call is one use of an action.
type call struct {
	args  []string
	table *tablePane // nil if the pane is no table
	on    []target
}

// target is an object that an action acts on.
type target struct {
	kind            kind
	namespace, name string
	uid             string
	owner           string
	labels          map[string]string
	container       string // of a pod, if one is meant
}

// scope is where the keys of what is meant are found: a container has its own.
func (t target) scope() string {
	if t.container != "" {
		return "containers"
	}
	return t.kind.scope()
}

func (t target) String() string {
	if t.namespace == "" {
		return t.name
	}
	return t.namespace + "/" + t.name
}

// actions lists all, in the order of the help.
func allActions() []action {
	return slices.Concat(objectActions(), whyActions(), policyActions(), changeActions(), editorActions(), textActions(), tableActions(), usageActions(), xrayActions(), nodeShellActions(),
		transferActions(), debugActions(), viewAsActions(), folderActions(), saveActions(), contextActions(), helmActions(), globalActions())
}

func actionsByName() map[string]action {
	out := map[string]action{}
	for _, a := range allActions() {
		out[a.name] = a
	}
	return out
}

// do runs an action on what is selected, or says why it can't be.
func (a *app) do(name string, args ...string) {
	act, ok := a.actions[name]
	if !ok {
		return
	}
	c := call{args: args}
	c.table, _ = a.top().(*tablePane)
	if c.table != nil {
		for _, r := range c.table.targets() {
			c.on = append(c.on, a.targetOf(c.table, r))
		}
	}
	why := a.refuses(act, a.top().scopes(), a.top().crumb())
	if other, ok := unfit(act, c); ok && why == "" {
		why = a.words.say("not for %s", other.kind.singular+" "+other.String())
	}
	if why != "" {
		a.fail(fmt.Errorf("%s: %s", act.name, why))
		return
	}
	if act.verb == "" || len(c.on) == 0 {
		act.run(a, c)
		return
	}
	home := a.home()
	a.async(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		why := a.forbids(ctx, act, c.on, home)
		return func() {
			if why != "" {
				a.fail(fmt.Errorf("%s: %s", act.name, why))
				return
			}
			act.run(a, c)
		}
	})
}

// unfit is the first of some objects of several kinds that an action is not for.
func unfit(act action, c call) (target, bool) {
	if c.table == nil || c.table.mixed == "" {
		return target{}, false
	}
	for _, t := range c.on {
		if !act.fits(c.table.scopesFor(t)) {
			return t, true
		}
	}
	return target{}, false
}

// forbids says why the user may not do act to objects, asking once for each kind.
func (a *app) forbids(ctx context.Context, act action, on []target, home string) string {
	asked := map[string]bool{}
	for _, t := range on {
		if asked[t.kind.scope()] {
			continue
		}
		asked[t.kind.scope()] = true
		if why := a.rights.refusal(ctx, a.cluster, act, t, home); why != "" {
			return why
		}
	}
	return ""
}

// targetOf is what a row stands for; a container's is its pod.
func (a *app) targetOf(t *tablePane, r *gridRow) target {
	if t.stands != nil {
		return t.stands(r)
	}
	return target{kind: t.kind, namespace: r.row.Namespace, name: r.row.Name, uid: r.uid, owner: r.row.Owner, labels: r.row.Labels}
}

// fits says whether an action applies to what has these scopes.
func (act action) fits(scopes []string) bool {
	return act.on == nil || slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(act.on, s) })
}

// refuses says why an action makes no sense here, if so.
func (a *app) refuses(act action, scopes []string, crumb string) string {
	if !act.fits(scopes) {
		return a.words.say("not for %s", crumb)
	}
	if act.never != "" {
		return a.words.say(act.never)
	}
	if act.instead != "" && a.config.Terminal != nil {
		return a.words.say("the console runs on %s, not on your machine; %s", a.config.Machine, a.words.say(act.instead))
	}
	if act.writes && a.config.ReadOnly {
		return a.words.say("this console is read only")
	}
	return ""
}

func globalActions() []action {
	return []action{
		{name: "command", hint: "command", help: "type a kind or a command", run: func(a *app, _ call) { a.askCommand() }},
		{name: "filter", hint: "filter", help: "filter rows, or search text", run: func(a *app, _ call) { a.askFilter() }},
		{name: "help", hint: "help", help: "what the keys do", run: func(a *app, _ call) { a.showHelp() }},
		{name: "back", help: "clear the filter, or go back", run: func(a *app, _ call) { a.escape() }},
		{name: "previous-command", help: "the command before this one", run: func(a *app, _ call) { a.walkTrail(a.trail.walk(-1)) }},
		{name: "next-command", help: "the command after this one", run: func(a *app, _ call) { a.walkTrail(a.trail.walk(1)) }},
		{name: "last-view", help: "to and fro between two commands", run: func(a *app, _ call) { a.walkTrail(a.trail.turn()) }},
		{name: "show-aliases", help: "all kinds and their names", run: func(a *app, _ call) { a.execute("alias") }},
		{name: "begin-here", help: "the console of this cluster begins in this view, from the next time on", instead: "name the view behind it: ssh -t HOST pods", run: func(a *app, _ call) { a.beginHere() }},
		{name: "theme", help: "another theme: dark, light, high-contrast, deuteranopia", run: (*app).chooseTheme},
		{name: "refresh", help: "open the view anew", run: func(a *app, _ call) { p := a.top(); p.close(); p.open(); a.tv.Sync() }},
		{name: "header", help: "show or hide the header", run: func(a *app, _ call) { a.headerOff = !a.headerOff }},
		{name: "crumbs", help: "show or hide the way here", run: func(a *app, _ call) { a.crumbsOff = !a.crumbsOff }},
		{name: "clear-filter", help: "clear the filter", run: func(a *app, _ call) { a.clearFilter() }},
		{name: "bench", help: "the load that a Service bears", never: "not offered; port-forward it and use hey or wrk"},
		{name: "vulnerabilities", help: "the known vulnerabilities of the images", never: "not offered; use a scanner like trivy"},
		{name: "suspend", help: "stop this program; fg brings it back", instead: "ssh's own ~^Z does it", run: func(a *app, _ call) { a.stopProcess() }},
		{name: "quit", help: "leave", run: func(a *app, _ call) { a.quit() }},
	}
}

// chooseTheme puts on the theme that is named, or the one chosen of all.
func (a *app) chooseTheme(c call) {
	if len(c.args) == 0 {
		a.choose(a.words.say("theme"), themeNames(), func(name string) { a.do("theme", name) })
		return
	}
	p, ok := paletteOf(c.args[0])
	if !ok {
		a.fail(fmt.Errorf("%s", a.words.say("no theme %q", c.args[0])))
		return
	}
	a.put(p)
}

func (a *app) askCommand() {
	p := a.prompt
	p.ask(":", "", &a.commands)
	words := a.commandWords()
	all, _ := a.contexts()
	var contexts, at []string
	for _, c := range all {
		contexts, at = append(contexts, c.Name), append(at, "@"+c.Name)
	}
	p.suggest = func(line string) string {
		return suggest(line, words, func(word string, n int) []string {
			switch word {
			case "ctx", "context", "contexts":
				return contexts
			case "theme":
				return themeNames()
			case "can":
				if n == 1 {
					return slices.Concat(policyVerbs, []string{"deletecollection", "impersonate", "u:", "g:", "s:"})
				} else if n == 2 {
					return a.kinds.complete("")
				}
			case "xray", "x":
				if n == 1 {
					return a.kinds.complete("")
				}
			case "usage", "top":
				return []string{"namespaces", "nodes", "pods"}
			}
			return slices.Concat(a.namespaces, at)
		})
	}
	p.done = func(line string) { a.execute(line) }
}

// filterable is a pane whose content "/" narrows.
type filterable interface {
	filterText() string
	setFilter(string)
}

func (t *tablePane) filterText() string { return t.model.wanted().filter }

func (a *app) askFilter() {
	f, ok := a.top().(filterable)
	if !ok {
		return
	}
	was := f.filterText()
	p := a.prompt
	p.ask("/", was, &a.filters)
	show := func(line string) {
		f.setFilter(line)
		a.refresh(a.now())
	}
	p.changed, p.done = show, show
	p.undo = func() { show(was) }
}

func (a *app) clearFilter() {
	if f, ok := a.top().(filterable); ok {
		f.setFilter("")
	}
}

// escape is k9s's Esc: first the filter goes, then the pane.
func (a *app) escape() {
	if a.fullScreen {
		a.fullScreen = false
		return
	}
	if f, ok := a.top().(filterable); ok && f.filterText() != "" {
		f.setFilter("")
		return
	}
	if t, ok := a.top().(*tablePane); ok && len(t.marks) > 0 {
		clear(t.marks)
		return
	}
	a.back()
}

func tableActions() []action {
	on := []string{"table"}
	sortBy := func(column string) func(*app, call) {
		return func(_ *app, c call) { c.table.sortBy(column) }
	}
	list := []action{
		{name: "enter", hint: "open", help: "open what the row stands for", run: func(a *app, c call) { a.enter(c) }},
		{name: "mark", help: "mark the row", on: on, run: func(_ *app, c call) { c.table.mark() }},
		{name: "mark-range", help: "mark from the last mark to here", on: on, run: func(_ *app, c call) { c.table.markRange() }},
		{name: "clear-marks", help: "unmark all", on: on, run: func(_ *app, c call) { clear(c.table.marks) }},
		{name: "wide", help: "all columns", on: on, run: func(_ *app, c call) { c.table.model.show(func(v *view) { v.wide = !v.wide }) }},
		{name: "columns", help: "which columns are shown: NAME,NAME..., or default", on: []string{"objects"}, run: (*app).chooseColumns},
		{name: "faults", help: "only what is not well", on: on, run: func(_ *app, c call) { c.table.model.show(func(v *view) { v.faultsOnly = !v.faultsOnly }) }},
		{name: "sort-name", help: "sort by name", on: on, run: sortBy("name")},
		{name: "sort-age", help: "sort by age", on: []string{"aged"}, run: sortBy("age")},
		{name: "sort-status", help: "sort by status", on: on, run: sortBy("status")},
		{name: "sort-aliases", help: "sort by alias", on: []string{"aliases"}, run: sortBy("aliases")},
		{name: "sort-group", help: "sort by API group", on: []string{"aliases"}, run: sortBy("group")},
		{name: "sort-kind", help: "sort by kind", on: []string{"workloads"}, run: sortBy("kind")},
		{name: "sort-ready", help: "sort by what is ready", on: []string{"workloads"}, run: sortBy("ready")},
		{name: "sort-namespace", help: "sort by namespace", on: on, run: sortBy("namespace")},
		{name: "sort-left", help: "sort by the column to the left", on: on, run: func(_ *app, c call) { c.table.sortBeside(-1) }},
		{name: "sort-right", help: "sort by the column to the right", on: on, run: func(_ *app, c call) { c.table.sortBeside(1) }},
		{name: "sort-turn", help: "turn the order", on: on, run: func(_ *app, c call) { c.table.model.show(func(v *view) { v.descending = !v.descending }) }},
		{name: "copy-name", help: "copy the name", on: on, run: func(a *app, c call) { a.copyNames(c, func(t target) string { return t.name }) }},
		{name: "copy-namespace", help: "copy the namespace", on: on, run: func(a *app, c call) { a.copyNames(c, func(t target) string { return t.namespace }) }},
		{name: "warp", help: "only the namespace of the row", on: on, run: func(a *app, c call) {
			if len(c.on) > 0 && c.on[0].namespace != "" {
				a.useNamespace(c.on[0].namespace)
			}
		}},
		{name: "all-namespaces", help: "all namespaces", on: on, run: func(a *app, _ call) { a.useNamespace("") }},
	}
	for i := range 9 {
		list = append(list, action{name: fmt.Sprintf("namespace-%d", i+1), help: "the namespace with this number in the header", on: on, run: func(a *app, _ call) {
			if f := a.favourites(); i < len(f) {
				a.useNamespace(f[i])
			}
		}})
	}
	return list
}

func (a *app) copyNames(c call, of func(target) string) {
	text := ""
	for i, t := range c.on {
		if i > 0 {
			text += "\n"
		}
		text += of(t)
	}
	a.copy(text)
}

// copy puts text on the user's clipboard, through the terminal.
func (a *app) copy(text string) {
	const most = 74 << 10 // terminals refuse more
	if text == "" || len(text) > most {
		a.fail(fmt.Errorf("%s", a.words.say("nothing to copy, or too much")))
		return
	}
	a.clipboard(text)
	a.note("%s", a.words.say("copied"))
}
