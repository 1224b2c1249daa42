package openapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/registry"
)

// Document is one answer: its bytes in the form that was asked for.
type Document struct {
	Body        []byte
	ContentType string
	// Varies tells that other forms have other content; Public, that a cache may
	// keep it and ask again with the ETag.
	Varies, Public bool
	// ETag is the hash of the content, without quotes.
	ETag string
}

// Documents serves discovery and OpenAPI. Documents are made when first asked
// for, and kept until the table of kinds changes.
type Documents struct {
	table   *registry.Table
	options Options

	mu        sync.Mutex // protects the fields below
	changed   <-chan struct{}
	kept      map[string]Document // by path and form
	keptV3    map[string]keptSection
	builtinV2 *spec.Swagger // built-in kinds do not change
	remote    map[schema.GroupVersion]Remote
}

// Options are what the documents say beyond the kinds.
type Options struct {
	// Version is the server's, for OpenAPI's info: "v1.37.2".
	Version string
	// Address is where clients find the server: "10.0.0.1:6443".
	Address string
	// Logs tells that /logs is served; CBOR, that it is spoken.
	Logs, CBOR bool
}

// New makes the documents of a table.
func New(table *registry.Table, options Options) *Documents {
	return &Documents{table: table, options: options, kept: map[string]Document{}, keptV3: map[string]keptSection{}, changed: table.Changed()}
}

// SetRemote says which group versions other servers answer for. The map is taken
// over.
func (d *Documents) SetRemote(remote map[schema.GroupVersion]Remote) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remote, d.kept = remote, map[string]Document{}
}

// Serve answers a request for a document. Those of other servers are asked of
// them. Discovery that there is not is the caller's to refuse: ErrNone,
// ErrUnacceptable.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request) error {
	if to := d.elsewhere(strings.TrimPrefix(r.URL.Path, "/openapi/v3/")); to != nil {
		to.ServeHTTP(w, r)
		return nil
	}
	doc, err := d.Get(r.URL.Path, r.Header.Get("Accept"))
	if err != nil {
		return refuse(w, r, err)
	}
	h := w.Header()
	if doc.Public {
		h.Set("Cache-Control", "public")
	}
	if r.URL.Path == "/openapi/v2" {
		h.Add("Vary", "Accept-Encoding")
	}
	if doc.Varies {
		h.Add("Vary", "Accept")
	}
	h.Set("Content-Type", doc.ContentType)
	if doc.ETag != "" {
		h.Set("Etag", strconv.Quote(doc.ETag))
	}
	if hash := r.URL.Query().Get("hash"); hash != "" && strings.HasPrefix(r.URL.Path, "/openapi/v3/") {
		if hash != doc.ETag {
			http.Redirect(w, r, hashedURL(strings.TrimPrefix(r.URL.Path, "/openapi/v3/"), doc), http.StatusMovedPermanently)
			return nil
		}
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).Format(time.RFC1123))
	}
	body := doc.Body
	if r.URL.Path == "/openapi/v2" && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = d.zipped(doc)
	}
	// ServeContent answers If-None-Match by the ETag.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}

// refuse answers for OpenAPI documents that there are not.
func refuse(w http.ResponseWriter, r *http.Request, err error) error {
	v3 := strings.HasPrefix(r.URL.Path, "/openapi/v3/")
	switch {
	case errors.Is(err, ErrUnacceptable) && (v3 || r.URL.Path == "/openapi/v2"):
		if !v3 {
			w.Header().Add("Vary", "Accept-Encoding")
		}
		w.Header().Add("Vary", "Accept")
		w.WriteHeader(http.StatusNotAcceptable)
	case errors.Is(err, ErrNone) && v3:
		w.WriteHeader(http.StatusNotFound)
	default:
		return err
	}
	return nil
}

// zipped is the body of a document, compressed once.
func (d *Documents) zipped(doc Document) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := "gzip " + doc.ContentType + doc.ETag
	if kept, ok := d.kept[key]; ok {
		return kept.Body
	}
	var out bytes.Buffer
	compressor := gzip.NewWriter(&out)
	_, err := compressor.Write(doc.Body)
	if err := errors.Join(err, compressor.Close()); err != nil {
		panic(err) // a buffer takes everything
	}
	d.kept[key] = Document{Body: out.Bytes()}
	return out.Bytes()
}

// ErrUnacceptable says that there is no form of a document that the client takes,
// ErrNone that there is no such document.
var (
	ErrUnacceptable = errors.New("no form of the document is acceptable")
	ErrNone         = errors.New("no such document")
)

// Get answers a path of discovery or OpenAPI in a form that the client accepts
// (the Accept header).
func (d *Documents) Get(path, accept string) (Document, error) {
	path = strings.TrimSuffix(path, "/")
	form, ok := negotiate(path, accept, d.options.CBOR)
	if !ok {
		return Document{}, ErrUnacceptable
	}
	key := path + " " + form.contentType()
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.changed:
		d.changed, d.kept = d.table.Changed(), map[string]Document{}
		d.forgetGone()
	default:
	}
	if doc, ok := d.kept[key]; ok {
		return doc, nil
	}
	doc, err := d.build(path, form)
	if err != nil {
		return Document{}, err
	}
	d.kept[key] = doc
	return doc, nil
}

// forgetGone drops the documents of groups that are no longer there.
func (d *Documents) forgetGone() {
	sections := d.sections()
	for name, kept := range d.keptV3 {
		if !slices.Equal(kept.kinds, sections[name].kinds) {
			delete(d.keptV3, name)
		}
	}
}
