package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

const (
	// leafy is how many branches there are at first before the roots are folded, and
	// fewPods how few pods before not even they are.
	leafy   = 300
	fewPods = 6
	// openPods is how many pods the user can unfold before the first of them is
	// folded again: each is a view.
	openPods = 24
)

// tree is the model of objects with what they own, and what their pods use. It knows
// nothing of terminals, and is safe for concurrent use.
type tree struct {
	words   words
	changed func()
	root    kind
	kinds   []kind                  // the root's, and those of what it owns
	kindOf  func(scope string) kind // of what pods use
	tables  map[string]*rows        // by scope, and what is there to be used by namespace too

	mu       sync.Mutex // protects the fields below
	want     view
	filter   filter
	folded   map[string]bool // by ID: what is not as at first
	brief    bool            // at first roots are folded
	full     bool            // at first pods are not
	decided  bool            // on both
	unfolded []string        // pods, by ID
	pods     map[string]*podParts
	version  int                  // grows with every change but those of the tables
	buds     map[string][]*branch // by scope: objects without what is below them
	grown    []*branch
	of       string // what it was grown of
	head     snapshot
	missing  []string // kinds that cannot be listed
	last     *snapshot
	shown    map[string]*branch
}

// podParts is what an unfolded pod is made of.
type podParts struct {
	spec       *corev1.PodSpec
	containers []api.Row
}

// branch is an object in the tree, or a group of some.
type branch struct {
	id             string
	of             target // without a name for a group
	name, word     string // as shown, and its kind
	ready, status  string
	created        time.Time
	row            *api.Row // nil for a group
	state, worst   api.State
	below          []*branch
	more, group    bool // there is something below; a group
	opened, folded bool // by the filter; as it is shown
}

func newTree(w words, root kind, owned []kind, kindOf func(string) kind, changed func()) *tree {
	t := &tree{words: w, changed: changed, root: root, kinds: append([]kind{root}, owned...), kindOf: kindOf, tables: map[string]*rows{},
		folded: map[string]bool{}, pods: map[string]*podParts{}, buds: map[string][]*branch{}}
	for _, k := range t.kinds {
		t.tables[k.scope()] = newRows(changed)
	}
	return t
}

// change does something to the model, and has it shown.
func (t *tree) change(do func()) {
	t.mu.Lock()
	do()
	t.version++
	t.mu.Unlock()
	t.changed()
}

func (t *tree) show(change func(*view)) { t.change(func() { change(&t.want) }) }

func (t *tree) wanted() view {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.want
}

// snapshot makes what a frame at now shows, or returns the last if it still holds.
func (t *tree) snapshot(now time.Time) *snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := fmt.Sprint(t.version)
	for _, key := range slices.Sorted(maps.Keys(t.tables)) {
		of += " " + t.tables[key].stamp()
	}
	if t.last != nil && t.of == of && t.last.minute == now.Unix() {
		return t.last
	}
	if t.of != of {
		t.of = of
		t.grow()
	}
	s := t.head
	s.minute = now.Unix()
	t.flatten(&s, now)
	t.last = &s
	return t.last
}

// grow makes the branches of what was told.
func (t *tree) grow() {
	g := growth{tree: t, told: map[string]contents{}, byOwner: map[string][]*branch{}}
	for key, table := range t.tables {
		g.told[key] = table.told()
	}
	root := g.told[t.root.scope()]
	t.head = snapshot{live: true, revision: root.revision, fault: root.fault, counts: map[api.State]int{}}
	t.missing = nil
	for _, k := range t.kinds {
		one := g.told[k.scope()]
		t.head.loading = t.head.loading || one.loading && one.fault == nil
		t.head.live = t.head.live && (one.live || one.fault != nil)
		if one.fault != nil && k.scope() != t.root.scope() {
			t.missing = append(t.missing, k.plural)
		}
	}
	t.grown = g.roots()
	pods := 0
	for b := range walk(t.grown) {
		if b.row == nil {
			continue
		}
		t.head.counts[b.state]++
		if b.of.scope() == "pods" {
			pods++
		}
	}
	if !t.decided && !t.head.loading { // how a tree is folded at first is not to change under the user's hands
		t.brief, t.full, t.decided = linesOf(t.grown) > leafy, pods <= fewPods, true
	}
}

// isFolded says whether what is below a branch is hidden.
func (t *tree) isFolded(b *branch, root bool) bool {
	first := b.group || root && t.brief || b.of.scope() == "pods" && !t.full
	return first != t.folded[b.id] && !b.opened
}

// fold folds a branch, or unfolds it.
func (t *tree) fold(id string) {
	t.change(func() {
		b := t.shown[id]
		if b == nil || !b.more {
			return
		}
		if t.folded[id] = !t.folded[id]; b.of.scope() != "pods" || t.full || !t.folded[id] {
			return
		}
		if t.unfolded = append(t.unfolded, id); len(t.unfolded) > openPods {
			delete(t.folded, t.unfolded[0])
			t.unfolded = t.unfolded[1:]
		}
	})
}

