package flowcontrol

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// DebugPath is where Dump is served.
const DebugPath = "/debug/api_priority_and_fairness/"

// ServeHTTP shows levels, queues or requests, as the path says.
func (c *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _ := strings.CutPrefix(r.URL.Path, DebugPath)
	dump := map[string]func(*table, *level){
		"dump_priority_levels": dumpLevel,
		"dump_queues":          dumpQueues,
		"dump_requests":        dumpRequests,
	}[name]
	if dump == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	t := &table{w: tabwriter.NewWriter(w, 8, 0, 1, ' ', 0), details: r.URL.Query().Get("includeRequestDetails") != ""}
	t.header(name)
	c.mu.Lock()
	levels := make([]*level, 0, len(c.levels))
	for _, l := range c.levels {
		levels = append(levels, l)
	}
	c.mu.Unlock()
	slices.SortFunc(levels, func(a, b *level) int { return cmp.Compare(a.name, b.name) })
	for _, l := range levels {
		l.mu.Lock()
		l.advance(time.Now())
		dump(t, l)
		l.mu.Unlock()
	}
	_ = t.w.Flush() // the client may have left
}

// table is rows whose columns are in line.
type table struct {
	w       *tabwriter.Writer
	details bool // of requests
}

func (t *table) row(columns ...any) {
	text := make([]string, len(columns))
	for i, c := range columns {
		text[i] = fmt.Sprint(c)
	}
	fmt.Fprintln(t.w, strings.Join(text, ",\t"))
}

func (t *table) header(name string) {
	columns := map[string]string{
		"dump_priority_levels": "PriorityLevelName ActiveQueues IsIdle IsQuiescing WaitingRequests ExecutingRequests DispatchedRequests RejectedRequests TimedoutRequests CancelledRequests",
		"dump_queues":          "PriorityLevelName Index PendingRequests ExecutingRequests SeatsInUse NextDispatchR InitialSeatsSum MaxSeatsSum TotalWorkSum",
		"dump_requests":        "PriorityLevelName FlowSchemaName QueueIndex RequestIndexInQueue FlowDistingsher ArriveTime InitialSeats FinalSeats AdditionalLatency StartTime",
	}[name]
	if t.details && name == "dump_requests" {
		columns += " UserName Verb APIPath Namespace Name APIVersion Resource SubResource"
	}
	fmt.Fprintln(t.w, strings.ReplaceAll(columns, " ", ",\t"))
}

func dumpLevel(t *table, l *level) {
	busy := 0
	for _, q := range l.queues {
		if q.waiting.n > 0 {
			busy++
		}
	}
	t.row(l.name, busy, l.idle(), l.unwanted, l.waiting, l.executing, l.dispatched, l.refused, l.timedOut, l.cancelled)
}

func dumpQueues(t *table, l *level) {
	for i, q := range l.queues {
		seats, most := 0, 0
		for p := range q.waiting.all {
			seats += p.work.seats
			most += p.work.width()
		}
		t.row(l.name, i, q.waiting.n, q.executing.n, q.seats, seatSeconds(q.next), seats, most, seatSeconds(q.work))
	}
}

func seatSeconds(x float64) string { return strconv.FormatFloat(x, 'f', 8, 64) + "ss" }

func dumpRequests(t *table, l *level) {
	for i, q := range l.queues {
		n := 0
		for p := range q.waiting.all {
			t.request(l, i, n, p)
			n++
		}
		for p := range q.executing.all {
			t.request(l, i, -1, p)
		}
	}
	for p := range l.loose.all {
		t.request(l, -1, -1, p)
	}
}

func (t *table) request(l *level, queue, index int, p *Pass) {
	r, at := p.request, func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	columns := []any{l.name, p.Class.Schema, queue, index, p.flowOf, at(p.arrived), p.work.seats, p.work.final, p.work.extra, at(p.started)}
	if t.details {
		columns = append(columns, r.User.GetName(), r.Verb, r.URL.Path, r.Namespace, r.Name, r.GVR.GroupVersion(), r.GVR.Resource, r.Subresource)
	}
	t.row(columns...)
}
