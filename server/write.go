package server

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
	"orrery.dev/server/admission"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// errStale is the reason of the conflict that optimistic locking ends in.
var errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// nameAttempts is how often another random name is tried.
const nameAttempts = 8

// change is one write: what create, update and patch have in common once they
// know the new object. Objects are of the hub version (see Kind.Hub) throughout.
type change struct {
	*call
	options runtime.Object // CreateOptions, UpdateOptions or PatchOptions
	dryRun  bool
	manager string
	// owned: the object's managedFields are up to date already (apply).
	owned bool
}

// change is the write that a request's options ask for.
func (c *call) change(options runtime.Object, dryRun []string, manager string) *change {
	return &change{call: c, options: options, dryRun: len(dryRun) > 0, manager: c.manager(manager)}
}

// request describes the write to admission. name is that of the URL.
func (w *change) request(op admission.Operation, obj, old runtime.Object) *admission.Request {
	return &admission.Request{
		Operation:   op,
		Resource:    w.GVR,
		Subresource: w.Subresource,
		Kind:        w.kind.Hub().GroupVersionKind,
		Namespace:   w.Namespace,
		Name:        w.Name,
		Object:      obj,
		Old:         old,
		Options:     w.options,
		DryRun:      w.dryRun,
		User:        w.user,
		Warn:        w.warn,
		Annotate:    w.annotate,
	}
}

// create stores a new object: metadata, ownership, admission, validation, and
// the write, again with another name if a generated one was taken.
func (w *change) create(ctx context.Context, col *storage.Collection, obj runtime.Object) (*storage.Item, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	generated := m.GetName() == "" && m.GetGenerateName() != ""
	if !generated {
		return w.createOnce(ctx, col, obj)
	}
	for attempt := 1; ; attempt++ {
		stored, err := w.createOnce(ctx, col, obj.DeepCopyObject())
		if !apierrors.IsAlreadyExists(err) {
			return stored, err
		}
		if attempt == nameAttempts {
			return nil, nameExhausted(err)
		}
	}
}

// nameExhausted asks the client to try again: it did nothing wrong.
func nameExhausted(err error) error {
	status := statusOf(err)
	status.Message += " - the server was not able to generate a unique name for the object"
	if status.Details != nil {
		status.Details.RetryAfterSeconds = 1
	}
	return &apierrors.StatusError{ErrStatus: *status}
}

