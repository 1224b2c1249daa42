package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

type migration = migrationv1.StorageVersionMigration

const (
	// migrationPage is how many objects are listed at a time.
	migrationPage = 500
	// migrationLook is the wait for what another migration or a definition has
	// to do first.
	migrationLook = 5 * time.Second
	// unknownResource is how long a migration waits for its resource to be served.
	unknownResource = time.Minute
)

// migrationController writes every object of a resource anew, without a change,
// so that the server stores it in its present version and encryption.
type migrationController struct {
	*env
	informer cache.SharedIndexInformer
	kinds    *scaler
}

func newStorageMigration(e *env) Controller {
	c := &migrationController{env: e, informer: e.factory.Storagemigration().V1().StorageVersionMigrations().Informer(), kinds: newScaler(e)}
	return Controller{
		Name: "storage-version-migrator-controller", Workers: 5, Sync: c.sync,
		Reads:  []Source{wakesSelf(c.informer)},
		Writes: []string{"storagemigration.k8s.io/storageversionmigrations"},
	}
}

// sync takes a migration one step further; the event of its own write brings the
// next.
func (c *migrationController) sync(ctx context.Context, key string) (time.Duration, error) {
	m := cached[migration](c.informer, key)
	if m == nil {
		return 0, nil
	}
	m = m.DeepCopy()
	switch running := migrationIs(m, migrationv1.MigrationRunning); {
	case migrationEnded(m) && running:
		return 0, c.finish(ctx, m)
	case migrationEnded(m):
		return 0, nil
	case !running && c.waitsForOther(m):
		return migrationLook, nil
	case !running:
		return 0, c.start(ctx, m)
	}
	gvr, err := c.kinds.byResource(schema.GroupResource{Group: m.Spec.Resource.Group, Resource: m.Spec.Resource.Resource})
	found := err == nil
	switch {
	case !found && time.Since(m.CreationTimestamp.Time) < unknownResource:
		return migrationLook, nil
	case !found:
		return 0, c.fail(ctx, m, "resource does not exist in discovery")
	case m.Status.ResourceVersion == "":
		return 0, c.begin(ctx, m, gvr)
	}
	return 0, c.migrate(ctx, m, gvr)
}

func migrationIs(m *migration, t migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

func migrationEnded(m *migration) bool {
	return migrationIs(m, migrationv1.MigrationSucceeded) || migrationIs(m, migrationv1.MigrationFailed)
}

func setMigration(m *migration, t migrationv1.MigrationConditionType, reason, text string) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: string(t), Status: metav1.ConditionTrue, Reason: reason, Message: text})
}

// runningText says how far a migration is, and what it stumbled over.
func runningText(left, total int, trouble error) string {
	text := "The migration is running"
	switch {
	case total > 0 && left > 0:
		text += fmt.Sprintf(", %d/%d objects not yet migrated", left, total)
	case total > 0:
		text += fmt.Sprintf(", %d objects verified migrated", total)
	}
	if trouble != nil {
		text += "; transient error: " + trouble.Error()
	}
	return text
}

// waitsForOther reports whether another migration of the same resource is under
// way, or has waited for longer.
func (c *migrationController) waitsForOther(m *migration) bool {
	for _, o := range c.informer.GetStore().List() {
		other, ok := o.(*migration)
		if !ok || other.UID == m.UID || other.Spec.Resource != m.Spec.Resource || migrationEnded(other) {
			continue
		}
		if migrationIs(other, migrationv1.MigrationRunning) || other.CreationTimestamp.Before(&m.CreationTimestamp) ||
			other.CreationTimestamp.Equal(&m.CreationTimestamp) && other.Name < m.Name {
			return true
		}
	}
	return false
}

// start marks a migration, and the definition of a custom resource, as running.
func (c *migrationController) start(ctx context.Context, m *migration) error {
	err := c.markDefinition(ctx, m, func(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionStatus {
		return storageMigrating(definition, apiextensionsv1.ConditionTrue, "MigrationRunning", fmt.Sprintf("Migration %s is running", m.Name))
	})
	if err != nil {
		return err
	}
	setMigration(m, migrationv1.MigrationRunning, "MigrationRunning", runningText(0, 0, nil))
	return c.write(ctx, m)
}

// finish marks a migration that has ended as running no more. When it went well,
// a definition's objects are of no other version than the storage version, unless
// the definition changed meanwhile.
func (c *migrationController) finish(ctx context.Context, m *migration) error {
	err := c.markDefinition(ctx, m, func(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionStatus {
		same := slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.StorageMigrating && c.ObservedGeneration == definition.Generation
		})
		reason, text := "MigrationFailed", "The migration has failed"
		switch ok := migrationIs(m, migrationv1.MigrationSucceeded); {
		case ok && same:
			reason, text = "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"
		case ok:
			reason, text = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
		}
		status := storageMigrating(definition, apiextensionsv1.ConditionFalse, reason, text)
		for _, v := range definition.Spec.Versions {
			if v.Storage && reason == "MigrationSucceeded" && same {
				status.StoredVersions = []string{v.Name}
			}
		}
		return status
	})
	if err != nil {
		return err
	}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionFalse, Reason: "MigrationCompleted", Message: "Migration completed", ObservedGeneration: m.Generation,
	})
	return c.write(ctx, m)
}

