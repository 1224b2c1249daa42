package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/server/admission"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// delete serves DELETE on an object.
func (c *call) delete() error {
	options, err := c.deleteOptions()
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	if ignoresReadErrors(options) {
		return c.deleteUnreadable(col, options)
	}
	obj, gone, err := c.remove(c.r.Context(), col, c.objectNamespace(), c.Name, options)
	if err != nil {
		return err
	}
	code := http.StatusOK
	//lint:ignore SA1019 only those who ask in the old way for dependents to go along are told so
	if cascading := options.OrphanDependents; !gone && cascading != nil && !*cascading {
		code = http.StatusAccepted
	}
	if gone && !c.kind.ReturnsDeleted() {
		return c.reply(http.StatusOK, deletedStatus(c.kind, obj), statusKind)
	}
	return c.replyStored(code, obj)
}

func ignoresReadErrors(options *metav1.DeleteOptions) bool {
	ignore := options.IgnoreStoreReadErrorWithClusterBreakingPotential
	return ignore != nil && *ignore
}

// deleteUnreadable removes an object that stands in the way and cannot be read, for
// those who may do so: nothing that is in it counts, neither finalizers nor what
// depends on it.
func (c *call) deleteUnreadable(col *storage.Collection, options *metav1.DeleteOptions) error {
	ctx := c.r.Context()
	c.annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	if err := c.authorize("unsafe-delete-ignore-read-errors"); err != nil {
		return err
	}
	req := c.deletion(c.Name, options)
	defer req.Finish(ctx, nil)
	if err := c.admitDelete(ctx, req); err != nil {
		return err
	}
	if err := col.DeleteUnreadable(ctx, c.objectNamespace(), c.Name, req.DryRun); err != nil {
		return err
	}
	details := &metav1.StatusDetails{Group: c.kind.Group, Kind: c.kind.Plural, Name: c.Name}
	return c.reply(http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess, Details: details}, statusKind)
}

func deletedStatus(k *registry.Kind, obj runtime.Object) *metav1.Status {
	details := &metav1.StatusDetails{Group: k.Group, Kind: k.Plural}
	if m, err := meta.Accessor(obj); err == nil {
		details.Name, details.UID = m.GetName(), m.GetUID()
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Details: details}
}

var deleteOptionsKind = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}

// deleteOptions come in the body or, without one, in the query.
func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	body, err := c.readBody()
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		contentType, err := inputType(c.r, c.s.encodings(nil))
		if err != nil {
			return nil, err
		}
		if err := decodeDeleteOptions(body, contentType, options); err != nil {
			return nil, err
		}
		c.auditDeleteOptions(options)
	} else if options, err = query(c, metav1.Convert_url_Values_To_v1_DeleteOptions); err != nil {
		return nil, err
	}
	options.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("DeleteOptions"))
	if err := optionErrors("DeleteOptions", metav1validation.ValidateDeleteOptions(options)); err != nil {
		return nil, err
	}
	if g := options.GracePeriodSeconds; g != nil && *g < 0 {
		*g = 1
	}
	return options, nil
}

// metaCodecs read what all groups have in common.
var metaCodecs = serializer.NewCodecFactory(internalscheme.Scheme, serializer.WithSerializer(cbor.NewSerializerInfo))

// decodeDeleteOptions takes DeleteOptions of any group version: clients send
// them in the group of the object.
func decodeDeleteOptions(body []byte, contentType string, into *metav1.DeleteOptions) error {
	info, _ := runtime.SerializerInfoForMediaType(metaCodecs.SupportedMediaTypes(), contentType)
	decoded, kind, err := metaCodecs.DecoderToVersion(info.Serializer, deleteOptionsKind.GroupVersion()).Decode(body, &deleteOptionsKind, into)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if decoded != into {
		return apierrors.NewBadRequest("decoded object cannot be converted to DeleteOptions")
	}
	into.SetGroupVersionKind(*kind)
	return nil
}

