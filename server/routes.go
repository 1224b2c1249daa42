package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/prometheus/slis"

	"orrery.dev/server/flowcontrol"
	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
)

// middleware is what every request passes on its way to the handler, in running
// order.
func (s *Server) middleware() []gin.HandlerFunc {
	return []gin.HandlerFunc{
		s.measure,      // count and time it
		s.recoverPanic, // a panic becomes a 500, the server lives on
		s.readURL,      // what does it ask for?
		s.trace,        // the journey of a change begins
		s.deadline,     // requests that should be short have a minute
		s.authenticate, // who is asking? else 401
		s.record,       // the audit log
		s.impersonate,  // as whom, if they may
		s.limit,        // not too many at once, and all in turn, else 429
		s.authorizeURL, // may they? else 403
	}
}

// routes is the table of contents of the API: every form of URL there is. Kinds
// come and go at run time, so the URLs of objects are not registered one by one:
// info.go reads them, and serveObjects finds the row and the verb.
func (s *Server) routes() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.RedirectTrailingSlash = false
	engine.HandleMethodNotAllowed = false
	engine.ContextWithFallback = true

	for path, handler := range s.Public {
		mount(engine, path, handler)
	}
	api := engine.Group("/", s.middleware()...)

	// Documents: discovery and OpenAPI.
	api.Any("/api", s.documents)
	api.Any("/apis", s.documents)
	api.Any("/openapi/*path", s.documents) // /openapi/v2, /openapi/v3, /openapi/v3/apis/{group}/{version}

	// Objects:
	//   /api/v1, /apis/{group}, /apis/{group}/{version}               (documents)
	//   /{api/v1 | apis/group/version}/{plural}                       GET (list, ?watch), POST, DELETE
	//   .../{plural}/{name}                                           GET, PUT, PATCH, DELETE
	//   .../{plural}/{name}/{subresource}[/{rest}]                    by subresource
	//   .../namespaces/{namespace}/{plural}[/{name}[/{subresource}]]  the same, in a namespace
	//   .../watch/...                                                 GET, an old form of ?watch
	api.Any("/api/*path", s.objects)
	api.Any("/apis/*path", s.objects)

	// The server itself.
	for path, serve := range map[string]gin.HandlerFunc{
		"/version": s.version, "/version/": s.version,
		"/.well-known/openid-configuration": s.openIDConfiguration, "/openid/v1/jwks": s.openIDKeys,
	} {
		api.Any(path, s.onlyGet(serve))
	}
	for _, group := range []string{"/healthz", "/livez", "/readyz"} {
		api.Any(group, s.healthGroup)
		api.Any(group+"/*check", s.healthCheck)
	}
	api.GET("/metrics", s.serveMetrics)
	health := http.NewServeMux()
	slis.SLIMetricsWithReset{}.Install(health) // at /metrics/slis
	mount(api, "/metrics/slis", health)
	mount(api, "/debug/pprof/", profiles())
	if s.flow != nil {
		mount(api, flowcontrol.DebugPath, s.flow)
	}
	for path, handler := range s.Extra {
		mount(api, path, handler)
	}
	if s.Public["/"] == nil {
		api.GET("/", s.listPaths)
		api.Any("/index.html", s.listPaths)
	}
	engine.NoRoute(append(s.middleware(), func(c *gin.Context) { notFoundText(c.Writer) })...)
	return engine
}

// mount registers a handler for a path, and for all below it if that ends in a
// slash.
func mount(on gin.IRoutes, path string, handler http.Handler) {
	serve := gin.WrapH(handler)
	if path == "/" {
		on.GET("/", serve)
		return
	}
	if base, below := strings.CutSuffix(path, "/"); below {
		on.Any(base, serve)
		on.Any(base+"/*rest", serve)
		return
	}
	on.Any(path, serve)
}

// profiles serves the profiles of this process.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	return mux
}

// onlyGet refuses the other methods.
func (s *Server) onlyGet(serve gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.Method != http.MethodGet {
			s.refuse(c, errMethodNotAllowed())
			return
		}
		serve(c)
	}
}

