package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"orrery.dev/api"
)

// usageAgain is how often it is asked for: nobody measures more often.
const usageAgain = 15 * time.Second

// usage is what the API server said last of what pods and nodes use. It is safe for
// concurrent use; the maps never change.
type usage struct {
	mu       sync.Mutex // protects the fields below
	pods     map[string]api.PodUsage
	nodes    map[string]api.NodeUsage
	measured bool   // at some time, something was: it is worth columns
	fault    string // why what is used is missing, all or some
}

// learn takes over an answer; without one, what was known stays.
func (u *usage) learn(told *api.Usage, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.fault = err.Error()
		return
	}
	u.pods, u.nodes, u.fault = map[string]api.PodUsage{}, map[string]api.NodeUsage{}, told.Error
	for _, p := range told.Pods {
		u.pods[p.Namespace+"/"+p.Name] = p
		u.measured = u.measured || p.Used != nil
	}
	for _, n := range told.Nodes {
		u.nodes[n.Name] = n
		u.measured = u.measured || n.Used != nil
	}
}

// beside are the columns of usage for pods or nodes; none if nothing was measured.
func (u *usage) beside(scope string) beside {
	u.mu.Lock()
	defer u.mu.Unlock()
	pods, nodes := u.pods, u.nodes
	switch {
	case !u.measured:
		return beside{}
	case scope == "nodes":
		return beside{nodeUsage(), func(r *api.Row) []string { return nodeCells(nodes[r.Name]) }}
	}
	return beside{podUsage(), func(r *api.Row) []string {
		p := pods[r.Namespace+"/"+r.Name]
		return ratios(p.Used, p.Requests, p.Limits)
	}}
}

// reason says why nothing is known, if so.
func (u *usage) reason() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fault
}

// measure keeps the columns of usage of a table up to date until it is stopped.
func (t *tablePane) measure() (stop func()) {
	scope, a := t.kind.scope(), t.app
	if scope != "pods" && scope != "nodes" {
		return func() {}
	}
	t.rows.add(a.usage.beside(scope)) // as it was known last
	ctx, stop := context.WithCancel(a.ctx)
	in := t.in()
	a.work.Go(func() {
		for {
			told, err := a.askUsage(ctx, in)
			if ctx.Err() != nil {
				return
			}
			a.usage.learn(told, err)
			t.rows.add(a.usage.beside(scope))
			select {
			case <-ctx.Done():
				return
			case <-time.After(usageAgain):
			}
		}
	})
	return stop
}

// askUsage asks what is used in some namespaces, "" being all.
func (a *app) askUsage(ctx context.Context, namespaces string) (*api.Usage, error) {
	query := url.Values{}
	if namespaces != "" {
		query["namespace"] = strings.Split(namespaces, ",")
	}
	var told api.Usage
	return &told, a.ask(ctx, api.UsagePath, query, &told)
}

// usageColumn shows a number. Its name tells what a percentage is of: R requests, L
// limits, A allocatable.
func usageColumns(names string) []api.RowColumn {
	var out []api.RowColumn
	for name := range strings.FieldsSeq(names) {
		name, wide := strings.CutSuffix(name, "+")
		c := api.RowColumn{Name: name, Type: "number"}
		if wide {
			c.Priority = 1
		}
		out = append(out, c)
	}
	return out
}

func podUsage() []api.RowColumn  { return usageColumns("CPU %CPU/R %CPU/L Mem %Mem/R %Mem/L") }
func nodeUsage() []api.RowColumn { return usageColumns("CPU %CPU/A Mem %Mem/A CPU/R+ Mem/R+") }

// ratios are what is used, and how much that is of requests and limits.
func ratios(used *api.Amounts, requests, limits api.Amounts) []string {
	if used == nil {
		return slices.Repeat([]string{unmeasured}, 6)
	}
	return []string{cores(used.CPU), percent(used.CPU, requests.CPU), percent(used.CPU, limits.CPU),
		memory(used.Memory), percent(used.Memory, requests.Memory), percent(used.Memory, limits.Memory)}
}

func nodeCells(n api.NodeUsage) []string {
	out := slices.Repeat([]string{unmeasured}, 4)
	if n.Used != nil {
		out = []string{cores(n.Used.CPU), percent(n.Used.CPU, n.Allocatable.CPU), memory(n.Used.Memory), percent(n.Used.Memory, n.Allocatable.Memory)}
	}
	return append(out, percent(n.Requests.CPU, n.Allocatable.CPU), percent(n.Requests.Memory, n.Allocatable.Memory))
}

const unmeasured = "n/a"

// percent is a part of a whole that may not be set.
func percent(part, whole int64) string {
	if whole == 0 {
		return unmeasured
	}
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(whole))
}

// cores and memory are amounts as the page writes them.
func cores(milli int64) string {
	switch {
	case milli >= 10_000:
		return fmt.Sprintf("%.0f", float64(milli)/1000)
	case milli >= 1000:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(milli)/1000), ".0")
	}
	return fmt.Sprintf("%dm", milli)
}

func memory(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%.0fGi", float64(bytes)/(1<<30))
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1fGi", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.0fMi", float64(bytes)/(1<<20))
}

