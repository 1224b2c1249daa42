package tui

import (
	"strings"
	"sync"
	"time"

	"orrery.dev/api"
)

// workKinds are the kinds that run something, the owners before what they own.
func workKinds() []kind {
	of := func(group, plural, name string) kind {
		return kind{group: group, version: "v1", plural: plural, singular: strings.ToLower(name), name: name, namespaced: true}
	}
	return []kind{of("apps", "deployments", "Deployment"), of("apps", "statefulsets", "StatefulSet"), of("apps", "daemonsets", "DaemonSet"),
		of("batch", "cronjobs", "CronJob"), of("batch", "jobs", "Job"), of("apps", "replicasets", "ReplicaSet"),
		of("", "replicationcontrollers", "ReplicationController"), of("", "pods", "Pod")}
}

// newWorkloads is the live table of all kinds that run something. What another row
// owns is left out, but for Jobs: each is work of its own.
func (a *app) newWorkloads() *tablePane {
	t := newTable(a, kind{plural: "workloads", singular: "workload", namespaced: true})
	t.mixed = "workloads"
	kinds := map[string]kind{}
	for _, k := range workKinds() {
		kinds[k.name] = k
	}
	t.stands = func(r *gridRow) target {
		name, _ := r.row.Cells[0].(string)
		return target{kind: kinds[name], namespace: r.row.Namespace, name: r.row.Name, uid: r.uid, owner: r.row.Owner, labels: r.row.Labels}
	}
	t.source = func(tell func(api.Tell)) func() {
		m := newMerged(a.words, tell)
		m.remark = func(text string) { a.post(func() { t.remark = text }) }
		var stops []func()
		for _, k := range workKinds() {
			stops = append(stops, a.feed.Open(t.viewOf(k), func(told api.Tell) { m.take(k.name, told) }))
		}
		return func() {
			for _, stop := range stops {
				stop()
			}
		}
	}
	return t
}

// merged makes one table of what a feed tells of several kinds.
type merged struct {
	words  words
	tell   func(api.Tell)
	remark func(string)

	mu    sync.Mutex // protects what is below, and the order of what is told
	kinds map[string]*mergedKind
	said  string // last as the remark
}

type mergedKind struct {
	columns       []api.RowColumn
	shown         map[string]bool // UIDs
	settled, live bool
	fault         *api.Error
}

func newMerged(w words, tell func(api.Tell)) *merged {
	m := &merged{words: w, tell: tell, remark: func(string) {}, kinds: map[string]*mergedKind{}}
	for _, k := range workKinds() {
		m.kinds[k.name] = &mergedKind{shown: map[string]bool{}}
	}
	tell(api.Tell{Type: "columns", Columns: []api.RowColumn{{Name: "Kind", Type: "string"}, {Name: "Name", Type: "string"}, {Name: "Status", Type: "string"},
		{Name: "Ready", Type: "string"}, {Name: "Age", Type: "age"}}})
	return m
}

// take hands on what was told of a kind.
func (m *merged) take(name string, told api.Tell) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kinds[name]
	switch told.Type {
	case "columns":
		k.columns = told.Columns
		return
	case "error":
		m.refused(k, told.Error)
		return
	case "rows":
	default:
		return
	}
	out, before := api.Tell{Type: "rows", Gone: told.Gone}, k.shown
	if told.Reset {
		k.shown = map[string]bool{}
	}
	for _, uid := range told.Gone {
		delete(k.shown, uid)
	}
	for i := range told.Rows {
		if r := &told.Rows[i]; name == "Job" || !m.owned(r) {
			k.shown[r.UID] = true
			out.Rows = append(out.Rows, m.row(name, k.columns, r))
		}
	}
	for uid := range before {
		if !k.shown[uid] {
			out.Gone = append(out.Gone, uid)
		}
	}
	k.settled, k.live = k.settled || told.Revision != "" || told.Live, told.Live || told.Reset && told.Revision == ""
	if told.Live {
		k.fault = nil
	}
	m.finish(out, told.Revision)
}

// owned says whether a row's owner is a row too.
func (m *merged) owned(r *api.Row) bool {
	owner, _, _ := strings.Cut(r.Owner, "/")
	return m.kinds[owner] != nil
}

// refused is for a kind that cannot be told of. The others stay, if there are any.
func (m *merged) refused(k *mergedKind, fault *api.Error) {
	k.fault, k.settled, k.live = fault, true, false
	out := api.Tell{Type: "rows"}
	if fault != nil && fault.Code == 403 {
		for uid := range k.shown {
			out.Gone = append(out.Gone, uid)
		}
		clear(k.shown)
	}
	for _, other := range m.kinds {
		if other.fault == nil {
			m.finish(out, "")
			return
		}
	}
	m.tell(api.Tell{Type: "error", Error: fault})
}

// finish tells it: the table is live when all kinds are, but for those refused.
func (m *merged) finish(out api.Tell, revision string) {
	settled, live, missing := true, true, []string{}
	for _, k := range workKinds() {
		part := m.kinds[k.name]
		settled, live = settled && part.settled, live && (part.live || part.fault != nil)
		if part.fault != nil {
			missing = append(missing, k.plural)
		}
	}
	if settled {
		out.Revision, out.Live = revision, live
	}
	text := ""
	if len(missing) > 0 {
		text = m.words.say("without %s: %s", strings.Join(missing, ", "), m.reason())
	}
	if text != m.said {
		m.said = text
		m.remark(text)
	}
	m.tell(out)
}

// reason is why a kind is missing.
func (m *merged) reason() string {
	for _, k := range workKinds() {
		if fault := m.kinds[k.name].fault; fault != nil {
			return m.words.told(fault.Message)
		}
	}
	return ""
}

func (m *merged) row(name string, columns []api.RowColumn, r *api.Row) api.Row {
	out := *r
	out.Cells = []any{name, r.Name, m.words.statusOf(columns, r), readyOf(columns, r), r.Created.Format(time.RFC3339)}
	return out
}

// namedCell is what a row has in the column of that name; "" without one.
func namedCell(columns []api.RowColumn, r *api.Row, name string) string {
	for i, c := range columns {
		if c.Name == name && c.Type != "age" {
			return cellText(c, r, i, time.Time{})
		}
	}
	return ""
}

// statusOf is kubectl's word for the status of any kind, or else that for its state.
func (w words) statusOf(columns []api.RowColumn, r *api.Row) string {
	for _, name := range []string{"Status", "Phase"} {
		if word := namedCell(columns, r, name); word != "" {
			return word
		}
	}
	if strings.EqualFold(namedCell(columns, r, "Suspend"), "true") {
		return w.say("suspended")
	}
	if schedule := namedCell(columns, r, "Schedule"); schedule != "" {
		return schedule
	}
	return w.say(stateWord(r.State))
}

// stateWord is the word for a state where kubectl has none.
func stateWord(s api.State) string {
	if s == api.StateOK {
		return "healthy"
	}
	return string(s)
}

// readyOf is how many of how many are ready, in kubectl's words.
func readyOf(columns []api.RowColumn, r *api.Row) string {
	ready, of := namedCell(columns, r, "Ready"), namedCell(columns, r, "Desired")
	switch {
	case ready != "" && of != "":
		return ready + "/" + of
	case ready != "":
		return ready
	}
	return namedCell(columns, r, "Completions")
}
