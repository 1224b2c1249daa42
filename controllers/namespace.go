package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
)

// namespaceLook is the time between two looks at what is left in a namespace.
const namespaceLook = 5 * time.Second

// namespaceController empties a namespace that is being deleted, whatever kinds
// of objects it holds, pods first, and then lets it go.
type namespaceController struct {
	*env
	informer cache.SharedIndexInformer
}

func newNamespace(e *env) Controller {
	c := &namespaceController{env: e, informer: e.factory.Core().V1().Namespaces().Informer()}
	return Controller{
		Name: "namespace-controller",
		Reads: []Source{
			wakesSelf(c.informer),
			wakes(e.pods(), c.lastPod),
		},
		Writes:  []string{"*", "namespaces"},
		Workers: 10,
		Sync:    c.sync,
	}
}

// lastPod wakes a namespace that waits for its pods when the last is gone.
func (c *namespaceController) lastPod(pod *corev1.Pod) []string {
	ns := cached[corev1.Namespace](c.informer, pod.Namespace)
	if ns == nil || ns.DeletionTimestamp == nil || len(inNamespace[*corev1.Pod](c.pods(), pod.Namespace)) > 0 {
		return nil
	}
	return []string{pod.Namespace}
}

func (c *namespaceController) sync(ctx context.Context, name string) (time.Duration, error) {
	ns := cached[corev1.Namespace](c.informer, name)
	if ns == nil || ns.DeletionTimestamp == nil {
		return 0, nil
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return 0, nil
	}
	ns = ns.DeepCopy()
	if ns.Status.Phase != corev1.NamespaceTerminating {
		ns.Status.Phase = corev1.NamespaceTerminating
		updated, err := c.clients.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{})
		if err != nil {
			return 0, fmt.Errorf("mark namespace %s: %w", name, ignoreGone(err))
		}
		ns = updated
	}
	left := c.empty(ctx, name)
	if setNamespaceConditions(ns, left, time.Now()) {
		updated, err := c.clients.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{})
		if err != nil {
			return 0, fmt.Errorf("conditions of namespace %s: %w", name, err)
		}
		ns = updated
	}
	if err := left.err(); err != nil {
		return 0, err
	}
	if len(left.resources) > 0 {
		return namespaceLook, nil
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err := c.clients.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	return 0, ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// remains is what a round of deleting left behind.
type remains struct {
	discovery  error
	deletion   []error
	resources  map[string]int // resource.group to how many objects
	finalizers map[string]int // finalizer to how many objects have it
}

func (r *remains) err() error { return errors.Join(append(r.deletion, r.discovery)...) }

// empty deletes everything in a namespace. While there are pods, only pods are
// deleted: they may need their secrets, volumes and network policies to end.
func (c *namespaceController) empty(ctx context.Context, namespace string) *remains {
	left := &remains{resources: map[string]int{}, finalizers: map[string]int{}}
	lists, err := discovery.ServerPreferredNamespacedResources(c.clients.Discovery())
	left.discovery = err // the groups that did answer are emptied all the same
	kinds := deletableResources(lists)
	slices.SortStableFunc(kinds, func(a, b deletable) int {
		return cmp.Or(falseFirst(a.gvr.Resource != "pods", b.gvr.Resource != "pods"), cmp.Compare(a.gvr.String(), b.gvr.String()))
	})
	for _, kind := range kinds {
		if err := c.emptyOf(ctx, namespace, kind, left); err != nil {
			left.deletion = append(left.deletion, err)
		}
		if kind.gvr.Group == "" && kind.gvr.Resource == "pods" && left.resources["pods."] > 0 {
			break
		}
	}
	return left
}

// deletable is a resource whose objects can be deleted.
type deletable struct {
	gvr        schema.GroupVersionResource
	kind       string
	namespaced bool
	verbs      []string
}

func (d deletable) can(verb string) bool { return slices.Contains(d.verbs, verb) }

func deletableResources(lists []*metav1.APIResourceList) []deletable {
	var out []deletable
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			d := deletable{gvr: gv.WithResource(r.Name), kind: r.Kind, namespaced: r.Namespaced, verbs: r.Verbs}
			if d.can("delete") && !strings.Contains(r.Name, "/") {
				out = append(out, d)
			}
		}
	}
	return out
}

