package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/api"
	"orrery.dev/server/registry"
	"orrery.dev/server/stream"
)

// acceptTable asks for rows as kubectl does.
const acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// encoded is how a hub gets what an event holds: it is JSON already.
func encoded(object any) (json.RawMessage, error) { return object.(json.RawMessage), nil }

func event(uid types.UID, namespace string, data []byte) stream.Event {
	return stream.Event{UID: string(uid), Namespace: namespace, Object: json.RawMessage(data)}
}

// each reads an object, or the items of a list, one by one.
func each(obj runtime.Object, encode func(runtime.Object) ([]byte, error)) ([]stream.Event, error) {
	var events []stream.Event
	one := func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		data, err := encode(o)
		events = append(events, event(m.GetUID(), m.GetNamespace(), data))
		return err
	}
	if !meta.IsListType(obj) {
		return events, one(obj)
	}
	err := meta.EachListItem(obj, one)
	return events, err
}

// printed reads typed objects as rows of ours.
func printed(rows *registry.FaceRows) func(runtime.Object) ([]stream.Event, error) {
	return func(obj runtime.Object) ([]stream.Event, error) { return each(obj, rows.Encode) }
}

// wholeObjects reads objects as they are.
func wholeObjects(obj runtime.Object) ([]stream.Event, error) {
	return each(obj, func(o runtime.Object) ([]byte, error) { return json.Marshal(o) })
}

// tableRows reads Tables with whole objects, which tell the state. A column that
// was not there when the view was opened is left out.
func tableRows(columns []api.RowColumn) func(runtime.Object) ([]stream.Event, error) {
	at := map[string]int{}
	for i, c := range columns {
		at[c.Name] = i
	}
	var defined []metav1.TableColumnDefinition // a watch tells them only once
	return func(obj runtime.Object) ([]stream.Event, error) {
		table, err := asTable(obj)
		if err != nil {
			return nil, err
		}
		if len(table.ColumnDefinitions) > 0 {
			defined = table.ColumnDefinitions
		}
		events := make([]stream.Event, 0, len(table.Rows))
		for _, r := range table.Rows {
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(r.Object.Raw); err != nil {
				return nil, fmt.Errorf("row of a table: %w", err)
			}
			row, err := registry.RowOf(object)
			if err != nil {
				return nil, err
			}
			row.Cells = make([]any, len(columns))
			for i, cell := range r.Cells {
				if i >= len(defined) {
					break
				}
				if to, ok := at[defined[i].Name]; ok {
					row.Cells[to] = cellOf(columns[to], cell, object)
				}
			}
			data, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			events = append(events, event(object.GetUID(), row.Namespace, data))
		}
		return events, nil
	}
}

// cellOf is a cell as it is, but for an age, which is a time.
func cellOf(c api.RowColumn, cell any, object *unstructured.Unstructured) any {
	created := object.GetCreationTimestamp()
	if c.Type != "age" || created.IsZero() {
		return cell
	}
	return created.UTC().Format(time.RFC3339)
}

func asTable(obj runtime.Object) (*metav1.Table, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(data, table); err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	if table.Kind != "Table" {
		return nil, fmt.Errorf("asked for a table, got a %s", table.Kind)
	}
	return table, nil
}

// columnsOf asks the server for the columns of a kind that only it can print.
func (s *Source) columnsOf(k *stream.Kind, namespaces []string) ([]api.RowColumn, error) {
	return s.columns.get(k.GroupVersionResource, func() ([]api.RowColumn, error) {
		if !k.Namespaced {
			namespaces = nil
		}
		r := s.reader(k, stream.Selection{})
		var obj runtime.Object
		err := error(apierrors.NewForbidden(k.GroupVersionResource.GroupResource(), "", nil))
		ctx, cancel := context.WithTimeout(context.Background(), reachWithin)
		defer cancel()
		for _, ns := range append(append([]string{""}, namespaces...), s.home) {
			if ns != "" && !k.Namespaced || !apierrors.IsForbidden(err) {
				break
			}
			obj, err = r.list(ctx, ns, map[string]string{"limit": "1"})
		}
		if err != nil {
			return nil, err
		}
		table, err := asTable(obj)
		if err != nil {
			return nil, err
		}
		return faceColumns(table.ColumnDefinitions), nil
	})
}

// faceColumns makes a column of kubectl's "Age", whose cells are words, one of ours.
func faceColumns(defined []metav1.TableColumnDefinition) []api.RowColumn {
	columns := make([]api.RowColumn, len(defined))
	for i, d := range defined {
		columns[i] = api.RowColumn{Name: d.Name, Type: d.Type, Priority: d.Priority, Description: d.Description}
		if d.Name == "Age" || d.Name == "Created At" {
			columns[i].Type = "age"
		}
	}
	return columns
}

// revisionOf is the revision of an object, or of a table of one.
func revisionOf(obj runtime.Object) string {
	m, err := meta.CommonAccessor(obj)
	if err != nil {
		return ""
	}
	if revision := m.GetResourceVersion(); revision != "" {
		return revision
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if rows, _, _ := unstructured.NestedSlice(u.Object, "rows"); len(rows) > 0 {
			row, _ := rows[len(rows)-1].(map[string]any)
			revision, _, _ := unstructured.NestedString(row, "object", "metadata", "resourceVersion")
			return revision
		}
	}
	return ""
}
