package server

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// Cells whose words change with the time are text to the faces as to kubectl,
// unless a clock that runs on tells the same.
func TestWords(t *testing.T) {
	ago := metav1.NewTime(time.Now().Add(-5 * time.Minute))
	kinds := registry.NewBuiltinTable()
	for resource, tc := range map[schema.GroupVersionResource]struct {
		obj  runtime.Object
		want string
		face string // if it is another
	}{
		{Version: "v1", Resource: "events"}: {&corev1.Event{FirstTimestamp: ago, LastTimestamp: ago, Count: 3}, "5m", ago.UTC().Format(time.RFC3339)},
		{Version: "v1", Resource: "pods"}: {&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			RestartCount: 2, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago}},
		}}}}, "2 (5m ago)", ""},
		{Group: "batch", Version: "v1", Resource: "jobs"}: {&batchv1.Job{Status: batchv1.JobStatus{StartTime: &ago}}, "5m", ""},
	} {
		k := kinds.Find(resource)
		row, err := k.FaceRows().Encode(tc.obj)
		if err != nil || !strings.Contains(string(row), `"`+cmp.Or(tc.face, tc.want)+`"`) {
			t.Errorf("%s for the faces: %s (%v), want %s", resource.Resource, row, err, tc.want)
		}
		cells, err := json.Marshal((&call{kind: k}).cells(tc.obj))
		if err != nil || !strings.Contains(string(cells), `"`+tc.want+`"`) {
			t.Errorf("%s for kubectl: %s (%v), want %s", resource.Resource, cells, err, tc.want)
		}
	}
}
