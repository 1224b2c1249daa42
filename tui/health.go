package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"orrery.dev/api"
)

// health is the model of the overview and the map: live rows of the kinds that
// matter, and what the API server tells of the control plane. It is safe for
// concurrent use.
type health struct {
	changed func()
	tables  map[string]*rows // by plural

	mu     sync.Mutex // protects the fields below
	plane  api.Map
	fault  error // why plane is not there
	asked  bool
	before map[string]uint64 // etcd's index at the last answer, by member
	rate   map[string]float64
	at     time.Time
	found  *api.Troubles // nil if the API server does not tell
	looked bool          // it was asked for them
}

// watchedKinds are what the overview counts, in the order in which it shows
// them.
func watchedKinds() []api.View {
	return []api.View{
		{Version: "v1", Resource: "nodes"},
		{Version: "v1", Resource: "pods"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "apps", Version: "v1", Resource: "statefulsets"},
		{Group: "apps", Version: "v1", Resource: "daemonsets"},
		{Group: "batch", Version: "v1", Resource: "jobs"},
		{Version: "v1", Resource: "persistentvolumeclaims"},
	}
}

func newHealth(changed func()) *health {
	h := &health{changed: changed, tables: map[string]*rows{}, before: map[string]uint64{}, rate: map[string]float64{}}
	for _, v := range watchedKinds() {
		h.tables[v.Resource] = newRows(changed)
	}
	return h
}

// open starts the views and the questions; the returned function ends them.
func (h *health) open(a *app) (stop func()) {
	var stops []func()
	for _, v := range watchedKinds() {
		stops = append(stops, a.feed.Open(v, h.tables[v.Resource].tell))
	}
	ctx, cancel := context.WithCancel(a.ctx)
	a.work.Go(func() { h.ask(ctx, a.plane) })
	namespace := a.namespace
	a.work.Go(func() {
		h.askTroubles(ctx, func() (*api.Troubles, error) { return a.troubles(ctx, namespace) })
	})
	return func() {
		cancel()
		for _, s := range stops {
			s()
		}
	}
}

