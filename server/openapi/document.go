package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/registry"
)

// openapi makes the document of a path below /openapi.
func (d *Documents) openapi(path string, f form) (Document, error) {
	var plain Document
	var err error
	switch name := strings.TrimPrefix(path, "/openapi/v3/"); {
	case path == "/openapi/v2":
		plain, err = d.documentV2()
	case path == "/openapi/v3":
		return d.index()
	default:
		plain, err = d.documentV3(name)
	}
	if err != nil || f.media == mediaJSON {
		return plain, err
	}
	return inProtobuf(plain, f.media)
}

// inProtobuf is a document in the other form; it has the hash of the first.
func inProtobuf(plain Document, media string) (Document, error) {
	var parsed proto.Message
	var err error
	if media == mediaOpenAPI2 {
		parsed, err = openapi_v2.ParseDocument(plain.Body)
	} else {
		parsed, err = openapi_v3.ParseDocument(plain.Body)
	}
	if err != nil {
		return Document{}, fmt.Errorf("encode OpenAPI: %w", err)
	}
	plain.ContentType = media
	plain.Body, err = proto.Marshal(parsed)
	return plain, err
}

// section is what has a document of its own in v3: a group version, or a path
// that is not about objects.
type section struct {
	name  string // "apis/apps/v1", "version"
	kinds []*registry.Kind
}

func (s section) custom() bool { return len(s.kinds) > 0 && s.kinds[0].Unstructured() }

// kept is the document of a section, until its kinds change.
type keptSection struct {
	kinds []*registry.Kind
	plain Document
}

// sections are those of the table.
func (d *Documents) sections() map[string]section {
	all := map[string]section{}
	add := func(name string, k ...*registry.Kind) {
		all[name] = section{name: name, kinds: append(all[name].kinds, k...)}
	}
	for _, k := range d.table.Kinds() {
		add(pathOf(k.GroupVersion()), k)
		if k.Group != "" && !k.Unstructured() {
			add("apis/" + k.Group)
		}
	}
	for _, other := range otherRoutes(d.options) {
		add(strings.Trim(other.root, "/"))
	}
	return all
}

// container is the routes of a section.
func (s section) container(o Options) container {
	c := container{root: "/" + s.name}
	for _, k := range s.kinds {
		c.routes = append(c.routes, kindRoutes(k, o.CBOR)...)
	}
	parts := strings.Split(s.name, "/")
	switch {
	case s.custom():
	case len(parts) == 3 && parts[0] == "apis":
		c.routes = append(c.routes, discoveryRoute(schema.GroupVersion{Group: parts[1], Version: parts[2]}, o.CBOR))
	case len(parts) == 2 && parts[0] == "api":
		c.routes = append(c.routes, discoveryRoute(schema.GroupVersion{Version: parts[1]}, o.CBOR))
	case len(parts) == 2 && parts[0] == "apis":
		c.routes = append(c.routes, discoveryRoute(schema.GroupVersion{Group: parts[1]}, o.CBOR))
	default:
		for _, other := range otherRoutes(o) {
			if other.root == c.root {
				return other
			}
		}
	}
	return c
}

// models are the schemas that routes name, and all that those are made of.
func (d *Documents) models(refs string, sections ...section) ([]common.RouteContainer, map[string]common.OpenAPIDefinition, error) {
	definitions, err := allDefinitions()
	if err != nil {
		return nil, nil, err
	}
	names := []string{metav1.ObjectMeta{}.OpenAPIModelName(), metav1.ListMeta{}.OpenAPIModelName()}
	var containers []common.RouteContainer
	for _, s := range sections {
		c := s.container(d.options)
		containers = append(containers, c)
		for _, r := range c.routes {
			names = append(names, string(r.(route).body), string(r.(route).reply))
		}
	}
	found, err := definitions.closure(refs, names...)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range sections {
		for _, k := range s.kinds {
			if !k.Unstructured() {
				continue
			}
			if err := defineCustom(k, refs, found); err != nil {
				return nil, nil, err
			}
		}
	}
	return containers, found, nil
}

// documentV3 is the document of a section, or of another server.
func (d *Documents) documentV3(name string) (Document, error) {
	for _, gv := range slices.SortedFunc(maps.Keys(d.remote), byName) {
		if converted := d.remote[gv].converted(); converted != nil && name == pathOf(gv) {
			return inJSON(converted)
		}
	}
	s, ok := d.sections()[name]
	if !ok {
		return Document{}, ErrNone
	}
	if kept, ok := d.keptV3[name]; ok && slices.Equal(kept.kinds, s.kinds) {
		return kept.plain, nil
	}
	doc, err := d.buildV3(s)
	if err != nil {
		return Document{}, fmt.Errorf("OpenAPI of %s: %w", name, err)
	}
	d.keptV3[name] = keptSection{s.kinds, doc}
	return doc, nil
}

