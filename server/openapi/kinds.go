package openapi

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"

	"orrery.dev/server/registry"
)

// bodies are what the server takes and gives: objects, streams of them, and
// patches.
type bodies struct{ objects, streams, patches []string }

// bodiesOf are those of built-in kinds; custom ones are published with less than
// they can do.
func bodiesOf(custom, cbor bool) bodies {
	b := bodies{
		objects: []string{mediaJSON, mediaYAML, mediaProtobuf},
		streams: []string{mediaJSON + ";stream=watch", mediaProtobuf + ";stream=watch"},
		patches: []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"},
	}
	switch {
	case custom:
		b.objects, b.streams = b.objects[:2], nil
		b.patches = slices.Delete(b.patches, 2, 3)
	case cbor:
		b.objects, b.streams, b.patches = append(b.objects, mediaCBOR), append(b.streams, "application/cbor-seq"), append(b.patches, "application/apply-patch+cbor")
	}
	return b
}

// action is something that can be done to objects, and how its routes speak of
// it: in says, the first %s is a subresource ("status of "), the second the kind.
type action struct {
	verb, method, name string // in discovery; of HTTP; in x-kubernetes-action
	word, after        string // parts of the operation's name: around it, the group version
	says               string
	codes              []int
	query              []common.Parameter
}

var (
	listQuery   = inQuery(metav1.ListOptions{})
	deleteQuery = inQuery(metav1.DeleteOptions{})
	actions     = []action{
		{"list", "GET", "list", "list", "", "list or watch %sobjects of kind %s", []int{200}, listQuery},
		{"create", "POST", "post", "create", "", "create %s%s", []int{200, 201, 202}, inQuery(metav1.CreateOptions{})},
		{"deletecollection", "DELETE", "deletecollection", "delete", "Collection", "delete collection of %s%s", []int{200}, append(slices.Clone(deleteQuery), inQuery(metav1.ListOptions{}, "watch", "allowWatchBookmarks")...)},
		{"watchlist", "GET", "watchlist", "watch", "", "watch individual changes to a list of %s%s. deprecated: use the 'watch' parameter with a list operation instead.", []int{200}, listQuery},
		{"get", "GET", "get", "read", "", "read %sthe specified %s", []int{200}, nil},
		{"update", "PUT", "put", "replace", "", "replace %sthe specified %s", []int{200, 201}, inQuery(metav1.UpdateOptions{})},
		{"patch", "PATCH", "patch", "patch", "", "partially update %sthe specified %s", []int{200, 201}, inQuery(metav1.PatchOptions{})},
		{"delete", "DELETE", "delete", "delete", "", "delete %s%s", []int{200, 202}, deleteQuery},
		{"watch", "GET", "watch", "watch", "", "watch changes to %san object of kind %s. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter.", []int{200}, listQuery},
	}
)

func actionOf(verb string) action {
	return actions[slices.IndexFunc(actions, func(a action) bool { return a.verb == verb })]
}

// kindRoutes are the routes of a kind.
func kindRoutes(k *registry.Kind, cbor bool) []common.Route {
	w := writer{k: k, bodies: bodiesOf(k.Unstructured(), cbor)}
	whole := place{path: k.Plural, gvk: k.GroupVersionKind, model: nameOf(k)}
	if k.Namespaced {
		everywhere := whole
		everywhere.suffix = "ForAllNamespaces"
		w.read(everywhere)
		whole.path = "namespaces/{namespace}/" + k.Plural
	}
	w.read(whole)
	w.does(whole, k.Verbs, "create", "deletecollection")
	one := whole
	one.path += "/{name}"
	w.does(one, k.Verbs, "get", "update", "patch", "delete")
	if w.watches() {
		one.path = "watch/" + one.path
		w.add(one, actionOf("watch"))
	}
	for _, name := range subNames(k) {
		w.subresource(name, k.Sub[name])
	}
	return w.routes
}

// writer writes the routes of a kind.
type writer struct {
	k      *registry.Kind
	bodies bodies
	routes []common.Route
}

// place is a path with what is there.
type place struct {
	path   string
	sub    string // the subresource
	suffix string // of operations' names
	gvk    schema.GroupVersionKind
	model  model
}

func (w *writer) watches() bool { return w.k.Can("watch") && !w.k.Unstructured() }

func (w *writer) read(at place) {
	if !w.k.Can("list") {
		return
	}
	w.add(at, actionOf("list"))
	if w.watches() {
		at.path = "watch/" + at.path
		w.add(at, actionOf("watchlist"))
	}
}

// does adds those of some actions that are among the verbs; nil: all are.
func (w *writer) does(at place, verbs []string, some ...string) {
	for _, verb := range some {
		if verbs == nil || has(verbs, verb) {
			w.add(at, actionOf(verb))
		}
	}
}

func (w *writer) subresource(name string, sub registry.Subresource) {
	at := place{path: w.k.Plural + "/{name}/" + name, sub: name, gvk: w.k.GroupVersionKind, model: nameOf(w.k)}
	if w.k.Namespaced {
		at.path = "namespaces/{namespace}/" + at.path
	}
	if !sub.Kind.Empty() {
		at.gvk = sub.Kind
	}
	if sub.New != nil && sub.Kind.Kind != "" {
		at.model = model(modelName(sub.New()))
	}
	if w.k.Unstructured() {
		at.gvk = w.k.GroupVersionKind
	}
	switch {
	case strings.HasSuffix(at.gvk.Kind, "Options"):
		w.connect(at, sub)
	case name == "log":
		log := w.route(at, actionOf("get"))
		log.reply, log.produces = "string", append([]string{"text/plain"}, log.produces...)
		log.parameters = append(log.parameters, inQuery(sub.New())...)
		w.routes = append(w.routes, log)
	default:
		w.does(at, sub.Verbs, "create", "get", "update", "patch")
	}
}

