package openapi

import (
	"net/http"
	"reflect"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
)

// route is one method of one path, as kube-openapi's builders read it.
type route struct {
	method, path, id, description string
	tag                           string
	parameters                    []common.Parameter
	consumes, produces            []string
	body                          model // the schema of the body; empty: there is none
	reply                         model // that of the answer; empty: not told
	codes                         []int // of the answers
	metadata                      map[string]any
}

func (r route) Method() string                 { return r.method }
func (r route) Path() string                   { return r.path }
func (r route) OperationName() string          { return r.id }
func (r route) Parameters() []common.Parameter { return r.parameters }
func (r route) Description() string            { return r.description }
func (r route) Consumes() []string             { return r.consumes }
func (r route) Produces() []string             { return r.produces }
func (r route) Metadata() map[string]any       { return r.metadata }
func (r route) RequestPayloadSample() any      { return r.body.sample() }
func (r route) ResponsePayloadSample() any     { return nil }
func (r route) StatusCodeResponses() (all []common.StatusCodeResponse) {
	for _, code := range r.codes {
		all = append(all, response{code, r.reply})
	}
	return all
}

// model is the name of a schema, or of a simple type.
type model string

// OpenAPICanonicalTypeName is how the builders learn the name.
func (m model) OpenAPICanonicalTypeName() string { return string(m) }

func (m model) sample() any {
	if m == "" {
		return nil
	}
	return m
}

type response struct {
	code  int
	model model
}

func (r response) Code() int       { return r.code }
func (r response) Message() string { return http.StatusText(r.code) }
func (r response) Model() any      { return r.model }

type parameter struct {
	name, description, dataType string
	kind                        common.ParameterKind
	required                    bool
}

func (p parameter) Name() string               { return p.name }
func (p parameter) Description() string        { return p.description }
func (p parameter) Required() bool             { return p.required }
func (p parameter) Kind() common.ParameterKind { return p.kind }
func (p parameter) DataType() string           { return p.dataType }
func (p parameter) AllowMultiple() bool        { return false }

func inPath(name, description string) common.Parameter {
	return parameter{name: name, description: description, dataType: "string", kind: common.PathParameterKind, required: true}
}

func inBody(required bool) common.Parameter {
	return parameter{name: "body", kind: common.BodyParameterKind, required: required}
}

var pretty = parameter{
	name: "pretty", dataType: "string", kind: common.QueryParameterKind,
	description: "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget).",
}

// inQuery are the fields of an options type, but for some.
func inQuery(options any, except ...string) []common.Parameter {
	var words map[string]string
	if documented, ok := options.(interface{ SwaggerDoc() map[string]string }); ok {
		words = documented.SwaggerDoc()
	}
	t := reflect.TypeOf(options)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var all []common.Parameter
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		dataType := queryType(t.Field(i).Type)
		if name == "" || dataType == "" || has(except, name) {
			continue
		}
		all = append(all, parameter{name: name, description: words[name], dataType: dataType, kind: common.QueryParameterKind})
	}
	return all
}

// queryType is how a field goes into a query; empty: not at all.
func queryType(t reflect.Type) string {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.String:
		return "string"
	}
	return ""
}

// container is the routes below one path: a document of v3.
type container struct {
	root   string
	routes []common.Route
}

func (c container) RootPath() string                   { return c.root }
func (c container) PathParameters() []common.Parameter { return nil }
func (c container) Routes() []common.Route             { return c.routes }
