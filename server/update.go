package server

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
)

// update serves PUT on an object, and on the views of it (status, resize).
func (c *call) update() error {
	ctx := c.r.Context()
	options, err := c.updateOptions()
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	obj := c.kind.New()
	if err := c.body(obj, c.kind.GroupVersionKind, options.FieldValidation); err != nil {
		return err
	}
	if err := c.checkIdentity(obj); err != nil {
		return err
	}
	m, _ := meta.Accessor(obj)
	if obj, err = c.stored(obj); err != nil {
		return err
	}
	w := c.change(options, options.DryRun, options.FieldManager)
	stored, err := w.update(ctx, col, uidPrecondition(m), func(runtime.Object) (runtime.Object, error) {
		return obj.DeepCopyObject(), nil
	})
	if apierrors.IsNotFound(err) && c.kind.Hub().CreateOnUpdate && c.sub == nil {
		return c.createByUpdate(w, obj)
	}
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusOK, stored)
}

// createByUpdate is a PUT to a name that isn't taken, for the few kinds that
// allow it.
func (c *call) createByUpdate(w *change, obj runtime.Object) error {
	if err := c.authorize("create"); err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	m, _ := meta.Accessor(obj)
	if err := col.CheckAbsent(c.objectNamespace(), c.Name, uidPrecondition(m)); err != nil {
		return err
	}
	m.SetResourceVersion("")
	created, err := w.create(c.r.Context(), col, obj)
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusCreated, created)
}

// uidPrecondition makes an update that names a UID fail if the object was
// deleted and made again.
func uidPrecondition(m metav1.Object) *metav1.Preconditions {
	uid := m.GetUID()
	if uid == "" {
		return nil
	}
	return &metav1.Preconditions{UID: &uid}
}

func (c *call) updateOptions() (*metav1.UpdateOptions, error) {
	return writeOptions(c, "UpdateOptions", metav1.Convert_url_Values_To_v1_UpdateOptions, metav1validation.ValidateUpdateOptions)
}
