package tui

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
	"orrery.dev/why"
)

// The golden screens show this shop: three nodes, pods of every state, and an
// API server that answers what the console asks of it.

// shopObjects are the API server's answers, by path.
var shopObjects = map[string]string{
	"/apis/authentication.k8s.io/v1/selfsubjectreviews":      `{"status":{"userInfo":{"username":"ada"}}}`,
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": `{"status":{"allowed":true}}`,
	"/api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"default"}},{"metadata":{"name":"kube-system"}},{"metadata":{"name":"data"}},{"metadata":{"name":"shop"}}]}`,
	"/api/v1/pods":       `{"kind":"PodList","apiVersion":"v1","items":[` + shopPod + `,` + shopPod + `]}`,
	"/api/v1/namespaces/shop/pods/cart-5f6c8d-k9r2x": shopPod,
	"/api/v1/namespaces/shop/events":                 `{"kind":"EventList","apiVersion":"v1","items":[]}`,
}

const shopPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"cart-5f6c8d-k9r2x","namespace":"shop","uid":"c1","labels":{"app":"cart"},"creationTimestamp":null},
"spec":{"nodeName":"node-2","serviceAccountName":"cart","initContainers":[{"name":"migrate","image":"registry.example/shop/cart:1.8"}],
"containers":[{"name":"cart","image":"registry.example/shop/cart:1.8","ports":[{"containerPort":8080,"protocol":"TCP"}],"readinessProbe":{"httpGet":{"path":"/healthz","port":8080}},"env":[{"name":"REDIS","value":"cart-cache:6379"}]},{"name":"proxy","image":"registry.example/mesh/proxy:3.1"}]},
"status":{"phase":"Running","podIP":"10.244.2.17","conditions":[{"type":"Ready","status":"False"}],
"initContainerStatuses":[{"name":"migrate","ready":true,"state":{"terminated":{"exitCode":0,"reason":"Completed"}}}],
"containerStatuses":[{"name":"cart","ready":false,"restartCount":12,"state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off 5m0s restarting failed container=cart"}}},{"name":"proxy","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:30:00Z"}}}]}}`

const shopLog = "\x1b[32mINFO\x1b[0m  listening on :8080\nINFO  connected to cart-cache:6379\n\x1b[33mWARN\x1b[0m  slow query: 1.2s  SELECT id, sku, quantity FROM cart_items WHERE cart_id = $1 AND deleted_at IS NULL ORDER BY added_at\n\x1b[31mERROR\x1b[0m cache: connection reset by peer\n\x1b[31;1mFATAL\x1b[0m no session store, leaving\n"

// shopServer answers in the process; a log goes on until nobody reads it.
type shopServer struct{}

func (shopServer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/log") {
		w.Header().Set("Content-Type", "text/plain")
		out := w.Result()
		text := ""
		if r.URL.Query().Get("container") == "cart" {
			text = shopLog
		}
		out.Body = io.NopCloser(io.MultiReader(strings.NewReader(text), endless{r.Context()}))
		return out, nil
	}
	if body, ok := shopObjects[r.URL.Path]; ok {
		_, _ = w.WriteString(body)
	} else {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"` + r.URL.Path + ` is not there"}`)
	}
	return w.Result(), nil
}

// endless has nothing to read until it ends.
type endless struct{ until context.Context } //nolint:containedctx // of the request

func (e endless) Read([]byte) (int, error) { <-e.until.Done(); return 0, io.EOF }

// ago is when something was that long before the screens are taken.
func ago(d time.Duration) time.Time { return testNow.Add(-d) }

// table are the tells of a kind: its columns, "Name:string" or with "/1" if only
// wide, and rows of cells; "AGE" among them is the row's age.
func table(columns string, rows ...api.Row) []api.Tell {
	var all []api.RowColumn
	for c := range strings.FieldsSeq(columns) {
		name, wide := strings.CutSuffix(strings.ReplaceAll(c, "_", " "), "/1")
		name, kind, _ := strings.Cut(name, ":")
		column := api.RowColumn{Name: name, Type: kind}
		if wide {
			column.Priority = 1
		}
		if kind == "" {
			column.Type = "string"
		}
		all = append(all, column)
	}
	return []api.Tell{{Type: "columns", Columns: all}, {Type: "rows", Reset: true, Revision: "48213", Live: true, Rows: rows}}
}

