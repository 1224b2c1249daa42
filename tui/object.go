package tui

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/describe"
	"sigs.k8s.io/yaml"
)

// objectActions show one object, or go from it to others.
func objectActions() []action {
	on := []string{"objects"}
	return []action{
		{name: "describe", hint: "describe", help: "describe, as kubectl does", on: on, run: one((*app).describe)},
		{name: "yaml", hint: "YAML", help: "the object as YAML", on: on, run: one((*app).showYAML)},
		{name: "show-events", hint: "events", help: "events about the object", on: on, run: one((*app).showEvents)},
		{name: "decode", hint: "decode", help: "a Secret's data in clear", on: []string{"secrets", "yaml"}, run: func(a *app, c call) {
			if t, ok := a.top().(*textPane); ok {
				t.decoded = !t.decoded
				t.open()
				return
			}
			one((*app).decode)(a, c)
		}},
		{name: "used-by", hint: "used by", help: "what uses it", on: []string{"secrets", "configmaps", "serviceaccounts", "persistentvolumeclaims", "priorityclasses.scheduling.k8s.io"},
			verb: "list", resource: "pods", run: one((*app).showUsedBy)},
		{name: "owner", help: "the object that owns this one", on: on, run: one((*app).showOwner)},
		{name: "show-node", hint: "node", help: "the node that the pod runs on", on: []string{"pods"}, run: one((*app).showNode)},
		{name: "show-replicasets", hint: "replica sets", help: "the deployment's ReplicaSets", on: []string{"deployments.apps"}, run: one((*app).showReplicaSets)},
		{name: "use", hint: "use", help: "work in this namespace, or in the marked ones", on: []string{"namespaces"}, run: func(a *app, c call) {
			var names []string
			for _, t := range c.on {
				names = append(names, t.name)
			}
			a.namespace = strings.Join(names, ",")
			a.execute("pods")
		}},
		{name: "favourite", hint: "favourite", help: "one of the keys 1 to 9 for the namespace, or no longer", on: []string{"namespaces"}, run: one((*app).turnFavourite)},
		{name: "logs", hint: "logs", help: "logs, following", on: []string{"pods", "workload", "containers"}, verb: "get", sub: "log", resource: "pods",
			run: one(func(a *app, t target) { a.showLogs(t, false) })},
		{name: "previous", hint: "previous", help: "logs of the container before it restarted", on: []string{"pods", "workload", "containers", "log"}, run: func(a *app, c call) {
			if p, ok := a.top().(*logPane); ok {
				p.previous = !p.previous
				p.restart()
				return
			}
			one(func(a *app, t target) { a.showLogs(t, true) })(a, c)
		}},
		{name: "show-forwards", help: "the port-forwards that run", run: func(a *app, _ call) { a.push(a.newForwards()) }},
	}
}

// one makes an action of something that acts on the selected object.
func one(f func(*app, target)) func(*app, call) {
	return func(a *app, c call) {
		if len(c.on) > 0 {
			f(a, c.on[0])
		}
	}
}

// enter drills down: what Enter opens depends on the kind.
func (a *app) enter(c call) {
	switch p := a.top().(type) {
	case *pulse:
		p.enter()
		return
	case *mapPane:
		p.enter()
		return
	}
	if c.table == nil || len(c.on) == 0 {
		return
	}
	t := c.on[0]
	if row := c.table.current(); row != nil { // marks don't matter here
		t = a.targetOf(c.table, row)
	}
	if c.table.opens != nil {
		c.table.opens(t.name)
		return
	}
	if c.table.enters != nil {
		c.table.enters(t)
		return
	}
	switch t.scope() {
	case "namespaces":
		a.namespace = t.name
		a.execute("pods")
	case "nodes":
		a.push(a.tableOf("pods", origin{name: t.name}, func(p *tablePane) { p.fields = "spec.nodeName=" + t.name }))
	case "pods":
		a.push(newContainers(a, t))
	case "containers":
		a.showLogs(t, false)
	case "secrets", "configmaps":
		a.showYAML(t)
	case "serviceaccounts":
		a.push(a.newPolicy(accountOf(t).String()))
	case "customresourcedefinitions.apiextensions.k8s.io":
		plural, _, _ := strings.Cut(t.name, ".")
		a.execute(plural)
	default:
		a.drill(t)
	}
}

// drill shows the pods that an object selects, or else describes it.
func (a *app) drill(t target) {
	a.async(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		selector, err := a.cluster.podSelector(ctx, t)
		return func() {
			switch {
			case err != nil:
				a.fail(err)
			case selector == "":
				a.describe(t)
			default:
				a.push(a.tableOf("pods", origin{t.name, t.namespace}, func(p *tablePane) { p.selector = selector }))
			}
		}
	})
}

func (a *app) tableOf(plural string, from origin, set func(*tablePane)) *tablePane {
	p := newTable(a, a.kinds.byPlural(plural))
	p.parent = &from
	set(p)
	return p
}

