package interchange

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"orrery.dev/test/conformance/lab"
)

// Our dashboard shows of upstream's API server what kubectl does: of every kind that
// is served, the rows of its table.
func TestFaces(t *testing.T) {
	s := newSetup(t)
	s.apiServer(upstreams)
	a := newAPI(t, s)
	a.create(newObjectSet(t, s.pki, "upstream", "10.96.200.2"))
	d := newDashboard(t, s)
	lists, err := discovery.ServerPreferredResources(a.disco)
	if len(lists) == 0 { // one of the objects is an extension that is not there
		t.Fatal(err)
	}
	kinds, rows := 0, 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if verbs := strings.Join(r.Verbs, " "); strings.Contains(verbs, "watch") && strings.Contains(verbs, "list") {
				rows += d.compare(s, gv.WithResource(r.Name))
				kinds++
			}
		}
	}
	t.Logf("%d rows of %d kinds", rows, kinds)
	d.follows(s, "v1", "ConfigMap", "configmaps", `{"metadata":{"name":"late"}}`)
	d.follows(s, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", `{"metadata":{"name":"stars.sky.example.com"},"spec":{"group":"sky.example.com","scope":"Cluster",
		"names":{"plural":"stars","kind":"Star"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	if kinds < 50 || rows < 100 {
		t.Error("these are too few to mean anything")
	}
}

// dashboard is orrery's, beside a cluster, and a page of it.
type dashboard struct {
	t      *testing.T
	socket *websocket.Conn
	views  int
}

func newDashboard(t *testing.T, s *setup) *dashboard {
	t.Helper()
	s.start("dashboard", *orrery, "dashboard", "--no-browser", "--kubeconfig="+s.kubeconfig("admin"))
	var host, code string
	err := lab.Eventually(t.Context(), func(context.Context) (string, error) {
		log, err := os.ReadFile(filepath.Join(s.dir, "dashboard.log"))
		found := regexp.MustCompile(`http://([^/]+)/ui/#code=(\S+)`).FindSubmatch(log)
		if found != nil {
			host, code = string(found[1]), string(found[2])
		}
		return unless(found != nil, "no link in its log"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/ui/session", strings.NewReader(`{"code":"`+code+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", "http://"+host)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("sign in: %v %v", answer, err)
	}
	defer answer.Body.Close()
	dialer := websocket.Dialer{Subprotocols: []string{"v1.rows.orrery.dev"}}
	socket, _, err := dialer.Dial("ws://"+host+"/ui/k8s/orrery/v1/stream", http.Header{"Origin": {"http://" + host}, "Cookie": {strings.Split(answer.Header.Get("Set-Cookie"), ";")[0]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return &dashboard{t: t, socket: socket}
}

// told is a message of the row protocol, as far as it matters here.
type told struct {
	ID             int
	Type, Revision string
	Columns        []struct{ Name, Type string }
	Rows           []struct {
		NS, Name string
		Cells    []any
	}
	Gone  []string
	Error any
}

func (d *dashboard) ask(v map[string]any) {
	d.t.Helper()
	if err := d.socket.WriteJSON(v); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dashboard) open(gvr schema.GroupVersionResource) {
	d.t.Helper()
	d.views++
	d.ask(map[string]any{"id": d.views, "op": "open", "view": map[string]any{"group": gvr.Group, "version": gvr.Version, "resource": gvr.Resource}})
}

// next is the next message about the view opened last.
func (d *dashboard) next() (m told) {
	d.t.Helper()
	for m.ID != d.views {
		m = told{}
		_ = d.socket.SetReadDeadline(time.Now().Add(patience))
		if err := d.socket.ReadJSON(&m); err != nil || m.Error != nil {
			d.t.Fatalf("%v %v", err, m.Error)
		}
	}
	if m.Type == "rows" && m.Revision != "" {
		d.ask(map[string]any{"id": d.views, "op": "ack", "revision": m.Revision})
	}
	return m
}

// view reads the columns and rows of a kind.
func (d *dashboard) view(gvr schema.GroupVersionResource) (columns []struct{ Name, Type string }, rows map[string][]any) {
	d.t.Helper()
	d.open(gvr)
	rows = map[string][]any{}
	for {
		m := d.next()
		if len(m.Columns) > 0 {
			columns = m.Columns
		}
		for _, r := range m.Rows {
			rows[r.NS+"/"+r.Name] = r.Cells
		}
		if m.Type == "rows" && m.Revision != "" {
			d.ask(map[string]any{"id": d.views, "op": "close"})
			return columns, rows
		}
	}
}

// follows holds that an object that is made is shown, and that it goes.
func (d *dashboard) follows(s *setup, version, kind, plural, text string) {
	d.t.Helper()
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		d.t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		d.t.Fatal(err)
	}
	o.SetGroupVersionKind(gv.WithKind(kind))
	gvr := gv.WithResource(plural)
	_, untyped := s.clients()
	client := dynamic.ResourceInterface(untyped.Resource(gvr))
	if kind == "ConfigMap" {
		client = untyped.Resource(gvr).Namespace("default")
	}
	d.open(gvr)
	for m := d.next(); m.Revision == ""; m = d.next() {
	}
	made := must(client.Create(d.t.Context(), o, metav1.CreateOptions{}))(d.t)
	for shown := false; !shown; {
		for _, r := range d.next().Rows {
			shown = shown || r.Name == o.GetName()
		}
	}
	if err := client.Delete(d.t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
		d.t.Fatal(err)
	}
	for !slices.Contains(d.next().Gone, string(made.GetUID())) {
	}
}

// moving are cells whose words change with the time.
var moving = regexp.MustCompile(`^(\d+[smhdy])+$|ago\)$`)

// compare holds the rows of a kind against the table of the API server, and returns
// how many there are.
func (d *dashboard) compare(s *setup, gvr schema.GroupVersionResource) int {
	d.t.Helper()
	typed, _ := s.clients()
	path := "/apis/" + gvr.GroupVersion().String() + "/" + gvr.Resource
	if gvr.Group == "" {
		path = "/api/v1/" + gvr.Resource
	}
	raw, err := typed.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	var table metav1.Table
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if err := decoder.Decode(&table); err != nil {
		d.t.Fatal(err)
	}
	columns, rows := d.view(gvr)
	if len(columns) != len(table.ColumnDefinitions) {
		d.t.Errorf("%s: columns %v, upstream's are %v", gvr, columns, table.ColumnDefinitions)
		return 0
	}
	for _, r := range table.Rows {
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Object.Raw, &m); err != nil {
			d.t.Fatal(err)
		}
		ours := rows[m.Namespace+"/"+m.Name]
		r.Cells = r.Cells[:min(len(r.Cells), len(columns))] // a kind has a cell more than columns
		if len(ours) != len(r.Cells) {
			d.t.Errorf("%s %s/%s: row %v, upstream's is %v", gvr.Resource, m.Namespace, m.Name, ours, r.Cells)
			continue
		}
		for i, cell := range r.Cells {
			same := fmt.Sprint(cell) == fmt.Sprint(ours[i])
			aged := columns[i].Type == "age" || moving.MatchString(fmt.Sprint(cell))
			if columns[i].Name != table.ColumnDefinitions[i].Name || !same && !aged {
				d.t.Errorf("%s %s/%s: %s is %v, upstream's %s is %v", gvr.Resource, m.Namespace, m.Name, columns[i].Name, ours[i], table.ColumnDefinitions[i].Name, cell)
			}
		}
	}
	if len(rows) != len(table.Rows) {
		d.t.Errorf("%s: %d rows, upstream has %d", gvr.Resource, len(rows), len(table.Rows))
	}
	return len(table.Rows)
}