func storageMigrating(definition *apiextensionsv1.CustomResourceDefinition, status apiextensionsv1.ConditionStatus, reason, text string) *apiextensionsv1.CustomResourceDefinitionStatus {
	return &apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{
		Type: apiextensionsv1.StorageMigrating, Status: status, LastTransitionTime: metav1.Now(), Reason: reason, Message: text, ObservedGeneration: definition.Generation,
	}}}
}

// markDefinition applies a status to the definition of a migration's resource, if
// it has one.
func (c *migrationController) markDefinition(ctx context.Context, m *migration, status func(*apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionStatus) error {
	name := m.Spec.Resource.Resource + "." + m.Spec.Resource.Group
	path := []string{"/apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions", name}
	text, err := c.kinds.raw().Get().AbsPath(path...).SetHeader("Accept", "application/json").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("definition %s: %w", name, err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(text, definition); err != nil {
		return fmt.Errorf("definition %s: %w", name, err)
	}
	wanted := status(definition)
	change := map[string]any{"conditions": wanted.Conditions}
	if wanted.StoredVersions != nil {
		change["storedVersions"] = wanted.StoredVersions
	}
	// The version makes sure that the generation is that of the definition as read.
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name, "resourceVersion": definition.ResourceVersion}, "status": change,
	})
	if err != nil {
		return err
	}
	err = c.kinds.raw().Patch(types.ApplyPatchType).AbsPath(append(path, "status")...).
		Param("fieldManager", "migration-runner-controller").Param("force", "true").SetHeader("Accept", "application/json").Body(body).Do(ctx).Error()
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("status of definition %s: %w", name, err)
	}
	return nil
}

// begin notes up to which state of the resource there is something to do.
func (c *migrationController) begin(ctx context.Context, m *migration, gvr schema.GroupVersionResource) error {
	wanted := []string{"update", "patch", "list"}
	served, err := c.clients.Discovery().ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if err != nil {
		return fmt.Errorf("discovery of %s: %w", gvr.GroupVersion(), err)
	}
	at := slices.IndexFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource })
	if at < 0 || !sets.New(served.APIResources[at].Verbs...).HasAll(wanted...) {
		return c.fail(ctx, m, fmt.Sprintf("resource %q does not support discovery operations: %v", gvr.String(), wanted))
	}
	list, err := c.metadata.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("latest resourceVersion of %s: %w", gvr.Resource, err)
	}
	m.Status.ResourceVersion = list.ResourceVersion
	return c.write(ctx, m)
}

// migrate writes the objects that have not been written since the beginning.
func (c *migrationController) migrate(ctx context.Context, m *migration, gvr schema.GroupVersionResource) error {
	objects, err := c.objects(ctx, gvr)
	if err != nil {
		return err
	}
	var due []*metav1.PartialObjectMetadata
	for i := range objects {
		order, err := resourceversion.CompareResourceVersion(objects[i].ResourceVersion, m.Status.ResourceVersion)
		if err != nil {
			return c.fail(ctx, m, "migration encountered unhandled error: "+err.Error())
		}
		if order <= 0 {
			due = append(due, &objects[i])
		}
	}
	for done, o := range due {
		err := c.touch(ctx, gvr, o)
		left := len(due) - done
		switch {
		case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err): // somebody else has written it, or it is gone
		case passing(err):
			setMigration(m, migrationv1.MigrationRunning, "MigrationRunning", runningText(left, len(objects), err))
			_ = c.write(ctx, m) // the failure itself is returned
			return fmt.Errorf("migrate %s: %w", gvr.Resource, err)
		default:
			setMigration(m, migrationv1.MigrationRunning, "MigrationRunning", runningText(left, len(objects), nil))
			return c.fail(ctx, m, fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %s", left, len(objects), err))
		}
	}
	setMigration(m, migrationv1.MigrationRunning, "MigrationRunning", runningText(0, len(objects), nil))
	setMigration(m, migrationv1.MigrationSucceeded, "StorageVersionMigrationSucceeded", "Migration completed")
	return c.write(ctx, m)
}

// objects lists all of a resource.
func (c *migrationController) objects(ctx context.Context, gvr schema.GroupVersionResource) ([]metav1.PartialObjectMetadata, error) {
	var all []metav1.PartialObjectMetadata
	for next := ""; ; {
		page, err := c.metadata.Resource(gvr).List(ctx, metav1.ListOptions{Limit: migrationPage, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("list %s to migrate: %w", gvr.Resource, err)
		}
		all = append(all, page.Items...)
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// touch writes an object as it is, if it still is so.
func (c *migrationController) touch(ctx context.Context, gvr schema.GroupVersionResource, o *metav1.PartialObjectMetadata) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}})
	if err != nil {
		return err
	}
	_, err = c.metadata.Resource(gvr).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "storage-version-migrator-controller"})
	return err
}

// passing tells trouble that may be over the next time.
func passing(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}

func (c *migrationController) fail(ctx context.Context, m *migration, text string) error {
	setMigration(m, migrationv1.MigrationFailed, "StorageVersionMigrationFailed", text)
	return c.write(ctx, m)
}

func (c *migrationController) write(ctx context.Context, m *migration) error {
	_, err := c.clients.StoragemigrationV1().StorageVersionMigrations().UpdateStatus(ctx, m, metav1.UpdateOptions{})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("status of migration %s: %w", m.Name, err)
	}
	return nil
}
