package server

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/server/patch"
)

// A subresource that is another kind, converted to and from the object (scale),
// is read and written here. Views of the object itself (status) go through the
// verbs' own files.

// subKind is the kind of the subresource's objects.
func (c *call) subKind() schema.GroupVersionKind {
	if c.sub.Kind.Kind != "" {
		return c.sub.Kind
	}
	return c.kind.GroupVersionKind
}

// projected makes the subresource out of a stored object.
func (c *call) projected(stored runtime.Object) (runtime.Object, error) {
	obj, err := c.served(stored)
	if err != nil {
		return nil, err
	}
	return c.sub.Get(obj)
}

func (c *call) getProjection() error {
	col, err := c.collection()
	if err != nil {
		return err
	}
	item, err := col.Get(c.r.Context(), c.objectNamespace(), c.Name, c.r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	obj, err := c.projected(item.Object)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj, c.subKind())
}

func (c *call) updateProjection() error {
	options, err := c.updateOptions()
	if err != nil {
		return err
	}
	obj := c.sub.New()
	if err := c.body(obj, c.subKind(), options.FieldValidation); err != nil {
		return err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := checkNamespace(m, c.objectNamespace()); err != nil {
		return err
	}
	if err := checkName(m, c.Name); err != nil {
		return err
	}
	w := &change{call: c, options: options, dryRun: len(options.DryRun) > 0, manager: c.manager(options.FieldManager)}
	return c.putProjection(w, uidPrecondition(m), func(runtime.Object) (runtime.Object, error) { return obj, nil })
}

func (c *call) patchProjection() error {
	kind, err := c.patchType()
	if err != nil {
		return err
	}
	body, err := readBody(c.r)
	if err != nil {
		return err
	}
	options, err := c.patchOptions(kind)
	if err != nil {
		return err
	}
	if kind == types.ApplyYAMLPatchType {
		// A projection has few fields: applying is merging them.
		intent, _, err := patch.Intent(body)
		if err != nil {
			return err
		}
		if body, err = intent.MarshalJSON(); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		kind = types.MergePatchType
	}
	p, err := patch.Parse(kind, body)
	if err != nil {
		return err
	}
	w := &change{call: c, options: options, dryRun: len(options.DryRun) > 0, manager: c.manager(options.FieldManager)}
	return c.putProjection(w, nil, func(current runtime.Object) (runtime.Object, error) {
		obj := c.sub.New()
		current.GetObjectKind().SetGroupVersionKind(c.subKind())
		problems, err := p.Apply(current, obj)
		if err == nil && len(problems) > 0 && options.FieldValidation == metav1.FieldValidationStrict {
			err = p.Strict(obj, problems)
		}
		return obj, err
	})
}

// putProjection changes the object by way of its projection.
func (c *call) putProjection(w *change, pre *metav1.Preconditions, edit func(current runtime.Object) (runtime.Object, error)) error {
	col, err := c.collection()
	if err != nil {
		return err
	}
	item, err := w.update(c.r.Context(), col, pre, func(current runtime.Object) (runtime.Object, error) {
		before, err := c.projected(current)
		if before == nil {
			return nil, err
		}
		obj, err := edit(before)
		if err != nil {
			return nil, err
		}
		if c.sub.Validate != nil {
			if errs := c.sub.Validate(obj, before); len(errs) > 0 {
				return nil, apierrors.NewInvalid(c.subKind().GroupKind(), c.Name, errs)
			}
		}
		target, err := c.served(current)
		if err != nil {
			return nil, err
		}
		if err := c.sub.Put(target, obj); err != nil {
			return nil, err
		}
		if err := takeVersion(target, obj); err != nil {
			return nil, err
		}
		return c.stored(target)
	})
	if err != nil {
		return err
	}
	obj, err := c.projected(item.Object)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj, c.subKind())
}

// takeVersion lets the projection's resourceVersion lock the object.
func takeVersion(target, projection runtime.Object) error {
	to, err := meta.Accessor(target)
	if err != nil {
		return err
	}
	from, err := meta.Accessor(projection)
	if err != nil {
		return err
	}
	if rv := from.GetResourceVersion(); rv != "" {
		to.SetResourceVersion(rv)
	}
	return nil
}
