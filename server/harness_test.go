package server

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/server/auth"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// cluster is a whole API server under test, with the client of an administrator.
type cluster struct {
	t      testing.TB
	server *Server
	url    string
	store  *storage.Store
	config *rest.Config
	client kubernetes.Interface
	web    *httptest.Server
	stop   func() // may be called before the test ends, and again
}

// tokens maps bearer tokens to users: the test's authenticator.
func testUsers(r *http.Request) (*authenticator.Response, bool, error) {
	if who, ok, err := knownUsers(r); ok || err != nil {
		return who, ok, err
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}}, true, nil
}

func knownUsers(r *http.Request) (*authenticator.Response, bool, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, false, nil
	}
	switch token {
	case "admin":
		return &authenticator.Response{User: &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}}, true, nil
	case "bob":
		return &authenticator.Response{User: &user.DefaultInfo{Name: "bob", Groups: []string{user.AllAuthenticated}}}, true, nil
	}
	return nil, false, nil
}

// onlyAdmins allows administrators everything and others nothing but health.
func onlyAdmins(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for _, g := range a.GetUser().GetGroups() {
		if g == user.SystemPrivilegedGroup {
			return authorizer.DecisionAllow, "", nil
		}
	}
	if strings.HasPrefix(a.GetPath(), "/healthz") {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// start brings a server up over memory storage. adjust may change its
// configuration.
func start(t testing.TB, adjust ...func(*Config)) *cluster {
	memory := storage.NewMemory()
	t.Cleanup(memory.Close)
	return startOver(t, memory, adjust...)
}

func startOver(t testing.TB, backend storage.Backend, adjust ...func(*Config)) *cluster {
	t.Helper()
	store := storage.New(backend, storage.Options{})
	cfg := Config{
		Store: store, Kinds: registry.NewBuiltinTable(),
		Authenticator: authenticator.RequestFunc(testUsers),
		Authorizer:    authorizer.AuthorizerFunc(onlyAdmins),
		Version:       version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"},
		Bootstrap:     StepsOf(auth.BootstrapSteps(store)),
	}
	for _, f := range adjust {
		f(&cfg)
	}
	store = cfg.Store
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	running.Go(func() { s.Run(ctx) })
	web := httptest.NewServer(s.Handler())
	stop := sync.OnceFunc(func() {
		s.Drain()
		web.CloseClientConnections()
		web.Close()
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	config := &rest.Config{Host: web.URL, BearerToken: "admin", QPS: -1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, server: s, url: web.URL, store: store, config: config, client: client, web: web, stop: stop}
	c.await("ready", func() bool { code, _ := c.do("GET", "/readyz", "", nil); return code == 200 })
	return c
}

// overEtcd is a storage backend over an embedded etcd.
func overEtcd(t testing.TB) storage.Backend {
	t.Helper()
	return storage.NewEtcd(etcdClient(t, embeddedEtcd(t)))
}

// etcdClient is a client of its own, as every API server has.
func etcdClient(t testing.TB, e *embed.Etcd) *clientv3.Client {
	c := v3client.New(e.Server)
	t.Cleanup(func() { c.Close() })
	return c
}

func embeddedEtcd(t testing.TB) *embed.Etcd {
	t.Helper()
	free := func() url.URL {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return url.URL{Scheme: "http", Host: l.Addr().String()}
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.UnsafeNoFsync = t.TempDir(), "panic", true
	client, peer := free(), free()
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return e
}

// await polls until a condition holds.
func (c *cluster) await(what string, holds func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			_, body := c.do("GET", "/readyz?verbose", "", nil)
			c.t.Fatalf("%s: not within a minute\n%s", what, body)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// do makes a request as the administrator.
func (c *cluster) do(method, path, body string, headers map[string]string) (int, string) {
	c.t.Helper()
	reply := c.raw(method, path, body, headers)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}

func (c *cluster) raw(method, path, body string, headers map[string]string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer admin")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range headers {
		if v == "" {
			req.Header.Del(k)
			continue
		}
		req.Header.Set(k, v)
	}
	reply, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply
}

// status reads a Status out of a reply.
func status(t testing.TB, body string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatalf("no Status: %v\n%s", err, body)
	}
	return s
}
