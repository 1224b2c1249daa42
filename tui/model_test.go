package tui

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

func podColumns() []api.RowColumn {
	return []api.RowColumn{{Name: "Name", Type: "string"}, {Name: "Ready", Type: "string"}, {Name: "Status", Type: "string"},
		{Name: "Restarts", Type: "string"}, {Name: "Age", Type: "age"}, {Name: "Node", Type: "string", Priority: 1}}
}

func podRow(ns, name, status string, state api.State) api.Row {
	return api.Row{UID: ns + "/" + name, Namespace: ns, Name: name, State: state, Labels: map[string]string{"app": strings.TrimRight(name, "-0123456789")},
		Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Cells: []any{name, "1/1", status, "0", "2026-01-01T00:00:00Z", "node-1"}}
}

func podModel() *rows {
	m := newRows(func() {})
	m.tell(api.Tell{Type: "columns", Columns: podColumns()})
	m.tell(api.Tell{Type: "rows", Reset: true, Revision: "5", Live: true, Rows: []api.Row{
		podRow("shop", "web-10", "Running", api.StateOK), podRow("shop", "web-9", "Running", api.StateOK),
		podRow("data", "db-0", "CrashLoopBackOff", api.StateError), podRow("data", "job-1", "Completed", api.StateDone)}})
	return m
}

func shownNames(s *snapshot) string {
	var out []string
	for _, r := range s.rows {
		out = append(out, r.row.Name)
	}
	return strings.Join(out, " ")
}

var testNow = time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)

func TestFilters(t *testing.T) {
	for typed, want := range map[string]string{
		"":                "db-0 job-1 web-9 web-10",
		"web":             "web-9 web-10",
		"WEB-1":           "web-10",
		"!web":            "db-0 job-1",
		"-l app=web":      "web-9 web-10",
		"-f w9":           "web-9",
		"status:crash":    "db-0",
		"namespace:shop":  "", // no column of that name: the text itself
		"run|crash":       "db-0 web-9 web-10",
		"shop":            "web-9 web-10",
		"node:node-1":     "db-0 job-1 web-9 web-10", // columns that are not shown count too
		"(":               "db-0 job-1 web-9 web-10", // half typed: what was good before
		"-l app in (db)":  "db-0",
		"status:^Complet": "job-1",
	} {
		m := podModel()
		m.snapshot(testNow)
		m.show(func(v *view) { v.filter = typed })
		if got := shownNames(m.snapshot(testNow)); got != want {
			t.Errorf("filter %q shows %q, want %q", typed, got, want)
		}
	}
}

func TestFaultsOnlyAndWide(t *testing.T) {
	m := podModel()
	m.show(func(v *view) { v.faultsOnly, v.wide, v.namespaces = true, true, true })
	s := m.snapshot(testNow)
	if got := shownNames(s); got != "db-0" {
		t.Errorf("faults: %q", got)
	}
	if n := len(s.columns); n != 7 || s.columns[0].name != "NAMESPACE" || s.columns[6].name != "NODE" {
		t.Errorf("wide columns: %+v", s.columns)
	}
	if age := s.rows[0].cells[5]; age != "60m" {
		t.Errorf("age %q, want kubectl's 60m", age)
	}
}

// T22: ages, quantities and numbers are compared by value.
func TestT22SortIsAPersonsOrder(t *testing.T) {
	cells := []string{"web-10", "web-9", "2", "10", "1Gi", "512Mi", "1/3", "2/3", "3 (5m ago)", "a"}
	slices.SortFunc(cells, compareCells)
	if got := strings.Join(cells, " | "); got != "1/3 | 2 | 2/3 | 3 (5m ago) | 10 | 512Mi | 1Gi | a | web-9 | web-10" {
		t.Errorf("order: %s", got)
	}
	ages := []string{"2d3h", "45s", "4m39s", "5m", "1y"}
	slices.SortFunc(ages, compareAges)
	if got := strings.Join(ages, " "); got != "45s 4m39s 5m 2d3h 1y" {
		t.Errorf("ages: %s", got)
	}
	m := podModel()
	m.show(func(v *view) { v.sortBy, v.descending = "name", true })
	if got := shownNames(m.snapshot(testNow)); got != "web-10 web-9 job-1 db-0" {
		t.Errorf("descending: %s", got)
	}
}