func shopRow(state api.State, age time.Duration, namespace string, cells ...any) api.Row {
	name := cells[0].(string)
	for i, c := range cells {
		if c == "AGE" {
			cells[i] = ago(age).Format(time.RFC3339)
		}
	}
	return api.Row{UID: namespace + "/" + name, Namespace: namespace, Name: name, State: state, Created: ago(age), Cells: cells}
}

func shopTables() map[string][]api.Tell {
	const day = 24 * time.Hour
	pods := table("Name Ready Status Restarts:integer Age:age IP/1 Node/1",
		shopRow(api.StateOK, 12*day, "shop", "web-7d4b9c-2v8xq", "2/2", "Running", 0.0, "AGE", "10.244.1.12", "node-1"),
		shopRow(api.StateOK, 12*day, "shop", "web-7d4b9c-9hzln", "2/2", "Running", 1.0, "AGE", "10.244.3.4", "node-3"),
		shopRow(api.StateProgressing, 42*time.Second, "shop", "web-7d4b9c-mw4tj", "0/2", "ContainerCreating", 0.0, "AGE", "<none>", "node-2"),
		shopRow(api.StateError, 3*time.Hour, "shop", "cart-5f6c8d-k9r2x", "1/2", "CrashLoopBackOff", 12.0, "AGE", "10.244.2.17", "node-2"),
		shopRow(api.StateTerminating, 6*day, "shop", "search-0", "1/1", "Terminating", 0.0, "AGE", "10.244.2.9", "node-2"),
		shopRow(api.StateWarning, 9*time.Minute, "shop", "mail-6b77f-qq5z8", "1/1", "Running", 7.0, "AGE", "10.244.1.31", "node-1"),
		shopRow(api.StateOK, 90*day, "data", "orders-db-0", "1/1", "Running", 0.0, "AGE", "10.244.3.2", "node-3"),
		shopRow(api.StateDone, 8*time.Hour, "data", "backup-29400120-fp6nd", "0/1", "Completed", 0.0, "AGE", "10.244.3.77", "node-3"),
		shopRow(api.StateUnknown, 31*day, "kube-system", "coredns-6d5f7-bb8wz", "1/1", "Unknown", 2.0, "AGE", "10.244.4.2", "node-4"))
	for i, owner := range []string{"ReplicaSet/web-7d4b9c", "ReplicaSet/web-7d4b9c", "ReplicaSet/web-7d4b9c", "ReplicaSet/cart-5f6c8d", "StatefulSet/search", "ReplicaSet/mail-6b77f", "StatefulSet/orders-db",
		"Job/backup-29400120", ""} {
		pods[1].Rows[i].Owner = owner
	}
	sets := table("Name Desired:integer Current:integer Ready:integer Age:age",
		shopRow(api.StateProgressing, 12*day, "shop", "web-7d4b9c", 3.0, 3.0, 2.0, "AGE"), shopRow(api.StateProgressing, 12*day, "shop", "cart-5f6c8d", 1.0, 1.0, 0.0, "AGE"),
		shopRow(api.StateOK, 90*day, "shop", "mail-6b77f", 1.0, 1.0, 1.0, "AGE"), shopRow(api.StateOK, 40*day, "shop", "mail-59d8c", 0.0, 0.0, 0.0, "AGE"))
	for i, owner := range []string{"web", "cart", "mail", "mail"} {
		sets[1].Rows[i].Owner = "Deployment/" + owner
	}
	pods = append(pods, api.Tell{Type: "object", Revision: "48213", Live: true, Object: []byte(shopPod)})
	return map[string][]api.Tell{
		"pods": pods,
		"nodes": table("Name Status Roles Age:age Version Internal-IP/1",
			shopRow(api.StateOK, 120*day, "", "node-1", "Ready", "control-plane", "AGE", "v1.37.2", "10.0.0.1"),
			shopRow(api.StateOK, 120*day, "", "node-2", "Ready", "<none>", "AGE", "v1.37.2", "10.0.0.2"),
			shopRow(api.StateWarning, 119*day, "", "node-3", "Ready,SchedulingDisabled", "<none>", "AGE", "v1.37.2", "10.0.0.3"),
			shopRow(api.StateError, 30*day, "", "node-4", "NotReady", "<none>", "AGE", "v1.37.1", "10.0.0.4")),
		"deployments": table("Name Ready Up-to-date:integer Available:integer Age:age",
			shopRow(api.StateProgressing, 12*day, "shop", "web", "2/3", 3.0, 2.0, "AGE"),
			shopRow(api.StateError, 12*day, "shop", "cart", "0/1", 1.0, 0.0, "AGE"),
			shopRow(api.StateOK, 90*day, "shop", "mail", "1/1", 1.0, 1.0, "AGE")),
		"statefulsets":           table("Name Ready Age:age", shopRow(api.StateOK, 90*day, "data", "orders-db", "1/1", "AGE"), shopRow(api.StateProgressing, 6*day, "shop", "search", "0/1", "AGE")),
		"daemonsets":             table("Name Desired:integer Ready:integer Age:age", shopRow(api.StateWarning, 120*day, "kube-system", "log-shipper", 4.0, 3.0, "AGE")),
		"jobs":                   table("Name Status Completions Age:age", shopRow(api.StateDone, 8*time.Hour, "data", "backup-29400120", "Complete", "1/1", "AGE")),
		"persistentvolumeclaims": table("Name Status Capacity Age:age", shopRow(api.StateOK, 90*day, "data", "data-orders-db-0", "Bound", "20Gi", "AGE")),
		"replicasets":            sets,
		"replicationcontrollers": table("Name Desired:integer Current:integer Ready:integer Age:age"),
		"cronjobs":               table("Name Schedule Suspend Active:integer Age:age", shopRow(api.StateOK, 120*day, "data", "backup", "0 2 * * *", "False", 0.0, "AGE")),
		"serviceaccounts":        table("Name Age:age", shopRow(api.StateOK, 90*day, "shop", "cart", "AGE")),
		"configmaps":             table("Name Data:integer Age:age"),
		"secrets":                table("Name Type Data:integer Age:age"),
		"events":                 table("Last_Seen:age Type Reason Object Message"),
		"services": {{Type: "error", Error: &api.Error{Code: 403,
			Message: `services is forbidden: User "ada" cannot list resource "services" in API group "" at the cluster scope`}}},
		"namespaces": nil, // loading for ever
	}
}

