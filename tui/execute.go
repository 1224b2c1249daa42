package tui

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// scene is what a word after ":" opens that is no kind.
type scene struct {
	words []string
	help  string
	open  func(a *app, c command)
}

// scenes are all of them, in the order of the help.
func scenes() []scene {
	return []scene{
		{[]string{"pulse", "pu", "hz", "pulses", "overview"}, "the overview: what is wrong now", func(a *app, _ command) { a.replace(newPulse(a)) }},
		{[]string{"map", "architecture"}, "the architecture, live", func(a *app, _ command) { a.replace(newMap(a)) }},
		{[]string{"etcd"}, "the members of etcd", func(a *app, _ command) {
			p := newMap(a)
			p.closeUp = "etcd"
			a.replace(p)
		}},
		{[]string{"xray", "x"}, "the tree of a kind: owners, what they own, containers, and what pods use; :xray deployments shop", (*app).openXray},
		{[]string{"workload", "wk", "workloads"}, "all that runs: workloads of every kind in one table", func(a *app, c command) {
			a.look(c)
			t := a.newWorkloads()
			t.setFilter(c.filter)
			a.replace(t)
		}},
		{[]string{"usage", "top"}, "what namespaces use, against requests and limits; nodes with :usage nodes, pods with :usage pods", (*app).openUsage},
		{[]string{"timeline", "tl"}, "the events of the last hour, minute by minute", func(a *app, c command) { a.look(c); a.replace(a.newTimeline()) }},
		{[]string{"ctx", "context", "contexts"}, "the clusters of the kubeconfig; Enter changes to one", func(a *app, c command) {
			if c.namespace != "" {
				a.changeTo(c.namespace, "")
				return
			}
			a.replace(a.newContexts())
		}},
		{[]string{"alias", "a", "aliases"}, "all kinds and their names", func(a *app, _ command) { a.replace(a.newAliases()) }},
		{[]string{"portforward", "pf", "portforwards", "forwards"}, "the port-forwards that run", func(a *app, _ command) { a.replace(a.newForwards()) }},
		{[]string{"screendump", "sd", "screendumps"}, "what was saved of this cluster; Enter shows it", func(a *app, _ command) { a.do("screendump") }},
		{[]string{"dir"}, "a folder of manifests, to apply, edit or delete", func(a *app, c command) { a.do("dir", c.args...) }},
		{[]string{"charts", "hm", "helm"}, "the releases of Helm; Enter shows the newest manifest", func(a *app, _ command) { a.replace(a.newReleases()) }},
		{[]string{"can"}, "what you may do; with VERB RESOURCE who can do it; with u:NAME, g:NAME or s:NAMESPACE:NAME what they may", (*app).can},
		{[]string{"usr"}, "the users that bindings name", func(a *app, _ command) { a.replace(a.newSubjects("users", rbacv1.UserKind)) }},
		{[]string{"grp"}, "the groups that bindings name", func(a *app, _ command) { a.replace(a.newSubjects("groups", rbacv1.GroupKind)) }},
		{[]string{"whoami"}, "whom the API server takes you for", func(a *app, _ command) { a.showWhoAmI() }},
	}
}

// execute does a line typed after ":": a screen, a kind, or an action by name.
// It says whether the line meant anything.
func (a *app) execute(line string) bool {
	a.keepPlace()
	place, ok := a.carryOut(line)
	if place != "" {
		a.trail.add(place)
	}
	if a.config.Command = ""; !ok && !a.facts.seen {
		a.config.Command = line // its kind may be known soon
	}
	return ok
}

// walkTrail shows a place where the commands went before.
func (a *app) walkTrail(line string) {
	if line != "" {
		a.carryOut(line)
	}
}

// keepPlace notes namespaces and filter of a table that is left.
func (a *app) keepPlace() {
	if len(a.stack) > 0 {
		if t, ok := a.stack[0].(*tablePane); ok && !t.own && t.parent == nil {
			a.trail.keep(t.command())
		}
	}
}

// carryOut does a line; place is what brings it back, if it shows something.
func (a *app) carryOut(line string) (place string, ok bool) {
	c := parseCommand(line)
	if a.elsewhere(line, c) {
		return "", true
	}
	switch c.word {
	case "":
		return "", true
	case "q", "q!", "quit", "exit":
		a.quit()
		return "", true
	case "ns", "namespace", "namespaces":
		if c.namespace != "" {
			a.useNamespace(c.namespace)
			return "", true
		}
	case "all":
		a.useNamespace("")
		return "", true
	}
	for _, s := range scenes() {
		if slices.Contains(s.words, c.word) {
			s.open(a, c)
			return strings.TrimSpace(line), true
		}
	}
	if k, known := a.kinds.resolve(c.word); known {
		return a.showKind(k, c)
	}
	if _, known := a.actions[c.word]; known {
		a.do(c.word, c.args...)
		return "", true
	}
	a.fail(unknownKind(a.words, c.word))
	return "", false
}

func unknownKind(w words, word string) error {
	return errors.New(w.say("no kind or command %q; Ctrl-A lists them", word))
}

// look turns to the namespaces that a command names.
func (a *app) look(c command) {
	if c.all {
		a.namespace = ""
	} else if c.namespace != "" {
		a.namespace = c.namespace
	}
}

// showKind opens the live table of a kind.
func (a *app) showKind(k kind, c command) (place string, ok bool) {
	if _, err := labels.Parse(c.labels); err != nil {
		a.fail(fmt.Errorf("-l %s: %w", c.labels, err))
		return "", false
	}
	if k.namespaced || c.all {
		a.look(c)
	}
	t := newTable(a, k)
	t.selector = c.labels
	if c.filter != "" {
		t.setFilter(c.filter)
	}
	a.replace(t)
	return t.command(), true
}

// command is what brings a table back as it is.
func (t *tablePane) command() string {
	line := t.kind.scope()
	if t.mixed == "xray" {
		line = "xray " + line
	}
	if t.kind.namespaced {
		line += " " + cmp.Or(t.in(), "all")
	}
	if t.selector != "" {
		line += " -l " + t.selector
	}
	if filter := t.filterText(); filter != "" {
		line += " /" + filter
	}
	return line
}

// useNamespace restricts the tables to some namespaces, joined by commas; "" is
// all.
func (a *app) useNamespace(names string) {
	a.namespace = names
	if t, ok := a.top().(*tablePane); ok && t.kind.namespaced && t.parent == nil {
		t.reload()
		return
	}
	a.execute("pods")
}
