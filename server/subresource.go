package server

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/admission"
	"orrery.dev/server/storage"
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
	obj, err := c.projected(item.Object())
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
	if err := c.checkIdentity(obj); err != nil {
		return err
	}
	m, _ := meta.Accessor(obj)
	return c.putProjection(c.change(options, options.DryRun, options.FieldManager), uidPrecondition(m), func(runtime.Object) (runtime.Object, error) { return obj, nil })
}

func (c *call) patchProjection() error {
	p, err := c.readPatch()
	if err != nil {
		return err
	}
	return c.putProjection(p.change, nil, func(current runtime.Object) (runtime.Object, error) {
		if p.intent != nil {
			return c.applied(p.intent, p.options, func(wanted runtime.Object) (runtime.Object, error) {
				return c.s.fields.applySub(c.sub, c.Subresource, current, wanted, p.options.FieldManager, boolOf(p.options.Force))
			})
		}
		obj := c.sub.New()
		current.GetObjectKind().SetGroupVersionKind(c.subKind())
		problems, err := p.patch.Apply(current, obj, c.reader(c.subKind()))
		c.warnOf(problems)
		if err != nil {
			return nil, err
		}
		return obj, c.checkIdentity(obj)
	})
}

// putProjection changes the object by way of its projection. To admission it is
// the projection that is written.
func (c *call) putProjection(w *change, pre *metav1.Preconditions, edit func(current runtime.Object) (runtime.Object, error)) error {
	ctx := c.r.Context()
	col, err := c.collection()
	if err != nil {
		return err
	}
	var req *admission.Request
	finish := func(stored runtime.Object) {
		if req != nil {
			req.Finish(ctx, stored)
		}
	}
	opts := storage.WriteOptions{DryRun: w.dryRun, Preconditions: pre}
	item, err := col.Update(ctx, w.objectNamespace(), w.Name, opts, func(current runtime.Object) (runtime.Object, error) {
		finish(nil) // the attempt before lost a race
		current, err := w.unpacked(current)
		if err != nil {
			return nil, err
		}
		current.GetObjectKind().SetGroupVersionKind(w.kind.Hub().GroupVersionKind)
		req = w.request(admission.Update, nil, nil)
		req.Kind = c.subKind()
		obj, err := w.project(ctx, req, current, edit)
		if err != nil {
			return nil, err
		}
		return w.packed(obj)
	})
	finish(finished(item, w.dryRun))
	if err != nil {
		return err
	}
	obj, err := c.projected(item.Object())
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, obj, c.subKind())
}

// project makes the new state of an object out of a change of its projection.
func (w *change) project(ctx context.Context, req *admission.Request, current runtime.Object, edit func(current runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	before, err := w.projected(current)
	if before == nil {
		return nil, err
	}
	owners, err := w.s.fields.show(w.kind, current, before)
	if err != nil {
		return nil, err
	}
	obj, err := edit(before.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(w.subKind())
	if !w.owned {
		obj = w.s.fields.ownSub(w.sub, w.Subresource, before, obj, w.manager)
	}
	req.Object, req.Old = obj, before
	if err := w.s.Admission.Mutate(ctx, req); err != nil {
		return nil, err
	}
	if w.sub.Validate != nil {
		if errs := w.sub.Validate(obj, before); len(errs) > 0 {
			return nil, apierrors.NewInvalid(w.subKind().GroupKind(), w.Name, errs)
		}
	}
	target, err := w.served(current.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	if err := w.sub.Put(target, obj); err != nil {
		return nil, err
	}
	if err := owners.hide(target, obj); err != nil {
		return nil, err
	}
	if err := takeVersion(target, obj); err != nil {
		return nil, err
	}
	if target, err = w.stored(target); err != nil {
		return nil, err
	}
	m, _ := meta.Accessor(target)
	oldMeta, _ := meta.Accessor(current)
	if shown, _ := meta.Accessor(obj); shown.GetUID() != "" && shown.GetUID() != oldMeta.GetUID() {
		view := schema.GroupResource{Group: w.kind.Group, Resource: w.kind.Plural + "/" + w.Subresource}
		return nil, apierrors.NewConflict(view, w.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", shown.GetUID(), oldMeta.GetUID()))
	}
	if err := w.checkVersion(m, oldMeta); err != nil {
		return nil, err
	}
	w.keepMetadata(ctx, target, current)
	if err := w.validateUpdate(target, current); err != nil {
		return nil, err
	}
	keepTimestamps(target, current)
	return target, w.s.Admission.Validate(ctx, req)
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