func (c *namespaceController) emptyOf(ctx context.Context, namespace string, kind deletable, left *remains) error {
	api := c.metadata.Resource(kind.gvr).Namespace(namespace)
	background := metav1.DeletePropagationBackground
	opts := metav1.DeleteOptions{PropagationPolicy: &background}
	if !kind.can("list") {
		return nil
	}
	items, err := api.List(ctx, metav1.ListOptions{})
	if absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", kind.gvr.GroupResource(), err)
	}
	if len(items.Items) == 0 {
		return nil
	}
	if kind.can("deletecollection") {
		err = api.DeleteCollection(ctx, opts, metav1.ListOptions{})
	}
	if !kind.can("deletecollection") || absent(err) {
		err = nil
		for _, item := range items.Items {
			if e := api.Delete(ctx, item.Name, opts); ignoreNotFound(e) != nil {
				err = e
			}
		}
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", kind.gvr.GroupResource(), err)
	}
	if items, err = api.List(ctx, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("list %s: %w", kind.gvr.GroupResource(), err)
	}
	if len(items.Items) == 0 {
		return nil
	}
	left.resources[kind.gvr.Resource+"."+kind.gvr.Group] = len(items.Items)
	for _, item := range items.Items {
		for _, f := range item.Finalizers {
			left.finalizers[f]++
		}
	}
	return nil
}

// absent says that a resource has no such verb, or is no more.
func absent(err error) bool { return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) }

// setNamespaceConditions puts what is left into conditions that kubectl
// describe shows, and says whether that changed them.
func setNamespaceConditions(ns *corev1.Namespace, left *remains, now time.Time) bool {
	list := func(counts map[string]int, format string) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf(format, name, counts[name]))
		}
		return strings.Join(parts, ", ")
	}
	rows := []struct {
		kind                corev1.NamespaceConditionType
		bad                 bool
		reason, message     string
		okReason, okMessage string
	}{
		{corev1.NamespaceDeletionDiscoveryFailure, left.discovery != nil, "DiscoveryFailed", fmt.Sprintf("Discovery failed for some groups, 1 failing: %v", left.discovery),
			"ResourcesDiscovered", "All resources successfully discovered"},
		{corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed"},
		{corev1.NamespaceDeletionContentFailure, len(left.deletion) > 0, "ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %v", len(left.deletion), errors.Join(left.deletion...)),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
		{corev1.NamespaceContentRemaining, len(left.resources) > 0, "SomeResourcesRemain",
			"Some resources are remaining: " + list(left.resources, "%s has %d resource instances"),
			"ContentRemoved", "All content successfully removed"},
		{corev1.NamespaceFinalizersRemaining, len(left.finalizers) > 0, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: " + list(left.finalizers, "%s in %d resource instances"),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"},
	}
	changed := false
	for _, row := range rows {
		c := corev1.NamespaceCondition{Type: row.kind, Status: corev1.ConditionFalse, Reason: row.okReason, Message: row.okMessage, LastTransitionTime: metav1.NewTime(now)}
		if row.bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, row.reason, row.message
		}
		i := slices.IndexFunc(ns.Status.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == row.kind })
		switch {
		case i < 0:
			ns.Status.Conditions = append(ns.Status.Conditions, c)
			changed = true
		case ns.Status.Conditions[i].Status != c.Status || ns.Status.Conditions[i].Message != c.Message || ns.Status.Conditions[i].Reason != c.Reason:
			if ns.Status.Conditions[i].Status == c.Status {
				c.LastTransitionTime = ns.Status.Conditions[i].LastTransitionTime
			}
			ns.Status.Conditions[i] = c
			changed = true
		}
	}
	return changed
}
