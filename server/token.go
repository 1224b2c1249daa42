package server

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/server/admission"
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// Bounds of the time that a token may be asked for, in seconds.
const (
	shortestToken = 10 * 60
	longestToken  = 1 << 32
)

// issueToken serves POST on serviceaccounts/{name}/token.
func (c *call) issueToken() error {
	ctx := c.r.Context()
	if c.s.Tokens == nil {
		return errNoSuchResource()
	}
	options, err := c.createOptions()
	if err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{}
	if err := c.body(request, tokenRequestKind, options.FieldValidation); err != nil {
		return err
	}
	if request.Name != "" && request.Name != c.Name {
		return apierrors.NewInvalid(tokenRequestKind.GroupKind(), c.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), request.Name, "must match the service account name"),
		})
	}
	if err := checkNamespace(request, c.Namespace); err != nil {
		return err
	}
	if err := checkTokenTime(request, c.Name); err != nil {
		return err
	}
	accounts := c.s.Store.Collection(schema.GroupResource{Resource: "serviceaccounts"})
	item, err := accounts.Get(ctx, c.Namespace, c.Name, "")
	if err != nil {
		return err
	}
	req := &admission.Request{
		Operation: admission.Create, Resource: c.GVR, Subresource: c.Subresource, Kind: tokenRequestKind, Namespace: c.Namespace, Name: c.Name,
		Object: request, Options: options, DryRun: len(options.DryRun) > 0, User: c.user, Warn: c.warn, Annotate: c.annotate,
	}
	defer req.Finish(ctx, nil)
	if err := c.s.Admission.Mutate(ctx, req); err != nil {
		return err
	}
	if err := c.s.Admission.Validate(ctx, req); err != nil {
		return err
	}
	answer, err := c.s.Tokens.Issue(ctx, item.Object().(*corev1.ServiceAccount), request)
	if err != nil {
		return err
	}
	return c.reply(http.StatusCreated, answer, tokenRequestKind)
}

func checkTokenTime(request *authenticationv1.TokenRequest, name string) error {
	seconds := request.Spec.ExpirationSeconds
	if seconds == nil {
		return nil
	}
	path := field.NewPath("spec", "expirationSeconds")
	var problem *field.Error
	switch {
	case *seconds < shortestToken:
		problem = field.Invalid(path, *seconds, "may not specify a duration less than 10 minutes")
	case *seconds > longestToken:
		problem = field.Invalid(path, *seconds, "may not specify a duration larger than 2^32 seconds")
	default:
		return nil
	}
	return apierrors.NewInvalid(tokenRequestKind.GroupKind(), "", field.ErrorList{problem})
}
