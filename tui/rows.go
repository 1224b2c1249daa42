package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"orrery.dev/api"
)

// rows is the model of a live table: it applies what the feed tells, and makes
// snapshots for the screen. It knows nothing of terminals, and is safe for
// concurrent use.
type rows struct {
	changed func()
	words   words // for what is shown beside kubectl's own words

	mu       sync.Mutex // protects the fields below
	columns  []api.RowColumn
	beside   beside // columns of our own, behind those
	byUID    map[string]*line
	loading  bool // nothing has come yet
	live     bool
	revision string
	fault    *api.Error
	version  int // grows with every change

	want    view
	edition int // of columns and view, by which lines are made
	filter  filter
	last    *snapshot
	order   []*line // as sorted last, which is quick to sort again, with those that are gone
	added   []*line // not in order yet
}

// line is a row as it is shown. Of ten thousand rows nearly all are as they were in the
// frame before: what is below made is worked out again only when something of it changes.
type line struct {
	row     *api.Row
	gone    bool
	changed time.Time // when last, for the mark; zero before the first change

	made   int       // rendered in which edition; zero is in none
	until  time.Time // when ages are others; zero is never
	cells  []string
	widths []int // of the cells
	kept   bool  // by the filter
}

// beside are columns that the console adds to those of the server.
type beside struct {
	columns []api.RowColumn
	cells   func(*api.Row) []string
}

// view is how the user wants to see the rows.
type view struct {
	filter     string
	sortBy     string // column name; "" is namespace and name
	descending bool
	columns    []string // those that the user chose; none are the server's choice
	wide       bool
	faultsOnly bool
	namespaces bool // show the namespace column
}

// snapshot is what one frame shows; it never changes.
type snapshot struct {
	version  int
	minute   int64 // ages are of this moment
	columns  []gridColumn
	rows     []gridRow
	total    int // before the filter
	live     bool
	loading  bool
	revision string
	fault    *api.Error
	filterOK error
	counts   map[api.State]int
}

type gridColumn struct {
	name  string
	width int // widest cell
	right bool
	early bool // before what a narrow screen has no room for
	sort  int  // 1 ascending, -1 descending, 0 not sorted by
}

type gridRow struct {
	uid   string
	cells []string
	state api.State
	fresh bool // changed a moment ago
	row   *api.Row
	of    *line // is of who makes the snapshot
}

// freshFor is how long a changed row keeps its mark.
const freshFor = 3 * time.Second

func newRows(changed func()) *rows {
	return &rows{changed: changed, byUID: map[string]*line{}, edition: 1, loading: true}
}

// tell applies a message of the feed.
func (m *rows) tell(t api.Tell) {
	m.mu.Lock()
	m.apply(t, time.Now())
	m.version++
	m.mu.Unlock()
	m.changed()
}

func (m *rows) apply(t api.Tell, now time.Time) {
	switch t.Type {
	case "columns":
		m.columns = t.Columns
		m.edition++
	case "error":
		m.fault, m.live, m.loading = t.Error, false, false
		if t.Error != nil && t.Error.Code == 403 {
			m.forget() // what may not be seen any more must go
		}
		return
	}
	if t.Type != "rows" {
		return
	}
	m.live = t.Live || t.Reset && t.Revision == "" // parts of a snapshot carry no state
	if t.Reset {
		m.forget()
	}
	for i := range t.Rows {
		m.put(&t.Rows[i], now, t.Reset)
	}
	for _, uid := range t.Gone {
		if l := m.byUID[uid]; l != nil {
			l.gone = true
			delete(m.byUID, uid)
		}
	}
	if t.Revision != "" {
		m.revision = t.Revision
	}
	if t.Revision != "" || t.Live {
		m.loading = false
	}
	if t.Live {
		m.fault = nil
	}
}

func (m *rows) forget() {
	clear(m.byUID)
	m.order, m.added = nil, nil
}

func (m *rows) put(r *api.Row, now time.Time, reset bool) {
	l, known := m.byUID[r.UID]
	if !known {
		l = &line{}
		m.byUID[r.UID] = l
		m.added = append(m.added, l)
	}
	l.row, l.made = r, 0
	if (known || !m.loading) && !reset {
		l.changed = now
	}
}

