package tui

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

func TestColumnsAreChosenAndKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orrery", "console.json")
	s := newShow(t, Config{Settings: file}, 130, 30)
	s.await("db-0", "RESTARTS")
	s.keys(":columns node,name", tcell.KeyEnter)
	s.await("NODE", "node-1", "columns of pods are kept")
	s.awaitGone("RESTARTS")
	awaitFile(t, filepath.Dir(file), "console.json")
	s.keys(":columns Nude", tcell.KeyEnter)
	s.await(`no column "Nude"; there are Name, Ready, Status, Restarts, Age, Node`)

	again := newShow(t, Config{Settings: file}, 130, 30)
	again.await("db-0", "NODE")
	again.awaitGone("RESTARTS")
	again.keys("H")
	again.await("✓ Name", "  Restarts", "✓ Node")
	again.keys(tcell.KeyDown, tcell.KeyDown, tcell.KeyDown, tcell.KeyEnter)
	again.await("✓ Restarts", "RESTARTS")
	again.keys(tcell.KeyEscape, ":columns default", tcell.KeyEnter)
	again.await("STATUS", "AGE")
	again.awaitGone("NODE")
}

func TestTimelineCountsEventsByMinute(t *testing.T) {
	s := newShow(t, Config{}, 120, 30, func(a *app) {
		ago := func(d time.Duration, kind, reason string) api.Row {
			r := shopRow(api.StateOK, d, "shop", reason, kind, reason, "pod/web", "said")
			r.Cells[0] = testNow.Add(-d).Format(time.RFC3339)
			return r
		}
		a.feed.(*fakeFeed).tables = map[string][]api.Tell{"events": table("Last_Seen:age Type Reason Object Message",
			ago(30*time.Second, "Normal", "Pulled"), ago(40*time.Second, "Normal", "Started"), ago(90*time.Second, "Warning", "BackOff"), ago(2*time.Hour, "Warning", "Old"))}
	})
	s.await("db-0")
	s.keys(":timeline", tcell.KeyEnter)
	s.await("timeline(all)[4]", "Warning   ···", "··▄·", "···█", "Pulled", "01:00")
}
