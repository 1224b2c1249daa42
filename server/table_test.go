package server

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/server/registry"
)

// Cells that are kept with holes read like those that are printed at once.
func TestEncodedCells(t *testing.T) {
	hourAgo := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, cells := range map[string][]any{
		"none":  {},
		"plain": {"a<b", int64(3), true, "tab\t\x00", nil},
		"ages":  {"x", hourAgo, &hourAgo, metav1.Time{}, (*metav1.Time)(nil), metav1.NewTime(time.Unix(256, 0)), "y"},
	} {
		t.Run(name, func(t *testing.T) {
			kept, err := encodeCells(cells)
			if err != nil {
				t.Fatal(err)
			}
			printed := make([]any, len(cells))
			for i, cell := range cells {
				printed[i] = printCell(cell)
			}
			want, err := json.Marshal(printed)
			if err != nil {
				t.Fatal(err)
			}
			if got := fillHoles(nil, kept, time.Now()); string(got) != string(want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	words := registry.Words(func(time.Time) string { return "3 (5m ago)" })
	if kept, err := encodeCells([]any{words}); err != nil || kept != nil {
		t.Errorf("words that change were kept: %q %v", kept, err)
	}
}
