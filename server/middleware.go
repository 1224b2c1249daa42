package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/audit"
	"orrery.dev/server/registry"
	"orrery.dev/trace"
)

// refuse ends a request with an error.
func (s *Server) refuse(c *gin.Context, err error) {
	c.Abort()
	if apierrors.IsForbidden(err) {
		c.Header("X-Content-Type-Options", "nosniff")
	}
	s.writeError(c.Writer, c.Request, err)
}

// recoverPanic turns a panic into a 500. http.ErrAbortHandler is how a proxy
// cuts a broken reply short, and passes.
func (s *Server) recoverPanic(c *gin.Context) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if cause == http.ErrAbortHandler {
			panic(cause)
		}
		s.Log.Error("panic in a request", "method", c.Request.Method, "path", c.Request.URL.Path, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		c.Abort()
		if !c.Writer.Written() {
			text := fmt.Sprintf("This request caused apiserver to panic. Look in the logs for details.: %q", c.Request.RequestURI)
			s.writeError(c.Writer, c.Request, apierrors.NewInternalError(fmt.Errorf("%s", text)))
		}
	}()
	c.Next()
}

func (s *Server) readURL(c *gin.Context) {
	c.Header("Cache-Control", "no-cache, private") // unless an answer says otherwise
	info := parseRequest(c.Request)
	c.Request = c.Request.WithContext(withInfo(c.Request.Context(), info))
	// OPTIONS and the like are for nobody but what is behind a proxy, and custom
	// resources, which know HEAD and refuse the others by themselves.
	strange := info.Verb == "" || c.Request.Method == http.MethodHead
	if k := s.Kinds.Find(info.GVR); info.Resource && strange && info.Subresource != "proxy" && (k == nil || !k.Unstructured()) {
		s.refuse(c, errMethodNotAllowed())
	}
}

// deadline bounds requests by the server's limit, or the client's ?timeout if
// that is shorter.
func (s *Server) deadline(c *gin.Context) {
	info := infoFrom(c.Request.Context())
	if info.longRunning() || s.isStream(info.Path) {
		return
	}
	limit := s.RequestTimeout
	if asked := c.Query("timeout"); asked != "" {
		d, err := time.ParseDuration(asked)
		if err != nil {
			s.refuseAudited(c, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err)))
			return
		}
		if d > 0 && d < limit {
			limit = d
		}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), limit)
	defer cancel()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	if c.Writer.Status() == http.StatusGatewayTimeout && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.metrics.terminate(c.Request, http.StatusGatewayTimeout)
	}
}

// isStream reports whether a path belongs to an extra handler or a profile,
// whose requests last as long as they like.
func (s *Server) isStream(path string) bool {
	if strings.HasPrefix(path, "/debug/pprof/") {
		return true
	}
	for extra := range s.Extra {
		if path == extra || strings.HasSuffix(extra, "/") && strings.HasPrefix(path, extra) {
			return true
		}
	}
	return false
}

