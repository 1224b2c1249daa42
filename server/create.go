package server

import (
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// create serves POST on a collection.
func (c *call) create() error {
	ctx := c.r.Context()
	if c.kind.Namespaced && c.Namespace == "" || c.Name != "" && !c.kind.Unstructured() {
		return errMethodNotAllowed()
	}
	options, err := c.createOptions()
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
	m, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := checkNamespace(m, c.objectNamespace()); err != nil {
		return err
	}
	if obj, err = c.stored(obj); err != nil {
		return err
	}
	created, err := c.change(options, options.DryRun, options.FieldManager).create(ctx, col, obj)
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusCreated, created)
}

// objectNamespace is the namespace that the objects of a request are in. For
// namespaces themselves the URL's namespace is their own name.
func (c *call) objectNamespace() string {
	if !c.kind.Namespaced {
		return ""
	}
	return c.Namespace
}

func (c *call) createOptions() (*metav1.CreateOptions, error) {
	return writeOptions(c, "CreateOptions", metav1.Convert_url_Values_To_v1_CreateOptions, metav1validation.ValidateCreateOptions)
}

// writeOptions reads the query of a write. Webhooks are told its kind, too.
func writeOptions[T any, O interface {
	*T
	runtime.Object
}](c *call, kind string, convert func(*url.Values, O, conversion.Scope) error, validate func(O) field.ErrorList) (O, error) {
	options, err := query(c, convert)
	if err != nil {
		return nil, err
	}
	options.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(kind))
	return options, optionErrors(kind, validate(options))
}

// optionErrors is the Invalid error for query parameters that make no sense.
func optionErrors(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}
