package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// maxBody is the size of the largest body of a write, in bytes.
const maxBody = 3 * 1024 * 1024

// statusOf is the Status that an error leaves as. An error without one is our
// own failure: 500 with its text.
func statusOf(err error) *metav1.Status {
	var carrier apierrors.APIStatus
	if errors.As(err, &carrier) {
		status := carrier.Status()
		if status.Status == "" {
			status.Status = metav1.StatusFailure
		}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		return &status
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return statusOf(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
	}
	return &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Message: err.Error(),
	}
}

// writeError is the only way in which an error of the API leaves the server: as
// a Status, in the media type that the client accepts, or in JSON if it accepts
// none of ours.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // nobody is listening
	}
	status := statusOf(err)
	if status.Code >= 500 && status.Reason == "" {
		s.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	out, negotiateErr := negotiate(r, s.encodings(nil), false)
	if negotiateErr != nil || out.as != "" {
		out = mediaType{name: typeJSON}
	}
	writeStatus(w, r, out, status)
}

// notFoundText answers for paths that no part of the API claims.
func notFoundText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintln(w, "404 page not found")
}

// errNotYet is for a path that is not there while the server is still starting:
// that of a custom resource must not seem to be gone.
func errNotYet() error {
	err := apierrors.NewServiceUnavailable("the request has been made before all known HTTP paths have been installed, please try again")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 5}
	return err
}

// errNoSuchResource is for a resource that a served group version does not have.
func errNoSuchResource() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "404: Page Not Found", 0, false)
}

func errMethodNotAllowed() error {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "405: Method Not Allowed", 0, false)
}

func errNotAcceptable(accepted []string) error {
	return notAcceptable("only the following media types are accepted: " + strings.Join(accepted, ", "))
}

func notAcceptable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: message,
	}}
}

// errNoRepresentation is for an Accept header that no route has anything for.
func errNoRepresentation(offered []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Details: &metav1.StatusDetails{},
		Message: "406: Not Acceptable\n\nAvailable representations: " + strings.Join(offered, ", "),
	}}
}

// errNoSuchPatch is for a patch of a type that no route takes.
func errNoSuchPatch() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Details: &metav1.StatusDetails{},
		Message: "415: Unsupported Media Type",
	}}
}

func errUnsupportedMediaType(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

func errTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
}

// htmlSafe keeps a user name out of what a browser might take for markup.
var htmlSafe = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// errForbidden says who was refused what, in upstream's words.
func errForbidden(a authorizer.Attributes, reason string) error {
	text := htmlSafe.Replace(forbiddenText(a))
	if reason != "" {
		text += ": " + reason
	}
	resource := schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
	return apierrors.NewForbidden(resource, a.GetName(), errors.New(text))
}

func forbiddenText(a authorizer.Attributes) string {
	name := ""
	if u := a.GetUser(); u != nil {
		name = u.GetName()
	}
	if !a.IsResourceRequest() {
		return fmt.Sprintf("User %q cannot %s path %q", name, a.GetVerb(), a.GetPath())
	}
	resource := a.GetResource()
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	scope := "at the cluster scope"
	if ns := a.GetNamespace(); ns != "" {
		scope = fmt.Sprintf("in the namespace %q", ns)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", name, a.GetVerb(), resource, a.GetAPIGroup(), scope)
}
