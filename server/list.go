package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"orrery.dev/server/storage"
)

// list serves GET on a collection.
func (c *call) list() error {
	options, err := c.listOptions()
	if err != nil {
		return err
	}
	selection, err := c.selection(options)
	if err != nil {
		return err
	}
	filter := c.splitFields(&selection)
	col, err := c.collection()
	if err != nil {
		return err
	}
	if options.ResourceVersion == "0" && options.Continue != "" {
		options.Limit = 0 // what is left comes at once, as the cache has it
	}
	page, err := filter.list(c.r.Context(), col, storage.ListOptions{
		Selection:       selection,
		ResourceVersion: options.ResourceVersion,
		Match:           options.ResourceVersionMatch,
		Limit:           options.Limit,
		Continue:        options.Continue,
	})
	if err != nil {
		return err
	}
	return c.replyPage(http.StatusOK, page)
}

// listOptions reads and checks the query of a list or watch.
func (c *call) listOptions() (*metav1.ListOptions, error) {
	o, err := query(c, metav1.Convert_url_Values_To_v1_ListOptions)
	if err != nil {
		return nil, err
	}
	checked := &internalversion.ListOptions{
		Watch:                c.Verb == "watch",
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: o.ResourceVersionMatch,
		Continue:             o.Continue,
		Limit:                o.Limit,
		SendInitialEvents:    o.SendInitialEvents,
	}
	internalversion.SetListOptionsDefaults(checked, true)
	return o, optionErrors("ListOptions", internalvalidation.ValidateListOptions(checked, true))
}

