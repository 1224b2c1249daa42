package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// managedLabel marks the APIServices that the server keeps itself: those of
// built-in kinds ("onstart") and of custom resources ("true"). One without it
// is its author's.
const managedLabel = "kube-aggregator.kubernetes.io/automanaged"

// Times between looks at the servers behind APIServices.
const (
	remoteAgain = 30 * time.Second
	remoteRetry = time.Second
)

// apiServices keeps an APIService for every group version that is served here,
// and tells for all of them whether they are available. It is one goroutine's.
type apiServices struct {
	s   *Server
	col *storage.Collection
}

// followAPIServices runs until ctx ends.
func (s *Server) followAPIServices(ctx context.Context) {
	a := &apiServices{s: s, col: s.Store.Collection(schema.GroupResource{Group: api.APIRegistrationGroup, Resource: "apiservices"})}
	if a.col == nil {
		s.health.finished(nil, serviceHooks...)
		return
	}
	for ctx.Err() == nil {
		if err := a.follow(ctx); err != nil && ctx.Err() == nil {
			s.Log.Debug("following apiservices begins anew", "err", err)
			select {
			case <-time.After(followRetry):
			case <-ctx.Done():
			}
		}
	}
}

// follow looks at all APIServices at every change of one, of the table, and when
// it is time to ask their servers again.
func (a *apiServices) follow(ctx context.Context) error {
	for {
		changed := a.s.Kinds.Changed()
		page, err := a.col.List(ctx, storage.ListOptions{})
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		watcher, err := a.col.Watch(ctx, storage.WatchOptions{ResourceVersion: strconv.FormatInt(page.Revision, 10)})
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		again, err := a.reconcile(ctx, page)
		if a.s.health.finished(err, serviceHooks...); err != nil {
			a.s.Log.Warn("apiservices are not in step", "err", err)
			again = remoteRetry
		}
		if err := waitForChange(ctx, watcher, changed, again); err != nil {
			return err
		}
	}
}

// waitForChange waits until the watch has something, the table has changed, or
// it is time.
func waitForChange(ctx context.Context, watcher *storage.Watcher, changed <-chan struct{}, again time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, again)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-changed:
			cancel()
		case <-wait.Done():
		}
	}()
	_, err := watcher.Next(wait)
	ended := wait.Err() != nil
	cancel()
	<-done
	if ended && ctx.Err() == nil {
		return nil
	}
	return err
}

// reconcile does what there is to do, and says when to look again.
func (a *apiServices) reconcile(ctx context.Context, page *storage.Page) (again time.Duration, err error) {
	again = remoteAgain
	want := a.local()
	var failed []error
	var updates []func() error // not before the remotes can be reached that they tell of
	remotes := map[schema.GroupVersion]*remote{}
	for _, item := range page.Items {
		have := item.Object().(*api.APIService)
		mine := want[have.Name]
		delete(want, have.Name)
		if mine == nil && have.Labels[managedLabel] == "true" {
			failed = append(failed, a.removeUndefined(ctx, have))
			continue
		}
		condition := api.LocalAvailable()
		if have.Spec.Service != nil {
			r := a.s.askRemote(ctx, have)
			if condition = r.condition; !r.available {
				again = remoteRetry
			}
			remotes[schema.GroupVersion{Group: have.Spec.Group, Version: have.Spec.Version}] = r
		}
		updates = append(updates, func() error { return a.update(ctx, have, mine, condition) })
	}
	a.s.remotes.set(remotes)
	for _, update := range updates {
		failed = append(failed, update())
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		obj := want[name]
		api.SetAvailable(obj, api.LocalAvailable())
		failed = append(failed, a.s.ensure(ctx, api.APIRegistrationGroup, "apiservices", obj, nil))
	}
	return again, errors.Join(failed...)
}

// update writes the condition of an APIService, and for one of the server's own
// what it should be.
func (a *apiServices) update(ctx context.Context, have, mine *api.APIService, condition api.APIServiceCondition) error {
	mend := func(obj *api.APIService) {
		api.SetAvailable(obj, condition)
		if mine != nil && obj.Labels[managedLabel] != "" {
			obj.Spec = mine.Spec
			obj.Labels[managedLabel] = mine.Labels[managedLabel]
		}
	}
	mended := have.DeepCopy()
	if mend(mended); equality.Semantic.DeepEqual(mended, have) {
		return nil
	}
	_, err := a.col.Update(ctx, "", have.Name, storage.WriteOptions{}, func(current runtime.Object) (runtime.Object, error) {
		before, obj := current.DeepCopyObject(), current.(*api.APIService)
		if obj.UID == have.UID && equality.Semantic.DeepEqual(obj.Spec, have.Spec) {
			mend(obj)
		}
		return a.s.fields.ownByServer(a.col.Resource().GroupResource, "status", before, obj), nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // its event is on the way
	}
	return err
}

// removeUndefined removes the APIService of custom resources that are gone. That
// they are not in the table is not enough: at the start of a server, or when
// another is quicker, their definition is yet to come there.
func (a *apiServices) removeUndefined(ctx context.Context, have *api.APIService) error {
	page, err := a.s.Store.Collection(apiextensionsv1.Resource("customresourcedefinitions")).List(ctx, storage.ListOptions{})
	if err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	for _, item := range page.Items {
		crd := item.Object().(*definition)
		serves := slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == have.Spec.Version && v.Served
		})
		if crd.Spec.Group == have.Spec.Group && serves {
			return nil
		}
	}
	return a.remove(ctx, have)
}

func (a *apiServices) remove(ctx context.Context, have *api.APIService) error {
	pre := &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion}
	_, err := a.col.Delete(ctx, "", have.Name, storage.WriteOptions{Preconditions: pre}, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// local is an APIService for each group version of the table, by name.
func (a *apiServices) local() map[string]*api.APIService {
	all := map[string]*api.APIService{}
	for _, k := range a.s.Kinds.Kinds() {
		gv := k.GroupVersion()
		name := gv.Version + "." + gv.Group
		if all[name] != nil || gv.Group == api.APIRegistrationGroup {
			continue
		}
		obj := &api.APIService{
			TypeMeta:   metav1.TypeMeta{Kind: "APIService", APIVersion: api.APIRegistrationGroup + "/" + api.APIRegistrationVersion},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{managedLabel: managedBy(k)}},
			Spec:       api.APIServiceSpec{Group: gv.Group, Version: gv.Version},
		}
		obj.Spec.GroupPriorityMinimum, obj.Spec.VersionPriority = openapi.Priority(gv)
		all[name] = obj
	}
	return all
}

func managedBy(k *registry.Kind) string {
	if k.Unstructured() {
		return "true"
	}
	return "onstart"
}
