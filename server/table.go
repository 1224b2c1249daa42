package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
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

// scaleColumns are those of a Scale of a built-in kind.
func scaleColumns() []metav1.TableColumnDefinition {
	object, wanted, found := metav1.ObjectMeta{}.SwaggerDoc(), autoscalingv1.ScaleSpec{}.SwaggerDoc(), autoscalingv1.ScaleStatus{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Description: object["name"]},
		{Name: "Desired", Type: "integer", Description: wanted["replicas"]},
		{Name: "Available", Type: "integer", Description: found["replicas"]},
		{Name: "Age", Type: "string", Description: object["creationTimestamp"]},
	}
}

// showsScale reports whether the rows are of Scales of a built-in kind.
func (c *call) showsScale() bool { return !c.hasOwnRow() && !c.kind.Unstructured() }

func (c *call) columns() []metav1.TableColumnDefinition {
	if len(c.kind.Columns) > 0 && c.hasOwnRow() {
		return c.kind.Columns
	}
	if c.showsScale() {
		return scaleColumns()
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
	if scale, ok := obj.(*autoscalingv1.Scale); ok && c.showsScale() {
		return []any{scale.Name, int64(scale.Spec.Replicas), int64(scale.Status.Replicas), scale.CreationTimestamp}
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return []any{m.GetName(), m.GetCreationTimestamp().UTC().Format(time.RFC3339)}
}

// marks are what a row says of an object beside its cells.
func (c *call) marks(obj runtime.Object) []metav1.TableRowCondition {
	if c.kind.Marks == nil || !c.hasOwnRow() {
		return nil
	}
	return c.kind.Marks(obj)
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
	options, err := query(c, metav1.Convert_url_Values_To_v1_TableOptions)
	if err != nil {
		return "", err
	}
	if errs := metav1validation.ValidateTableOptions(options); len(errs) > 0 {
		return "", apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs[0].Error())
	}
	if options.IncludeObject == "" {
		return metav1.IncludeMetadata, nil
	}
	return options.IncludeObject, nil
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
	row.Cells, row.Conditions = c.cells(served), c.marks(served)
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
	if hidden := c.kind.FieldAnnotations; hidden != nil {
		partial.Annotations = maps.Clone(partial.Annotations)
		maps.DeleteFunc(partial.Annotations, func(key, _ string) bool { return slices.Contains(hidden, key) })
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
	switch c.out.as {
	case "PartialObjectMetadata":
		partial, err := c.metadataOf(obj)
		if err != nil {
			return err
		}
		return writeObject(c.w, c.r, c.out, code, partial, c.formKind())
	case "PartialObjectMetadataList":
		return c.noSuchForm("not a list", obj, c.kind.Kind)
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
	switch c.out.as {
	case "PartialObjectMetadata":
		return c.noSuchForm("a list", c.kind.NewList(), c.listKind().Kind)
	case "PartialObjectMetadataList":
		c.auditMetadata(page)
		return c.replyMetadata(code, page)
	}
	include, err := c.includeObject()
	if err != nil {
		return err
	}
	table := c.table(listMeta(page), true)
	if order := c.kind.Order; order != nil {
		page.Items = slices.SortedFunc(slices.Values(page.Items), func(a, b *storage.Item) int { return order(a.Object(), b.Object()) })
	}
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

// noSuchForm is for one object asked for as a list, or a list as one. Upstream names
// the type that it works with: of the group's own package, without a version.
func (c *call) noSuchForm(isa string, obj runtime.Object, kind string) error {
	name := fmt.Sprintf("%T", obj)
	if _, custom := obj.(runtime.Unstructured); !custom {
		group, _, _ := strings.Cut(c.kind.Group, ".")
		if group == "" || group == "events" {
			group = "core"
		}
		name = "*" + group + "." + kind
	}
	return notAcceptable(fmt.Sprintf("you requested %s, but the requested object is %s (%s)", c.out.as, isa, name))
}

func (c *call) replyMetadata(code int, page *storage.Page) error {
	return c.splice(code, c.formKind(), page, c.itemMetadata, true)
}

// itemMetadata is the item's metadata in the negotiated encoding, made once.
func (c *call) itemMetadata(item *storage.Item) (storage.Message, error) {
	encoding := c.out.name
	if encoding == typeYAML {
		encoding = typeJSON // of which it is made
	}
	body, err := item.Encoded(c.out.version+"/metadata+"+encoding, func(obj runtime.Object) ([]byte, error) {
		partial, err := c.metadataOf(obj)
		if err != nil {
			return nil, err
		}
		return encoded(encoding, partial, partial.GroupVersionKind())
	})
	return storage.Message{Rest: body}, err
}