// foldAll folds the roots, or unfolds all if they are; groups stay as they are at first.
func (t *tree) foldAll() {
	t.change(func() {
		t.brief = slices.ContainsFunc(t.grown, func(b *branch) bool { return b.more && !t.isFolded(b, true) })
		t.decided, t.unfolded = true, nil
		clear(t.folded)
	})
}

// branch is the one with an ID, if it is on screen.
func (t *tree) branch(id string) *branch {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown[id]
}

// without names the kinds that cannot be listed.
func (t *tree) without() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.missing, ", ")
}

// table is that of what a namespace has of a kind, by "namespace/kind".
func (t *tree) table(key string) *rows {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tables[key] == nil {
		t.tables[key] = newRows(t.changed)
	}
	return t.tables[key]
}

// open are the pods whose parts are in view: what has to be known of them.
func (t *tree) open() []target {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []target
	for _, b := range t.shown {
		if b.of.scope() == "pods" && !b.folded {
			out = append(out, b.of)
		}
	}
	return out
}

// tell takes over what was told of a pod; nil forgets it.
func (t *tree) tell(pod target, spec *corev1.PodSpec, containers []api.Row) {
	t.change(func() {
		if delete(t.pods, pod.uid); spec != nil {
			t.pods[pod.uid] = &podParts{spec, containers}
		}
	})
}

// flatten makes the lines of what is not folded.
func (t *tree) flatten(s *snapshot, now time.Time) {
	f, err := parseFilter(t.want.filter, treeColumns())
	s.filterOK = err
	if err != nil {
		f = t.filter
	}
	t.filter = f
	t.shown = map[string]*branch{}
	roots := t.sieve(t.grown)
	for _, b := range roots {
		t.line(s, b, "", "", now, true)
	}
	if s.total = len(s.rows); t.want.filter != "" || t.want.faultsOnly {
		for range walk(t.grown) {
			s.total++
		}
		s.total -= len(s.rows)
	}
	for _, c := range treeColumns() {
		s.columns = append(s.columns, gridColumn{name: c.Name, width: textWidth(c.Name)})
	}
	for _, r := range s.rows {
		for i, cell := range r.cells {
			s.columns[i].width = max(s.columns[i].width, textWidth(cell))
		}
	}
}

func treeColumns() []api.RowColumn {
	return []api.RowColumn{{Name: "NAME"}, {Name: "KIND"}, {Name: "READY"}, {Name: "STATUS"}, {Name: "AGE"}}
}

// line adds a branch and what is below it. before is what leads to it, under what
// leads on to those below.
func (t *tree) line(s *snapshot, b *branch, before, under string, now time.Time, root bool) {
	folded := t.isFolded(b, root)
	mark, state := "", b.state
	switch {
	case b.more && folded:
		mark, state = "▸ ", b.worst
	case b.more:
		mark = "▾ "
	case root:
		mark = "  "
	}
	b.folded, t.shown[b.id] = folded, b
	s.rows = append(s.rows, gridRow{uid: b.id, state: state, row: b.rowOf(), cells: []string{before + mark + b.name, b.word, b.ready, b.status, ageOf(b.created, now)}})
	if folded {
		return
	}
	for i, c := range b.below {
		if i == len(b.below)-1 {
			t.line(s, c, under+"└─", under+"  ", now, false)
		} else {
			t.line(s, c, under+"├─", under+"│ ", now, false)
		}
	}
}

// rowOf is a row that filters and the grid can look at.
func (b *branch) rowOf() *api.Row {
	if b.row != nil {
		return b.row
	}
	return &api.Row{UID: b.id, Namespace: b.of.namespace, Name: b.name, State: b.state}
}

func ageOf(created, now time.Time) string {
	if created.IsZero() {
		return ""
	}
	return age(created.Format(time.RFC3339), now)
}

// sieve keeps the branches that the filter and the wish for faults leave, and the way
// to them.
func (t *tree) sieve(branches []*branch) []*branch {
	if t.want.filter == "" && !t.want.faultsOnly {
		return branches
	}
	var out []*branch
	for _, b := range branches {
		hit := t.filter.keep(b.rowOf(), []string{b.name, b.word, b.ready, b.status, ""})
		if t.want.faultsOnly {
			hit = hit && faulty(b.state)
		} else if hit {
			out = append(out, b)
			continue
		}
		below := t.sieve(b.below)
		if hit || len(below) > 0 {
			kept := *b
			kept.below, kept.opened = below, len(below) > 0
			out = append(out, &kept)
		}
	}
	return out
}

// linesOf is how many branches can be seen while no group is unfolded.
func linesOf(branches []*branch) int {
	n := len(branches)
	for _, b := range branches {
		if !b.group {
			n += linesOf(b.below)
		}
	}
	return n
}

func faulty(s api.State) bool { return s != api.StateOK && s != api.StateDone && s != "" }

// walk is all branches, the upper ones first.
func walk(branches []*branch) func(func(*branch) bool) {
	return func(yield func(*branch) bool) { walkInto(branches, yield) }
}

func walkInto(branches []*branch, yield func(*branch) bool) bool {
	for _, b := range branches {
		if !yield(b) || !walkInto(b.below, yield) {
			return false
		}
	}
	return true
}