// documents serves discovery and OpenAPI. The lists of groups and of a group's
// versions, and OpenAPI, are the same by every method.
func (s *Server) documents(c *gin.Context) {
	if s.Documents == nil {
		notFoundText(c.Writer)
		return
	}
	parts := splitPath(c.Request.URL.Path)
	anyMethod := parts[0] == "openapi" || parts[0] == "apis" && len(parts) < 3
	if !anyMethod && c.Request.Method != http.MethodGet && s.servesGroup(parts) {
		s.refuse(c, errMethodNotAllowed())
		return
	}
	err := s.Documents.Serve(c.Writer, c.Request)
	switch {
	case err == nil:
	case errors.Is(err, openapi.ErrUnacceptable) && anyMethod:
		s.writeError(c.Writer, c.Request, errNotAcceptable(s.encodings(nil)))
	case errors.Is(err, openapi.ErrUnacceptable):
		s.writeError(c.Writer, c.Request, errNoRepresentation(s.encodings(nil)))
	case errors.Is(err, openapi.ErrNone):
		s.noSuchDocument(c, parts)
	default:
		s.writeError(c.Writer, c.Request, err)
	}
}

// noSuchDocument tells a version that a built-in group does not have from a group
// that nobody serves.
func (s *Server) noSuchDocument(c *gin.Context, parts []string) {
	if s.servesGroup(parts) {
		s.writeError(c.Writer, c.Request, errNoSuchResource())
		return
	}
	notFoundText(c.Writer)
}

// servesGroup reports whether a path is in a group of built-in kinds.
func (s *Server) servesGroup(parts []string) bool {
	if parts[0] == "api" {
		return true
	}
	return parts[0] == "apis" && len(parts) > 1 && slices.ContainsFunc(s.Kinds.Kinds(), func(k *registry.Kind) bool {
		return k.Group == parts[1] && !k.Unstructured()
	})
}

// objects serves everything below /api/ and /apis/.
func (s *Server) objects(c *gin.Context) {
	info := infoFrom(c.Request.Context())
	if to := s.remoteFor(info.Path); to != nil {
		watchBegun(c.Request.Context()) // the other server counts it
		s.aggregate(c.Writer, c.Request, to)
		return
	}
	if !info.Resource {
		if !s.health.knowsPaths() && !s.hasGroup(info.Path) {
			s.writeError(c.Writer, c.Request, errNotYet())
			return
		}
		s.documents(c)
		return
	}
	if err := s.serveObjects(c.Writer, c.Request, info); err != nil {
		s.writeError(c.Writer, c.Request, err)
	}
}

// serveObjects is the way from a URL to a verb.
func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request, info *requestInfo) error {
	k := s.Kinds.Find(info.GVR)
	if k == nil {
		return s.noSuchResource(w, info.GVR)
	}
	c := &call{requestInfo: info, s: s, w: w, r: r, user: userFrom(r.Context()), kind: k}
	c.asJSON = c.encodingOf(typeJSON)
	if !rightScope(k, info) || info.isMisplaced(k) {
		return s.noSuchResource(w, info.GVR)
	}
	if r.Method == http.MethodHead && info.Subresource != "proxy" && !k.Unstructured() {
		return errMethodNotAllowed()
	}
	var err error
	if info.Subresource != "" {
		sub, ok := k.Sub[info.Subresource]
		if !ok {
			return s.noSuchSubresource(k, info)
		}
		c.sub = &sub
	}
	if c.out, err = c.negotiated(); err != nil {
		return err
	}
	c.asBinary = c.encodingOf(c.out.name)
	serve := c.handler()
	if serve == nil && k.Unstructured() {
		return apierrors.NewMethodNotSupported(k.GroupResource(), info.Verb)
	}
	if serve == nil {
		return errMethodNotAllowed()
	}
	if k.Deprecated != "" {
		c.warn(k.Deprecated)
		s.metrics.olds.WithLabelValues(k.Group, k.Version, k.Plural, info.Subresource, "").Set(1)
	}
	if c.longRunning() {
		defer s.metrics.begin(r, info)()
	}
	err = serve()
	c.flushWarnings() // of what has failed
	return ownTerms(k, err)
}