// podSelector is the label selector of a workload or service; empty if it has
// none.
func (c *cluster) podSelector(ctx context.Context, t target) (string, error) {
	o, err := c.of(t.kind, t.namespace).Get(ctx, t.name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
	if spec == nil {
		return "", nil
	}
	if _, structured := spec["matchLabels"]; structured || spec["matchExpressions"] != nil {
		var s metav1.LabelSelector
		data, err := yaml.Marshal(spec)
		if err != nil {
			return "", err
		}
		if err := yaml.Unmarshal(data, &s); err != nil {
			return "", err
		}
		return metav1.FormatLabelSelector(&s), nil
	}
	plain, _, err := unstructured.NestedStringMap(o.Object, "spec", "selector")
	if err != nil || len(plain) == 0 {
		return "", err
	}
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: plain}), nil
}

func (a *app) describe(t target) {
	p := newText(a, "describe "+t.String(), func(context.Context) ([]string, error) {
		cfg := rest.CopyConfig(a.cluster.config)
		cfg.Timeout = 5 * time.Second // describers take no context
		d, ok := describe.DescriberFor(t.kind.gvk().GroupKind(), cfg)
		if !ok {
			mapping := &meta.RESTMapping{Resource: t.kind.gvr(), GroupVersionKind: t.kind.gvk(), Scope: scopeOf(t.kind)}
			d, ok = describe.GenericDescriberFor(mapping, cfg)
		}
		if !ok {
			return nil, fmt.Errorf("describe: no describer for %s", t.kind.name)
		}
		text, err := d.Describe(t.namespace, t.name, describe.DescriberSettings{ShowEvents: true, ChunkSize: 500})
		return strings.Split(strings.TrimRight(text, "\n"), "\n"), err
	})
	p.of, p.scope = t, []string{"describe", "text"}
	p.pager.paint = a.theme.paintYAML
	a.push(p)
}

func scopeOf(k kind) meta.RESTScope {
	if k.namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// showYAML shows the object, without managedFields unless they are wanted.
func (a *app) showYAML(t target) { a.push(a.yamlPane(t)) }

func (a *app) yamlPane(t target) *textPane {
	var p *textPane
	p = newText(a, t.kind.singular+" "+t.String(), func(ctx context.Context) ([]string, error) {
		o, err := a.cluster.of(t.kind, t.namespace).Get(ctx, t.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if !p.managed {
			o.SetManagedFields(nil)
		}
		if p.decoded {
			decodeData(o)
		}
		text, err := yaml.Marshal(o.Object)
		return strings.Split(strings.TrimRight(string(text), "\n"), "\n"), err
	})
	p.of, p.yaml, p.wrap = t, true, false
	p.scope = []string{"yaml", "text"}
	p.pager.paint = a.theme.paintYAML
	return p
}

func (a *app) decode(t target) {
	p := a.yamlPane(t)
	p.decoded = true
	a.push(p)
}

// decodeData puts a Secret's data in clear; what is no text stays.
func decodeData(o *unstructured.Unstructured) {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	clear := map[string]any{}
	for k, v := range data {
		raw, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			clear[k] = v
			continue
		}
		clear[k] = string(raw)
	}
	if o.GetKind() == "Secret" && len(clear) > 0 {
		o.Object["data"] = clear
	}
}

func (a *app) showEvents(t target) {
	a.push(a.tableOf("events", origin{t.name, t.namespace}, func(p *tablePane) {
		p.fields = "involvedObject.name=" + t.name + ",involvedObject.kind=" + t.kind.name
	}))
}

func (a *app) showOwner(t target) {
	kindName, name, ok := strings.Cut(t.owner, "/")
	k, known := a.kinds.byKind(kindName)
	if !ok || !known {
		a.note("%s has no owner", t)
		return
	}
	p := a.tableOf(k.plural, origin{name, t.namespace}, func(p *tablePane) { p.kind, p.fields = k, "metadata.name="+name })
	a.push(p)
}

func (a *app) showNode(t target) {
	a.async(func(ctx context.Context) func() {
		pod, err := a.cluster.kube.CoreV1().Pods(t.namespace).Get(ctx, t.name, metav1.GetOptions{})
		return func() {
			switch {
			case err != nil:
				a.fail(err)
			case pod.Spec.NodeName == "":
				a.note("%s is on no node yet", t)
			default:
				a.push(a.tableOf("nodes", origin{name: pod.Spec.NodeName}, func(p *tablePane) { p.fields = "metadata.name=" + pod.Spec.NodeName }))
			}
		}
	})
}

func (a *app) showReplicaSets(t target) {
	a.async(func(ctx context.Context) func() {
		selector, err := a.cluster.podSelector(ctx, t)
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			a.push(a.tableOf("replicasets", origin{t.name, t.namespace}, func(p *tablePane) { p.selector = selector }))
		}
	})
}
