package stream

import (
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/jsonpath"

	"orrery.dev/api"
)

// maxColumns bounds what one view can ask for.
const maxColumns = 16

// withColumns is the kind with columns that a view asks for beyond its own. Who
// may list objects may see all of each, so no more rights are needed.
func withColumns(k *Kind, columns []api.ViewColumn) (*Kind, error) {
	if len(columns) == 0 {
		return k, nil
	}
	if len(columns) > maxColumns {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%d columns are more than %d", len(columns), maxColumns))
	}
	more := *k
	more.Columns = append([]api.RowColumn{}, k.Columns...)
	paths := make([]*jsonpath.JSONPath, len(columns))
	for i, c := range columns {
		paths[i] = jsonpath.New(c.Name).AllowMissingKeys(true)
		if err := paths[i].Parse("{" + strings.Trim(c.Path, "{}") + "}"); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("column %s: %v", c.Name, err))
		}
		more.Columns = append(more.Columns, api.RowColumn{Name: c.Name, Type: "string", Description: c.Path})
	}
	more.Row = func(object any) (json.RawMessage, error) {
		raw, err := k.Row(object)
		if err != nil {
			return nil, err
		}
		whole, err := k.Whole(object)
		if err != nil {
			return nil, err
		}
		return appendCells(raw, whole, paths)
	}
	return &more, nil
}

// appendCells adds what paths find in the whole object to a row.
func appendCells(raw, whole json.RawMessage, paths []*jsonpath.JSONPath) (json.RawMessage, error) {
	var row map[string]json.RawMessage
	var cells []any
	var object any
	if err := json.Unmarshal(raw, &row); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(row["cells"], &cells); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(whole, &object); err != nil {
		return nil, err
	}
	for _, path := range paths {
		cells = append(cells, cell(path, object))
	}
	var err error
	if row["cells"], err = json.Marshal(cells); err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// cell is the one scalar that a path finds, or all it finds as one text.
func cell(path *jsonpath.JSONPath, object any) any {
	results, err := path.FindResults(object)
	if err != nil {
		return nil
	}
	var found []any
	for _, set := range results {
		for _, v := range set {
			if v.CanInterface() && v.Interface() != nil {
				found = append(found, v.Interface())
			}
		}
	}
	if len(found) == 1 {
		switch v := found[0].(type) {
		case string, float64, bool:
			return v
		}
	}
	texts := make([]string, len(found))
	for i, v := range found {
		if s, ok := v.(string); ok {
			texts[i] = s
		} else {
			b, _ := json.Marshal(v)
			texts[i] = string(b)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return strings.Join(texts, ",")
}