// show changes how the rows are wanted.
func (m *rows) show(change func(*view)) {
	m.mu.Lock()
	change(&m.want)
	m.edition++
	m.version++
	m.mu.Unlock()
	m.changed()
}

// wanted tells how the rows are wanted now.
func (m *rows) wanted() view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.want
}

// contents is what a table was told, without what the user wants of it.
type contents struct {
	columns  []api.RowColumn
	rows     []*api.Row
	loading  bool
	live     bool
	revision string
	fault    *api.Error
}

func (m *rows) told() contents {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*api.Row, 0, len(m.byUID))
	for _, l := range m.byUID {
		all = append(all, l.row)
	}
	return contents{m.columns, all, m.loading, m.live, m.revision, m.fault}
}

// stamp changes with whatever it was told.
func (m *rows) stamp() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strconv.Itoa(m.version)
}

// add shows columns beside the server's, or what is in them now.
func (m *rows) add(b beside) {
	m.mu.Lock()
	m.beside = b
	m.edition++
	m.version++
	m.mu.Unlock()
	m.changed()
}

// allColumns are the server's and those beside them.
func (m *rows) allColumns() []api.RowColumn {
	if len(m.columns) == 0 { // not told yet
		return nil
	}
	return slices.Concat(m.columns, m.beside.columns)
}

// snapshot makes what a frame at now shows, or returns the last if it still
// holds.
func (m *rows) snapshot(now time.Time) *snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil && m.last.version == m.version && m.last.minute == now.Unix() {
		return m.last
	}
	s := &snapshot{version: m.version, minute: now.Unix(), total: len(m.byUID), live: m.live, loading: m.loading,
		revision: m.revision, fault: m.fault, counts: map[api.State]int{}}
	f, err := parseFilter(m.want.filter, m.allColumns())
	s.filterOK = err
	if err != nil { // keep showing by the last good one while a new one is typed
		f = m.filter
	}
	m.filter = f
	m.layout(s, m.collect(s, f, now))
	m.sort(s)
	m.last = s
	return s
}

// collect fills in the rows that are wanted, and returns how wide their cells are at most.
func (m *rows) collect(s *snapshot, f filter, now time.Time) (widths []int) {
	m.keepOrder()
	s.rows = make([]gridRow, 0, len(m.order))
	for _, l := range m.order {
		r := l.row
		s.counts[r.State]++
		if m.want.faultsOnly && (r.State == api.StateOK || r.State == api.StateDone) {
			continue
		}
		if l.made != m.edition || !l.until.IsZero() && !now.Before(l.until) {
			m.render(l, f, now)
		}
		if !l.kept {
			continue
		}
		s.rows = append(s.rows, gridRow{uid: r.UID, state: r.State, fresh: !l.changed.IsZero() && now.Sub(l.changed) <= freshFor, row: r, cells: l.cells, of: l})
		if len(widths) < len(l.widths) {
			widths = append(widths, make([]int, len(l.widths)-len(widths))...)
		}
		for i, width := range l.widths {
			widths[i] = max(widths[i], width)
		}
	}
	return widths
}

// render works out what a line shows.
func (m *rows) render(l *line, f filter, now time.Time) {
	r, columns := l.row, m.allColumns()
	texts := make([]string, len(columns))
	l.made, l.until = m.edition, time.Time{}
	for i, c := range m.columns {
		texts[i] = cellText(c, r, i, now)
		if failed, all, ok := strings.Cut(r.Failed, "/"); ok && c.Name == "Status" {
			texts[i] += " (" + m.words.say("%s of %s containers failed", failed, all) + ")"
		}
		if c.Type == "age" && i < len(r.Cells) {
			if until := ageEnds(r.Cells[i], now); l.until.IsZero() || !until.IsZero() && until.Before(l.until) {
				l.until = until
			}
		}
	}
	if len(texts) > len(m.columns) {
		copy(texts[len(m.columns):], m.beside.cells(r))
	}
	if l.kept = f.keep == nil || f.keep(r, texts); !l.kept {
		return
	}
	l.cells, l.widths = make([]string, 0, len(texts)+1), make([]int, 0, len(texts)+1)
	show := func(text string) {
		l.cells, l.widths = append(l.cells, text), append(l.widths, textWidth(text))
	}
	if m.want.namespaces {
		show(r.Namespace)
	}
	for _, i := range m.chosen(columns) {
		show(texts[i])
	}
}