// selection turns selectors into what storage picks by.
func (c *call) selection(o *metav1.ListOptions) (storage.Selection, error) {
	sel := storage.Selection{Namespace: c.objectNamespace()}
	var err error
	if o.LabelSelector != "" {
		if sel.Labels, err = labels.Parse(o.LabelSelector); err != nil {
			return sel, apierrors.NewBadRequest(err.Error())
		}
	}
	if o.FieldSelector != "" {
		if sel.Fields, err = fields.ParseSelector(o.FieldSelector); err != nil {
			return sel, apierrors.NewBadRequest(err.Error())
		}
		if err := c.checkFields(sel.Fields); err != nil {
			return sel, err
		}
		if name, ok := sel.Fields.RequiresExactMatch(metav1.ObjectNameField); ok {
			sel.Name = name
		}
	}
	if c.Verb == "watch" && c.Name != "" {
		if sel.Name != c.Name && sel.Fields != nil && !sel.Fields.Empty() {
			return sel, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
		sel.Name = c.Name
	}
	return sel, nil
}

// checkFields refuses fields that the kind cannot be selected by.
func (c *call) checkFields(selector fields.Selector) error {
	known := c.kind.SelectableFields(c.kind.New())
	for _, r := range selector.Requirements() {
		if _, ok := known[r.Field]; ok || r.Field == "metadata.namespace" {
			continue
		}
		switch {
		case c.kind.Fields == nil:
			return apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only %q, %q", r.Field, "metadata.name", "metadata.namespace"))
		case c.kind.UnknownField != "":
			return apierrors.NewBadRequest(fmt.Sprintf(c.kind.UnknownField, r.Field))
		}
		return apierrors.NewBadRequest("field label not supported: " + r.Field)
	}
	return nil
}

// encoding is how the items of a call are encoded: once per item and form.
type encoding struct {
	form   string
	encode func(runtime.Object) ([]byte, error)
}

// encodingOf is made once per call, not once per item.
func (c *call) encodingOf(name string) encoding {
	return encoding{c.kind.GroupVersion().String() + "+" + name, func(obj runtime.Object) ([]byte, error) {
		served, err := c.served(obj)
		if err != nil {
			return nil, err
		}
		return encoded(name, served, c.kind.GroupVersionKind)
	}}
}

// itemJSON is the item as JSON of the served version.
func (c *call) itemJSON(item *storage.Item) ([]byte, error) {
	return item.Encoded(c.asJSON.form, c.asJSON.encode)
}

// itemProtobuf is the item's protobuf message, without an envelope.
func (c *call) itemProtobuf(item *storage.Item) (storage.Message, error) {
	if c.kind.FromStored == nil {
		return item.Protobuf()
	}
	body, err := item.Encoded(c.asBinary.form, c.asBinary.encode)
	return storage.Message{Rest: body}, err
}

// withinList is the item as lists have it: in CBOR, typed ones do not say their kind.
func (c *call) withinList(item *storage.Item) (storage.Message, error) {
	if c.out.name != typeCBOR || c.kind.Unstructured() {
		return c.itemEncoded(item)
	}
	served, err := c.served(item.Object())
	if err != nil {
		return storage.Message{}, err
	}
	body, err := encodeCBOR(served, schema.GroupVersionKind{})
	return storage.Message{Rest: body}, err
}

// itemEncoded is the item in the negotiated encoding, as encoded gives it.
func (c *call) itemEncoded(item *storage.Item) (storage.Message, error) {
	var body []byte
	var err error
	switch c.out.name {
	case typeProtobuf:
		return c.itemProtobuf(item)
	case typeCBOR:
		body, err = item.Encoded(c.asBinary.form, c.asBinary.encode)
	default:
		body, err = c.itemJSON(item)
	}
	return storage.Message{Rest: body}, err
}

func (c *call) listKind() schema.GroupVersionKind {
	kind := c.kind.GroupVersionKind
	kind.Kind += "List"
	if c.kind.NewList != nil {
		if own := c.kind.NewList().GetObjectKind().GroupVersionKind().Kind; own != "" {
			kind.Kind = own // a custom kind may name its list as it likes
		}
	}
	return kind
}

func listMeta(page *storage.Page) metav1.ListMeta {
	version := ""
	if page.Revision > 0 { // else they are stored nowhere
		version = strconv.FormatInt(page.Revision, 10)
	}
	return metav1.ListMeta{
		ResourceVersion:    version,
		Continue:           page.Continue,
		RemainingItemCount: page.Remaining,
	}
}

// customListMeta is listMeta of custom resources, which always say where to go on.
type customListMeta struct {
	Continue           string `json:"continue"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
	ResourceVersion    string `json:"resourceVersion"`
}

func (c *call) listMeta(page *storage.Page) any {
	m := listMeta(page)
	if c.kind.Unstructured() && c.out.as == "" {
		return customListMeta{m.Continue, m.RemainingItemCount, m.ResourceVersion}
	}
	return m
}

// replyPage answers with a list, spliced together from the items' own bytes.
func (c *call) replyPage(code int, page *storage.Page) error {
	c.flushWarnings()
	if c.out.as != "" {
		return c.replyPageAs(code, page)
	}
	c.auditPage(page)
	return c.splice(code, c.listKind(), page, c.withinList, c.kind.Unstructured())
}

// splice writes a list in the negotiated encoding, made of the items' own bytes. JSON
// of whole items has their kind, others say it only for the list.
func (c *call) splice(code int, kind schema.GroupVersionKind, page *storage.Page, form func(*storage.Item) (storage.Message, error), whole bool) error {
	items := make([]storage.Message, len(page.Items))
	for i, item := range page.Items {
		var err error
		if items[i], err = form(item); err != nil {
			return err
		}
	}
	switch c.out.name {
	case typeProtobuf:
		return c.spliceProtobuf(code, kind, page, items)
	case typeCBOR:
		return c.spliceCBOR(code, kind, page, items)
	}
	bodies := make([][]byte, len(items))
	for i, item := range items {
		if bodies[i] = item.Rest; !whole {
			bodies[i] = withoutType(item.Rest) // the brace is put back by spliceTo
		}
	}
	return c.spliceJSON(code, kind, page, bodies, whole)
}

// spliceJSON writes a list: head, then the items between commas. whole items
// are complete objects; others have lost their opening brace with their type.
func (c *call) spliceJSON(code int, kind schema.GroupVersionKind, page *storage.Page, items [][]byte, whole bool) error {
	meta, err := json.Marshal(c.listMeta(page))
	if err != nil {
		return err
	}
	head := listHead(kind, meta)
	size := len(head) + 3
	for _, item := range items {
		size += len(item) + 2
	}
	if len(items) == 0 && c.out.as != "" { // upstream's metadata of nothing is no list
		body := append(bytes.TrimSuffix(head, []byte("[")), "null}"...)
		return writeEncoded(c.w, c.r, c.out, code, storage.Message{Rest: body}, kind)
	}
	if c.out.name == typeYAML || c.out.pretty {
		var all bytes.Buffer
		spliceTo(&all, head, items, whole)
		return writeEncoded(c.w, c.r, c.out, code, storage.Message{Rest: all.Bytes()}, kind)
	}
	c.streamJSON(code, size, func(w stringWriter) { spliceTo(w, head, items, whole) })
	return nil
}

// streamJSON answers with what write writes, which is of that size.
func (c *call) streamJSON(code, size int, write func(stringWriter)) {
	body, done := beginBody(c.w, c.r, typeJSON, code, size)
	buffered := &chunkWriter{to: body}
	write(buffered)
	buffered.WriteString("\n")
	buffered.flush()
	done()
}

func listHead(kind schema.GroupVersionKind, meta []byte) []byte {
	head := append(typeHead(kind), `,"metadata":`...)
	return append(append(head, meta...), `,"items":[`...)
}

type stringWriter interface {
	Write([]byte) (int, error)
	WriteString(string) (int, error)
}

func spliceTo(w stringWriter, head []byte, items [][]byte, whole bool) {
	w.Write(head)
	for i, item := range items {
		if i > 0 {
			w.WriteString(",")
		}
		if !whole {
			w.WriteString("{")
		}
		w.Write(item)
	}
	w.WriteString("]}")
}

// chunkWriter gathers small pieces into 64 KiB writes. Errors mean that the
// client is gone; the first one silences the rest.
type chunkWriter struct {
	to interface{ Write([]byte) (int, error) }
	// buf never grows beyond chunk
	buf []byte
	err error
}

const chunk = 64 * 1024

func (b *chunkWriter) Write(p []byte) (int, error) {
	b.room(len(p))
	if len(p) >= chunk && b.err == nil {
		_, b.err = b.to.Write(p)
		return len(p), b.err
	}
	b.buf = append(b.buf, p...)
	return len(p), b.err
}

// room makes sure that n bytes can be appended to buf.
func (b *chunkWriter) room(n int) []byte {
	if len(b.buf)+n > chunk {
		b.flush()
	}
	return b.buf
}

func (b *chunkWriter) WriteString(s string) (int, error) { return b.Write([]byte(s)) }

func (b *chunkWriter) flush() {
	if len(b.buf) > 0 && b.err == nil {
		_, b.err = b.to.Write(b.buf)
	}
	b.buf = b.buf[:0]
}

// spliceCBOR writes a list of CBOR items.
func (c *call) spliceCBOR(code int, kind schema.GroupVersionKind, page *storage.Page, items []storage.Message) error {
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Meta            any        `json:"metadata"`
		Items           []cborItem `json:"items"`
	}{Meta: c.listMeta(page), Items: make([]cborItem, len(items))}
	list.APIVersion, list.Kind = kind.ToAPIVersionAndKind()
	for i, item := range items {
		list.Items[i] = item.Rest
	}
	body, err := direct.Marshal(list)
	if err != nil {
		return err
	}
	return writeEncoded(c.w, c.r, c.out, code, storage.Message{Rest: body}, kind)
}

// spliceProtobuf writes a list message: every List type has its metadata in field 1
// and its items in field 2.
func (c *call) spliceProtobuf(code int, kind schema.GroupVersionKind, page *storage.Page, items []storage.Message) error {
	head := listMeta(page)
	headBytes, err := head.Marshal()
	if err != nil {
		return err
	}
	size := fieldSize(len(headBytes))
	for _, item := range items {
		size += fieldSize(item.Len())
	}
	begin := envelopeHead(kind, size)
	body, done := beginBody(c.w, c.r, typeProtobuf, code, len(begin)+size)
	out := &chunkWriter{to: body}
	out.Write(begin)
	out.Write(appendField(nil, 1, headBytes))
	for _, item := range items {
		out.buf = appendFieldHead(out.room(maxFieldHead), 2, item.Len())
		out.Write(item.Head)
		out.Write(item.Rest)
	}
	out.Write(envelopeTail)
	out.flush()
	done()
	return nil
}

// maxFieldHead is enough for any length.
const maxFieldHead = 1 + binary.MaxVarintLen64

// appendFieldHead begins a length-delimited protobuf field.
func appendFieldHead(b []byte, number byte, size int) []byte {
	return binary.AppendUvarint(append(b, number<<3|2), uint64(size))
}

func appendField(b []byte, number byte, value []byte) []byte {
	return append(appendFieldHead(b, number, len(value)), value...)
}

func fieldSize(size int) int { return len(appendFieldHead(nil, 1, size)) + size }
