package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

type definition = apiextensionsv1.CustomResourceDefinition

// definitions keeps the table of kinds in step with the
// CustomResourceDefinitions in storage, and tells in their status what became
// of them. Every server does this for itself; they agree, since all of them
// decide by the same objects, and none overwrites what it hasn't seen.
//
// It is one goroutine's, and so needs no lock.
type definitions struct {
	s       *Server
	col     *storage.Collection
	all     map[string]*definition // as in storage, by name
	serving map[string]serving     // by name
	again   time.Duration          // when to look again without an event; 0: never
}

// serving is what a definition has put into the table.
type serving struct {
	from *definition
	gvrs []schema.GroupVersionResource
}

// cleanupAgain is the time between looks at whether all objects of a definition
// that is being deleted are gone: finalizers may keep them.
const cleanupAgain = 250 * time.Millisecond

// followDefinitions runs until ctx ends.
func (s *Server) followDefinitions(ctx context.Context) {
	d := &definitions{s: s, col: s.Store.Collection(apiextensionsv1.Resource("customresourcedefinitions")), serving: map[string]serving{}}
	if d.col == nil {
		s.health.finished(nil, definitionHooks...)
		return
	}
	for ctx.Err() == nil {
		if err := d.follow(ctx); err != nil && ctx.Err() == nil {
			s.Log.Debug("following customresourcedefinitions begins anew", "err", err)
			select {
			case <-time.After(followRetry):
			case <-ctx.Done():
			}
		}
	}
}

// follow lists the definitions and then watches them until that fails.
func (d *definitions) follow(ctx context.Context) error {
	page, err := d.col.List(ctx, storage.ListOptions{})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	d.all = map[string]*definition{}
	for _, item := range page.Items {
		d.all[item.Name] = item.Object().(*definition)
	}
	watcher, err := d.col.Watch(ctx, storage.WatchOptions{ResourceVersion: strconv.FormatInt(page.Revision, 10)})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	for {
		d.reconcile(ctx)
		d.s.health.finished(nil, definitionHooks...)
		if err := d.next(ctx, watcher); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
}

// next waits for changes, or until it is time to look again, and notes them.
func (d *definitions) next(ctx context.Context, watcher *storage.Watcher) error {
	wait, cancel := ctx, context.CancelFunc(func() {})
	if d.again > 0 {
		wait, cancel = context.WithTimeout(ctx, d.again)
	}
	defer cancel()
	events, err := watcher.Next(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range events {
		switch {
		case e.Item == nil:
		case e.Type == storage.Deleted:
			delete(d.all, e.Item.Name)
		default:
			d.all[e.Item.Name] = e.Item.Object().(*definition)
		}
	}
	return nil
}

// reconcile brings table and status in line with the definitions.
func (d *definitions) reconcile(ctx context.Context) {
	d.again = 0
	for _, name := range slices.Sorted(maps.Keys(d.serving)) {
		if crd := d.all[name]; crd == nil || crd.UID != d.serving[name].from.UID {
			d.s.Kinds.Remove(d.serving[name].gvrs...)
			delete(d.serving, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.all)) {
		if err := d.sync(ctx, name); err != nil && ctx.Err() == nil {
			d.again = time.Second
			d.s.Log.Warn("customresourcedefinition is not in step", "name", name, "err", err)
		}
	}
}

// sync does what is to be done about one definition: its names, its rows, its
// end.
func (d *definitions) sync(ctx context.Context, name string) error {
	crd := d.all[name].DeepCopy()
	changed := registry.Accept(crd, slices.Collect(maps.Values(d.all)))
	// It is served before it says so: who waits for the condition can rely on it.
	if crd.Status.AcceptedNames.Plural != "" && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		if err := d.serve(crd); err != nil {
			return err
		}
	}
	if changed {
		return d.writeStatus(ctx, crd)
	}
	if crd.DeletionTimestamp != nil && apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return d.cleanUp(ctx, crd)
	}
	return nil
}

// serve puts the rows of a definition into the table, unless they are there.
func (d *definitions) serve(crd *definition) error {
	before, served := d.serving[crd.Name]
	sameSpec := served && equality.Semantic.DeepEqual(before.from.Spec, crd.Spec) && equality.Semantic.DeepEqual(before.from.Status.AcceptedNames, crd.Status.AcceptedNames)
	if sameSpec && before.from.DeletionTimestamp.IsZero() == crd.DeletionTimestamp.IsZero() {
		return nil
	}
	custom, err := registry.NewCustom(crd, d.s.converter(crd))
	if err != nil {
		return err
	}
	now := serving{from: crd}
	var rows []*registry.Kind
	for _, k := range custom.Rows {
		// A built-in kind keeps its place.
		if have := d.s.Kinds.Find(k.GroupVersionResource()); have == nil || have.Unstructured() {
			rows = append(rows, k)
			now.gvrs = append(now.gvrs, k.GroupVersionResource())
		}
	}
	if !sameSpec && !d.overlaps(crd) {
		d.s.Store.Replace(resourceOf(custom.Stored))
	}
	d.s.Kinds.Put(rows...)
	gone := slices.DeleteFunc(slices.Clone(before.gvrs), func(gvr schema.GroupVersionResource) bool { return slices.Contains(now.gvrs, gvr) })
	if len(gone) > 0 {
		d.s.Kinds.Remove(gone...)
	}
	d.serving[crd.Name] = now
	return nil
}

// overlaps reports whether a definition is for a resource that is built in.
func (d *definitions) overlaps(crd *definition) bool {
	return slices.ContainsFunc(d.s.Kinds.Kinds(), func(k *registry.Kind) bool {
		return k.Group == crd.Spec.Group && k.Plural == crd.Spec.Names.Plural && !k.Unstructured()
	})
}

// writeStatus stores the status of crd, if nobody has changed the object since.
func (d *definitions) writeStatus(ctx context.Context, crd *definition) error {
	return d.write(ctx, crd, func(current *definition) {
		current.Status = crd.Status
	})
}

// write changes a definition. That it has changed meanwhile is no failure: its
// event is on the way.
func (d *definitions) write(ctx context.Context, crd *definition, change func(current *definition)) error {
	pre := &metav1.Preconditions{UID: &crd.UID, ResourceVersion: &crd.ResourceVersion}
	item, err := d.col.Update(ctx, "", crd.Name, storage.WriteOptions{Preconditions: pre}, func(current runtime.Object) (runtime.Object, error) {
		before := current.DeepCopyObject()
		change(current.(*definition))
		return d.s.fields.ownByServer(d.col.Resource().GroupResource, "status", before, current), nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	d.all[crd.Name] = item.Object().(*definition)
	return nil
}

// holdForCleanup keeps a definition that is deleted until its objects are gone.
// The generation and what becomes of dependents are not its business.
func holdForCleanup(crd *definition, now time.Time) {
	when := metav1.NewTime(now).Rfc3339Copy()
	crd.DeletionTimestamp = &when
	if !apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
}

// cleanUp deletes the objects of a definition that is being deleted, and lets go
// of it when the last one is gone.
func (d *definitions) cleanUp(ctx context.Context, crd *definition) error {
	if d.overlaps(crd) {
		return d.letGo(ctx, crd, "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
	}
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return d.letGo(ctx, crd, "NeverEstablished", "resource was never established")
	}
	deleting := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
		Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress",
	}
	left, err := d.deleteInstances(ctx, crd)
	if err != nil {
		deleting.Reason, deleting.Message = "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", err)
	}
	if err == nil && left == 0 {
		return d.letGo(ctx, crd, "InstanceDeletionCompleted", "removed all instances")
	}
	d.again = cleanupAgain
	if !apihelpers.IsCRDConditionEquivalent(&deleting, apihelpers.FindCRDCondition(crd, apiextensionsv1.Terminating)) {
		apihelpers.SetCRDCondition(crd, deleting)
		return errors.Join(err, d.writeStatus(ctx, crd))
	}
	return err
}

// deleteInstances deletes what it finds, and tells how many objects there were.
func (d *definitions) deleteInstances(ctx context.Context, crd *definition) (int, error) {
	col := d.s.Store.Collection(schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Status.AcceptedNames.Plural})
	if col == nil {
		return 0, errors.New("the collection is not there")
	}
	page, err := col.List(ctx, storage.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list: %w", err)
	}
	var failed []error
	for _, item := range page.Items {
		if err := deleteInstance(ctx, col, item); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed = append(failed, err)
		}
	}
	return len(page.Items), errors.Join(failed...)
}

