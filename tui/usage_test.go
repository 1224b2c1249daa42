package tui

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// measuredShop is what the shop uses. node-4 and what runs there is silent.
func measuredShop() *api.Usage {
	of := func(cpu, mem int64) api.Amounts { return api.Amounts{CPU: cpu, Memory: mem << 20} }
	pod := func(ns, name string, used *api.Amounts, requests, limits api.Amounts) api.PodUsage {
		return api.PodUsage{Namespace: ns, Name: name, Used: used, Requests: requests, Limits: limits}
	}
	amount := func(cpu, mem int64) *api.Amounts { return new(of(cpu, mem)) }
	return &api.Usage{
		Pods: []api.PodUsage{pod("shop", "web-7d4b9c-2v8xq", amount(120, 210), of(100, 256), of(500, 512)), pod("shop", "web-7d4b9c-9hzln", amount(95, 198), of(100, 256), of(500, 512)),
			pod("shop", "cart-5f6c8d-k9r2x", amount(3, 64), of(250, 128), api.Amounts{Memory: 128 << 20}), pod("shop", "mail-6b77f-qq5z8", amount(1250, 1900), of(2000, 2048), of(0, 2048)),
			pod("data", "orders-db-0", amount(640, 11_500), of(1000, 8192), of(2000, 16_384)), pod("kube-system", "coredns-6d5f7-bb8wz", nil, of(100, 70), of(0, 170))},
		Nodes: []api.NodeUsage{{Name: "node-1", Used: amount(1370, 2110), Allocatable: of(4000, 8192), Requests: of(2100, 2304), Limits: of(500, 2560)},
			{Name: "node-2", Used: amount(310, 900), Allocatable: of(4000, 8192), Requests: of(250, 128)}, {Name: "node-3", Used: amount(735, 11_698), Allocatable: of(8000, 12_288), Requests: of(1100, 8448), Limits: of(2500, 16_896)},
			{Name: "node-4", Allocatable: of(4000, 8192), Requests: of(100, 70)}},
		Error: "node-4: no route to host",
	}
}

// telling makes a console one whose server tells what is used, or why not.
func telling(tell func() (*api.Usage, error)) func(*app) {
	return func(a *app) {
		before := a.ask
		a.ask = func(ctx context.Context, path string, query url.Values, answer any) error {
			if path != api.UsagePath {
				return before(ctx, path, query, answer)
			}
			told, err := tell()
			if err != nil {
				return err
			}
			data, err := json.Marshal(told)
			if err != nil {
				return err
			}
			return json.Unmarshal(data, answer)
		}
	}
}

func cellsOf(m *rows, column string) (names, cells []string) {
	s := m.snapshot(testNow)
	at := slices.IndexFunc(s.columns, func(c gridColumn) bool { return c.name == column })
	for _, r := range s.rows {
		names, cells = append(names, r.row.Name), append(cells, r.cells[at])
	}
	return names, cells
}

// T22, T23, T25: usage stands behind kubectl's columns, against requests and limits,
// under headers that name the base; it sorts by its value, and n/a comes last.
func TestT25UsageStandsBesideRequestsAndLimits(t *testing.T) {
	u := &usage{}
	m := newRows(func() {})
	for _, tell := range shopTables()["pods"] {
		m.tell(tell)
	}
	u.learn(measuredShop(), nil)
	m.add(u.beside("pods"))
	var head []string
	for _, c := range m.snapshot(testNow).columns {
		head = append(head, c.name)
	}
	if got := strings.Join(head, " "); got != "NAME READY STATUS RESTARTS AGE CPU %CPU/R %CPU/L MEM %MEM/R %MEM/L" {
		t.Errorf("columns %s", got)
	}
	for _, row := range m.snapshot(testNow).rows {
		if row.row.Name == "web-7d4b9c-2v8xq" && strings.Join(row.cells[5:], " ") != "120m 120% 24% 210Mi 82% 41%" {
			t.Errorf("cells %q", row.cells)
		}
	}
	for _, want := range []struct {
		column     string
		descending bool
		cells      string
	}{{"CPU", false, "3m 95m 120m 640m 1.2 n/a n/a n/a n/a"}, {"CPU", true, "1.2 640m 120m 95m 3m n/a n/a n/a n/a"},
		{"MEM", true, "11Gi 1.9Gi 210Mi 198Mi 64Mi n/a n/a n/a n/a"}, {"%CPU/L", true, "32% 24% 19% n/a n/a n/a n/a n/a n/a"}} {
		m.show(func(v *view) { v.sortBy, v.descending = want.column, want.descending })
		if _, cells := cellsOf(m, want.column); strings.Join(cells, " ") != want.cells {
			t.Errorf("%s descending %v: %q", want.column, want.descending, cells)
		}
	}
}