// ownTerms names a kind as the client did, where storage named the one that it shows
// the objects of.
func ownTerms(k *registry.Kind, err error) error {
	is, was := k.GroupResource(), k.Stored().GroupResource()
	var failed *apierrors.StatusError
	if is == was || !errors.As(err, &failed) {
		return err
	}
	status := failed.ErrStatus.DeepCopy()
	if d := status.Details; d != nil && d.Group == was.Group && d.Kind == was.Resource {
		d.Group, d.Kind = is.Group, is.Resource
		status.Message = strings.Replace(status.Message, was.String(), is.String(), 1)
	}
	return &apierrors.StatusError{ErrStatus: *status}
}

// rightScope reports whether the URL has a namespace if the kind is in one. Lists
// may be of all namespaces.
func rightScope(k *registry.Kind, info *requestInfo) bool {
	if !k.Namespaced {
		return info.Namespace == "" || k.Plural == "namespaces"
	}
	if k.Unstructured() {
		return info.Namespace != "" || info.Verb == "list" || info.Verb == "watch"
	}
	return info.Namespace != "" || info.Name == "" || info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection"
}

// negotiated is the media type of the reply. Streams of bytes have their own.
func (c *call) negotiated() (mediaType, error) {
	if c.longRunning() && c.Verb != "watch" {
		return mediaType{name: typeJSON}, nil
	}
	offered := c.s.encodings(c.kind)
	if c.sub != nil && c.sub.New != nil {
		offered = c.s.encodings(&registry.Kind{New: c.sub.New})
	}
	var besides []string
	if c.sub == nil && (c.Verb == "list" || c.Verb == "watch") {
		besides = streamsOf(offered)
	}
	out, err := negotiate(c.r, offered, c.hasForms(), besides...)
	streams := c.Verb == "watch" && c.s.CBOR && c.r.Header.Get("Accept") == typeCBOR+"-seq"
	if err != nil && (c.kind.Unstructured() || streams) {
		return out, errNotAcceptable(c.s.encodings(nil))
	}
	if err == nil && c.Verb == "watch" && out.name == typeYAML { // which has no stream form
		return out, errNotAcceptable(streamsOf(offered))
	}
	return out, err
}

// streamsOf are the media types of watches.
func streamsOf(encodings []string) []string {
	var all []string
	for _, name := range encodings {
		switch name {
		case typeYAML:
		case typeCBOR:
			all = append(all, name+"-seq")
		default:
			all = append(all, name+";stream=watch")
		}
	}
	return all
}

// isMisplaced reports whether a URL names an object outside of the namespace that it
// must be in, or something below a view of it.
func (i *requestInfo) isMisplaced(k *registry.Kind) bool {
	if k.Unstructured() {
		return false
	}
	below := i.Rest != "" && i.Subresource != "proxy"
	return below || k.Namespaced && i.Namespace == "" && (i.named || !k.Can("list"))
}

// hasForms reports whether what the call is about has a Table form. Questions and
// orders (reviews, bindings, evictions) have none: nobody lists them.
func (c *call) hasForms() bool {
	if c.sub != nil {
		return c.sub.Prepare != nil || c.sub.Get != nil
	}
	return c.kind.Can("get")
}

// noSuchResource tells a resource that a served group does not have from a group
// that nobody serves.
func (s *Server) noSuchResource(w http.ResponseWriter, gvr schema.GroupVersionResource) error {
	for _, k := range s.Kinds.Kinds() {
		if k.Group == gvr.Group && !k.Unstructured() {
			return errNoSuchResource()
		}
	}
	if !s.health.knowsPaths() {
		return errNotYet()
	}
	notFoundText(w)
	return nil
}

// hasGroup reports whether a path below /api or /apis/{group} is of a group that
// is served now.
func (s *Server) hasGroup(path string) bool {
	path, named := strings.CutPrefix(path, "/apis/")
	group, _, _ := strings.Cut(path, "/")
	return !named || slices.ContainsFunc(s.Kinds.Kinds(), func(k *registry.Kind) bool { return k.Group == group })
}

func (s *Server) noSuchSubresource(k *registry.Kind, info *requestInfo) error {
	if k.Unstructured() {
		return apierrors.NewNotFound(info.GVR.GroupResource(), info.Name)
	}
	return errNoSuchResource()
}