// remove deletes an object, or marks it for deletion when finalizers or a grace
// period keep it. It returns the last state, and whether the object is gone.
func (c *call) remove(ctx context.Context, col *storage.Collection, namespace, name string, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	k := c.kind.Hub()
	dryRun := len(options.DryRun) > 0
	c.warnOfDeletion(options) // even if there is nothing to delete
	for {
		var verdict deletion
		req := c.deletion(name, options)
		if k.Namespaced {
			req.Namespace = namespace
		}
		item, err := col.Update(ctx, namespace, name, storage.WriteOptions{DryRun: dryRun}, func(current runtime.Object) (runtime.Object, error) {
			old, err := c.unpacked(current.DeepCopyObject())
			if err != nil {
				return nil, err
			}
			old.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
			req.Old = old
			if err := c.admitDelete(ctx, req); err != nil {
				return nil, err
			}
			verdict = decideDeletion(k, current, options, time.Now())
			if verdict.err != nil {
				return nil, verdict.err
			}
			if verdict.now && !verdict.marked {
				return nil, errDeleteNow
			}
			return current, nil // marked in place, or unchanged if pending
		})
		switch {
		case err == nil && !verdict.now:
			if !dryRun {
				c.wrote(ctx, req.Old, item.Object(), item.Revision)
			}
			req.Finish(ctx, finished(item, dryRun))
			return item.Object(), false, nil
		case err == nil && dryRun:
			req.Finish(ctx, req.Old)
			return item.Object(), true, nil
		case err == nil:
			req.Old = item.Object()
		case !errors.Is(err, errDeleteNow):
			req.Finish(ctx, req.Old)
			return nil, false, err
		}
		last, again, err := c.removeNow(ctx, col, namespace, name, req.Old, dryRun)
		if again {
			req.Finish(ctx, req.Old)
			continue
		}
		if err != nil || dryRun {
			req.Finish(ctx, req.Old)
		} else {
			c.wrote(ctx, req.Old, last, storage.NewItem(last).Revision)
			req.Finish(ctx, nil)
		}
		return last, true, err
	}
}

// deletion describes a delete to admission.
func (c *call) deletion(name string, options *metav1.DeleteOptions) *admission.Request {
	req := c.change(options, options.DryRun, "").request(admission.Delete, nil, nil)
	req.Subresource, req.Name = "", name // an eviction deletes the pod itself
	return req
}

// warnOfDeletion tells clients who say nothing of dependents what becomes of them,
// where it is not what they may think.
func (c *call) warnOfDeletion(options *metav1.DeleteOptions) {
	//lint:ignore SA1019 old clients still send it
	if text := c.kind.DeleteWarning; text != "" && options.PropagationPolicy == nil && options.OrphanDependents == nil {
		c.warn(text)
	}
}

// errDeleteNow ends the reading half of a deletion: nothing keeps the object.
var errDeleteNow = errors.New("delete now")

