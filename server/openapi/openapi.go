package openapi

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

	mu      sync.Mutex // protects the fields below
	changed <-chan struct{}
	kept    map[string]Document
	remote  map[schema.GroupVersion]*metav1.APIResourceList
	parts   *definitions // decoded once, at the first OpenAPI request
}

// Options are what the documents say beyond the kinds.
type Options struct {
	// Version is the server's, for OpenAPI's info: "v1.37.2".
	Version string
	// Address is where clients find the server: "10.0.0.1:6443".
	Address string
}

// New makes the documents of a table.
func New(table *registry.Table, options Options) *Documents {
	return &Documents{table: table, options: options, kept: map[string]Document{}, changed: table.Changed()}
}

// SetRemote says which group versions other servers answer for, with what they
// told of them (nil: nothing yet). The map is taken over.
func (d *Documents) SetRemote(remote map[schema.GroupVersion]*metav1.APIResourceList) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !equality.Semantic.DeepEqual(d.remote, remote) {
		d.remote, d.kept = remote, map[string]Document{}
	}
}

// Get answers a path of discovery or OpenAPI in a form that the client accepts
// (the Accept header). It reports false when there is no such document.
func (d *Documents) Get(path, accept string) (Document, bool) {
	path = strings.TrimSuffix(path, "/")
	form, ok := negotiate(path, accept)
	if !ok {
		return Document{}, false
	}
	key := path + " " + form.key()
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.changed:
		d.changed, d.kept = d.table.Changed(), map[string]Document{}
	default:
	}
	if doc, ok := d.kept[key]; ok {
		return doc, true
	}
	doc, err := d.build(path, form)
	if err != nil {
		return Document{}, false
	}
	d.kept[key] = doc
	return doc, true
}