// T17: after a list anew, what is not in it is gone.
func TestT17DeltasAndBreaks(t *testing.T) {
	m := podModel()
	m.tell(api.Tell{Type: "rows", Revision: "6", Live: true, Rows: []api.Row{podRow("data", "db-0", "Running", api.StateOK)}, Gone: []string{"shop/web-9"}})
	s := m.snapshot(testNow)
	if shownNames(s) != "db-0 job-1 web-10" || s.rows[0].cells[2] != "Running" || s.revision != "6" || !s.live {
		t.Errorf("after a delta: %s %+v", shownNames(s), s.rows[0])
	}
	m.tell(api.Tell{Type: "rows"})
	if s = m.snapshot(testNow); s.live || len(s.rows) != 3 {
		t.Errorf("behind: live %v, %d rows", s.live, len(s.rows))
	}
	m.tell(api.Tell{Type: "rows", Reset: true, Revision: "9", Live: true, Rows: []api.Row{podRow("x", "new-1", "Running", api.StateOK)}})
	if s = m.snapshot(testNow); shownNames(s) != "new-1" || !s.live {
		t.Errorf("a reset must leave no ghosts: %s", shownNames(s))
	}
	m.tell(api.Tell{Type: "error", Error: &api.Error{Code: 403, Message: "no"}})
	if s = m.snapshot(testNow); len(s.rows) != 0 || s.fault == nil {
		t.Errorf("what may not be seen any more must go: %d rows", len(s.rows))
	}
}

func TestSelectionStaysOnItsObject(t *testing.T) {
	m := podModel()
	g := newGrid(plainTheme())
	g.set(m.snapshot(testNow))
	g.move(2)
	if r := g.current(); r.row.Name != "web-9" {
		t.Fatalf("selected %s", r.row.Name)
	}
	m.tell(api.Tell{Type: "rows", Revision: "6", Live: true, Rows: []api.Row{podRow("a", "above-1", "Running", api.StateOK)}})
	g.set(m.snapshot(testNow))
	if r := g.current(); r.row.Name != "web-9" || g.at != 3 {
		t.Errorf("after a row above: %s at %d", r.row.Name, g.at)
	}
	m.tell(api.Tell{Type: "rows", Revision: "7", Live: true, Gone: []string{"shop/web-9"}})
	g.set(m.snapshot(testNow))
	if r := g.current(); r == nil || r.row.Name != "web-10" {
		t.Errorf("after it went, its place must be selected: %+v", r)
	}
}

