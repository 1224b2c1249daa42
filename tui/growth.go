package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/api"
)

const (
	// groupAbove is how many pods there are below one branch before those of one owner
	// become a group, and groupFrom how many of them make one.
	groupAbove, groupFrom = 20, 4
	// deepest bounds the tree, should objects own each other.
	deepest = 8
)

// growth makes the branches of a tree of what was told of each kind.
type growth struct {
	*tree
	told    map[string]contents
	byOwner map[string][]*branch // by "namespace/Kind/name"
}

// roots are the objects of the root's kind with everything below them.
func (g *growth) roots() []*branch {
	var pods []*branch
	for _, k := range g.kinds[1:] {
		for _, b := range g.all(k) {
			if owner := b.row.Owner; owner != "" {
				g.byOwner[b.of.namespace+"/"+owner] = append(g.byOwner[b.of.namespace+"/"+owner], b)
				if !g.root.namespaced {
					g.byOwner["/"+owner] = append(g.byOwner["/"+owner], b)
				}
			}
			if k.scope() == "pods" {
				pods = append(pods, b)
			}
		}
	}
	var below func(*branch) []*branch
	switch g.root.scope() {
	case "services":
		below = g.selected(pods)
	case "nodes":
		below = g.placed(pods)
	default:
		below = g.owned
	}
	var roots []*branch
	for _, bud := range g.all(g.root) {
		b := new(*bud) // as it is, it stays for the next time
		roots = append(roots, b)
		if g.want.namespaces {
			b.name = b.of.String()
		}
		if b.of.scope() == "pods" {
			g.parts(b)
			continue
		}
		g.attach(b, below(b), 0)
	}
	if g.root.scope() == "pods" {
		roots = g.group(roots, leafy)
	}
	return roots
}

// all are the objects of a kind, in the order of their names. What did not change is
// taken from the last time, where it is in order.
func (g *growth) all(k kind) []*branch {
	of := g.told[k.scope()]
	fresh := make(map[string]*api.Row, len(of.rows))
	for _, r := range of.rows {
		fresh[r.UID] = r
	}
	out := make([]*branch, 0, len(of.rows))
	for _, b := range g.buds[k.scope()] {
		if fresh[b.id] == b.row {
			out = append(out, b)
			delete(fresh, b.id)
		}
	}
	for _, r := range fresh {
		out = append(out, &branch{
			id: r.UID, of: target{kind: k, namespace: r.Namespace, name: r.Name, uid: r.UID, owner: r.Owner, labels: r.Labels},
			name: r.Name, word: k.name, ready: readyOf(of.columns, r), status: g.words.statusOf(of.columns, r),
			created: r.Created, row: r, state: r.State, worst: r.State, more: k.scope() == "pods",
		})
	}
	slices.SortFunc(out, byName)
	g.buds[k.scope()] = out
	return out
}

func byName(x, y *branch) int {
	return cmp.Or(natural(x.of.namespace, y.of.namespace), natural(x.of.name, y.of.name))
}

// owned is what names a branch as its owner.
func (g *growth) owned(b *branch) []*branch {
	return g.byOwner[b.of.namespace+"/"+b.of.kind.name+"/"+b.of.name]
}

// selected finds the pods of Services.
func (g *growth) selected(pods []*branch) func(*branch) []*branch {
	within := map[string][]*branch{}
	for _, p := range pods {
		within[p.of.namespace] = append(within[p.of.namespace], p)
	}
	columns := g.told["services"].columns
	return func(b *branch) (out []*branch) {
		b.status = namedCell(columns, b.row, "Type")
		wanted, err := labels.ConvertSelectorToLabelsMap(namedCell(columns, b.row, "Selector"))
		if err != nil || len(wanted) == 0 { // <none>
			return nil
		}
		selector := wanted.AsSelectorPreValidated()
		for _, p := range within[b.of.namespace] {
			if selector.Matches(labels.Set(p.of.labels)) {
				out = append(out, p)
			}
		}
		return out
	}
}