// shop makes the console one of the shop.
func shop(reader why.Reader) func(*app) {
	return func(a *app) {
		a.feed.(*fakeFeed).tables = shopTables()
		cfg := &rest.Config{Host: "https://cluster.example:6443", Transport: shopServer{}}
		a.config.REST = cfg
		c, err := newCluster(cfg, nil)
		if err != nil {
			panic(err)
		}
		find := fake.NewClientset().Discovery().(*fakediscovery.FakeDiscovery)
		find.FakedServerVersion = &version.Info{GitVersion: "v1.37.2"}
		c.find = find
		a.cluster = c
		asking(why.Handler(func(*http.Request) why.Reader { return reader }))(a)
		explain := a.ask
		asking(shopPolicy())(a)
		policy := a.ask
		a.ask = func(ctx context.Context, path string, query url.Values, answer any) error {
			if path == api.RightsPath {
				return policy(ctx, path, query, answer)
			}
			if path != api.JourneyPath {
				return explain(ctx, path, query, answer)
			}
			data, err := json.Marshal(aJourney())
			if err != nil {
				return err
			}
			return json.NewDecoder(bytes.NewReader(data)).Decode(answer)
		}
		a.consult = func(_ context.Context, _ string, of, answer any) error {
			tell := func(state api.WhyState, code string, pairs ...string) {
				f := api.Finding{State: state, Code: code, Params: map[string]string{}}
				for i := 0; i < len(pairs); i += 2 {
					f.Params[pairs[i]] = pairs[i+1]
				}
				b := answer.(*api.Blast)
				b.Findings = append(b.Findings, f)
			}
			if of.(api.BlastOf).Drain {
				tell(api.WhyOK, "evicts", "count", "11")
				tell(api.WhyOK, "evictsNot", "count", "2")
				tell(api.WhyBroken, "scratchLost", "count", "3")
				tell(api.WhyWaiting, "budgetHolds", "name", "shop/cart")
				return nil
			}
			tell(api.WhyBroken, "budget", "name", "cart", "allowed", "0", "hits", "1")
			tell(api.WhyOK, "serviceLoses", "name", "cart", "lost", "1", "left", "2")
			return nil
		}
		plane := a.plane
		a.plane = func(ctx context.Context) (api.Map, error) {
			m, err := plane(ctx)
			for i := range m.Etcd {
				m.Etcd[i].Term, m.Etcd[i].Quota, m.Etcd[i].Size, m.Etcd[i].InUse, m.Etcd[i].Version = 7, 8<<30, 3<<30, 2<<30, "3.6.8"
				m.Etcd[i].PeerURL, m.Etcd[i].ClientURL = "https://"+m.Etcd[i].Name+".example:2380", "https://"+m.Etcd[i].Name+".example:2379"
			}
			return m, err
		}
	}
}
