package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
)

// threeMembers is an etcd whose second member leads and whose third is away.
type threeMembers struct{}

func (threeMembers) MemberList(context.Context, ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	member := func(id uint64, name string) *pb.Member {
		return &pb.Member{ID: id, Name: name, ClientURLs: []string{"https://" + name + ":2379"}, PeerURLs: []string{"https://" + name + ":2380"}}
	}
	return &clientv3.MemberListResponse{Members: []*pb.Member{member(0xb, "two"), member(0xa, "one"), member(0xc, "three")}}, nil
}

func (threeMembers) Status(_ context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	if endpoint == "https://three:2379" {
		return nil, errors.New("connection refused")
	}
	return &clientv3.StatusResponse{Header: &pb.ResponseHeader{Revision: 42}, Version: "3.7.3", Leader: 0xb, RaftTerm: 7, RaftIndex: 99, DbSize: 4096}, nil
}

func TestMapShowsLeaderFollowerAndAbsence(t *testing.T) {
	page := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "\nkube-scheduler statusz\n\nUp=1 hr\nBinary version=1.37.2\n")
	}))
	defer page.Close()
	g := &Glass{Version: "v1.37.2", Etcd: threeMembers{}, Checks: []Check{
		{"scheduler", func(context.Context) (string, error) { return "ok", nil }, askVersion(page.URL)},
		{Name: "controller-manager", Ask: func(context.Context) (string, error) { return "", errors.New("refused") }},
	}}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("GET", api.MapPath, nil))
	var m api.Map
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Etcd) != 3 || m.Etcd[0].Name != "one" || m.Etcd[0].Leader || !m.Etcd[2].Leader || m.Etcd[2].Term != 7 || m.Etcd[2].ID != "b" {
		t.Errorf("members %+v", m.Etcd)
	}
	if away := m.Etcd[1]; away.Error == "" || away.Version != "" {
		t.Errorf("absent member %+v", away)
	}
	if len(m.Components) != 2 || !m.Components[0].Healthy || m.Components[0].Version != "v1.37.2" || m.Components[1].Healthy || m.Components[1].Message != "refused" {
		t.Errorf("components %+v", m.Components)
	}
}

// readsPublic lets everybody list in the namespace kube-public.
type readsPublic struct{}

func (readsPublic) RulesFor(_ context.Context, _ user.Info, ns string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules := []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: []string{"create"}}, &authorizer.DefaultResourceRuleInfo{Verbs: []string{"list"}, Resources: []string{"pods"}, ResourceNames: []string{"one"}},
		&authorizer.DefaultResourceRuleInfo{Verbs: []string{"list"}, Resources: []string{"clustertrustbundles"}}}
	if ns == "kube-public" {
		rules = append(rules, &authorizer.DefaultResourceRuleInfo{Verbs: []string{"list"}, Resources: []string{"pods"}})
	}
	return rules, nil, true, nil
}

// Whoever is known may ask where there is something to see for them.
func TestNamespacesOfWhoMayNotListThem(t *testing.T) {
	c := start(t, func(c *Config) {
		mine := &Mine{Source: &StreamSource{Table: c.Kinds, Store: c.Store}, Rules: readsPublic{}}
		c.Extra = map[string]http.Handler{api.NamespacesPath: mine, api.MapPath: &Glass{}}
		c.Own = []string{api.NamespacesPath}
	})
	c.await("the namespaces are there", func() bool {
		_, body := c.do("GET", "/api/v1/namespaces/kube-public", "", nil)
		return strings.Contains(body, "kube-public")
	})
	for path, want := range map[string]int{api.NamespacesPath: 200, api.MapPath: 403} {
		code, body := c.do("GET", path, "", map[string]string{"Authorization": "Bearer bob"})
		if code != want || code == 200 && strings.TrimSpace(body) != `{"names":["kube-public"]}` {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
