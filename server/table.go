package server

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// The forms that an object can be asked for in, besides its own: a row of a
// Table, as kubectl prints it, and its metadata alone.

// defaultColumns are for kinds that say nothing about theirs.
func defaultColumns() []metav1.TableColumnDefinition {
	described := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: described["name"]},
		{Name: "Created At", Type: "date", Description: described["creationTimestamp"]},
	}
}

// hasOwnRow tells objects, whose kind knows its columns, from projections of them
// (scale), which have the default ones.
func (c *call) hasOwnRow() bool { return c.sub == nil || c.sub.Get == nil }

func (c *call) columns() []metav1.TableColumnDefinition {
	if len(c.kind.Columns) > 0 && c.hasOwnRow() {
		return c.kind.Columns
	}
	return defaultColumns()
}

// cells are an object's row. Ages are written out here: the faces want the time
// itself, kubectl the text.
func (c *call) cells(obj runtime.Object) []any {
	raw := c.rawCells(obj)
	printed := make([]any, len(raw))
	for i, cell := range raw {
		printed[i] = printCell(cell)
	}
	return printed
}

func (c *call) rawCells(obj runtime.Object) []any {
	if c.kind.Row != nil && c.hasOwnRow() {
		return c.kind.Row(obj)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return []any{m.GetName(), m.GetCreationTimestamp().UTC().Format(time.RFC3339)}
}

func printCell(cell any) any {
	switch t := cell.(type) {
	case registry.Words:
		return t(time.Now())
	case metav1.Time:
		return printAge(t)
	case *metav1.Time:
		if t == nil {
			return "<unknown>"
		}
		return printAge(*t)
	}
	return cell
}

func printAge(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// includeObject is what the rows of a table carry of their objects.
func (c *call) includeObject() (metav1.IncludeObjectPolicy, error) {
	options, err := query(c, func(v *url.Values, o *metav1.TableOptions) error {
		return metav1.Convert_url_Values_To_v1_TableOptions(v, o, nil)
	})
	if err != nil {
		return "", err
	}
	switch options.IncludeObject {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return options.IncludeObject, nil
	}
	return "", apierrors.NewBadRequest("unrecognized includeObject value: " + strconv.Quote(string(options.IncludeObject)))
}

// row is a stored object as a row of a table.
func (c *call) row(obj runtime.Object, include metav1.IncludeObjectPolicy) (metav1.TableRow, error) {
	served, err := c.served(obj)
	if err != nil {
		return metav1.TableRow{}, err
	}
	return c.rowOf(served, include)
}

func (c *call) rowOf(served runtime.Object, include metav1.IncludeObjectPolicy) (row metav1.TableRow, err error) {
	row.Cells = c.cells(served)
	switch include {
	case metav1.IncludeMetadata:
		row.Object.Object, err = c.metadataOf(served)
	case metav1.IncludeObject:
		kind := c.kind.GroupVersionKind
		if !c.hasOwnRow() {
			kind = c.subKind()
		}
		row.Object.Raw, err = encodeJSON(served, kind)
	}
	return row, err
}

func (c *call) table(page metav1.ListMeta, columns bool) *metav1.Table {
	t := &metav1.Table{ListMeta: page, Rows: []metav1.TableRow{}}
	t.SetGroupVersionKind(c.formKind())
	if columns {
		t.ColumnDefinitions = c.columns()
	} else {
		t.ColumnDefinitions = []metav1.TableColumnDefinition{}
	}
	return t
}

func (c *call) formKind() schema.GroupVersionKind {
	gv, _ := schema.ParseGroupVersion(c.out.version)
	return gv.WithKind(c.out.as)
}

// metadataOf is the metadata-only form of an object.
func (c *call) metadataOf(obj runtime.Object) (*metav1.PartialObjectMetadata, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	partial := meta.AsPartialObjectMetadata(m)
	version := c.out.version
	if version == "" {
		version = "meta.k8s.io/v1"
	}
	partial.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: version}
	return partial, nil
}

// replyAs answers with one (served) object in the form asked for. A Status is
// no object, and goes out as it is.
func (c *call) replyAs(code int, obj runtime.Object) error {
	if status, ok := obj.(*metav1.Status); ok {
		return writeObject(c.w, c.r, c.out, code, status, statusKind)
	}
	if c.out.as == "PartialObjectMetadata" {
		partial, err := c.metadataOf(obj)
		if err != nil {
			return err
		}
		return writeObject(c.w, c.r, c.out, code, partial, c.formKind())
	}
	if c.out.as != "Table" {
		return errNotAcceptable(outputFor(c.kind))
	}
	include, err := c.includeObject()
	if err != nil {
		return err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	table := c.table(metav1.ListMeta{ResourceVersion: m.GetResourceVersion()}, true)
	row, err := c.rowOf(obj, include)
	if err != nil {
		return err
	}
	table.Rows = append(table.Rows, row)
	return writeObject(c.w, c.r, c.out, code, table, c.formKind())
}

// replyPageAs answers with a list in the form asked for.
func (c *call) replyPageAs(code int, page *storage.Page) error {
	if c.out.as != "Table" {
		c.auditMetadata(page)
		return c.replyMetadata(code, page)
	}
	include, err := c.includeObject()
	if err != nil {
		return err
	}
	table := c.table(listMeta(page), true)
	if c.plainRows() {
		return c.spliceRows(code, table, page, include)
	}
	for _, item := range page.Items {
		row, err := c.row(item.Object(), include)
		if err != nil {
			return err
		}
		table.Rows = append(table.Rows, row)
	}
	return writeObject(c.w, c.r, c.out, code, table, c.formKind())
}

func (c *call) replyMetadata(code int, page *storage.Page) error {
	kind := c.formKind()
	kind.Kind = "PartialObjectMetadataList"
	if c.out.name == typeProtobuf {
		return c.spliceProtobuf(code, kind, page, c.itemMetadata)
	}
	items := make([][]byte, len(page.Items))
	for i, item := range page.Items {
		message, err := c.itemMetadata(item)
		if err != nil {
			return err
		}
		items[i] = message.Rest
	}
	head, err := json.Marshal(listMeta(page))
	if err != nil {
		return err
	}
	return c.spliceJSON(code, kind, head, items, true)
}

// itemMetadata is the item's metadata in the negotiated encoding, made once.
func (c *call) itemMetadata(item *storage.Item) (storage.Message, error) {
	form, marshal := c.out.version+"/metadata+json", func(p *metav1.PartialObjectMetadata) ([]byte, error) { return json.Marshal(p) }
	if c.out.name == typeProtobuf {
		form, marshal = "metadata+protobuf", (*metav1.PartialObjectMetadata).Marshal
	}
	body, err := item.Encoded(form, func(obj runtime.Object) ([]byte, error) {
		partial, err := c.metadataOf(obj)
		if err != nil {
			return nil, err
		}
		return marshal(partial)
	})
	return storage.Message{Rest: body}, err
}
