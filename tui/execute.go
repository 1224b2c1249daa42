package tui

import (
	"fmt"
	"slices"
)

// execute does a line typed after ":": a screen, a kind, or an action by name.
// It says whether the line meant anything.
func (a *app) execute(line string) bool {
	c := parseCommand(line)
	switch c.word {
	case "":
		return true
	case "q", "q!", "quit", "exit":
		a.quit()
		return true
	case "pulse", "pulses", "pu", "hz", "overview":
		a.replace(newPulse(a))
		return true
	case "map", "architecture":
		a.replace(newMap(a))
		return true
	case "etcd":
		p := newMap(a)
		p.closeUp = "etcd"
		a.replace(p)
		return true
	case "alias", "aliases", "a":
		a.showAliases()
		return true
	case "pf", "portforward", "portforwards", "forwards":
		a.showForwards()
		return true
	case "ns", "namespace", "namespaces":
		if c.namespace != "" {
			a.useNamespace(c.namespace)
			return true
		}
	case "all":
		a.useNamespace("")
		return true
	}
	if k, ok := a.kinds.resolve(c.word); ok {
		a.showKind(k, c)
		return true
	}
	if _, ok := a.actions[c.word]; ok {
		a.do(c.word, c.args...)
		return true
	}
	a.fail(fmt.Errorf("%s", a.words.say("no kind or command %q; Ctrl-A lists them", c.word)))
	return false
}

// showKind opens the live table of a kind.
func (a *app) showKind(k kind, c command) {
	if c.all {
		a.namespace = ""
	} else if c.namespace != "" && k.namespaced {
		a.namespace = c.namespace
	}
	t := newTable(a, k)
	t.selector = c.labels
	if c.filter != "" {
		t.setFilter(c.filter)
	}
	a.replace(t)
}

// useNamespace restricts the tables to one namespace, "" being all.
func (a *app) useNamespace(name string) {
	a.namespace = name
	if t, ok := a.top().(*tablePane); ok && t.kind.namespaced && t.parent == nil {
		t.close()
		t.open()
		return
	}
	a.execute("pods")
}

// favourites are the namespaces of the keys 1 to 9, in the order in which the
// header lists them.
func (a *app) favourites() []string {
	out := slices.Clone(a.namespaces)
	slices.SortStableFunc(out, func(x, y string) int { return favourite(x) - favourite(y) })
	return out[:min(len(out), 9)]
}

func favourite(ns string) int {
	switch ns {
	case "default":
		return 0
	case "kube-system":
		return 1
	case "kube-node-lease", "kube-public":
		return 3
	}
	return 2
}
