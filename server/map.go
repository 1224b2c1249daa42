package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"orrery.dev/api"
)

// mapTimeout bounds how long a map waits for what does not answer.
const mapTimeout = 2 * time.Second

// EtcdStatus is what the map asks of etcd; *clientv3.Client satisfies it.
type EtcdStatus interface {
	MemberList(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.MemberListResponse, error)
	Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error)
}

// Check asks one component of the control plane how it is; componentstatuses
// uses the same.
type Check struct {
	Name string
	Ask  func(ctx context.Context) (message string, err error)
	// Version asks which version it is of, "" if it does not tell; nil: nobody knows.
	Version func(ctx context.Context) string
}

// Glass answers GET on api.MapPath.
type Glass struct {
	Version string
	Etcd    EtcdStatus // nil: no etcd to show (memory storage)
	Checks  []Check
}

// ServeHTTP asks everything at the same time and answers with what came back.
func (g *Glass) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), mapTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(g.look(ctx))
}

func (g *Glass) look(ctx context.Context) api.Map {
	m := api.Map{Version: g.Version, Components: make([]api.Component, len(g.Checks))}
	var asking sync.WaitGroup
	for i, check := range g.Checks {
		asking.Go(func() { m.Components[i] = check.component(ctx) })
	}
	if g.Etcd != nil {
		asking.Go(func() {
			var err error
			if m.Etcd, err = etcdMembers(ctx, g.Etcd); err != nil {
				m.EtcdError = err.Error()
			}
		})
	}
	asking.Wait()
	return m
}

func (c Check) component(ctx context.Context) api.Component {
	message, err := c.Ask(ctx)
	if err != nil {
		return api.Component{Name: c.Name, Message: err.Error()}
	}
	well := api.Component{Name: c.Name, Healthy: true, Message: message}
	if c.Version != nil {
		well.Version = c.Version(ctx)
	}
	return well
}

// etcdMembers lists the members, each with its own view of itself: a member
// that is cut off says so by not answering.
func etcdMembers(ctx context.Context, etcd EtcdStatus) ([]api.EtcdMember, error) {
	list, err := etcd.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, fmt.Errorf("list etcd members: %w", err)
	}
	members := make([]api.EtcdMember, len(list.Members))
	var asking sync.WaitGroup
	for i, m := range list.Members {
		members[i] = api.EtcdMember{ID: fmt.Sprintf("%x", m.ID), Name: m.Name, Learner: m.IsLearner,
			PeerURL: first(m.PeerURLs), ClientURL: first(m.ClientURLs)}
		asking.Go(func() { askMember(ctx, etcd, &members[i], m.ID) })
	}
	asking.Wait()
	slices.SortFunc(members, func(a, b api.EtcdMember) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}

func askMember(ctx context.Context, etcd EtcdStatus, m *api.EtcdMember, id uint64) {
	if m.ClientURL == "" {
		m.Error = "has not started yet"
		return
	}
	st, err := etcd.Status(ctx, m.ClientURL)
	if err != nil {
		m.Error = err.Error()
		return
	}
	m.Version, m.Leader, m.Term = st.Version, st.Leader == id, st.RaftTerm
	m.Index, m.Applied = st.RaftIndex, st.RaftAppliedIndex
	m.Size, m.InUse, m.Quota = st.DbSize, st.DbSizeInUse, st.DbSizeQuota
	if st.Header != nil {
		m.Revision = st.Header.Revision
	}
	m.Error = strings.Join(st.Errors, "; ")
}

func first(urls []string) string {
	if len(urls) == 0 {
		return ""
	}
	return urls[0]
}
