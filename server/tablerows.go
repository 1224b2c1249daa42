package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"orrery.dev/server/audit"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// The rows of a long Table are spliced like the items of a list: the cells of an
// item are kept encoded, with holes where they tell an age.

// plainRows reports whether rows can be spliced: those of built-in kinds, as they
// are stored, and if nobody wants to have the table in another form.
func (c *call) plainRows() bool {
	logged := audit.From(c.r.Context()).Wants(auditv1.LevelRequestResponse)
	return c.kind.FromStored == nil && !c.kind.JSON && c.out.name == typeJSON && !c.out.pretty && !logged
}

// spliceRows answers with a table, which has no rows yet, and those of a page.
func (c *call) spliceRows(code int, table *metav1.Table, page *storage.Page, include metav1.IncludeObjectPolicy) error {
	head, err := encodeJSON(table, c.formKind())
	if err != nil {
		return err
	}
	head = bytes.TrimSuffix(head, []byte("]}"))
	size := len(head)
	cells, marks, objects := make([][]byte, len(page.Items)), make([][]byte, len(page.Items)), make([][]byte, len(page.Items))
	for i, item := range page.Items {
		if cells[i], err = c.itemCells(item); err != nil {
			return err
		}
		if objects[i], err = c.rowObject(item, include); err != nil {
			return err
		}
		if all := c.marks(item.Object()); len(all) > 0 {
			text, err := json.Marshal(all)
			if err != nil {
				return err
			}
			marks[i] = append([]byte(`,"conditions":`), text...)
		}
		size += len(cells[i]) + len(marks[i]) + len(objects[i]) + len(`{"cells":,"object":},`)
	}
	c.streamJSON(code, size, func(w stringWriter) {
		w.Write(head)
		now := time.Now()
		var row []byte
		for i := range cells {
			if row = row[:0]; i > 0 {
				row = append(row, ',')
			}
			row = fillHoles(append(row, `{"cells":`...), cells[i], now)
			w.Write(append(append(row, marks[i]...), `,"object":`...))
			w.Write(objects[i])
			w.WriteString("}")
		}
		w.WriteString("]}")
	})
	return nil
}

// rowObject is what a row carries of its object.
func (c *call) rowObject(item *storage.Item, include metav1.IncludeObjectPolicy) ([]byte, error) {
	switch include {
	case metav1.IncludeMetadata:
		message, err := c.itemMetadata(item)
		return message.Rest, err
	case metav1.IncludeObject:
		return c.itemJSON(item)
	}
	return []byte("null"), nil
}

// itemCells are the cells of an item's row as JSON, with holes. Those that have
// to be put into words anew each time have none.
func (c *call) itemCells(item *storage.Item) ([]byte, error) {
	kept, err := item.Encoded("cells", func(obj runtime.Object) ([]byte, error) { return encodeCells(c.rawCells(obj)) })
	if err != nil || len(kept) > 0 {
		return kept, err
	}
	return json.Marshal(c.cells(item.Object()))
}

// hole stands in encoded cells, where no JSON has it, before the eight bytes of
// the time whose age belongs there.
const hole = 0

// encodeCells encodes cells with holes for ages. Words that change with the time
// cannot be kept: of cells with such it makes nothing.
func encodeCells(cells []any) ([]byte, error) {
	b := []byte("[")
	for i, cell := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		if p, ok := cell.(*metav1.Time); ok && p != nil {
			cell = *p
		}
		switch t := cell.(type) {
		case registry.Words:
			return nil, nil
		case metav1.Time:
			if !t.IsZero() {
				b = binary.BigEndian.AppendUint64(append(b, hole), uint64(t.Unix()))
				continue
			}
		}
		text, err := json.Marshal(printCell(cell))
		if err != nil {
			return nil, err
		}
		b = append(b, text...)
	}
	return append(b, ']'), nil
}

// fillHoles appends cells with their ages.
func fillHoles(b, cells []byte, now time.Time) []byte {
	for {
		before, after, found := bytes.Cut(cells, []byte{hole})
		b = append(b, before...)
		if !found {
			return b
		}
		since := time.Unix(int64(binary.BigEndian.Uint64(after)), 0)
		b = append(append(append(b, '"'), duration.HumanDuration(now.Sub(since))...), '"')
		cells = after[8:]
	}
}