// placed finds the pods of nodes.
func (g *growth) placed(pods []*branch) func(*branch) []*branch {
	on, columns := map[string][]*branch{}, g.told["pods"].columns
	for _, p := range pods {
		node := namedCell(columns, p.row, "Node")
		on[node] = append(on[node], p)
	}
	return func(b *branch) []*branch { return on[b.of.name] }
}

// attach puts branches below another. They are copied: a pod can be below several.
func (g *growth) attach(b *branch, below []*branch, depth int) {
	var idle []*branch
	for _, c := range below {
		c := *c
		c.id = b.id + ">" + c.id
		if !g.root.namespaced {
			c.name = c.of.String()
		}
		switch {
		case c.of.scope() == "pods":
			g.parts(&c)
		case depth < deepest:
			g.attach(&c, g.owned(&c), depth+1)
		}
		if c.of.scope() == "replicasets.apps" && len(c.below) == 0 && c.state == api.StateOK {
			idle = append(idle, &c)
			continue
		}
		b.below = append(b.below, &c)
	}
	b.below = g.group(b.below, groupAbove)
	if len(idle) > 1 {
		old := groupOf(b.id, idle)
		old.status = g.words.say("scaled to 0")
		idle = []*branch{old}
	}
	b.below = append(b.below, idle...)
	b.ripen()
}

// ripen sums up what is below a branch.
func (b *branch) ripen() {
	b.more = b.more || len(b.below) > 0
	for _, c := range b.below {
		if gravity(c.worst) < gravity(b.worst) {
			b.worst = c.worst
		}
	}
}

// gravity orders states: the worst first.
func gravity(s api.State) int {
	order := []api.State{api.StateError, api.StateWarning, api.StateTerminating, api.StateProgressing, api.StateUnknown, api.StateOK, api.StateDone}
	if at := slices.Index(order, s); at >= 0 {
		return at
	}
	return len(order)
}

// group puts the pods of one owner together, if there are more than most in all.
func (g *growth) group(all []*branch, most int) []*branch {
	sets := map[string][]*branch{}
	count := 0
	for _, b := range all {
		if b.of.scope() == "pods" {
			sets[family(b)] = append(sets[family(b)], b)
			count++
		}
	}
	if count <= most {
		return all
	}
	var out []*branch
	for _, b := range all {
		set := sets[family(b)]
		switch {
		case b.of.scope() != "pods" || len(set) < groupFrom:
			out = append(out, b)
		case set[0] == b:
			out = append(out, g.podGroup(b, set))
		}
	}
	return out
}

// family is what pods of one owner have in common: without one, how their names begin.
func family(b *branch) string {
	_, name, owned := strings.Cut(b.row.Owner, "/")
	if at := strings.LastIndexByte(b.of.name, '-'); !owned && at > 0 {
		name = b.of.name[:at]
	}
	return b.of.namespace + "/" + name
}

func (g *growth) podGroup(first *branch, pods []*branch) *branch {
	b := groupOf(first.id[:max(strings.LastIndexByte(first.id, '>'), 0)], pods)
	if !g.root.namespaced || g.want.namespaces && first.id == first.of.uid {
		b.name = first.of.namespace + "/" + b.name
	}
	well, ill := 0, 0
	for _, p := range pods {
		switch p.state {
		case api.StateOK, api.StateDone:
			well++
		case api.StateError, api.StateWarning, api.StateUnknown:
			ill++
		}
	}
	b.ready = fmt.Sprintf("%d/%d", well, len(pods))
	if ill > 0 {
		b.status = g.words.say("%d unhealthy", ill)
	}
	slices.SortStableFunc(b.below, func(x, y *branch) int { return gravity(x.worst) - gravity(y.worst) })
	return b
}

// groupOf is some branches as one: "web-… × 240".
func groupOf(parent string, members []*branch) *branch {
	kind := members[0].of.kind
	name := strings.TrimPrefix(family(members[0]), members[0].of.namespace+"/")
	b := &branch{id: parent + ">" + kind.plural + " " + family(members[0]), group: true, name: fmt.Sprintf("%s-… × %d", name, len(members)), word: kind.plural,
		of: target{namespace: members[0].of.namespace}, below: slices.Clone(members), state: api.StateDone, worst: api.StateDone}
	b.ripen()
	b.state = b.worst
	return b
}
