package server

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
	"orrery.dev/server/admission"
)

// posted reads an object of which nothing is stored: a question, or what to do with
// another object. It may be of further versions that have the same form. Admission
// may have changed it, and has not validated it yet.
func (c *call) posted(into runtime.Object, kind schema.GroupVersionKind, also ...schema.GroupVersionKind) (*admission.Request, error) {
	options, err := c.createOptions()
	if err != nil {
		return nil, err
	}
	if err := c.body(into, kind, options.FieldValidation, also...); err != nil {
		return nil, err
	}
	if token, ok := into.(*authenticationv1.TokenRequest); ok { // the only one that is filled in
		api.DefaultTokenRequest(token)
	}
	m, err := meta.Accessor(into)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !slices.Contains([]string{"binding", "token"}, c.Subresource) { // which are about what has them
		m.SetUID("")
		m.SetCreationTimestamp(metav1.Time{})
		m.SetDeletionTimestamp(nil)
		m.SetDeletionGracePeriodSeconds(nil)
		m.SetSelfLink("")
	}
	if err := checkNamespace(m, c.objectNamespace()); err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = m.GetName()
	}
	if owned, err := meta.Accessor(c.ownPosted(into, kind, c.manager(options.FieldManager))); err == nil {
		m.SetManagedFields(owned.GetManagedFields())
	}
	ctx := c.r.Context()
	req := c.change(options, options.DryRun, options.FieldManager).request(admission.Create, into, nil)
	req.Kind = kind
	if err := c.s.Admission.Mutate(ctx, req); err != nil {
		req.Finish(ctx, nil)
		return nil, err
	}
	return req, nil
}

// ownPosted notes whose the fields are.
func (c *call) ownPosted(obj runtime.Object, kind schema.GroupVersionKind, manager string) runtime.Object {
	if c.sub == nil {
		return c.s.fields.own(c.kind, "", (&change{call: c}).empty(), obj, manager)
	}
	none := c.sub.New()
	none.GetObjectKind().SetGroupVersionKind(kind)
	return c.s.fields.ownSub(c.sub, c.Subresource, none, obj, manager)
}
