package tui

import (
	"slices"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// cellLines are the rows of a model: cells with one space between.
func cellLines(m *rows) []string {
	var out []string
	for _, r := range m.snapshot(testNow).rows {
		out = append(out, glyphOf(r.state)+" "+strings.Join(r.cells, " "))
	}
	return out
}

func TestWorkloadsOfAllKindsInOneTable(t *testing.T) {
	m := newRows(func() {})
	merged := newMerged(newWords("en"), m.tell)
	tables := garden()
	tables["jobs"] = table("Name Status Completions", kin("job", "data", "nightly-1", "CronJob/nightly", api.StateError, "Failed", "0/1"))
	tables["cronjobs"] = table("Name Schedule Suspend", kin("cron", "data", "nightly", "", api.StateOK, "0 2 * * *", "False"))
	tables["daemonsets"] = table("Name Desired:integer Ready:integer", kin("ds", "sys", "agent", "", api.StateWarning, 4.0, 3.0))
	for _, k := range workKinds() {
		if !m.snapshot(testNow).loading {
			t.Fatalf("loaded before %s", k.plural)
		}
		told := tables[k.plural]
		if told == nil {
			told = table("Name")
		}
		for _, one := range told {
			merged.take(k.name, one)
		}
	}
	want := []string{"● Pod alone Running 1/1 60m", "● Deployment api healthy 0/0 60m", "● CronJob nightly 0 2 * * *  60m", "✗ Job nightly-1 Failed 0/1 60m",
		"◐ Deployment web progressing 1/2 60m", "▲ DaemonSet agent warning 3/4 60m"}
	if got := cellLines(m); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if s := m.snapshot(testNow); s.loading || !s.live {
		t.Errorf("loading %v, live %v", s.loading, s.live)
	}
	merged.take("Job", api.Tell{Type: "rows", Reset: true, Revision: "9", Live: true})
	merged.take("Deployment", api.Tell{Type: "rows", Revision: "9", Live: true, Gone: []string{"deploy/data/api"}})
	if got := cellLines(m); len(got) != 4 {
		t.Errorf("a list anew leaves %s", strings.Join(got, "\n"))
	}
	remark := ""
	merged.remark = func(text string) { remark = text }
	merged.take("CronJob", api.Tell{Type: "error", Error: &api.Error{Code: 403, Message: "cronjobs is forbidden"}})
	if got := cellLines(m); len(got) != 3 || remark != "without cronjobs: cronjobs is forbidden" || m.snapshot(testNow).fault != nil {
		t.Errorf("forbidden: %s, remark %q", strings.Join(got, "\n"), remark)
	}
	for _, k := range workKinds() {
		merged.take(k.name, api.Tell{Type: "error", Error: &api.Error{Code: 403, Message: "all is forbidden"}})
	}
	if s := m.snapshot(testNow); s.fault == nil || len(s.rows) != 0 {
		t.Errorf("nothing may be listed: %+v", s.fault)
	}
}

// What a key does in a table of several kinds is what it does to the kind of the row;
// with several marked, to each of theirs.
func TestKeysActByTheKindOfTheRow(t *testing.T) {
	s := newShow(t, Config{Command: "wk"}, 120, 40, shop(troubled(t)))
	s.await("workloads(all)[", "log-shipper", "coredns")
	s.keys("K")
	s.await("KIND↑")
	s.keys("g")
	s.await("<s>", "suspend") // a CronJob is first
	s.keys("/", "deployment", tcell.KeyEnter, "s")
	s.await("workloads(all)[3/", "is not there") // asks for the scale of deployments.apps
	s.keys(tcell.KeyEscape, "/", "log-shipper|cart", tcell.KeyEnter)
	s.await("[2/")
	s.keys("g  ", ":", "scale", tcell.KeyEnter)
	s.await("scale: not for daemonset kube-system/log-shipper")
	s.screen.InjectKey(tcell.KeyCtrlD, 0, tcell.ModCtrl)
	s.await("Delete 2", "daemonset kube-system/log-shipper", "deployment shop/cart")
	s.keys(tcell.KeyEscape)
}

// T45: the tree's lines are acted on too.
func TestKeysOfTheTree(t *testing.T) {
	s := newShow(t, Config{Command: "xray deploy shop"}, 120, 40, shop(troubled(t)))
	s.await("xray deployments(shop)", "▾ cart-5f6c8d-k9r2x", "mail-59d8c", "├─proxy", "ServiceAccount")
	s.keys("x")
	s.await("▸ cart", "▸ mail")
	s.keys("xgjj ")
	s.await("▸ cart-5f6c8d-k9r2x")
	s.keys(" jj", tcell.KeyEnter)
	s.await("containers(shop)", "migrate", "PROBES")
}