func TestCommands(t *testing.T) {
	for line, want := range map[string]command{
		"pods":                     {word: "pods"},
		"Pods kube-system":         {word: "pods", namespace: "kube-system"},
		"pod /text":                {word: "pod", filter: "text"},
		"po shop /a b":             {word: "po", namespace: "shop", filter: "a b"},
		"pod app=x,tier!=y":        {word: "pod", labels: "app=x,tier!=y"},
		"pod -f fuzz":              {word: "pod", filter: "-f fuzz"},
		"pods all":                 {word: "pods", all: true},
		"pods -n shop":             {word: "pods", namespace: "shop"},
		"pods -l app in (a)":       {word: "pods", labels: "app in (a)"},
		"pod app=x,env in (a,b)":   {word: "pod", labels: "app=x,env in (a,b)"},
		"pod shop env notin (a,b)": {word: "pod", namespace: "shop", labels: "env notin (a,b)"},
		"pod !old":                 {word: "pod", labels: "!old"},
		"pods shop,data /web":      {word: "pods", namespace: "shop,data", filter: "web"},
		"pod @east shop":           {word: "pod", namespace: "shop", context: "east"},
		"@east":                    {context: "east"},
	} {
		got := parseCommand(line)
		if got.args = nil; !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
}

func TestSuggestions(t *testing.T) {
	arguments := func(word string, n int) []string { return []string{"default", "kube-system", word + fmt.Sprint(n)} }
	for line, want := range map[string]string{
		"dep": "loyments", "": "", "pods ": "", "pods kube-s": "ystem", "pods default,kube-s": "ystem", "pods x pod": "s2", "nope": "",
	} {
		if got := suggest(line, []string{"daemonsets", "deployments"}, arguments); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
}

func TestTrailIsWalked(t *testing.T) {
	var way trail
	if way.walk(-1) != "" || way.turn() != "" {
		t.Error("an empty trail leads somewhere")
	}
	for _, line := range []string{"pods all", "nodes", "nodes", "map"} {
		way.add(line)
	}
	got := []string{way.walk(1), way.walk(-1), way.turn(), way.turn(), way.walk(-1), way.walk(-1), way.walk(1)}
	if want := []string{"", "nodes", "map", "nodes", "pods all", "", "nodes"}; !slices.Equal(got, want) {
		t.Errorf("walked %q, want %q", got, want)
	}
	way.keep("nodes /x")
	way.add("etcd") // what was ahead is forgotten
	if got := []string{way.walk(1), way.turn(), way.walk(1)}; !slices.Equal(got, []string{"", "nodes /x", "etcd"}) {
		t.Errorf("then %q", got)
	}
}

// TestEveryActionIsACommand holds that no kind or scene hides an action of its name.
func TestEveryActionIsACommand(t *testing.T) {
	hidden := map[string]string{"q": "quit", "q!": "quit", "quit": "quit", "exit": "quit", "all": "all-namespaces"}
	for _, s := range scenes() {
		for _, word := range s.words {
			if hidden[word] != "" {
				t.Errorf("%q opens %s and %s", word, s.words[0], hidden[word])
			}
			hidden[word] = s.words[0]
		}
	}
	ks := append(firstKinds(), kind{plural: "replicasets", singular: "replicaset", short: []string{"rs"}}, kind{plural: "serviceaccounts", singular: "serviceaccount", short: []string{"sa"}},
		kind{plural: "jobs", singular: "job"}, kind{plural: "secrets", singular: "secret"}, kind{plural: "persistentvolumes", singular: "persistentvolume", short: []string{"pv"}})
	for name := range actionsByName() {
		if to := hidden[name]; to != "" && to != name {
			t.Errorf(":%s opens %s, and no action", name, to)
		}
		if k, ok := ks.resolve(name); ok {
			t.Errorf(":%s lists %s, and is no action", name, k.plural)
		}
	}
}

// TestHelpIsInBothLanguages holds that whatever an action or scene says of itself
// is there in zh-TW too; abbreviations are the same in both.
func TestHelpIsInBothLanguages(t *testing.T) {
	chinese := newWords("zh_TW")
	check := func(text string) {
		if _, ok := chinese.other[text]; !ok && regexp.MustCompile("[a-z]{2}").MatchString(text) {
			t.Errorf("no zh-TW for %q", text)
		}
	}
	for _, act := range allActions() {
		check(act.hint)
		check(act.help)
	}
	for _, s := range scenes() {
		check(s.help)
	}
}

func TestKindsByAnyName(t *testing.T) {
	ks := firstKinds()
	for _, name := range []string{"pods", "pod", "po", "Pod", "deploy", "deployments.apps", "dp", "NS"} {
		if _, ok := ks.resolve(name); !ok {
			t.Errorf("%q is not known", name)
		}
	}
	if _, ok := ks.resolve("widgets"); ok {
		t.Error("widgets are known")
	}
}

// TestKeysDoNotClash holds what keys.go promises: in one pane a key means one
// thing, and every key and scope is of something that exists.
func TestKeysDoNotClash(t *testing.T) {
	all, actions := bindings(), actionsByName()
	for _, b := range all {
		if _, ok := actions[b.action]; !ok {
			t.Errorf("key %s of %s names no action: %s", b.key, b.scope, b.action)
		}
	}
	a := &app{desk: &desk{theme: plainTheme()}}
	panes := [][]string{{"yaml", "text"}, {"why", "text"}, {"text"}, {"log"}, {"pulse"}, {"map"}, {"editor"}, {"review", "text"}, {"conflicts"}}
	for _, k := range append(firstKinds(), kind{plural: "containers"}, kind{plural: "secrets"}, kind{plural: "configmaps"}, kind{plural: "persistentvolumeclaims"}, kind{plural: "cronjobs", group: "batch"},
		kind{plural: "statefulsets", group: "apps"}, kind{plural: "daemonsets", group: "apps"}, kind{plural: "replicasets", group: "apps"}) {
		panes = append(panes, newTable(a, k).scopes(), append([]string{"workloads"}, scopesOf(k.scope(), true)...))
	}
	panes = append(panes, scopesOf("usage", false))
	for _, scopes := range panes {
		seen := map[string]string{}
		for _, scope := range keyScopes(scopes) {
			for _, b := range all {
				if b.scope != scope {
					continue
				}
				if other, ok := seen[b.key]; ok {
					t.Errorf("in %v the key %s means %s and %s", scopes, b.key, other, b.action)
				}
				seen[b.key] = b.action
			}
		}
	}
	for _, act := range actions {
		if act.help == "" {
			t.Errorf("%s has no help", act.name)
		}
	}
}

func TestKeyNames(t *testing.T) {
	for want, e := range map[string]*tcell.EventKey{
		"N":          tcell.NewEventKey(tcell.KeyRune, 'N', tcell.ModNone),
		"space":      tcell.NewEventKey(tcell.KeyRune, ' ', tcell.ModNone),
		"ctrl-d":     tcell.NewEventKey(tcell.KeyCtrlD, 0, tcell.ModCtrl),
		"enter":      tcell.NewEventKey(tcell.KeyEnter, 0, tcell.ModNone),
		"esc":        tcell.NewEventKey(tcell.KeyEscape, 0, tcell.ModNone),
		"shift-left": tcell.NewEventKey(tcell.KeyLeft, 0, tcell.ModShift),
	} {
		if got := keyName(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestT26LinesDropTheOldestAndCount(t *testing.T) {
	l := newLines(20, func() {})
	l.add("aaaaaaaaa", "bbbbbbbbb", "ccccccccc")
	if n, dropped := l.size(); n != 2 || dropped != 1 {
		t.Errorf("%d lines, %d dropped", n, dropped)
	}
	if line, number := l.at(0); line != "bbbbbbbbb" || number != 1 {
		t.Errorf("first line %q, number %d", line, number)
	}
}

func TestANSIAndWrap(t *testing.T) {
	base := tcell.StyleDefault
	spans := parseANSI("a\x1b[31mred\x1b[0m [b]\t\x1b]0;title\x07z", base)
	text := ""
	for _, s := range spans {
		text += s.text
	}
	if text != "ared [b]    z" {
		t.Errorf("text %q", text)
	}
	if fg, _, _ := spans[1].style.Decompose(); fg != tcell.PaletteColor(1) {
		t.Errorf("colour %v", fg)
	}
	rows := wrapSpans([]span{{"节点节点节点abc", base}}, 5)
	if len(rows) != 4 || rows[0][0].text != "节点" || rows[3][0].text != "bc" && rows[3][0].text != "abc" {
		t.Errorf("wrapped %+v", rows)
	}
	if got := skipSpans([]span{{"abc", base}, {"def", base}}, 4); len(got) != 1 || got[0].text != "ef" {
		t.Errorf("skipped %+v", got)
	}
}

func TestEtcdAndProblems(t *testing.T) {
	h := newHealth(func() {})
	for _, m := range h.tables {
		m.tell(api.Tell{Type: "columns", Columns: podColumns()})
	}
	h.tables["pods"].tell(api.Tell{Type: "rows", Reset: true, Revision: "1", Live: true, Rows: []api.Row{podRow("a", "bad-1", "Error", api.StateError), podRow("a", "ok-1", "Running", api.StateOK)}})
	at := testNow
	h.learn(api.Map{Version: "v1", Etcd: []api.EtcdMember{{ID: "1", Name: "a", Leader: true, Index: 100}, {ID: "2", Name: "b", Error: "no route"}},
		Components: []api.Component{{Name: "scheduler", Healthy: false, Message: "down"}}}, nil, at)
	h.learn(api.Map{Etcd: []api.EtcdMember{{ID: "1", Name: "a", Leader: true, Index: 120}}}, nil, at.Add(2*time.Second))
	h.learn(api.Map{Version: "v1", Etcd: []api.EtcdMember{{ID: "1", Name: "a", Leader: true, Index: 140}, {ID: "2", Name: "b", Error: "no route"}},
		Components: []api.Component{{Name: "scheduler", Healthy: false, Message: "down"}}}, nil, at.Add(4*time.Second))
	s := h.state(testNow)
	if s.etcd[0].rate != 10 || s.etcd[0].role() != "Leader" || s.etcd[1].state() != api.StateError {
		t.Errorf("etcd %+v", s.etcd)
	}
	var kinds []string
	for _, w := range s.wrong {
		kinds = append(kinds, w.kind)
	}
	if got := strings.Join(kinds, " "); got != "etcd control plane pods" {
		t.Errorf("wrong: %s", got)
	}
}

func TestCatalogue(t *testing.T) {
	if got := newWords("zh_TW.UTF-8").say("Leader"); got != "主節點" {
		t.Errorf("zh-TW: %q", got)
	}
	if got := newWords("de_DE").say("not for %s", "pods"); got != "not for pods" {
		t.Errorf("en: %q", got)
	}
}

func TestProblemsKeepTheirKeys(t *testing.T) {
	of := func(names ...string) (out []problem) {
		for _, n := range names {
			out = append(out, problem{kind: "pods", row: &api.Row{Name: n}})
		}
		return out
	}
	var d numbered
	for _, step := range []struct {
		there []problem
		want  string
	}{
		{of("b", "c"), "b c"},
		{of("a", "c", "b"), "b c a"}, // a is worse, and comes last
		{of("c", "d"), "d c"},        // d takes the key of what is gone
		{of("1", "2", "3", "4", "5", "6", "7", "8", "c"), "1 c 2 3 4 5 6 7 8"},
		{of("0", "1", "2", "3", "4", "5", "6", "7", "8", "c"), "1 c 2 3 4 5 6 7 8"}, // all are taken
	} {
		d.give(step.there)
		got := strings.TrimSpace(strings.ReplaceAll(strings.Join(d[:], " "), "pods /", ""))
		if got != step.want {
			t.Errorf("keys %q, want %q", got, step.want)
		}
	}
}

// T20: beside kubectl's word stands how many containers failed.
func TestT20FailedContainersAreTold(t *testing.T) {
	for language, want := range map[string]string{"": "Completed (1 of 2 containers failed)", "zh_TW": "Completed (2 個容器中有 1 個失敗)"} {
		m := podModel()
		m.words = newWords(language)
		row := podRow("shop", "half", "Completed", api.StateWarning)
		row.Failed = "1/2"
		m.tell(api.Tell{Type: "rows", Revision: "6", Live: true, Rows: []api.Row{row}})
		m.show(func(v *view) { v.filter = "half" })
		if got := m.snapshot(testNow).rows[0].cells[2]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// T22: what has no value comes last in either order, and equals keep the order
// of their names.
func TestT22AbsentValuesAreLastAndEqualsStable(t *testing.T) {
	m := newRows(func() {})
	m.tell(api.Tell{Type: "columns", Columns: []api.RowColumn{{Name: "Name", Type: "string"}, {Name: "CPU", Type: "string"}}})
	var rows []api.Row
	for name, cpu := range map[string]string{"a": "n/a", "b": "20m", "c": "100m", "d": "<none>", "e": "20m", "f": "3"} {
		rows = append(rows, api.Row{UID: name, Name: name, Cells: []any{name, cpu}})
	}
	m.tell(api.Tell{Type: "rows", Reset: true, Revision: "1", Live: true, Rows: rows})
	for _, want := range []struct {
		descending bool
		order      string
	}{{false, "b e c f a d"}, {true, "f c b e a d"}} {
		m.show(func(v *view) { v.sortBy, v.descending = "cpu", want.descending })
		if got := shownNames(m.snapshot(testNow)); got != want.order {
			t.Errorf("descending %v: %s, want %s", want.descending, got, want.order)
		}
	}
}

// T47: what hangs on keys that terminals and multiplexers swallow can be done
// without them: by another key of the same pane, and by name.
func TestT47NoActionNeedsAKeyThatIsSwallowed(t *testing.T) {
	swallowed := map[string]bool{"shift-left": true, "shift-right": true, "ctrl-space": true, "ctrl-s": true, "ctrl-q": true, "F1": true, "F11": true}
	all := bindings()
	for _, b := range all {
		if !swallowed[b.key] && !strings.HasPrefix(b.key, "alt-") {
			continue
		}
		if !slices.ContainsFunc(all, func(other binding) bool {
			return other.action == b.action && other.scope == b.scope && !swallowed[other.key]
		}) {
			t.Errorf("%s of %s is only on %s", b.action, b.scope, b.key)
		}
	}
}

// T46: several namespaces at once.
func TestT46CommandOfSeveralNamespaces(t *testing.T) {
	if c := parseCommand("pods shop,data app=x"); c.namespace != "shop,data" || c.labels != "app=x" {
		t.Errorf("%+v", c)
	}
}

// A frame shows what it would if all were worked out for it, whatever came before.
func TestFramesAreAsIfMadeAnew(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	m, now, want := newRows(func() {}), testNow, view{}
	m.tell(api.Tell{Type: "columns", Columns: podColumns()})
	all := map[string]api.Row{}
	for step := range 2000 {
		now = now.Add(time.Duration(random.Int64N(int64(3*time.Hour))) >> random.IntN(20))
		tell := api.Tell{Type: "rows", Live: true, Revision: "1"}
		switch random.IntN(12) {
		case 0:
			want.filter = []string{"", "web", "age:5", "("}[random.IntN(4)]
		case 1:
			want.sortBy, want.descending = []string{"", "age", "status", "restarts"}[random.IntN(4)], random.IntN(2) == 0
		case 2:
			want.wide, want.namespaces, want.faultsOnly = random.IntN(2) == 0, random.IntN(2) == 0, random.IntN(3) == 0
		case 3:
			tell.Reset = true
			clear(all)
		default:
			for range random.IntN(4) {
				row := podRow("shop", fmt.Sprintf("web-%d", random.IntN(30)), strings.Repeat("x", 1+random.IntN(9)), []api.State{api.StateOK, api.StateError}[random.IntN(2)])
				row.Created = now.Add(-time.Duration(random.Int64N(int64(9*24*time.Hour))) >> random.IntN(20)).Truncate(time.Second)
				row.Cells[3], row.Cells[4] = fmt.Sprint(random.IntN(20)), row.Created.Format(time.RFC3339)
				if tell.Rows = append(tell.Rows, row); random.IntN(3) == 0 {
					tell.Gone = append(tell.Gone, row.UID)
				}
			}
		}
		for _, row := range tell.Rows {
			all[row.UID] = row
		}
		for _, uid := range tell.Gone {
			delete(all, uid)
		}
		m.show(func(v *view) { *v = want })
		m.tell(tell)
		if random.IntN(3) == 0 {
			continue // no frame for this
		}
		anew := newRows(func() {})
		anew.tell(api.Tell{Type: "columns", Columns: podColumns()})
		anew.tell(api.Tell{Type: "rows", Reset: true, Live: true, Revision: "1", Rows: slices.Collect(maps.Values(all))})
		anew.filter = m.filter // the last good one
		anew.show(func(v *view) { *v = want })
		if got, want := frameText(m.snapshot(now)), frameText(anew.snapshot(now)); got != want {
			t.Fatalf("step %d: shows\n%s\nand not\n%s", step, got, want)
		}
	}
}

func frameText(s *snapshot) string {
	out := fmt.Sprintln(s.columns, s.counts, s.total)
	for _, r := range s.rows {
		out += fmt.Sprintln(r.uid, r.state, r.cells)
	}
	return out
}

func TestAgesEndWhenTheirWordsDo(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for range 20000 {
		created := testNow.Add(-time.Duration(random.Int64N(int64(10*365*24*time.Hour))) >> random.IntN(30)).Truncate(time.Second)
		stamp := created.Format(time.RFC3339)
		until := ageEnds(stamp, testNow)
		if !until.After(testNow) || age(stamp, until.Add(-time.Nanosecond)) != age(stamp, testNow) {
			t.Fatalf("%s at %s is said to last until %s", age(stamp, testNow), testNow.Sub(created), until.Sub(created))
		}
	}
}