// keepOrder has in order what is there: as it was sorted last, with what is new behind.
func (m *rows) keepOrder() {
	if len(m.order)+len(m.added) > len(m.byUID) {
		gone := func(l *line) bool { return l.gone }
		m.order, m.added = slices.DeleteFunc(m.order, gone), slices.DeleteFunc(m.added, gone)
	}
	m.order, m.added = append(m.order, m.added...), nil
}

// layout fixes the columns of a snapshot, so that they don't jump with what is
// scrolled into view.
func (m *rows) layout(s *snapshot, widths []int) {
	if m.want.namespaces {
		s.columns = append(s.columns, gridColumn{name: "NAMESPACE"})
	}
	all := m.allColumns()
	for _, i := range m.chosen(all) {
		c := all[i]
		amount := i >= len(m.columns) && !strings.ContainsAny(c.Name, "%/")
		s.columns = append(s.columns, gridColumn{name: strings.ToUpper(c.Name), right: c.Type == "integer" || c.Type == "number", early: amount})
	}
	for i := range s.columns {
		c := &s.columns[i]
		c.width = textWidth(c.name) + 1 // room for the sort arrow
		if i < len(widths) {
			c.width = max(c.width, widths[i])
		}
		if strings.EqualFold(c.name, m.want.sortBy) {
			c.sort = 1
			if m.want.descending {
				c.sort = -1
			}
		}
	}
}

func (m *rows) sort(s *snapshot) {
	by := -1
	for i, c := range s.columns {
		if c.sort != 0 {
			by = i
		}
	}
	age := strings.EqualFold(m.want.sortBy, "age")
	times := by >= 0 && (s.columns[by].name == "LAST SEEN" || s.columns[by].name == "DURATION")
	turn := 1
	if m.want.descending {
		turn = -1
	}
	slices.SortFunc(s.rows, func(a, b gridRow) int {
		c := 0
		switch {
		case age:
			c = turn * b.row.Created.Compare(a.row.Created)
		case by < 0:
		case absent(a.cells[by])+absent(b.cells[by]) > 0: // last, whichever the order
			c = absent(a.cells[by]) - absent(b.cells[by])
		case times:
			c = turn * compareAges(a.cells[by], b.cells[by])
		default:
			c = turn * compareCells(a.cells[by], b.cells[by])
		}
		if c == 0 {
			c = natural(a.row.Namespace, b.row.Namespace)
		}
		if c == 0 {
			c = natural(a.row.Name, b.row.Name)
		}
		if c == 0 {
			c = strings.Compare(a.uid, b.uid)
		}
		return c
	})
	if len(s.rows) == len(m.byUID) {
		for i := range s.rows {
			m.order[i] = s.rows[i].of
		}
	}
}

// cellText is a cell in kubectl's words.
func cellText(c api.RowColumn, r *api.Row, i int, now time.Time) string {
	if i >= len(r.Cells) {
		return ""
	}
	switch v := r.Cells[i].(type) {
	case string:
		if c.Type == "age" {
			return age(v, now)
		}
		return oneLine(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case nil:
		return "<none>"
	default:
		return fmt.Sprint(v)
	}
}

func age(stamp string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		if stamp == "" {
			return "<unknown>"
		}
		return stamp
	}
	return duration.HumanDuration(now.Sub(at))
}

// ageEnds is when the age in a cell is another one; zero is never.
func ageEnds(cell any, now time.Time) time.Time {
	stamp, _ := cell.(string)
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return time.Time{}
	}
	passed := now.Sub(at)
	unit := 24 * time.Hour
	switch { // what HumanDuration counts in
	case passed < 10*time.Minute:
		unit = time.Second
	case passed < 8*time.Hour:
		unit = time.Minute
	case passed < 8*24*time.Hour:
		unit = time.Hour
	}
	return at.Add(passed.Truncate(unit) + unit)
}

func oneLine(s string) string {
	if strings.ContainsAny(s, "\n\r\t") {
		return strings.Join(strings.Fields(s), " ")
	}
	return s
}
