package server

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/server/storage"
)

// get serves GET on an object and on the views of it.
func (c *call) get() error {
	options, err := query(c, metav1.Convert_url_Values_To_v1_GetOptions)
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	item, err := col.Get(c.r.Context(), c.objectNamespace(), c.Name, options.ResourceVersion)
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusOK, item)
}

// replyItem answers with an item, in the bytes that it is kept in if possible.
func (c *call) replyItem(code int, item *storage.Item) error {
	c.flushWarnings()
	if c.out.as != "" {
		return c.replyStored(code, item.Object())
	}
	c.auditItem(item)
	body, err := c.itemEncoded(item)
	if err != nil {
		return err
	}
	return writeEncoded(c.w, c.r, c.out, code, body, c.kind.GroupVersionKind)
}
