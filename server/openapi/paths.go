package openapi

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/registry"
)

// operation is one method of one path, before it is written down in a dialect.
type operation struct {
	id, description, action string
	gvk                     schema.GroupVersionKind
	tag                     string
	body                    string // name of the schema of the body
	bodyOptional            bool
	patch                   bool
	reply                   string // name of the schema of the reply; empty: a string
	codes                   []string
	list                    bool // also answers watches
	query                   []parameter
}

// parameter is a path or query parameter.
type parameter struct {
	name, kind, description string
	path                    bool
}

// dialect writes operations and parameters down in a version of OpenAPI.
type dialect interface {
	operation(operation) object
	parameter(parameter) object
}

// methods are the HTTP methods of the verbs of subresources, and the verbs that
// operations are named by.
var methods = []struct{ verb, method, word string }{
	{"get", "get", "read"}, {"update", "put", "replace"}, {"patch", "patch", "patch"},
	{"create", "post", "create"}, {"delete", "delete", "delete"},
}

// addPaths writes down all paths of a kind.
func addPaths(paths object, k *registry.Kind, d dialect) {
	w := pathWriter{paths: paths, k: k, d: d, base: "/" + pathOf(k.GroupVersion()) + "/"}
	collection := w.base + k.Plural
	if k.Namespaced {
		if k.Can("list") {
			w.add(collection, "get", w.list("ForAllNamespaces"))
		}
		collection = w.base + "namespaces/{namespace}/" + k.Plural
	}
	w.collection(collection)
	w.item(collection + "/{name}")
	for _, name := range subNames(k) {
		w.subresource(collection+"/{name}/"+name, name, k.Sub[name])
	}
}

type pathWriter struct {
	paths object
	k     *registry.Kind
	d     dialect
	base  string
}

// add puts an operation under a path, with the path's own parameters.
func (w pathWriter) add(path, method string, op operation) {
	item, ok := w.paths[path].(object)
	if !ok {
		var params []any
		for _, p := range []parameter{
			{name: "name", kind: "string", description: "name of the " + w.k.Kind, path: true},
			{name: "namespace", kind: "string", description: "object name and auth scope, such as for teams and projects", path: true},
			{name: "path", kind: "string", description: "path is the URL path to use for the current proxy request", path: true},
		} {
			if strings.Contains(path, "{"+p.name+"}") {
				params = append(params, w.d.parameter(p))
			}
		}
		params = append(params, w.d.parameter(parameter{name: "pretty", kind: "string", description: "If 'true', then the output is pretty printed."}))
		item = object{"parameters": params}
		w.paths[path] = item
	}
	op.tag = tagOf(w.k.GroupVersion())
	if op.gvk.Empty() {
		op.gvk = w.k.GroupVersionKind
	}
	item[method] = w.d.operation(op)
}

func (w pathWriter) id(word, infix, suffix string) string {
	scope := ""
	if w.k.Namespaced && suffix != "ForAllNamespaces" {
		scope = "Namespaced"
	}
	return word + title(w.k.GroupVersion()) + infix + scope + w.k.Kind + suffix
}

func (w pathWriter) list(suffix string) operation {
	return operation{
		id: w.id("list", "", suffix), action: "list", description: "list or watch objects of kind " + w.k.Kind,
		reply: listNameOf(w.k), codes: []string{"200"}, list: true, query: listParameters(),
	}
}

func (w pathWriter) collection(path string) {
	name := nameOf(w.k)
	if w.k.Can("list") {
		w.add(path, "get", w.list(""))
	}
	if w.k.Can("create") {
		w.add(path, "post", operation{
			id: w.id("create", "", ""), action: "post", description: "create " + article(w.k.Kind),
			body: name, reply: name, codes: []string{"200", "201", "202"}, query: writeParameters(),
		})
	}
	if w.k.Can("deletecollection") {
		w.add(path, "delete", operation{
			id: w.id("delete", "Collection", ""), action: "deletecollection", description: "delete collection of " + w.k.Kind,
			body: metav1.DeleteOptions{}.OpenAPIModelName(), bodyOptional: true,
			reply: metav1.Status{}.OpenAPIModelName(), codes: []string{"200"}, query: append(deleteParameters(), listParameters()...),
		})
	}
}

func (w pathWriter) item(path string) {
	name := nameOf(w.k)
	if w.k.Can("get") {
		w.add(path, "get", operation{
			id: w.id("read", "", ""), action: "get", description: "read the specified " + w.k.Kind, reply: name, codes: []string{"200"},
		})
	}
	if w.k.Can("update") {
		w.add(path, "put", operation{
			id: w.id("replace", "", ""), action: "put", description: "replace the specified " + w.k.Kind,
			body: name, reply: name, codes: []string{"200", "201"}, query: writeParameters(),
		})
	}
	if w.k.Can("patch") {
		w.add(path, "patch", operation{
			id: w.id("patch", "", ""), action: "patch", description: "partially update the specified " + w.k.Kind,
			body: patchModel, patch: true, reply: name, codes: []string{"200", "201"}, query: patchParameters(),
		})
	}
	if w.k.Can("delete") && w.k.Can("get") {
		w.add(path, "delete", operation{
			id: w.id("delete", "", ""), action: "delete", description: "delete " + article(w.k.Kind),
			body: metav1.DeleteOptions{}.OpenAPIModelName(), bodyOptional: true,
			reply: metav1.Status{}.OpenAPIModelName(), codes: []string{"200", "202"}, query: deleteParameters(),
		})
	}
}

