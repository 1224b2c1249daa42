// Fake serves the dashboard over the real API server on memory storage, full of
// invented objects that change all the time: for looking at the page, and for
// its tests, without a cluster. Logs and shells are made up, since there is no
// node agent. Sign in with the token "admin", or "shop" for a user who may see
// one namespace only.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
	"orrery.dev/server"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
	"orrery.dev/web"
)

var users = map[string]*user.DefaultInfo{
	"admin": {Name: "kubernetes-admin", Groups: []string{"system:masters", user.AllAuthenticated}},
	"shop":  {Name: "jane", Groups: []string{"shop-team", user.AllAuthenticated}},
}

func authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	who := users[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	return &authenticator.Response{User: who}, who != nil, nil
}

// authorize lets admins do everything and everybody read the namespace "shop".
func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for _, g := range a.GetUser().GetGroups() {
		if g == "system:masters" {
			return authorizer.DecisionAllow, "", nil
		}
	}
	if !a.IsResourceRequest() || a.GetNamespace() == "shop" && a.IsReadOnly() || a.GetResource() == "selfsubjectaccessreviews" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func main() {
	address := flag.String("listen", "localhost:8099", "address to serve on, without TLS")
	pods := flag.Int("pods", 120, "how many pods to invent")
	dist := flag.String("dist", "", "folder of the built page; empty: the embedded one")
	flag.Parse()
	if err := run(*address, *dist, *pods); err != nil {
		log.Fatal(err)
	}
}

func run(address, dist string, pods int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	memory := storage.NewMemory()
	defer memory.Close()
	store := storage.New(memory, storage.Options{BookmarkInterval: 2e9})
	kinds := registry.NewBuiltinTable()
	checks := []server.Check{
		{Name: "scheduler", Ask: func(context.Context) (string, error) { return "ok", nil }},
		{Name: "controller-manager", Ask: func(context.Context) (string, error) { return "ok", nil }},
	}
	hub := server.NewStream(kinds, store, authorizer.AuthorizerFunc(authorize), slog.Default())
	glass := &server.Glass{Version: "v1.37.2", Etcd: threeMembers{}, Checks: checks}
	front := &front{kinds: kinds, store: store}
	var files fs.FS
	if dist != "" {
		files = os.DirFS(dist)
	}
	dashboard, err := web.New(web.Config{API: front, Files: files, Verify: func(_ context.Context, token string) (web.User, error) {
		who := users[token]
		if who == nil {
			return web.User{}, fmt.Errorf("no such user")
		}
		return web.User{Name: who.Name, Groups: who.Groups}, nil
	}})
	if err != nil {
		return err
	}
	s, err := server.New(server.Config{
		Store: store, Kinds: kinds,
		Authenticator: authenticator.RequestFunc(authenticate), Authorizer: authorizer.AuthorizerFunc(authorize),
		Version: version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"},
		Extra:   map[string]http.Handler{api.StreamPath: hub, api.MapPath: glass},
		Public:  map[string]http.Handler{web.Prefix: dashboard},
		Log:     slog.Default(),
	})
	if err != nil {
		return err
	}
	front.server = s.Handler()
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	running.Go(func() { invent(ctx, store, pods) })
	h := &http.Server{Addr: address, Handler: front}
	context.AfterFunc(ctx, func() { _ = h.Close() })
	fmt.Printf("http://%s/ui/\n", address)
	err = h.ListenAndServe()
	running.Wait()
	return err
}

// front answers what a bare server does not: logs, shells, discovery.
type front struct {
	kinds  *registry.Table
	store  *storage.Store
	server http.Handler
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/api/") && strings.HasSuffix(path, "/log"):
		serveLog(w, r)
	case strings.HasPrefix(path, "/api/") && strings.HasSuffix(path, "/exec"):
		serveShell(w, r)
	case path == "/api" || path == "/apis":
		respond(w, f.discovery(path == "/api"))
	default:
		f.server.ServeHTTP(w, r)
	}
}

func (f *front) discovery(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{}
	groups := map[string]int{}
	for _, gv := range f.kinds.Versions() {
		if (gv.Group == "") != core {
			continue
		}
		i, ok := groups[gv.Group]
		if !ok {
			i = len(list.Items)
			groups[gv.Group] = i
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}})
		}
		v := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version}
		for _, k := range f.kinds.Kinds() {
			if k.GroupVersion() != gv {
				continue
			}
			verbs := k.Verbs
			if verbs == nil {
				verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
			}
			scope := apidiscoveryv2.ScopeCluster
			if k.Namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: k.Plural, ResponseKind: &metav1.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind},
				Scope: scope, SingularResource: k.Singular, ShortNames: k.Short, Verbs: verbs,
			})
		}
		list.Items[i].Versions = append(list.Items[i].Versions, v)
	}
	return list
}
