package server

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/server/patch"
)

// patch serves PATCH on an object and on the views of it.
func (c *call) patch() error {
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
	c.auditPatch(kind, body)
	w := &change{call: c, options: options, dryRun: len(options.DryRun) > 0, manager: c.manager(options.FieldManager)}
	if kind == types.ApplyYAMLPatchType {
		return c.applyPatch(w, options, body)
	}
	p, err := patch.Parse(kind, body)
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	stored, err := w.update(c.r.Context(), col, nil, func(current runtime.Object) (runtime.Object, error) {
		return c.patched(p, current, options.FieldValidation)
	})
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusOK, stored)
}

// patchTypes lists what a kind can be patched with.
func (c *call) patchTypes() []string {
	all := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if !c.kind.Unstructured() {
		all = append(all, string(types.StrategicMergePatchType))
	}
	return append(all, string(types.ApplyYAMLPatchType))
}

func (c *call) patchType() (types.PatchType, error) {
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err == nil {
		for _, t := range c.patchTypes() {
			if kind == t {
				return types.PatchType(t), nil
			}
		}
	}
	return "", errNoSuchPatch()
}

func (c *call) patchOptions(kind types.PatchType) (*metav1.PatchOptions, error) {
	options, err := query(c, func(v *url.Values, o *metav1.PatchOptions) error {
		return metav1.Convert_url_Values_To_v1_PatchOptions(v, o, nil)
	})
	if err != nil {
		return nil, err
	}
	typeOptions(options, "PatchOptions")
	return options, optionErrors("PatchOptions", metav1validation.ValidatePatchOptions(options, kind))
}

// patched applies a patch to the current (stored) object, in the version that
// the client speaks, and returns the new stored one.
func (c *call) patched(p *patch.Patch, current runtime.Object, fieldValidation string) (runtime.Object, error) {
	served, err := c.served(current)
	if err != nil {
		return nil, err
	}
	served.GetObjectKind().SetGroupVersionKind(c.kind.GroupVersionKind)
	obj := c.kind.New()
	problems, err := p.Apply(served, obj)
	if err != nil {
		return nil, err
	}
	whole := obj
	if c.kind.Coerce != nil {
		whole = obj.DeepCopyObject() // with the fields that are to be dropped
	}
	unknown, err := c.coerce(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if problems = append(problems, unknown...); len(problems) > 0 {
		switch fieldValidation {
		case metav1.FieldValidationStrict:
			return nil, p.Strict(whole, problems)
		case metav1.FieldValidationIgnore:
		default:
			for _, problem := range problems {
				c.warn(problem.Error())
			}
		}
	}
	return c.checkPatched(obj)
}

// checkPatched sees to it that a patch leaves the object's identity alone.
func (c *call) checkPatched(obj runtime.Object) (runtime.Object, error) {
	obj.GetObjectKind().SetGroupVersionKind(c.kind.GroupVersionKind)
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := checkNamespace(m, c.objectNamespace()); err != nil {
		return nil, err
	}
	if err := checkName(m, c.Name); err != nil {
		return nil, err
	}
	return c.stored(obj)
}

// applyPatch is server-side apply: the body is what one manager wants, merged
// with what others own. It creates the object if there is none.
func (c *call) applyPatch(w *change, options *metav1.PatchOptions, body []byte) error {
	ctx := c.r.Context()
	intent, problems, err := patch.Intent(body)
	if err != nil {
		return err
	}
	if err := c.checkIntent(intent, problems, options.FieldValidation); err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	w.owned = true
	force := boolOf(options.Force)
	stored, err := w.update(ctx, col, nil, func(current runtime.Object) (runtime.Object, error) {
		return c.merged(current, intent, options.FieldManager, force)
	})
	if apierrors.IsNotFound(err) && c.sub == nil {
		return c.createByApply(w, intent, options.FieldManager, force)
	}
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusOK, stored)
}

func (c *call) checkIntent(intent *unstructured.Unstructured, problems []error, fieldValidation string) error {
	for _, problem := range problems {
		switch fieldValidation {
		case metav1.FieldValidationStrict:
			return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", problem))
		case metav1.FieldValidationIgnore:
		default:
			for _, text := range yamlProblems(problem) {
				c.warn(text.Error())
			}
		}
	}
	if ns := intent.GetNamespace(); ns != "" && c.objectNamespace() != "" && ns != c.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// merged is the current object with an intent merged into it.
func (c *call) merged(current, intent runtime.Object, manager string, force bool) (runtime.Object, error) {
	merged, err := c.s.fields.apply(c.kind, c.Subresource, current, intent.DeepCopyObject(), manager, force)
	if err != nil {
		return nil, err
	}
	hub := c.kind.Hub()
	if merged, err = typedBy(hub, merged); err != nil {
		return nil, err
	}
	if _, err := c.coerce(merged); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if hub.Default != nil {
		hub.Default(merged)
	}
	m, err := meta.Accessor(merged)
	if err != nil {
		return nil, err
	}
	if err := checkNamespace(m, c.objectNamespace()); err != nil {
		return nil, err
	}
	if err := checkName(m, c.Name); err != nil {
		return nil, err
	}
	return merged, nil
}

// createByApply makes the object that an apply found missing.
func (c *call) createByApply(w *change, intent *unstructured.Unstructured, manager string, force bool) error {
	if err := c.authorize("create"); err != nil {
		return err
	}
	if uid := intent.GetUID(); uid != "" {
		return apierrors.NewConflict(c.kind.GroupResource(), c.Name, errUIDMismatch(uid))
	}
	obj, err := c.merged(w.empty(), intent, manager, force)
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	m, _ := meta.Accessor(obj)
	m.SetResourceVersion("")
	created, err := w.create(c.r.Context(), col, obj)
	if apierrors.IsAlreadyExists(err) {
		return apierrors.NewConflict(c.kind.GroupResource(), c.Name, errStale)
	}
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusCreated, created)
}

func errUIDMismatch(uid types.UID) error {
	return fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid)
}