// ask gets the control plane's facts every two seconds.
func (h *health) ask(ctx context.Context, plane func(context.Context) (api.Map, error)) {
	for {
		plane, err := plane(ctx)
		if ctx.Err() != nil {
			return
		}
		h.learn(plane, err, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// askTroubles asks what does not run. A server that does not tell leaves it to
// the rows.
func (h *health) askTroubles(ctx context.Context, troubles func() (*api.Troubles, error)) {
	for {
		found, err := troubles()
		if err != nil {
			found = nil
		}
		h.mu.Lock()
		h.found, h.looked = found, true
		h.mu.Unlock()
		h.changed()
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
	}
}

func (h *health) learn(plane api.Map, err error, now time.Time) {
	h.mu.Lock()
	h.asked, h.fault = true, err
	if err == nil {
		for _, m := range plane.Etcd {
			if was, ok := h.before[m.ID]; ok && m.Index >= was && !h.at.IsZero() {
				h.rate[m.ID] = float64(m.Index-was) / max(now.Sub(h.at).Seconds(), 0.1)
			}
			h.before[m.ID] = m.Index
		}
		h.at = now
		h.plane = plane
	}
	h.mu.Unlock()
	h.changed()
}

// plane asks for the map; a server without one is asked what every Kubernetes
// answers.
func (c *cluster) plane(ctx context.Context) (api.Map, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var out api.Map
	data, err := c.kube.CoreV1().RESTClient().Get().AbsPath(api.MapPath).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err == nil {
		return out, json.Unmarshal(data, &out)
	}
	if _, ready := c.kube.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); ready != nil {
		return out, err
	}
	out.EtcdError = "this server does not tell about etcd"
	if apierrors.IsForbidden(err) {
		out.EtcdError = "you may not get /orrery/v1/map"
	}
	return out, nil
}

// pulseState is what the overview shows in one frame.
type pulseState struct {
	components []part
	etcd       []member
	etcdError  string
	counts     []tally
	nodes      []gridRow
	wrong      []problem
	unread     bool // there may be troubles that the user may not see
	settled    bool // everything has been told once
}

// part is a box of the control plane.
type part struct {
	name, note string
	state      api.State
}

// member is one of etcd, with how fast its log grows.
type member struct {
	api.EtcdMember
	rate float64
}

func (m member) role() string {
	switch {
	case m.Error != "":
		return "unreachable"
	case m.Leader:
		return "Leader"
	case m.Learner:
		return "Learner"
	}
	return "Follower"
}

func (m member) state() api.State {
	switch {
	case m.Error != "":
		return api.StateError
	case m.Quota > 0 && m.Size*10 > m.Quota*8:
		return api.StateWarning
	}
	return api.StateOK
}

// tally counts a kind's objects by state.
type tally struct {
	kind   string
	total  int
	counts map[api.State]int
	fault  *api.Error
}

// problem is something that is not well.
type problem struct {
	kind  string
	row   *api.Row
	text  string
	state api.State
	// trouble is the first link of its chain that is not passed, if the API
	// server tells of it.
	trouble *api.Trouble
}

// id is what a problem is about, however it is worded.
func (w problem) id() string {
	about, _, _ := strings.Cut(w.text, " ")
	switch {
	case w.trouble != nil:
		about = w.trouble.Object.Namespace + "/" + w.trouble.Object.Name
	case w.row != nil:
		about = w.row.Namespace + "/" + w.row.Name
	}
	return w.kind + " " + about
}

// maxProblems bounds the list of what is wrong; the tallies have the rest.
const maxProblems = 200

// state makes a frame of the model.
func (h *health) state(now time.Time) pulseState {
	h.mu.Lock()
	s := pulseState{etcdError: h.plane.EtcdError, components: h.parts()}
	for _, m := range h.plane.Etcd {
		s.etcd = append(s.etcd, member{m, h.rate[m.ID]})
	}
	found := h.found
	s.settled = h.asked && h.looked
	h.mu.Unlock()
	for _, m := range s.etcd {
		if m.state() != api.StateOK {
			s.wrong = append(s.wrong, problem{kind: "etcd", text: m.Name + " " + m.role() + " " + m.Error, state: m.state()})
		}
	}
	for _, c := range s.components {
		if c.state == api.StateError {
			s.wrong = append(s.wrong, problem{kind: "control plane", text: c.name + " " + c.note, state: c.state})
		}
	}
	for _, v := range watchedKinds() {
		snap := h.tables[v.Resource].snapshot(now)
		s.settled = s.settled && !snap.loading
		s.counts = append(s.counts, tally{v.Resource, snap.total, snap.counts, snap.fault})
		if v.Resource == "nodes" {
			s.nodes = snap.rows
		}
		if found != nil && v.Resource != "nodes" {
			continue // their chains tell more
		}
		for _, r := range snap.rows {
			if r.state == api.StateError || r.state == api.StateWarning {
				s.wrong = append(s.wrong, problem{kind: v.Resource, row: r.row, state: r.state, text: faultText(snap, r)})
			}
		}
	}
	if found != nil {
		s.unread = len(found.Unread) > 0
		for i := range found.Items {
			t := &found.Items[i]
			s.wrong = append(s.wrong, problem{kind: t.Object.Resource, state: whyState(t.State), trouble: t})
		}
	}
	slices.SortStableFunc(s.wrong, func(x, y problem) int { return severity(x.state) - severity(y.state) })
	s.wrong = s.wrong[:min(len(s.wrong), maxProblems)]
	return s
}

// parts are the control plane's boxes; called with the lock held.
func (h *health) parts() []part {
	server := part{name: "kube-apiserver", note: h.plane.Version, state: api.StateOK}
	if h.fault != nil {
		server.state, server.note = api.StateError, h.fault.Error()
	}
	if !h.asked {
		server.state = api.StateUnknown
	}
	out := []part{server}
	for _, c := range h.plane.Components {
		if strings.HasPrefix(c.Name, "etcd") && len(h.plane.Etcd) > 0 {
			continue // its members tell more
		}
		p := part{name: c.Name, note: c.Message, state: api.StateOK}
		if !c.Healthy {
			p.state = api.StateError
		}
		out = append(out, p)
	}
	return out
}

func severity(s api.State) int {
	if s == api.StateError {
		return 0
	}
	return 1
}

// faultText is the cells of a row that say what is wrong with it.
func faultText(s *snapshot, r gridRow) string {
	text := ""
	for i, c := range s.columns {
		switch c.name {
		case "STATUS", "READY", "RESTARTS", "AGE":
			text += fmt.Sprintf("%s %s  ", c.name, r.cells[i])
		}
	}
	return text
}

// bytesText is a size as people read it.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
