package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/server/patch"
)

// patching is a change by a patch: what one manager wants (apply), or one of the others.
type patching struct {
	*change
	options *metav1.PatchOptions
	intent  *patch.Intent
	patch   *patch.Patch
}

// readPatch reads a PATCH.
func (c *call) readPatch() (*patching, error) {
	kind, err := c.patchType()
	if err != nil {
		return nil, err
	}
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	options, err := c.patchOptions(kind)
	if err != nil {
		return nil, err
	}
	c.auditPatch(kind, body)
	p := &patching{change: c.change(options, options.DryRun, options.FieldManager), options: options}
	if p.owned = isApply(kind); p.owned {
		p.intent, err = patch.NewIntent(kind, body)
	} else {
		p.patch, err = patch.New(kind, body, options.FieldValidation)
	}
	return p, err
}

// patch serves PATCH on an object and on the views of it.
func (c *call) patch() error {
	p, err := c.readPatch()
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	stored, err := p.update(c.r.Context(), col, nil, func(current runtime.Object) (runtime.Object, error) {
		if p.intent != nil {
			return c.merged(current, p.intent, p.options)
		}
		return c.patched(p.patch, current)
	})
	if p.intent != nil && apierrors.IsNotFound(err) && c.sub == nil {
		return c.createByApply(p)
	}
	if err != nil {
		return err
	}
	return c.replyItem(http.StatusOK, stored)
}

func isApply(kind types.PatchType) bool {
	return kind == types.ApplyYAMLPatchType || kind == types.ApplyCBORPatchType
}

// patchTypes lists what a kind can be patched with.
func (c *call) patchTypes() []string {
	all := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if !c.kind.Unstructured() {
		all = append(all, string(types.StrategicMergePatchType))
	}
	all = append(all, string(types.ApplyYAMLPatchType))
	if c.s.CBOR {
		all = append(all, string(types.ApplyCBORPatchType))
	}
	return all
}

func (c *call) patchType() (types.PatchType, error) {
	kind, _, _ := strings.Cut(c.r.Header.Get("Content-Type"), ";")
	offered := c.patchTypes()
	switch {
	case slices.Contains(offered, kind):
		return types.PatchType(kind), nil
	case c.kind.Unstructured():
		return "", errUnsupportedMediaType(offered)
	}
	c.warnings = nil // of the kind, which was not asked for by any route
	return "", errNoSuchPatch()
}

func (c *call) patchOptions(kind types.PatchType) (*metav1.PatchOptions, error) {
	return writeOptions(c, "PatchOptions", metav1.Convert_url_Values_To_v1_PatchOptions, func(o *metav1.PatchOptions) field.ErrorList {
		return metav1validation.ValidatePatchOptions(o, kind)
	})
}

// patched applies a patch to the current (stored) object, in the version that
// the client speaks, and returns the new stored one.
func (c *call) patched(p *patch.Patch, current runtime.Object) (runtime.Object, error) {
	served, err := c.served(current)
	if err != nil {
		return nil, err
	}
	served.GetObjectKind().SetGroupVersionKind(c.kind.GroupVersionKind)
	obj := c.kind.New()
	problems, err := p.Apply(served, obj, c.reader(c.kind.GroupVersionKind))
	if err != nil {
		return nil, err
	}
	c.warnOf(problems)
	return c.checkPatched(obj)
}

// reader reads the JSON of an object of a kind.
func (c *call) reader(want schema.GroupVersionKind) patch.Decode {
	return func(doc []byte, into runtime.Object) ([]error, error) {
		got, strict, err := decodeKind(doc, typeJSON, want, into)
		if _, custom := into.(runtime.Unstructured); err == nil && got != want && !custom {
			err = errOtherKind(got, want)
		}
		if err != nil {
			return nil, err
		}
		unknown, err := c.coerce(into)
		return append(strict, unknown...), err
	}
}

// warnOf tells the client of unknown and duplicate fields.
func (c *call) warnOf(problems []error) {
	for _, e := range problems {
		for _, problem := range yamlProblems(e) {
			c.warn(problem.Error())
		}
	}
}

// checkPatched sees to it that a patch leaves the object's identity alone.
func (c *call) checkPatched(obj runtime.Object) (runtime.Object, error) {
	if u, custom := obj.(*unstructured.Unstructured); custom && u.GetKind() != c.kind.Kind {
		return nil, errOtherCustomKind(u, c.kind.GroupVersionKind)
	}
	obj.GetObjectKind().SetGroupVersionKind(c.kind.GroupVersionKind)
	if err := c.checkIdentity(obj); err != nil {
		return nil, err
	}
	return c.stored(obj)
}

// applied is what apply makes of an intent, by way of merge. That keys are there
// twice matters only to what could be merged.
func (c *call) applied(intent *patch.Intent, options *metav1.PatchOptions, merge func(runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	obj, err := intent.Object()
	if err != nil {
		return nil, err
	}
	merged, err := merge(obj)
	if err != nil || options.FieldValidation == metav1.FieldValidationIgnore {
		return merged, err
	}
	switch err := intent.Duplicates(); {
	case err == nil:
	case options.FieldValidation == metav1.FieldValidationStrict:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding patch: %v", err))
	default:
		c.warnOf([]error{err})
	}
	return merged, nil
}

// merged is the current object with an intent merged into it.
func (c *call) merged(current runtime.Object, intent *patch.Intent, options *metav1.PatchOptions) (runtime.Object, error) {
	merged, err := c.applied(intent, options, func(wanted runtime.Object) (runtime.Object, error) {
		return c.s.fields.apply(c.kind, c.Subresource, current, wanted, options.FieldManager, boolOf(options.Force))
	})
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
	return merged, c.checkIdentity(merged)
}

// createByApply makes the object that an apply found missing.
func (c *call) createByApply(p *patching) error {
	if err := c.authorize("create"); err != nil {
		return err
	}
	obj, err := c.merged(p.empty(), p.intent, p.options)
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	m, _ := meta.Accessor(obj)
	if uid := m.GetUID(); uid != "" {
		return apierrors.NewConflict(c.kind.GroupResource(), c.Name, errUIDMismatch(uid))
	}
	m.SetResourceVersion("")
	created, err := p.create(c.r.Context(), col, obj)
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