func (w *change) createOnce(ctx context.Context, col *storage.Collection, obj runtime.Object) (*storage.Item, error) {
	k := w.kind.Hub()
	m, _ := meta.Accessor(obj)
	if !w.dryRun && m.GetResourceVersion() != "" && m.GetResourceVersion() != "0" {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	beginMetadata(m)
	version := m.GetResourceVersion()
	m.SetResourceVersion("")
	w.dedupOwners(m)
	// Before Prepare: what the server adds is nobody's.
	if !w.owned {
		obj = w.s.fields.own(w.kind, w.Subresource, w.empty(), obj, w.manager)
		m, _ = meta.Accessor(obj)
	}
	api.DropUnborn(obj, nil)
	if k.Prepare != nil {
		k.Prepare(ctx, obj, nil)
	}
	req := w.request(admission.Create, obj, nil)
	if req.Name == "" {
		req.Name = m.GetName()
	}
	req.Settle = func() { w.settle(ctx, obj) }
	return w.admitAndStore(ctx, req, func() (*storage.Item, error) {
		if err := w.validateCreate(obj); err != nil {
			return nil, err
		}
		if err := w.s.Admission.Validate(ctx, req); err != nil {
			return nil, err
		}
		packed, err := w.packed(obj)
		if err != nil {
			return nil, err
		}
		item, err := col.Create(ctx, packed, storage.WriteOptions{DryRun: w.dryRun})
		if err == nil && !w.dryRun {
			w.wrote(ctx, nil, packed, item.Revision)
		}
		if err == nil && w.dryRun && version != "" { // which is shown as it was sent
			shown, _ := meta.Accessor(item.Object())
			shown.SetResourceVersion(version)
		}
		return item, err
	})
}

// settle names a new object and works out what follows from the rest of it, once it is
// what admission has made of it.
func (w *change) settle(ctx context.Context, obj runtime.Object) {
	k := w.kind.Hub()
	m, _ := meta.Accessor(obj)
	if base := m.GetGenerateName(); m.GetName() == "" && base != "" {
		m.SetName(base)
		if !k.NamedByPrefix {
			m.SetName(generateName(base))
		}
	}
	if k.Sync != nil {
		for _, text := range k.Sync(obj) {
			w.warn(text)
		}
	}
	if k.Prepare != nil {
		k.Prepare(ctx, obj, nil)
	}
}

// admitAndStore runs the mutating plugins, then store, and tells the plugins how
// it ended.
func (w *change) admitAndStore(ctx context.Context, req *admission.Request, store func() (*storage.Item, error)) (item *storage.Item, err error) {
	defer func() { req.Finish(ctx, finished(item, w.dryRun)) }()
	if err := w.s.Admission.Mutate(ctx, req); err != nil {
		return nil, err
	}
	return store()
}

// finished is what the plugins are told that the store holds: a dry run leaves
// nothing behind.
func finished(item *storage.Item, dryRun bool) runtime.Object {
	if item == nil || dryRun {
		return nil
	}
	return item.Object()
}

// empty is the object that a new one is compared with.
func (w *change) empty() runtime.Object {
	k := w.kind.Hub()
	obj := k.New()
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return obj
}

// beginMetadata sets what only the server may set in a new object.
func beginMetadata(m metav1.Object) {
	m.SetUID(uuid.NewUUID())
	m.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
}

// generateName appends five random characters, of an alphabet in which they
// hardly ever make a word.
func generateName(base string) string {
	const most = 63 - 5
	if len(base) > most {
		base = base[:most]
	}
	return base + rand.String(5)
}

func (w *change) validateCreate(obj runtime.Object) error {
	k := w.kind.Hub()
	m, _ := meta.Accessor(obj)
	validMeta := func(name validation.ValidateNameFunc) field.ErrorList {
		return validation.ValidateObjectMetaAccessor(m, k.Namespaced, name, field.NewPath("metadata"))
	}
	var errs field.ErrorList
	if !k.OwnMeta {
		errs = validMeta(k.NameRule(obj))
	}
	if !k.Unstructured() && !k.OwnMeta {
		errs = append(errs, api.ValidateFinalizerNames(k.GroupResource(), m.GetFinalizers())...)
	}
	if check := w.validation(); check != nil {
		errs = append(errs, check(obj, nil)...)
	}
	if k.OwnMeta && len(errs) == 0 {
		errs = validMeta(path.ValidatePathSegmentName)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(k.GroupVersionKind.GroupKind(), m.GetName(), api.InOrder(dedupErrors(errs)))
	}
	w.warnKind(obj, nil)
	return nil
}

// validation is the check of what is written: through a view, of what the view may
// change.
func (w *change) validation() func(obj, old runtime.Object) field.ErrorList {
	view := w.view()
	switch {
	case view != nil:
		return view.Validate
	case w.kind.Validate != nil:
		return w.kind.Validate
	}
	return w.kind.Hub().Validate
}

// dedupErrors drops complaints that the row's validation and the common one
// both made.
func dedupErrors(errs field.ErrorList) field.ErrorList {
	seen := map[string]bool{}
	kept := errs[:0:0]
	for _, e := range errs {
		if text := e.Error(); !seen[text] {
			seen[text] = true
			kept = append(kept, e)
		}
	}
	return kept
}

// warnKind warns of what is odd, except through a view, which changes other things.
func (c *call) warnKind(obj, old runtime.Object) {
	if f := c.kind.Hub().Warn; f != nil && (c.sub == nil || c.sub.Prepare == nil) {
		for _, text := range f(obj, old) {
			c.warn(text)
		}
	}
}

// dedupOwners drops repeated owner references, with a warning.
func (c *call) dedupOwners(m metav1.Object) {
	refs := m.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	var kept []metav1.OwnerReference
	repeated := ""
	for _, ref := range refs {
		if hasOwner(kept, ref) {
			if repeated != "" {
				repeated += ", "
			}
			repeated += string(ref.UID)
			continue
		}
		kept = append(kept, ref)
	}
	if repeated != "" {
		m.SetOwnerReferences(kept)
		c.warn(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " + repeated)
	}
}

func hasOwner(refs []metav1.OwnerReference, ref metav1.OwnerReference) bool {
	for _, r := range refs {
		same := r.UID == ref.UID && r.APIVersion == ref.APIVersion && r.Kind == ref.Kind && r.Name == ref.Name
		if same && boolOf(r.Controller) == boolOf(ref.Controller) && boolOf(r.BlockOwnerDeletion) == boolOf(ref.BlockOwnerDeletion) {
			return true
		}
	}
	return false
}

func boolOf(b *bool) bool { return b != nil && *b }

// errDeleteInstead ends an update that took away the last reason to keep an
// object that is being deleted.
var errDeleteInstead = errors.New("deleted by update")

// update replaces an object. edit makes the new state out of (a copy of) the
// current one; it may be called several times.
func (w *change) update(ctx context.Context, col *storage.Collection, pre *metav1.Preconditions, edit func(current runtime.Object) (runtime.Object, error)) (*storage.Item, error) {
	var req *admission.Request
	var last, before runtime.Object
	opts := storage.WriteOptions{DryRun: w.dryRun, Preconditions: pre}
	item, err := col.Update(ctx, w.objectNamespace(), w.Name, opts, func(current runtime.Object) (runtime.Object, error) {
		if req != nil {
			req.Finish(ctx, nil) // the attempt before lost a race
		}
		current, err := w.unpacked(current)
		if err != nil {
			return nil, err
		}
		current.GetObjectKind().SetGroupVersionKind(w.kind.Hub().GroupVersionKind)
		before = current
		obj, err := edit(current.DeepCopyObject())
		if err != nil {
			return nil, err
		}
		req = w.request(admission.Update, obj, current)
		if last, err = w.prepareUpdate(ctx, req, obj, current); err != nil {
			return nil, err
		}
		return w.packed(last)
	})
	if errors.Is(err, errDeleteInstead) {
		if err := w.deleteEmptied(ctx, col, last); err != nil {
			req.Finish(ctx, nil)
			return nil, err
		}
		item = storage.NewItem(last) // its metadata says that it has ended
		err = nil
	}
	if err == nil && !w.dryRun {
		w.wrote(ctx, before, last, item.Revision)
	}
	if req != nil {
		req.Finish(ctx, finished(item, w.dryRun))
	}
	return item, err
}

// prepareUpdate takes a new state through the rules for updates.
func (w *change) prepareUpdate(ctx context.Context, req *admission.Request, obj, old runtime.Object) (runtime.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	oldMeta, _ := meta.Accessor(old)
	if err := w.checkVersion(m, oldMeta); err != nil {
		return nil, err
	}
	w.dedupOwners(m)
	if !w.owned {
		obj = w.s.fields.own(w.kind, w.Subresource, old, obj, w.manager)
	}
	w.keepMetadata(ctx, obj, old)
	req.Object = obj
	if err := w.s.Admission.Mutate(ctx, req); err != nil {
		return nil, err
	}
	w.keepMetadata(ctx, obj, old) // plugins may have changed what the rules derive from
	if err := w.validateUpdate(obj, old); err != nil {
		return nil, err
	}
	keepTimestamps(obj, old)
	if err := w.s.Admission.Validate(ctx, req); err != nil {
		return nil, err
	}
	if emptied(obj, oldMeta) {
		return obj, errDeleteInstead
	}
	return obj, nil
}

// checkVersion is optimistic locking: a version in the new object must be the
// current one.
func (w *change) checkVersion(m, old metav1.Object) error {
	k := w.kind.Hub()
	switch rv := m.GetResourceVersion(); {
	case rv == old.GetResourceVersion():
	case rv != "" && rv != "0":
		return apierrors.NewConflict(k.GroupResource(), w.Name, errStale)
	case k.NoUnconditionalUpdate:
		// Of all errors this one is about the resource, not the kind.
		return apierrors.NewInvalid(schema.GroupKind{Group: k.Group, Kind: k.Plural}, w.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	default:
		m.SetResourceVersion(old.GetResourceVersion())
	}
	return nil
}

// keepMetadata restores what an update may not change and says nothing about.
func (w *change) keepMetadata(ctx context.Context, obj, old runtime.Object) {
	m, _ := meta.Accessor(obj)
	o, _ := meta.Accessor(old)
	m.SetGeneration(o.GetGeneration())
	m.SetSelfLink("")
	api.DropUnborn(obj, old)
	switch k, view := w.kind.Hub(), w.view(); {
	case view != nil:
		view.Prepare(ctx, obj, old)
	case k.Prepare != nil: // the object itself, or a projection of it (scale)
		k.Prepare(ctx, obj, old)
	}
	if m.GetUID() == "" {
		m.SetUID(o.GetUID())
	}
	created := o.GetCreationTimestamp()
	if !created.IsZero() {
		m.SetCreationTimestamp(created)
	}
	if o.GetDeletionTimestamp() != nil {
		m.SetDeletionTimestamp(o.GetDeletionTimestamp())
	}
	if o.GetDeletionGracePeriodSeconds() != nil && m.GetDeletionGracePeriodSeconds() == nil {
		m.SetDeletionGracePeriodSeconds(o.GetDeletionGracePeriodSeconds())
	}
}

func (w *change) validateUpdate(obj, old runtime.Object) error {
	k := w.kind.Hub()
	m, _ := meta.Accessor(obj)
	o, _ := meta.Accessor(old)
	at := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(m, k.Namespaced, path.ValidatePathSegmentName, at)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(m, o, at)...)
	if check := w.validation(); check != nil {
		errs = append(errs, check(obj, old)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(k.GroupVersionKind.GroupKind(), w.Name, api.InOrder(dedupErrors(errs)))
	}
	view := w.view()
	if view == nil {
		w.warnKind(obj, old)
		return nil
	}
	if view.Warn != nil {
		for _, text := range view.Warn(obj) {
			w.warn(text)
		}
	}
	return nil
}

// view is the view of the object that is written through, as the row has it in whose
// version writes are worked on; nil: the object itself, or a projection of it.
func (c *call) view() *registry.Subresource {
	if c.sub == nil || c.sub.Prepare == nil {
		return nil
	}
	view := c.kind.Hub().Sub[c.Subresource]
	return &view
}

// emptied reports whether the update removes the last thing that keeps an object
// that is being deleted: its finalizers.
func emptied(obj runtime.Object, old metav1.Object) bool {
	m, _ := meta.Accessor(obj)
	if old.GetDeletionTimestamp() == nil || len(m.GetFinalizers()) > 0 || namespaceHeld(obj) {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// deleteEmptied finishes a deletion that waited for finalizers. That the object
// is gone already is as good; a change in between means the update lost a race.
func (w *change) deleteEmptied(ctx context.Context, col *storage.Collection, obj runtime.Object) error {
	m, _ := meta.Accessor(obj)
	uid, rv := m.GetUID(), m.GetResourceVersion()
	pre := &metav1.Preconditions{UID: (*types.UID)(&uid), ResourceVersion: &rv}
	_, err := col.Delete(ctx, w.objectNamespace(), w.Name, storage.WriteOptions{DryRun: w.dryRun, Preconditions: pre}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
