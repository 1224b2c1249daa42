package openapi

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// The media types of the documents.
const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
	mediaCBOR     = "application/cbor"

	mediaOpenAPI2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	mediaOpenAPI3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// form is how a client wants a document.
type form struct {
	media      string
	aggregated bool // all of discovery in one document
}

func (f form) contentType() string {
	if f.aggregated {
		return f.media + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	}
	return f.media
}

// negotiate picks the form that the client likes best of those that the path has.
// All of discovery in one document goes before what is liked better.
func negotiate(path, accept string, cbor bool) (form, bool) {
	if strings.TrimSpace(accept) == "" || path == "/openapi/v3" {
		accept = "*/*"
	}
	clauses := goautoneg.ParseAccept(accept)
	if path == "/api" || path == "/apis" {
		for _, clause := range clauses {
			if media := mediaFor(path, clause, cbor); media != "" && asksForAll(clause.Params) {
				return form{media, true}, true
			}
		}
	}
	for _, clause := range clauses {
		plain := clause.Params["as"]+clause.Params["g"]+clause.Params["v"] == ""
		if media := mediaFor(path, clause, cbor); media != "" && (plain || strings.HasPrefix(path, "/openapi/")) {
			return form{media: media}, true
		}
	}
	return form{}, false
}

func asksForAll(params map[string]string) bool {
	return params["as"] == "APIGroupDiscoveryList" && params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2"
}

// mediaFor is the media type that the path has of those a clause takes; empty:
// none.
func mediaFor(path string, clause goautoneg.Accept, cbor bool) string {
	media := bodiesOf(false, cbor).objects
	switch {
	case path == "/openapi/v2":
		media = []string{mediaJSON, mediaOpenAPI2}
	case strings.HasPrefix(path, "/openapi/"):
		media = []string{mediaJSON, mediaOpenAPI3}
	}
	if strings.HasPrefix(path, "/openapi/") {
		clause.SubType = strings.Replace(clause.SubType, "@v1.0+protobuf", ".v1.0+protobuf", 1) // its former name
	}
	for _, m := range media {
		main, sub, _ := strings.Cut(m, "/")
		if (clause.Type == "*" || clause.Type == main) && (clause.SubType == "*" || clause.SubType == sub) {
			return m
		}
	}
	return ""
}

// build makes a document.
func (d *Documents) build(path string, f form) (Document, error) {
	if strings.HasPrefix(path, "/openapi/") {
		return d.openapi(path, f)
	}
	obj, err := d.discovery(path, f.aggregated)
	if err != nil {
		return Document{}, err
	}
	return encode(obj, f)
}

func encode(obj runtime.Object, f form) (Document, error) {
	plain, err := json.Marshal(obj)
	if err != nil {
		return Document{}, fmt.Errorf("encode discovery: %w", err)
	}
	plain = append(plain, '\n')
	doc := Document{Body: plain, ContentType: f.contentType(), ETag: etag(plain), Varies: f.aggregated, Public: f.aggregated}
	switch f.media {
	case mediaYAML:
		doc.Body, err = yaml.JSONToYAML(plain)
	case mediaProtobuf:
		var out bytes.Buffer
		err = protobuf.NewSerializer(nil, nil).Encode(obj, &out)
		doc.Body = out.Bytes()
	case mediaCBOR:
		var out bytes.Buffer
		err = cbor.NewSerializer(nil, nil).Encode(obj, &out)
		doc.Body = out.Bytes()
	}
	if err != nil {
		return Document{}, fmt.Errorf("encode discovery: %w", err)
	}
	return doc, nil
}

// etag is the same for every form of the same content, since answers vary by
// Accept.
func etag(content []byte) string { return fmt.Sprintf("%X", sha512.Sum512(content)) }