// newUsage is the table of what nodes or namespaces use, against what they may;
// Enter lists their pods, those that use most first.
func (a *app) newUsage(byNode bool) *tablePane {
	columns := ">CPU >%CPU/R >%CPU/L >Mem >%Mem/R >%Mem/L >CPU/R >CPU/L >Mem/R >Mem/L >Pods"
	if byNode {
		columns = ">CPU >%CPU/A >Mem >%Mem/A >CPU/R >CPU/L >CPU/A >Mem/R >Mem/L >Mem/A"
	}
	var t *tablePane
	t = a.newList("usage", append([]string{"Name"}, strings.Fields(columns)...), usageAgain, func(ctx context.Context) ([]api.Row, error) {
		in := a.namespace
		if byNode {
			in = ""
		}
		told, err := a.askUsage(ctx, in)
		if err != nil {
			return nil, err
		}
		a.post(func() { t.remark = told.Error })
		if byNode && len(told.Nodes) == 0 {
			return nil, errors.New(a.words.say("there are no nodes that you may list"))
		}
		return usageRows(told, byNode), nil
	})
	t.opens = func(name string) {
		from, where := origin{name, name}, ""
		if byNode {
			from, where = origin{name: name}, "spec.nodeName="+name
		}
		a.push(a.tableOf("pods", from, func(p *tablePane) {
			p.fields = where
			p.model.show(func(w *view) { w.sortBy, w.descending = "cpu", true })
		}))
	}
	t.byNode = byNode
	return t
}

// openUsage does ":usage", or ":usage nodes" and ":usage pods".
func (a *app) openUsage(c command) {
	of, _ := a.kinds.resolve(c.namespace)
	switch of.plural {
	case "pods":
		a.showKind(of, command{})
		a.top().(*tablePane).model.show(func(w *view) { w.sortBy, w.descending = "cpu", true })
		return
	case "":
		a.look(c)
	}
	a.replace(a.newUsage(of.plural == "nodes"))
}

// usageRows are those of its lines. Nodes come with the sums of their pods,
// namespaces are added up.
func usageRows(told *api.Usage, byNode bool) (out []api.Row) {
	if byNode {
		for _, n := range told.Nodes {
			cells := append([]string{n.Name}, nodeCells(n)[:4]...)
			for _, write := range []func(api.Amounts) string{coresOf, memoryOf} {
				cells = append(cells, write(n.Requests), write(n.Limits), write(n.Allocatable))
			}
			out = append(out, listRow(strain(n.Used, n.Allocatable), cells...))
		}
		return out
	}
	for _, s := range sumUp(told.Pods) {
		cells := append([]string{s.Namespace}, ratios(s.Used, s.Requests, s.Limits)...)
		cells = append(cells, coresOf(s.Requests), coresOf(s.Limits), memoryOf(s.Requests), memoryOf(s.Limits), fmt.Sprint(s.pods))
		out = append(out, listRow(strain(s.Used, s.Limits), cells...))
	}
	return out
}

// sum is of the pods of a namespace.
type sum struct {
	api.PodUsage
	pods int
}

func sumUp(pods []api.PodUsage) []*sum {
	byNamespace := map[string]*sum{}
	for _, p := range pods {
		s := byNamespace[p.Namespace]
		if s == nil {
			s = &sum{PodUsage: api.PodUsage{Namespace: p.Namespace}}
			byNamespace[p.Namespace] = s
		}
		s.pods++
		s.Requests.Add(p.Requests)
		s.Limits.Add(p.Limits)
		if p.Used != nil {
			if s.Used == nil {
				s.Used = &api.Amounts{}
			}
			s.Used.Add(*p.Used)
		}
	}
	return slices.Collect(maps.Values(byNamespace))
}

// coresOf and memoryOf are amounts that may not be set.
func coresOf(a api.Amounts) string {
	if a.CPU == 0 {
		return unmeasured
	}
	return cores(a.CPU)
}

func memoryOf(a api.Amounts) string {
	if a.Memory == 0 {
		return unmeasured
	}
	return memory(a.Memory)
}

// strain is how near what is used comes to what there is.
func strain(used *api.Amounts, room api.Amounts) api.State {
	if used == nil {
		return api.StateUnknown
	}
	most := 0.0
	if room.CPU > 0 {
		most = float64(used.CPU) / float64(room.CPU)
	}
	if room.Memory > 0 {
		most = max(most, float64(used.Memory)/float64(room.Memory))
	}
	switch {
	case most >= 0.9:
		return api.StateError
	case most >= 0.7:
		return api.StateWarning
	}
	return api.StateOK
}

func usageActions() []action {
	measured := []string{"measured"}
	sortBy := func(column string) func(*app, call) {
		return func(a *app, c call) {
			if !slices.ContainsFunc(c.table.snap.columns, func(g gridColumn) bool { return strings.EqualFold(g.name, column) }) {
				a.fail(errors.New(a.words.say("nothing tells what is used: %s", cmp.Or(a.usage.reason(), "n/a"))))
				return
			}
			c.table.model.show(func(w *view) {
				w.descending = !strings.EqualFold(w.sortBy, column) || !w.descending // the most first
				w.sortBy = column
			})
		}
	}
	return []action{
		{name: "sort-cpu", help: "sort by CPU in use, the most first", on: measured, run: sortBy("cpu")},
		{name: "sort-memory", help: "sort by memory in use, the most first", on: measured, run: sortBy("mem")},
		{name: "usage-by", hint: "nodes, namespaces", help: "usage by node, or by namespace", on: []string{"usage"}, run: func(a *app, c call) {
			if c.table.byNode {
				a.execute("usage")
				return
			}
			a.execute("usage nodes")
		}},
	}
}
