package server

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/server/storage"
)

// deleteCollection serves DELETE on a collection: every object that the
// selectors pick is deleted by the rules for one. It answers with the list of
// what it found. Objects that are gone in the meantime don't matter.
func (c *call) deleteCollection() error {
	ctx := c.r.Context()
	if c.kind.Namespaced && c.Namespace == "" {
		return errMethodNotAllowed()
	}
	options, err := c.deleteOptions()
	if err != nil {
		return err
	}
	if ignoresReadErrors(options) {
		return optionErrors("DeleteOptions", field.ErrorList{field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	list, err := c.listOptions()
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	selection, err := c.selection(list)
	if err != nil {
		return err
	}
	c.warnOfDeletion(options)
	page, err := c.splitFields(&selection).list(ctx, col, storage.ListOptions{
		Selection: selection, Limit: list.Limit, Continue: list.Continue,
		ResourceVersion: list.ResourceVersion, Match: list.ResourceVersionMatch,
	})
	if err != nil {
		return err
	}
	for i, item := range page.Items {
		ofOne, span := c.traceDeletion(ctx, i)
		// Each object decides anew which preconditions and finalizers apply.
		_, _, err := c.remove(ofOne, col, item.Namespace, item.Name, options.DeepCopy())
		span.EndQuietly(err)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	c.flushWarnings()
	return c.replyPage(http.StatusOK, page)
}