func (d *Documents) buildV3(s section) (Document, error) {
	containers, found, err := d.models(v3Refs, s)
	if err != nil {
		return Document{}, err
	}
	config := &common.OpenAPIV3Config{
		Info: d.info(s.custom()), Definitions: found,
		CommonResponses:                map[int]*spec3.Response{401: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}}},
		GetOperationIDAndTagsFromRoute: idAndTags, GetDefinitionName: asItIs,
	}
	if s.custom() {
		forCustom(found)
	} else {
		config.SecuritySchemes = spec3.SecuritySchemes{"BearerToken": &spec3.SecurityScheme{SecuritySchemeProps: spec3.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication",
		}}}
		keepKinds(found, func(group, version string) bool {
			return group == "" && version == "v1" || pathOf(schema.GroupVersion{Group: group, Version: version}) == s.name
		})
	}
	built, err := builder3.BuildOpenAPISpecFromRoutes(containers, config)
	if err != nil {
		return Document{}, err
	}
	return inJSON(built)
}

// index is /openapi/v3: where each document is. Its address has the document's
// hash, so that clients may keep it for ever.
func (d *Documents) index() (Document, error) {
	type place struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]place{}
	add := func(name string) error {
		doc, err := d.documentV3(name)
		paths[name] = place{hashedURL(name, doc)}
		return err
	}
	for name := range d.sections() {
		if err := add(name); err != nil {
			return Document{}, err
		}
	}
	for gv, r := range d.remote {
		if r.converted() != nil {
			if err := add(pathOf(gv)); err != nil {
				return Document{}, err
			}
		}
		for name, url := range r.Index {
			if _, ours := paths[name]; !ours {
				paths[name] = place{url}
			}
		}
	}
	doc, err := inJSON(map[string]any{"paths": paths})
	// Upstream's, too, is of no type and has no hash: it is put together anew
	// every time.
	return Document{Body: doc.Body, ContentType: "text/plain; charset=utf-8"}, err
}

func hashedURL(name string, doc Document) string {
	return "/openapi/v3/" + name + "?hash=" + url.QueryEscape(doc.ETag)
}

// documentV2 is all that there is in one document: the built-in kinds, the custom
// ones, and those of other servers by their priority. Definitions of one name that
// differ are told apart by a number.
func (d *Documents) documentV2() (Document, error) {
	var builtin, custom []section
	for _, s := range d.sections() {
		if s.custom() {
			custom = append(custom, s)
		} else {
			builtin = append(builtin, s)
		}
	}
	if d.builtinV2 == nil {
		built, err := d.buildV2(builtin...)
		if err != nil {
			return Document{}, err
		}
		d.builtinV2 = built
	}
	merged := *d.builtinV2
	merged.Paths, merged.Definitions, merged.Parameters = nil, nil, nil
	parts := []*spec.Swagger{d.builtinV2}
	if len(custom) > 0 {
		built, err := d.buildV2(custom...)
		if err != nil {
			return Document{}, err
		}
		parts = append(parts, built)
	}
	for _, r := range d.remotesByPriority() {
		if r.OpenAPI != nil {
			parts = append(parts, r.OpenAPI)
		}
	}
	for _, part := range parts {
		if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(&merged, part); err != nil {
			return Document{}, fmt.Errorf("merge OpenAPI: %w", err)
		}
	}
	return inJSON(&merged)
}

func (d *Documents) buildV2(sections ...section) (*spec.Swagger, error) {
	containers, found, err := d.models(v2Refs, sections...)
	if err != nil {
		return nil, err
	}
	isCustom := sections[0].custom()
	config := &common.Config{
		ProtocolList: []string{"https"}, Info: d.info(isCustom),
		GetDefinitions:                 func(common.ReferenceCallback) map[string]common.OpenAPIDefinition { return found },
		CommonResponses:                map[int]spec.Response{401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}}},
		GetOperationIDAndTagsFromRoute: idAndTags, GetDefinitionName: asItIs,
	}
	dropDefaults(found)
	if isCustom {
		forCustom(found)
	} else {
		config.SecurityDefinitions = &spec.SecurityDefinitions{"BearerToken": &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication",
		}}}
		config.DefaultSecurity = []map[string][]string{{"BearerToken": {}}}
	}
	built, err := builder.BuildOpenAPISpecFromRoutes(containers, config)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	return built, nil
}

// dropDefaults takes the defaults, which clients had no use for before v3.
func dropDefaults(definitions map[string]common.OpenAPIDefinition) {
	walker := schemamutation.Walker{RefCallback: schemamutation.RefCallbackNoop, SchemaCallback: func(s *spec.Schema) *spec.Schema {
		if s.Default == nil {
			return s
		}
		without := *s
		without.Default = nil
		return &without
	}}
	for name, definition := range definitions {
		definition.Schema = *walker.WalkSchema(&definition.Schema)
		definitions[name] = definition
	}
}

func (d *Documents) info(custom bool) *spec.Info {
	if custom {
		return &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes CRD Swagger", Version: "v0.1.0"}}
	}
	return &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: d.options.Version}}
}

func idAndTags(r common.Route) (string, []string, error) {
	return r.OperationName(), []string{r.(route).tag}, nil
}

// asItIs names definitions: their extensions are in them.
func asItIs(name string) (string, spec.Extensions) { return name, nil }

func inJSON(document any) (Document, error) {
	plain, err := json.Marshal(document)
	if err != nil {
		return Document{}, fmt.Errorf("encode OpenAPI: %w", err)
	}
	return Document{Body: plain, ContentType: mediaJSON, ETag: etag(plain), Varies: true}, nil
}

func byName(a, b schema.GroupVersion) int {
	if a.Group != b.Group {
		return strings.Compare(a.Group, b.Group)
	}
	return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
}
