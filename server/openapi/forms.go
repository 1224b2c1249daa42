package openapi

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"mime"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// The media types of the documents.
const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"

	mediaOpenAPI2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	mediaOpenAPI3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"

	// aggregatedParams ask for all of discovery in one document.
	aggregatedParams = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// form is how a client wants a document.
type form struct {
	media      string
	aggregated bool
}

func (f form) key() string { return fmt.Sprint(f.media, f.aggregated) }

// negotiate picks the first form of Accept that the path has. Clients list what
// they want in order; weights are not looked at, as upstream's do not matter in
// practice.
func negotiate(path, accept string) (form, bool) {
	openapi := strings.HasPrefix(path, "/openapi/")
	if strings.TrimSpace(accept) == "" {
		accept = mediaJSON
	}
	for _, item := range strings.Split(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(item))
		if err != nil {
			// OpenAPI's own media type has an "@" that mime refuses.
			media, _, _ = strings.Cut(strings.TrimSpace(item), ";")
			params = nil
		}
		if f, ok := formOf(path, media, params, openapi); ok {
			return f, true
		}
	}
	return form{}, false
}

func formOf(path, media string, params map[string]string, openapi bool) (form, bool) {
	if media == "*/*" || media == "application/*" {
		media = mediaJSON
	}
	if openapi {
		switch {
		case media == mediaJSON:
			return form{media: mediaJSON}, true
		case path == "/openapi/v2" && (media == mediaOpenAPI2 || media == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"):
			return form{media: mediaOpenAPI2}, true
		case path != "/openapi/v2" && (media == mediaOpenAPI3 || media == "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"):
			return form{media: mediaOpenAPI3}, true
		}
		return form{}, false
	}
	if media != mediaJSON && media != mediaYAML && media != mediaProtobuf {
		return form{}, false
	}
	if as := params["as"]; as != "" {
		whole := path == "/api" || path == "/apis"
		ok := whole && as == "APIGroupDiscoveryList" && params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2"
		return form{media: media, aggregated: true}, ok
	}
	return form{media: media}, true
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
	doc := Document{Body: plain, ContentType: f.media, ETag: etag(plain)}
	switch f.media {
	case mediaYAML:
		if doc.Body, err = yaml.JSONToYAML(plain); err != nil {
			return Document{}, fmt.Errorf("encode discovery: %w", err)
		}
	case mediaProtobuf:
		var out bytes.Buffer
		if err := protobuf.NewSerializer(nil, nil).Encode(obj, &out); err != nil {
			return Document{}, fmt.Errorf("encode discovery: %w", err)
		}
		doc.Body = out.Bytes()
	}
	if f.aggregated {
		doc.Varies, doc.Public = true, true
		doc.ContentType += aggregatedParams
	}
	return doc, nil
}

// etag is the same for every form of the same content, since answers vary by
// Accept.
func etag(content []byte) string { return fmt.Sprintf("%X", sha512.Sum512(content)) }