const patchModel = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"

func (w pathWriter) subresource(path, name string, sub registry.Subresource) {
	gvk, model := w.k.GroupVersionKind, nameOf(w.k)
	if !sub.Kind.Empty() {
		gvk = sub.Kind
	}
	if sub.New != nil && !w.k.Unstructured() {
		model = modelName(sub.New())
	}
	connects := strings.HasSuffix(gvk.Kind, "Options")
	for _, m := range methods {
		if !has(sub.Verbs, m.verb) {
			continue
		}
		op := operation{
			id: w.id(m.word, "", strings.ToUpper(name[:1])+name[1:]), action: m.method,
			description: m.word + " " + name + " of the specified " + w.k.Kind,
			gvk:         gvk, reply: model, codes: []string{"200"},
		}
		switch {
		case connects:
			op.id = w.id("connect", strings.ToUpper(m.method[:1])+m.method[1:], strings.ToUpper(name[:1])+name[1:])
			op.action, op.reply = "connect", ""
		case name == "log":
			op.reply = ""
		case m.verb == "patch":
			op.body, op.patch, op.codes, op.query = patchModel, true, []string{"200", "201"}, patchParameters()
		case m.verb == "update":
			op.body, op.codes, op.query = model, []string{"200", "201"}, writeParameters()
		case m.verb == "create":
			op.body, op.codes, op.query = model, []string{"200", "201", "202"}, writeParameters()
		}
		w.add(path, m.method, op)
		if connects && name == "proxy" {
			op.id += "WithPath"
			w.add(path+"/{path}", m.method, op)
		}
	}
}

func has(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

func article(kind string) string {
	if strings.ContainsRune("AEIOU", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}

// title is AppsV1, CoreV1, RbacAuthorizationV1.
func title(gv schema.GroupVersion) string {
	group := strings.TrimSuffix(gv.Group, ".k8s.io")
	if group == "" {
		group = "core"
	}
	var out strings.Builder
	for _, part := range strings.FieldsFunc(group, func(r rune) bool { return r == '.' || r == '-' }) {
		out.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return out.String() + strings.ToUpper(gv.Version[:1]) + gv.Version[1:]
}

// tagOf is apps_v1, core_v1, rbacAuthorization_v1.
func tagOf(gv schema.GroupVersion) string {
	t := title(gv)
	t = strings.TrimSuffix(t, strings.ToUpper(gv.Version[:1])+gv.Version[1:])
	return strings.ToLower(t[:1]) + t[1:] + "_" + gv.Version
}

func listParameters() []parameter {
	words := metav1.ListOptions{}.SwaggerDoc()
	var out []parameter
	for _, p := range []struct{ name, kind string }{
		{"allowWatchBookmarks", "boolean"}, {"continue", "string"}, {"fieldSelector", "string"}, {"labelSelector", "string"},
		{"limit", "integer"}, {"resourceVersion", "string"}, {"resourceVersionMatch", "string"}, {"sendInitialEvents", "boolean"},
		{"timeoutSeconds", "integer"}, {"watch", "boolean"},
	} {
		out = append(out, parameter{name: p.name, kind: p.kind, description: words[p.name]})
	}
	return out
}

func writeParameters() []parameter {
	words := metav1.PatchOptions{}.SwaggerDoc()
	return []parameter{
		{name: "dryRun", kind: "string", description: words["dryRun"]},
		{name: "fieldManager", kind: "string", description: words["fieldManager"]},
		{name: "fieldValidation", kind: "string", description: words["fieldValidation"]},
	}
}

func patchParameters() []parameter {
	return append(writeParameters(), parameter{name: "force", kind: "boolean", description: metav1.PatchOptions{}.SwaggerDoc()["force"]})
}

func deleteParameters() []parameter {
	words := metav1.DeleteOptions{}.SwaggerDoc()
	return []parameter{
		{name: "dryRun", kind: "string", description: words["dryRun"]},
		{name: "gracePeriodSeconds", kind: "integer", description: words["gracePeriodSeconds"]},
		{name: "ignoreStoreReadErrorWithClusterBreakingPotential", kind: "boolean", description: words["ignoreStoreReadErrorWithClusterBreakingPotential"]},
		{name: "orphanDependents", kind: "boolean", description: words["orphanDependents"]},
		{name: "propagationPolicy", kind: "string", description: words["propagationPolicy"]},
	}
}
