package server

import (
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
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
	w := &change{call: c, options: options, dryRun: len(options.DryRun) > 0, manager: c.manager(options.FieldManager)}
	created, err := w.create(ctx, col, obj)
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
	options, err := query(c, func(v *url.Values, o *metav1.CreateOptions) error {
		return metav1.Convert_url_Values_To_v1_CreateOptions(v, o, nil)
	})
	if err != nil {
		return nil, err
	}
	typeOptions(options, "CreateOptions")
	return options, optionErrors("CreateOptions", metav1validation.ValidateCreateOptions(options))
}

// typeOptions sets the kind of an options struct, which webhooks are told.
func typeOptions(options runtime.Object, kind string) {
	options.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(kind))
}

// optionErrors is the Invalid error for query parameters that make no sense.
func optionErrors(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}