// connect adds the routes of what is passed on to something else, whole.
func (w *writer) connect(at place, sub registry.Subresource) {
	var methods []string
	for _, verb := range sub.Verbs {
		methods = append(methods, actionOf(verb).method)
	}
	places := []place{at}
	if at.sub == "proxy" {
		methods = append(methods, "HEAD", "OPTIONS")
		below := at
		below.path, below.suffix = at.path+"/{path}", "WithPath"
		places = append(places, below)
	}
	for _, at := range places {
		for _, method := range methods {
			r := w.route(at, action{method: method, name: "connect", word: "connect", after: capital(strings.ToLower(method)), says: "connect " + method + " requests to %s%s", codes: []int{200}})
			r.reply, r.consumes, r.produces = "string", []string{"*/*"}, []string{"*/*"}
			r.parameters = append(r.parameters[1:], inQuery(sub.New())...) // but for pretty
			w.routes = append(w.routes, r)
		}
	}
}

func (w *writer) add(at place, a action) { w.routes = append(w.routes, w.route(at, a)) }

func (w *writer) route(at place, a action) route {
	gv := w.k.GroupVersion()
	r := route{
		method: a.method, path: "/" + pathOf(gv) + "/" + at.path, description: w.says(at, a),
		id: w.operation(at, a), tag: tagOf(gv),
		parameters: append([]common.Parameter{pretty}, pathParameters(at)...),
		consumes:   []string{"*/*"}, produces: w.bodies.objects, codes: a.codes, reply: at.model,
		metadata: map[string]any{"x-kubernetes-action": a.name, gvkExtension: metav1.GroupVersionKind(at.gvk)},
	}
	if w.k.Unstructured() {
		r.consumes = w.bodies.objects
	}
	w.contents(&r, a)
	return r
}

// contents says what goes in and comes out.
func (w *writer) contents(r *route, a action) {
	custom := w.k.Unstructured()
	query := a.query
	switch a.verb {
	case "list", "watchlist", "watch":
		r.reply = listNameOf(w.k)
		if a.verb != "list" {
			r.reply = model(metav1.WatchEvent{}.OpenAPIModelName())
		}
		r.produces = slices.Concat(w.bodies.objects, w.bodies.streams)
	case "get":
		if custom {
			query = inQuery(metav1.GetOptions{})
		}
	case "create", "update":
		r.body = r.reply
		r.parameters = append(r.parameters, inBody(true))
	case "patch":
		r.body = model(metav1.Patch{}.OpenAPIModelName())
		r.parameters = append(r.parameters, inBody(true))
		r.consumes = w.bodies.patches
		if custom {
			r.codes = []int{200}
		}
	case "delete", "deletecollection":
		if a.verb == "deletecollection" || !w.k.ReturnsDeleted() {
			r.reply = model(metav1.Status{}.OpenAPIModelName())
		}
		if a.verb == "deletecollection" && custom {
			query = listQuery
			break
		}
		r.body = model(metav1.DeleteOptions{}.OpenAPIModelName())
		r.parameters = append(r.parameters, inBody(false))
	}
	r.parameters = append(r.parameters, query...)
}

func pathParameters(at place) (all []common.Parameter) {
	for _, p := range []struct{ name, description string }{
		{"namespace", "object name and auth scope, such as for teams and projects"},
		{"name", "name of the " + at.gvk.Kind},
		{"path", "path to the resource"},
	} {
		if strings.Contains(at.path, "{"+p.name+"}") {
			all = append(all, inPath(p.name, p.description))
		}
	}
	return all
}

// says is the description of a route.
func (w *writer) says(at place, a action) string {
	kind, sub := w.k.Kind, ""
	if at.sub != "" {
		sub = at.sub + " of "
	}
	if a.verb == "create" || a.verb == "delete" {
		kind = article(kind)
	}
	says := a.says
	if a.verb == "list" && !w.watches() {
		says = "list %sobjects of kind %s"
	}
	return fmt.Sprintf(says, sub, kind)
}

// operation is the name of a route: createCoreV1NamespacedPodBinding.
func (w *writer) operation(at place, a action) string {
	name := a.word + title(w.k.GroupVersion()) + a.after
	if w.k.Namespaced && at.suffix != "ForAllNamespaces" {
		name += "Namespaced"
	}
	name += w.k.Kind + capital(at.sub)
	if a.verb == "watchlist" {
		name += "List"
	}
	return name + at.suffix
}

func has(all []string, s string) bool { return slices.Contains(all, s) }

func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// article puts one in front of a kind; Endpoints need none.
func article(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return kind
	case strings.ContainsRune("AEIOU", rune(kind[0])):
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
		out.WriteString(capital(part))
	}
	return out.String() + capital(gv.Version)
}

// tagOf is apps_v1, core_v1, rbacAuthorization_v1.
func tagOf(gv schema.GroupVersion) string {
	t := strings.TrimSuffix(title(gv), capital(gv.Version))
	t = strings.ToLower(t[:1]) + t[1:]
	if gv.Version == "" {
		return t
	}
	return t + "_" + gv.Version
}
