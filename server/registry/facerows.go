package registry

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"orrery.dev/api"
)

// FaceRows makes the rows of a kind for the faces: kubectl's, but for times, which
// stay times so that a face can keep their ages ticking.
type FaceRows struct {
	Columns []api.RowColumn
	kind    *Kind
	ages    map[int]bool
}

// FaceRows are the kind's.
func (k *Kind) FaceRows() *FaceRows {
	ages := ageColumns(k)
	return &FaceRows{Columns: faceColumns(k, ages), kind: k, ages: ages}
}

// RowOf is what any object's row has beside its cells.
func RowOf(obj runtime.Object) (api.Row, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return api.Row{}, err
	}
	row := api.Row{
		UID: string(m.GetUID()), Namespace: m.GetNamespace(), Name: m.GetName(),
		State: api.StateOf(obj), Created: m.GetCreationTimestamp().Time, Labels: m.GetLabels(),
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		row.Owner = owner.Kind + "/" + owner.Name
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		row.Failed = api.FailedContainers(pod)
	}
	return row, nil
}

// Encode makes the api.Row of an object of the version served, as JSON.
func (r *FaceRows) Encode(obj runtime.Object) ([]byte, error) {
	row, err := RowOf(obj)
	if err != nil {
		return nil, fmt.Errorf("row of a %s: %w", r.kind.Kind, err)
	}
	if r.kind.Row == nil {
		row.Cells = []any{row.Name, timeCell(metav1.Time{Time: row.Created})}
		return json.Marshal(row)
	}
	row.Cells = r.kind.Row(obj)
	for i, cell := range row.Cells {
		if words, ok := cell.(Words); ok {
			cell = words(time.Now())
		}
		if r.ages[i] {
			cell = timeCell(cell)
		}
		row.Cells[i] = cell
	}
	return json.Marshal(row)
}

func faceColumns(k *Kind, ages map[int]bool) []api.RowColumn {
	if k.Row == nil {
		return []api.RowColumn{{Name: "Name", Type: "string"}, {Name: "Age", Type: "age"}}
	}
	columns := make([]api.RowColumn, len(k.Columns))
	for i, c := range k.Columns {
		columns[i] = api.RowColumn{Name: c.Name, Type: c.Type, Priority: c.Priority, Description: c.Description}
		if ages[i] {
			columns[i].Type = "age"
		}
	}
	return columns
}

// ageColumns finds the columns whose cells are times: kubectl's column
// definitions call them strings, since by then they are words.
func ageColumns(k *Kind) map[int]bool {
	ages := map[int]bool{}
	for i, c := range k.Columns {
		if c.Type == "date" {
			ages[i] = true
		}
	}
	if k.Row == nil || k.New == nil {
		return ages
	}
	for i, cell := range k.Row(k.New()) {
		switch cell.(type) {
		case metav1.Time, *metav1.Time, metav1.MicroTime, *metav1.MicroTime, time.Time:
			ages[i] = true
		}
	}
	return ages
}

// timeCell makes a time of whatever type RFC 3339, and no time nothing. What a
// row function has put into words already stays.
func timeCell(cell any) any {
	var t time.Time
	switch c := cell.(type) {
	case metav1.Time:
		t = c.Time
	case *metav1.Time:
		if c != nil {
			t = c.Time
		}
	case metav1.MicroTime:
		t = c.Time
	case *metav1.MicroTime:
		if c != nil {
			t = c.Time
		}
	case time.Time:
		t = c
	default:
		return cell
	}
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}
