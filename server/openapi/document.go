package openapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/registry"
)

// openapi makes the document of a path below /openapi.
func (d *Documents) openapi(path string, f form) (Document, error) {
	if d.parts == nil {
		parts, err := decodeDefinitions()
		if err != nil {
			return Document{}, err
		}
		d.parts = parts
	}
	switch {
	case path == "/openapi/v2":
		return d.documentV2(f)
	case path == "/openapi/v3":
		return d.index()
	}
	gv, ok := versionOf(strings.TrimPrefix(path, "/openapi/v3/"))
	if !ok {
		return Document{}, errNone
	}
	plain, err := d.documentV3(gv)
	if err != nil {
		return Document{}, err
	}
	doc := Document{Body: plain, ContentType: f.media, ETag: etag(plain)}
	if f.media == mediaOpenAPI3 {
		parsed, err := openapi_v3.ParseDocument(plain)
		if err != nil {
			return Document{}, fmt.Errorf("encode OpenAPI of %s: %w", gv, err)
		}
		if doc.Body, err = proto.Marshal(parsed); err != nil {
			return Document{}, fmt.Errorf("encode OpenAPI of %s: %w", gv, err)
		}
	}
	return doc, nil
}

// versionOf reads "api/v1" or "apis/apps/v1".
func versionOf(path string) (schema.GroupVersion, bool) {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}

func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// index is /openapi/v3: where the document of each group version is. Its
// address has the document's hash, so that clients may keep it for ever.
func (d *Documents) index() (Document, error) {
	paths := object{}
	for _, gv := range d.table.Versions() {
		key := "/openapi/v3/" + pathOf(gv)
		doc, ok := d.kept[key+" "+form{media: mediaJSON}.key()]
		if !ok {
			plain, err := d.documentV3(gv)
			if err != nil {
				return Document{}, err
			}
			doc = Document{Body: plain, ContentType: mediaJSON, ETag: etag(plain)}
			d.kept[key+" "+form{media: mediaJSON}.key()] = doc
		}
		paths[pathOf(gv)] = object{"serverRelativeURL": key + "?hash=" + url.QueryEscape(doc.ETag)}
	}
	plain, err := json.Marshal(object{"paths": paths})
	if err != nil {
		return Document{}, fmt.Errorf("encode OpenAPI index: %w", err)
	}
	return Document{Body: plain, ContentType: mediaJSON, ETag: etag(plain)}, nil
}

func (d *Documents) documentV2(f form) (Document, error) {
	kinds := d.table.Kinds()
	schemas, err := d.schemas(kinds)
	if err != nil {
		return Document{}, err
	}
	paths := object{}
	for _, k := range kinds {
		addPaths(paths, k, dialectV2{})
	}
	used := map[string]bool{}
	closure(schemas, paths, v2Refs, used)
	out := object{}
	for name := range used {
		if s, ok := schemas[name]; ok {
			out[name] = schemaV2(s)
		}
	}
	for _, k := range kinds {
		if name := nameOf(k); k.Unstructured() && out[name] != nil {
			out[name] = customV2(schemaV2(schemas[name]))
		}
	}
	plain, err := json.Marshal(object{
		"swagger": "2.0", "info": d.info(), "paths": paths, "definitions": out,
		"securityDefinitions": object{"BearerToken": object{
			"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
		}},
		"security": []any{object{"BearerToken": []any{}}},
	})
	if err != nil {
		return Document{}, fmt.Errorf("encode OpenAPI: %w", err)
	}
	doc := Document{Body: plain, ContentType: f.media, ETag: etag(plain)}
	if f.media == mediaOpenAPI2 {
		parsed, err := openapi_v2.ParseDocument(plain)
		if err != nil {
			return Document{}, fmt.Errorf("encode OpenAPI: %w", err)
		}
		if doc.Body, err = proto.Marshal(parsed); err != nil {
			return Document{}, fmt.Errorf("encode OpenAPI: %w", err)
		}
	}
	return doc, nil
}

func (d *Documents) documentV3(gv schema.GroupVersion) ([]byte, error) {
	var kinds []*registry.Kind
	for _, k := range d.table.Kinds() {
		if k.GroupVersion() == gv {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return nil, errNone
	}
	schemas, err := d.schemas(kinds)
	if err != nil {
		return nil, err
	}
	paths := object{}
	for _, k := range kinds {
		addPaths(paths, k, dialectV3{})
	}
	used := map[string]bool{}
	// The schemas have v2 references until they are written out.
	direct := map[string]bool{}
	closure(nil, paths, v3Refs, direct)
	for name := range direct {
		used[name] = true
		closure(schemas, schemas[name], v2Refs, used)
	}
	out := object{}
	for name := range used {
		if s, ok := schemas[name]; ok {
			out[name] = schemaV3(s)
		}
	}
	plain, err := json.Marshal(object{
		"openapi": "3.0.0", "info": d.info(), "paths": paths,
		"components": object{
			"schemas": out,
			"securitySchemes": object{"BearerToken": object{
				"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI of %s: %w", gv, err)
	}
	return plain, nil
}

func (d *Documents) info() object {
	return object{"title": "Kubernetes", "version": orElse(d.options.Version, "unversioned")}
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// schemas are the built-in definitions and those of custom kinds, each with
// the kinds that it is the schema of.
func (d *Documents) schemas(kinds []*registry.Kind) (map[string]object, error) {
	out := make(map[string]object, len(d.parts.schemas))
	for name, s := range d.parts.schemas {
		out[name] = s
	}
	for _, k := range kinds {
		if k.Unstructured() {
			s, err := customSchema(k)
			if err != nil {
				return nil, err
			}
			out[nameOf(k)], out[listNameOf(k)] = s, customList(k)
		}
		tag(out, nameOf(k), k.GroupVersionKind)
		if k.Can("list") {
			tag(out, listNameOf(k), k.GroupVersion().WithKind(k.Kind+"List"))
		}
		for _, sub := range k.Sub {
			if !sub.Kind.Empty() && sub.New != nil {
				tag(out, modelName(sub.New()), sub.Kind)
			}
		}
		// The options are registered in every group.
		tag(out, metav1.DeleteOptions{}.OpenAPIModelName(), k.GroupVersion().WithKind("DeleteOptions"))
		tag(out, metav1.WatchEvent{}.OpenAPIModelName(), k.GroupVersion().WithKind("WatchEvent"))
	}
	tag(out, metav1.Status{}.OpenAPIModelName(), schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	return out, nil
}

// tag adds a kind to a schema's extension, on a copy.
func tag(schemas map[string]object, name string, gvk schema.GroupVersionKind) {
	s, ok := schemas[name]
	if !ok {
		return
	}
	entry := gvkObject(gvk)
	before, _ := s[gvkExtension].([]any)
	for _, b := range before {
		if e, ok := b.(object); ok && e["group"] == gvk.Group && e["version"] == gvk.Version && e["kind"] == gvk.Kind {
			return
		}
	}
	schemas[name] = merge(object{gvkExtension: append(before[:len(before):len(before)], entry)}, s)
}

func gvkObject(gvk schema.GroupVersionKind) object {
	return object{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}