// T22: rows keep their places while nothing is measured, and come to the same when it is
// again.
func TestT22RowsStayWhenMetricsAreMissing(t *testing.T) {
	u := &usage{}
	m := newRows(func() {})
	for _, tell := range shopTables()["pods"] {
		m.tell(tell)
	}
	look := func() string {
		m.add(u.beside("pods"))
		names, _ := cellsOf(m, "NAME")
		return strings.Join(names, " ")
	}
	unsorted := look()
	m.show(func(v *view) { v.sortBy, v.descending = "cpu", true })
	if got := look(); got != unsorted {
		t.Errorf("without metrics: %s", got)
	}
	u.learn(measuredShop(), nil)
	measured := look()
	if !strings.HasPrefix(measured, "mail-6b77f-qq5z8 orders-db-0 web-7d4b9c-2v8xq") {
		t.Errorf("by CPU: %s", measured)
	}
	u.learn(nil, errors.New("connection refused"))
	if got := look(); got != measured {
		t.Errorf("after an answer that failed: %s", got)
	}
	silent := measuredShop()
	for i := range silent.Pods {
		silent.Pods[i].Used = nil
	}
	u.learn(silent, nil)
	if got := look(); got != unsorted {
		t.Errorf("when nothing is measured: %s", got)
	}
	u.learn(measuredShop(), nil)
	if got := look(); got != measured {
		t.Errorf("again: %s", got)
	}
}

// T23: of nodes the base is what is allocatable, and namespaces are the sums of their
// pods.
func TestT23HeadersNameTheBase(t *testing.T) {
	want := map[bool]string{
		false: "data 640m 64% 32% 11Gi 140% 70% 1 2 8.0Gi 16Gi 1 | kube-system n/a n/a n/a n/a n/a n/a 100m n/a 70Mi 170Mi 1 | shop 1.5 60% 147% 2.3Gi 88% 74% 2.5 1 2.6Gi 3.1Gi 4",
		true:  "node-1 1.4 34% 2.1Gi 26% 2.1 500m 4 2.2Gi 2.5Gi 8.0Gi | node-2 310m 8% 900Mi 11% 250m n/a 4 128Mi n/a 8.0Gi | node-3 735m 9% 11Gi 95% 1.1 2.5 8 8.2Gi 16Gi 12Gi | node-4 n/a n/a n/a n/a 100m n/a 4 70Mi n/a 8.0Gi",
	}
	for byNode, want := range want {
		var got []string
		for _, r := range usageRows(measuredShop(), byNode) {
			line := ""
			for _, c := range r.Cells {
				line += " " + c.(string)
			}
			got = append(got, line[1:])
		}
		slices.Sort(got)
		if text := strings.Join(got, " | "); text != want {
			t.Errorf("by node %v:\n%s\nwant\n%s", byNode, text, want)
		}
	}
}

func TestUsageIsShownAndSorted(t *testing.T) {
	s := newShow(t, Config{}, 140, 30, shop(troubled(t)), telling(func() (*api.Usage, error) { return measuredShop(), nil }))
	s.await("%CPU/R", "1.2", "n/a")
	s.keys("C")
	s.await("CPU↓")
	s.keys(":", "usage", tcell.KeyEnter)
	s.await("usage[3]", "%MEM/L", "node-4: no route to host")
	s.keys("b")
	s.await("usage[4]", "%MEM/A", "node-3")
	s.keys("Zg", tcell.KeyEnter)
	s.await("pods(all) ‹node-3›", "CPU↓")
}

// Where nobody measures, the tables are kubectl's, and the reason is told.
func TestWhereNothingMeasuresIsTold(t *testing.T) {
	s := newShow(t, Config{}, 140, 30, shop(troubled(t)), telling(func() (*api.Usage, error) {
		return &api.Usage{Error: "this cluster does not serve metrics.k8s.io", Pods: []api.PodUsage{{Namespace: "shop", Name: "web-7d4b9c-2v8xq"}}}, nil
	}))
	s.await("web-7d4b9c-2v8xq")
	s.keys("C")
	if text := s.await("nothing tells what is used: "); strings.Contains(text, "%CPU/R") {
		t.Errorf("columns without content\n%s", text)
	}
	s.keys(":", "top", tcell.KeyEnter)
	s.await("usage[1]", "this cluster does not serve metrics.k8s.io")
}
