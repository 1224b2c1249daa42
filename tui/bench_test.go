package tui

import (
	"fmt"
	"testing"
	"time"

	"orrery.dev/api"
)

// BenchmarkSnapshot is one frame's work on ten thousand pods after a change.
func BenchmarkSnapshot(b *testing.B) {
	m := newRows(func() {})
	m.tell(api.Tell{Type: "columns", Columns: podColumns()})
	rows := make([]api.Row, 10000)
	for i := range rows {
		rows[i] = podRow("shop", fmt.Sprintf("web-%d", i), "Running", api.StateOK)
	}
	m.tell(api.Tell{Type: "rows", Reset: true, Revision: "1", Live: true, Rows: rows})
	for i := 0; b.Loop(); i++ {
		m.tell(api.Tell{Type: "rows", Revision: "2", Live: true, Rows: rows[i%100 : i%100+1]})
		m.snapshot(testNow.Add(time.Duration(i) * time.Second))
	}
}