func (s *Server) authenticate(c *gin.Context) {
	step := trace.LastStep(c.Request.Context(), "authentication")
	defer step.End(nil)
	began := time.Now()
	answer, ok, err := s.Authenticator.AuthenticateRequest(c.Request)
	s.metrics.authenticate(c.Request, answer, ok, err, began)
	who := (user.Info)(nil)
	switch {
	case ok && err == nil:
		who = answer.User
	default:
		if err != nil {
			s.Log.Debug("authentication failed", "err", err)
		}
		s.refuseAudited(c, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	c.Request.Header.Del("Authorization") // nobody behind here needs to see it
	s.become(c, who)
}

// become makes who the user of the request.
func (s *Server) become(c *gin.Context, who user.Info) {
	ctx := context.WithValue(c.Request.Context(), keyUser, who)
	c.Request = c.Request.WithContext(registry.WithUser(ctx, who))
}

// authorizeURL asks whether the user may do what the URL and method say.
func (s *Server) authorizeURL(c *gin.Context) {
	a := attributesOf(c.Request)
	if slices.Contains(s.Own, a.Path) && a.User.GetName() != user.Anonymous {
		return
	}
	step := trace.LastStep(c.Request.Context(), "authorization")
	defer step.End(nil)
	began := time.Now()
	decision, reason, err := s.Authorizer.Authorize(c.Request.Context(), a)
	s.metrics.authorize(decision, err, began)
	event := audit.From(c.Request.Context())
	switch {
	case decision == authorizer.DecisionAllow:
		event.Annotate("authorization.k8s.io/decision", "allow")
		event.Annotate("authorization.k8s.io/reason", reason)
		return
	case err != nil:
		event.Annotate("authorization.k8s.io/reason", "internal error")
	default:
		event.Annotate("authorization.k8s.io/decision", "forbid")
		event.Annotate("authorization.k8s.io/reason", reason)
	}
	s.refuse(c, s.refusal(a, reason, err))
}

func (s *Server) mayDo(ctx context.Context, a authorizer.Attributes) error {
	decision, reason, err := s.Authorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return s.refusal(a, reason, err)
}

// refusal is the error for what the authoriser has not allowed.
func (s *Server) refusal(a authorizer.Attributes, reason string, err error) error {
	if err != nil {
		s.Log.Warn("authorisation failed", "user", a.GetUser().GetName(), "err", err)
		return apierrors.NewInternalError(err)
	}
	return errForbidden(a, reason)
}

// attributesOf is a request as the authoriser sees it.
func attributesOf(r *http.Request) *authorizer.AttributesRecord {
	info := infoFrom(r.Context())
	a := &authorizer.AttributesRecord{
		User:            userFrom(r.Context()),
		Verb:            info.Verb,
		Namespace:       info.Namespace,
		APIGroup:        info.GVR.Group,
		APIVersion:      info.GVR.Version,
		Resource:        info.GVR.Resource,
		Subresource:     info.Subresource,
		Name:            info.Name,
		ResourceRequest: info.Resource,
		Path:            info.Path,
	}
	switch info.Verb {
	case "list", "watch", "deletecollection":
		readSelectors(a, r)
	}
	return a
}

// readSelectors tells the authoriser what a list is restricted to; selectors
// that don't parse are no restriction, and fail the request later.
func readSelectors(a *authorizer.AttributesRecord, r *http.Request) {
	values := r.URL.Query()
	if text := values.Get("fieldSelector"); text != "" {
		selector, err := fields.ParseSelector(text)
		if a.FieldSelectorParsingErr = err; err == nil {
			a.FieldSelectorRequirements = selector.Requirements()
		}
	}
	if text := values.Get("labelSelector"); text != "" {
		selector, err := labels.Parse(text)
		if a.LabelSelectorParsingErr = err; err == nil {
			a.LabelSelectorRequirements, _ = selector.Requirements()
		}
	}
}

// authorize asks for another verb on the object of the call.
func (c *call) authorize(verb string) error {
	a := attributesOf(c.r)
	a.Verb = verb
	return c.s.mayDo(c.r.Context(), a)
}

// measure counts a request when it is over.
func (s *Server) measure(c *gin.Context) {
	begin := time.Now()
	id := auditID(c.Request)
	c.Header("Audit-Id", id)
	ctx := context.WithValue(context.WithValue(c.Request.Context(), keyReceived, begin), keyDelay, &delay{})
	if s.Audit != nil {
		ctx, _ = s.Audit.WithEvent(ctx, id)
	}
	c.Request = c.Request.WithContext(ctx)
	defer func() {
		info := infoFrom(c.Request.Context())
		if info == nil {
			return
		}
		s.metrics.observe(c.Request, info, strconv.Itoa(c.Writer.Status()), c.Writer.Size(), time.Since(begin))
	}()
	c.Next()
}
