package server

import (
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// issueToken serves POST on serviceaccounts/{name}/token.
func (c *call) issueToken() error {
	ctx := c.r.Context()
	if c.s.Tokens == nil {
		return errNoSuchResource()
	}
	request := &authenticationv1.TokenRequest{}
	req, err := c.posted(request, tokenRequestKind)
	if err != nil {
		return err
	}
	defer req.Finish(ctx, nil)
	if request.Name != "" && request.Name != c.Name {
		return apierrors.NewInvalid(tokenRequestKind.GroupKind(), c.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), request.Name, "must match the service account name if specified"),
		})
	}
	accounts := c.s.Store.Collection(schema.GroupResource{Resource: "serviceaccounts"})
	item, err := accounts.Get(ctx, c.Namespace, c.Name, "")
	if err != nil {
		return err
	}
	account := item.Object().(*corev1.ServiceAccount)
	if uid := request.UID; uid != "" && uid != account.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: tokenRequestKind.Group, Resource: tokenRequestKind.Kind}, c.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", uid, account.UID))
	}
	if err := c.s.Admission.Validate(ctx, req); err != nil {
		return err
	}
	answer, err := c.s.Tokens.Issue(ctx, account, request)
	if err != nil {
		return err
	}
	if asked, given := *request.Spec.ExpirationSeconds, *answer.Spec.ExpirationSeconds; given < asked {
		c.warn(fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, given))
	}
	return c.reply(http.StatusCreated, answer, tokenRequestKind)
}