// handler is the verb's function for a call, or nil if the kind has no such
// verb.
func (c *call) handler() func() error {
	if deed := c.deed(); deed != nil {
		return deed
	}
	if c.sub != nil {
		return c.subHandler()
	}
	if !c.kind.Can(c.Verb) {
		return nil
	}
	if c.Name == "" && (c.Verb == "update" || c.Verb == "patch") {
		if c.kind.Unstructured() {
			return func() error { return apierrors.NewBadRequest("name must be provided") }
		}
		return nil
	}
	switch c.Verb {
	case "get":
		return c.get
	case "list":
		return c.list
	case "watch":
		if c.r.Method != http.MethodGet {
			return nil
		}
		return c.watch
	case "create":
		return c.create
	case "update":
		return c.update
	case "patch":
		return c.patch
	case "delete":
		return c.delete
	case "deletecollection":
		return c.deleteCollection
	}
	return nil
}

// subHandler is the function for a view of the object (status) or a projection
// of it (scale).
func (c *call) subHandler() func() error {
	if c.sub.Verbs != nil && !slices.Contains(c.sub.Verbs, c.Verb) {
		return nil
	}
	projection := c.sub.Get != nil
	switch c.Verb {
	case "get":
		if projection {
			return c.getProjection
		}
		return c.get
	case "update":
		if projection {
			return c.updateProjection
		}
		return c.update
	case "patch":
		if projection {
			return c.patchProjection
		}
		return c.patch
	}
	return nil
}

// deed is the function of what is not reading or writing an object: what is
// asked of the server or of a node agent.
func (c *call) deed() func() error {
	name := c.GVR.Resource
	if c.Subresource != "" {
		name += "/" + c.Subresource
	}
	deeds := c.postedDeeds()
	if c.Verb != "create" {
		deeds = c.readDeeds()
	}
	if f, ok := deeds[schema.GroupResource{Group: c.GVR.Group, Resource: name}]; ok {
		return f
	}
	if c.Subresource == "proxy" {
		switch name {
		case "pods/proxy", "services/proxy", "nodes/proxy":
			return c.proxy
		}
	}
	return nil
}

// postedDeeds are what a POST can ask for.
func (c *call) postedDeeds() map[schema.GroupResource]func() error {
	const authn, authz = "authentication.k8s.io", "authorization.k8s.io"
	return map[schema.GroupResource]func() error{
		{Resource: "bindings"}:                                c.bind,
		{Resource: "pods/binding"}:                            c.bind,
		{Resource: "pods/eviction"}:                           c.evict,
		{Resource: "pods/exec"}:                               c.exec,
		{Resource: "pods/attach"}:                             c.attach,
		{Resource: "pods/portforward"}:                        c.portForward,
		{Resource: "serviceaccounts/token"}:                   c.issueToken,
		{Group: authn, Resource: "tokenreviews"}:              c.reviewToken,
		{Group: authn, Resource: "selfsubjectreviews"}:        c.reviewSelf,
		{Group: authz, Resource: "subjectaccessreviews"}:      c.reviewAccess,
		{Group: authz, Resource: "localsubjectaccessreviews"}: c.reviewLocalAccess,
		{Group: authz, Resource: "selfsubjectaccessreviews"}:  c.reviewOwnAccess,
		{Group: authz, Resource: "selfsubjectrulesreviews"}:   c.reviewOwnRules,
	}
}

// readDeeds are what other methods can ask for.
func (c *call) readDeeds() map[schema.GroupResource]func() error {
	switch c.Verb {
	case "get":
		return map[schema.GroupResource]func() error{
			{Resource: "pods/exec"}:         c.exec,
			{Resource: "pods/attach"}:       c.attach,
			{Resource: "pods/portforward"}:  c.portForward,
			{Resource: "pods/log"}:          c.log,
			{Resource: "componentstatuses"}: c.getComponent,
		}
	case "list":
		return map[schema.GroupResource]func() error{{Resource: "componentstatuses"}: c.listComponents}
	}
	return nil
}

// withInfo leaves what the URL says in the request's context.
func withInfo(ctx context.Context, info *requestInfo) context.Context {
	return context.WithValue(ctx, keyInfo, info)
}