// removeNow deletes the object as it was when the decision was made; again says
// that it has changed since.
func (c *call) removeNow(ctx context.Context, col *storage.Collection, namespace, name string, decided runtime.Object, dryRun bool) (last runtime.Object, again bool, err error) {
	m, err := meta.Accessor(decided)
	if err != nil {
		return nil, false, err
	}
	uid, rv := m.GetUID(), m.GetResourceVersion()
	pre := &metav1.Preconditions{UID: (*types.UID)(&uid), ResourceVersion: &rv}
	item, err := col.Delete(ctx, namespace, name, storage.WriteOptions{DryRun: dryRun, Preconditions: pre}, nil)
	if apierrors.IsConflict(err) && ctx.Err() == nil {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	return item.Object(), false, nil
}

// admitDelete asks admission about a delete. That of an eviction is not asked
// about: the eviction was.
func (c *call) admitDelete(ctx context.Context, req *admission.Request) error {
	if c.Subresource != "" {
		return nil
	}
	if err := c.s.Admission.Mutate(ctx, req); err != nil {
		return err
	}
	return c.s.Admission.Validate(ctx, req)
}

// deletion is what a delete does to an object.
type deletion struct {
	now     bool // remove it: nothing keeps it
	marked  bool // who watches it is to see the mark before
	pending bool // it is being deleted already, and this changes nothing
	err     error
}

// decideDeletion works out what a delete means for an object, and marks obj
// accordingly: it is pure but for that.
func decideDeletion(k *registry.Kind, obj runtime.Object, options *metav1.DeleteOptions, now time.Time) deletion {
	m, err := meta.Accessor(obj)
	if err != nil {
		return deletion{err: err}
	}
	ns, isNamespace := namespaceOf(obj)
	if err := checkPreconditions(k, m, options.Preconditions); err != nil {
		return deletion{err: err}
	}
	if isNamespace && !hasEnded(ns) {
		return decideNamespace(ns, options, now)
	}
	if crd, ok := obj.(*definition); ok && crd.DeletionTimestamp == nil {
		holdForCleanup(crd, now)
		return deletion{}
	}
	graceful, pending := markGraceful(k, obj, m, options.GracePeriodSeconds, now)
	if pending {
		return deletion{pending: true}
	}
	m.SetFinalizers(finalizersFor(k, m, options))
	if len(m.GetFinalizers()) > 0 {
		if !graceful {
			markDeleted(m, now)
		}
		return deletion{}
	}
	if graceful && *m.GetDeletionGracePeriodSeconds() > 0 {
		return deletion{}
	}
	return deletion{now: true, marked: graceful}
}

// checkPreconditions compares what the client knows of the object with what it is.
// Namespaces and definitions have words of their own for it.
func checkPreconditions(k *registry.Kind, m metav1.Object, pre *metav1.Preconditions) error {
	if pre == nil {
		return nil
	}
	resource := schema.GroupResource{Group: k.Group, Resource: k.Kind}
	otherUID := "the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated"
	otherVersion := "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified"
	if failed := map[schema.GroupResource]string{
		{Resource: "namespaces"}: "Precondition failed: ",
		{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}: "precondition failed: ",
	}[k.GroupResource()]; failed != "" {
		resource = k.GroupResource()
		otherUID = failed + "UID in precondition: %s, UID in object meta: %s"
		otherVersion = failed + "ResourceVersion in precondition: %s, ResourceVersion in object meta: %s"
	}
	if pre.UID != nil && *pre.UID != m.GetUID() {
		return apierrors.NewConflict(resource, m.GetName(), fmt.Errorf(otherUID, *pre.UID, m.GetUID()))
	}
	if pre.ResourceVersion != nil && *pre.ResourceVersion != m.GetResourceVersion() {
		return apierrors.NewConflict(resource, m.GetName(), fmt.Errorf(otherVersion, *pre.ResourceVersion, m.GetResourceVersion()))
	}
	return nil
}

// markGraceful gives an object its grace period, or shortens the one it has.
// pending: it has one, and the request would not shorten it.
func markGraceful(k *registry.Kind, obj runtime.Object, m metav1.Object, asked *int64, now time.Time) (graceful, pending bool) {
	if k.GracePeriod == nil {
		return false, false
	}
	if m.GetDeletionTimestamp() == nil {
		grace := k.GracePeriod(obj, asked)
		deadline := metav1.NewTime(now.Add(time.Duration(grace) * time.Second)).Rfc3339Copy()
		m.SetDeletionTimestamp(&deadline)
		m.SetDeletionGracePeriodSeconds(&grace)
		bumpGeneration(m)
		return true, false
	}
	left := m.GetDeletionGracePeriodSeconds()
	if left == nil || *left == 0 {
		return false, false
	}
	if asked == nil || *asked >= *left {
		return false, true
	}
	grace := *asked
	deadline := m.GetDeletionTimestamp().Add(time.Duration(grace-*left) * time.Second)
	if deadline.Before(now) {
		deadline = now
		if grace != 0 {
			grace = 1 // still graceful: whoever watches the object has the last word
		}
	}
	when := metav1.NewTime(deadline).Rfc3339Copy()
	m.SetDeletionTimestamp(&when)
	m.SetDeletionGracePeriodSeconds(&grace)
	return true, false
}

// markDeleted marks an object that finalizers keep and that has no grace.
func markDeleted(m metav1.Object, now time.Time) {
	when := metav1.NewTime(now).Rfc3339Copy()
	if m.GetDeletionTimestamp() == nil {
		bumpGeneration(m)
	}
	if m.GetDeletionTimestamp() == nil || m.GetDeletionTimestamp().After(now) {
		m.SetDeletionTimestamp(&when)
	}
	none := int64(0)
	m.SetDeletionGracePeriodSeconds(&none)
}

func bumpGeneration(m metav1.Object) {
	if m.GetGeneration() > 0 {
		m.SetGeneration(m.GetGeneration() + 1)
	}
}

// finalizersFor adds or removes the finalizers by which the garbage collector is
// told what to do with dependents.
func finalizersFor(k *registry.Kind, m metav1.Object, options *metav1.DeleteOptions) []string {
	orphan, foreground := propagation(k, m, options)
	var kept []string
	for _, f := range m.GetFinalizers() {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			kept = append(kept, f)
		}
	}
	if orphan {
		kept = append(kept, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		kept = append(kept, metav1.FinalizerDeleteDependents)
	}
	return kept
}

// propagation is what the request says about dependents, else what an earlier
// one said, else the kind's default.
func propagation(k *registry.Kind, m metav1.Object, options *metav1.DeleteOptions) (orphan, foreground bool) {
	if k.Ungarbaged {
		return false, false
	}
	//lint:ignore SA1019 old clients still send it
	if o := options.OrphanDependents; o != nil {
		return *o, false
	}
	if p := options.PropagationPolicy; p != nil {
		return *p == metav1.DeletePropagationOrphan, *p == metav1.DeletePropagationForeground
	}
	orphan = slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents)
	foreground = slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents)
	if !orphan && !foreground {
		orphan = k.OrphanByDefault
	}
	return orphan, foreground
}