// deleteInstance deletes an object, or marks it if finalizers keep it.
func deleteInstance(ctx context.Context, col *storage.Collection, item *storage.Item) error {
	var verdict deletion
	marked, err := col.Update(ctx, item.Namespace, item.Name, storage.WriteOptions{}, func(current runtime.Object) (runtime.Object, error) {
		if m := current.(metav1.Object); m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) > 0 {
			return current, nil
		}
		verdict = decideDeletion(&registry.Kind{}, current, &metav1.DeleteOptions{}, time.Now())
		return current, verdict.err
	})
	if err != nil || !verdict.now {
		return err
	}
	uid, rv := marked.UID, strconv.FormatInt(marked.Revision, 10)
	pre := &metav1.Preconditions{UID: (*types.UID)(&uid), ResourceVersion: &rv}
	_, err = col.Delete(ctx, item.Namespace, item.Name, storage.WriteOptions{Preconditions: pre}, nil)
	return err
}

// letGo takes the finalizer off, which is the end of the definition unless
// others have theirs on it.
func (d *definitions) letGo(ctx context.Context, crd *definition, reason, message string) error {
	err := d.write(ctx, crd, func(current *definition) {
		apihelpers.SetCRDCondition(current, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: message,
		})
		apihelpers.CRDRemoveFinalizer(current, apiextensionsv1.CustomResourceCleanupFinalizer)
	})
	now := d.all[crd.Name]
	if err != nil || now.ResourceVersion == crd.ResourceVersion || len(now.Finalizers) > 0 {
		return err
	}
	pre := &metav1.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion}
	_, err = d.col.Delete(ctx, "", crd.Name, storage.WriteOptions{Preconditions: pre}, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// converter is how objects of a definition change their version.
func (s *Server) converter(crd *definition) registry.Converter {
	if c := crd.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		return s.convertByWebhook(crd)
	}
	return registry.Relabel
}
