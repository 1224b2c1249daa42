package tui

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// xray is the table of a tree: what the objects of a kind own, down to containers, and
// what their pods use.
type xray struct {
	*tablePane
	tree  *tree
	views map[string]func() // that are open for unfolded pods, and how to close them
}

// openXray does ":xray deployments shop".
func (a *app) openXray(c command) {
	of := parseCommand(strings.Join(c.args, " "))
	word := of.word
	if t, ok := a.top().(*tablePane); ok && word == "" && !t.own && t.mixed == "" {
		word = t.kind.scope()
	}
	k, known := a.kinds.resolve(cmp.Or(word, "deployments"))
	if !known {
		a.fail(unknownKind(a.words, word))
		return
	}
	a.look(of)
	x := a.newXray(k)
	x.selector = of.labels
	x.setFilter(c.filter)
	a.replace(x.tablePane)
}

func (a *app) newXray(k kind) *xray {
	x := &xray{tablePane: newTable(a, k), tree: newTree(a.words, k, ownedBy(k), a.kindOf, a.dirty), views: map[string]func(){}}
	x.mixed, x.rows, x.model = "xray", nil, x.tree
	x.stands = func(r *gridRow) target {
		if b := x.tree.branch(r.uid); b != nil {
			return b.of
		}
		return target{}
	}
	x.source = func(func(api.Tell)) func() { return x.follow() }
	x.frame = x.reconcile
	x.enters = func(of target) {
		switch {
		case of.name == "":
			x.tree.fold(x.selected)
		case of.container != "":
			a.push(newContainers(a, of))
		default:
			p := a.tableOf(of.kind.plural, origin{of.name, of.namespace}, func(p *tablePane) { p.fields = "metadata.name=" + of.name })
			p.kind = of.kind
			a.push(p)
		}
	}
	return x
}

// ownedBy are the kinds of what objects of a kind may bring forth, and that may in turn.
func ownedBy(k kind) []kind {
	var names []string
	switch k.scope() {
	case "pods":
		return nil
	case "deployments.apps":
		names = []string{"replicasets", "pods"}
	case "cronjobs.batch":
		names = []string{"jobs", "pods"}
	case "services", "nodes", "statefulsets.apps", "daemonsets.apps", "replicasets.apps", "jobs.batch", "replicationcontrollers":
		names = []string{"pods"}
	}
	return slices.DeleteFunc(workKinds(), func(w kind) bool {
		return w.scope() == k.scope() || names != nil && !slices.Contains(names, w.plural)
	})
}

// kindOf is the kind of a scope, of which all that pods use are known.
func (a *app) kindOf(scope string) kind {
	if k, ok := a.kinds.resolve(scope); ok {
		return k
	}
	return usedKinds()[scope]
}

// usedKinds are those of what pods use.
func usedKinds() map[string]kind {
	out := map[string]kind{}
	for _, name := range []string{"ServiceAccount", "ConfigMap", "Secret", "PersistentVolumeClaim"} {
		singular := strings.ToLower(name)
		out[singular+"s"] = kind{version: "v1", plural: singular + "s", singular: singular, name: name, namespaced: true}
	}
	return out
}

// follow opens the views of the tree, and closes them in the end.
func (x *xray) follow() func() {
	var stops []func()
	for i, k := range x.tree.kinds {
		v := x.viewOf(k)
		if !k.namespaced || !x.kind.namespaced {
			v.Namespaces = nil
		}
		if i == 0 {
			v.LabelSelector = x.selector
		}
		stops = append(stops, x.app.feed.Open(v, x.tree.tables[k.scope()].tell))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
		for key, stop := range x.views {
			stop()
			delete(x.views, key)
		}
	}
}

// reconcile has views open for the pods that are unfolded, and says what is missing.
func (x *xray) reconcile() {
	x.remark = ""
	if missing := x.tree.without(); missing != "" {
		x.remark = x.app.words.say("without %s", missing)
	}
	if x.stop == nil {
		return
	}
	wanted := map[string]func() func(){}
	for _, pod := range x.tree.open() {
		wanted[pod.uid] = func() func() { return x.followPod(pod) }
		for scope, k := range usedKinds() {
			key := pod.namespace + "/" + scope
			wanted[key] = func() func() { return x.followUsed(key, k, pod.namespace) }
		}
	}
	for key, stop := range x.views {
		if wanted[key] == nil {
			stop()
			delete(x.views, key)
		}
	}
	for key, open := range wanted {
		if x.views[key] == nil {
			x.views[key] = open()
		}
	}
}

func (x *xray) followPod(pod target) func() {
	v := api.View{Version: "v1", Resource: "pods", Namespaces: []string{pod.namespace}, Name: pod.name}
	return x.app.feed.Open(v, func(m api.Tell) {
		if m.Type != "object" {
			return
		}
		var of corev1.Pod
		if len(m.Object) == 0 || json.Unmarshal(m.Object, &of) != nil {
			x.tree.tell(pod, nil, nil)
			return
		}
		x.tree.tell(pod, &of.Spec, containerTell(m).Rows)
	})
}

func (x *xray) followUsed(key string, k kind, namespace string) func() {
	table := x.tree.table(key)
	return x.app.feed.Open(api.View{Version: k.version, Resource: k.plural, Namespaces: []string{namespace}}, table.tell)
}

// xrayed is the tree on screen, if there is one.
func (a *app) xrayed(c call) *tree {
	t, _ := c.table.model.(*tree)
	return t
}

func xrayActions() []action {
	on := []string{"xray"}
	return []action{
		{name: "fold", hint: "fold", help: "fold or unfold what is below", on: on, run: func(a *app, c call) {
			if t := a.xrayed(c); t != nil {
				t.fold(c.table.selected)
			}
		}},
		{name: "fold-all", hint: "fold all", help: "fold or unfold the whole tree", on: on, run: func(a *app, c call) {
			if t := a.xrayed(c); t != nil {
				t.foldAll()
			}
		}},
	}
}
