package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"orrery.dev/api"
)

const (
	// quotaLook is the time between two counts of what is not watched.
	quotaLook = 5 * time.Second
	// quotaResync is the time between two full recounts.
	quotaResync = 5 * time.Minute
)

// quotaController counts what a namespace uses of its ResourceQuotas. The API
// server counts up as it admits; this counts anew, and down. It must not count
// because the server did, or because of what is new: an object that was admitted
// a moment ago may not be in the caches yet, and the room that it takes would be
// given away a second time.
type quotaController struct {
	*env
	informer cache.SharedIndexInformer
	watched  map[string]cache.SharedIndexInformer // resource.group to its cache
	scales   *scaler
	own      writes
}

func newResourceQuota(e *env) Controller {
	core := e.factory.Core().V1()
	c := &quotaController{env: e, informer: core.ResourceQuotas().Informer(), scales: newScaler(e)}
	c.watched = map[string]cache.SharedIndexInformer{
		"pods": e.pods(), "services": core.Services().Informer(), "persistentvolumeclaims": core.PersistentVolumeClaims().Informer(),
		"configmaps": core.ConfigMaps().Informer(), "secrets": core.Secrets().Informer(),
		"replicationcontrollers": core.ReplicationControllers().Informer(), "resourcequotas": c.informer,
		"replicasets.apps": e.replicaSets(), "deployments.apps": e.factory.Apps().V1().Deployments().Informer(),
		"statefulsets.apps": e.factory.Apps().V1().StatefulSets().Informer(),
		"jobs.batch":        e.factory.Batch().V1().Jobs().Informer(), "cronjobs.batch": e.factory.Batch().V1().CronJobs().Informer(),
		"resourceclaims.resource.k8s.io": e.factory.Resource().V1().ResourceClaims().Informer(),
	}
	out := Controller{Name: "resourcequota-controller", Writes: []string{"resourcequotas"}, Workers: 5, Sync: c.sync, Reads: []Source{when(wakesSelf(c.informer), limitsChanged)}}
	for name, informer := range c.watched {
		if name == "resourcequotas" {
			continue
		}
		source := wakes(informer, func(o metav1.Object) []string { return c.quotasIn(o.GetNamespace()) })
		source.NotNew = true
		out.Reads = append(out.Reads, when(source, quotaChanged))
	}
	return out
}

func (c *quotaController) quotasIn(namespace string) []string {
	var keys []string
	for _, q := range inNamespace[*corev1.ResourceQuota](c.informer, namespace) {
		keys = append(keys, keyOf(q))
	}
	return keys
}

// limitsChanged passes the updates of a quota by its owner.
func limitsChanged(before, after *corev1.ResourceQuota) bool {
	return !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(after.Spec.Hard, after.Status.Hard)
}

// quotaChanged passes the updates that can change what an object uses.
func quotaChanged(before, after metav1.Object) bool {
	switch a := after.(type) {
	case *corev1.Pod:
		b := before.(*corev1.Pod)
		was := b.Spec
		was.NodeName = a.Spec.NodeName // every new pod is bound
		return api.IsPodTerminal(a) != api.IsPodTerminal(b) || !equality.Semantic.DeepEqual(a.Spec, was) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
	case *corev1.Service:
		return !equality.Semantic.DeepEqual(a.Spec, before.(*corev1.Service).Spec)
	case *corev1.PersistentVolumeClaim:
		return !equality.Semantic.DeepEqual(a.Spec, before.(*corev1.PersistentVolumeClaim).Spec)
	}
	return false // only their number counts
}

func (c *quotaController) sync(ctx context.Context, key string) (time.Duration, error) {
	quota := cached[corev1.ResourceQuota](c.informer, key)
	if quota == nil {
		c.own.forget(key)
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	again := quotaResync
	// What was made at the same time as the quota may have been neither counted by
	// the server, which did not know the quota yet, nor be in our caches.
	if time.Since(quota.CreationTimestamp.Time) < quotaLook {
		again = quotaLook
	}
	used := corev1.ResourceList{}
	sums := map[string]corev1.ResourceList{}
	var errs []error
	for name := range quota.Spec.Hard {
		if kind := kindThatUses(name); kind != "" {
			if sums[kind] == nil {
				sums[kind] = quotaSum(quota, inNamespace[runtime.Object](c.watched[kind], quota.Namespace), time.Now())
			}
			used[name] = sums[kind][name]
			continue
		}
		n, watched, err := c.count(ctx, quota.Namespace, name)
		if err != nil {
			errs = append(errs, err)
			if old, ok := quota.Status.Used[name]; ok {
				used[name] = old
			}
			continue
		}
		if !watched {
			again = quotaLook
		}
		used[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	changed := quota.DeepCopy()
	changed.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: used}
	if equality.Semantic.DeepEqual(quota.Status, changed.Status) {
		return again, errors.Join(errs...)
	}
	updated, err := c.clients.CoreV1().ResourceQuotas(quota.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return 0, fmt.Errorf("usage of quota %s: %w", key, err)
	}
	c.own.made(key, c.informer.GetIndexer(), updated)
	return again, errors.Join(errs...)
}

// kindThatUses is the kind whose objects use a resource by what is in them; empty
// for those that only their number counts for.
func kindThatUses(name corev1.ResourceName) string {
	text := string(name)
	switch {
	case name == corev1.ResourceServicesLoadBalancers, name == corev1.ResourceServicesNodePorts:
		return "services"
	case name == corev1.ResourceRequestsStorage, strings.Contains(text, ".storageclass.storage.k8s.io/"):
		return "persistentvolumeclaims"
	case strings.HasSuffix(text, corev1.ResourceClaimsPerClass):
		return "resourceclaims.resource.k8s.io"
	case slices.Contains([]corev1.ResourceName{corev1.ResourcePods, quotaPods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}, name),
		strings.HasPrefix(text, "requests."), strings.HasPrefix(text, "limits."), strings.HasPrefix(text, corev1.ResourceHugePagesPrefix):
		return "pods"
	}
	return ""
}

// quotaPods counts pods whatever their state.
const quotaPods = corev1.ResourceName("count/pods")

// quotaSum is what the objects in a quota's scopes use together.
func quotaSum(quota *corev1.ResourceQuota, objects []runtime.Object, now time.Time) corev1.ResourceList {
	total := corev1.ResourceList{}
	add := func(more corev1.ResourceList) {
		for name, q := range more {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	for _, o := range objects {
		if !api.InQuotaScopes(quota, o) {
			continue
		}
		if pod, ok := o.(*corev1.Pod); ok {
			add(corev1.ResourceList{quotaPods: *resource.NewQuantity(1, resource.DecimalSI)})
			if api.IsPodTerminal(pod) || overdue(pod, now) {
				continue
			}
		}
		add(api.QuotaUsage(o))
	}
	return total
}

// overdue says whether a deleted pod has outstayed its grace period: its node is
// probably lost, and the namespace shall not pay for that.
func overdue(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

// count is how many objects of a kind a namespace has. watched is false when no
// event will tell that it changed.
func (c *quotaController) count(ctx context.Context, namespace string, name corev1.ResourceName) (n int64, watched bool, err error) {
	counted := strings.TrimPrefix(string(name), "count/")
	if informer := c.watched[counted]; informer != nil {
		items, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		return int64(len(items)), true, err
	}
	n, err = c.countOnServer(ctx, namespace, counted)
	return n, false, err
}

func (c *quotaController) countOnServer(ctx context.Context, namespace, counted string) (int64, error) {
	gr := schema.ParseGroupResource(counted)
	gvr, err := c.scales.byResource(gr)
	if err != nil {
		return 0, nil // no such kind, so none of it
	}
	list, err := c.metadata.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", counted, ignoreNotFound(err))
	}
	return int64(len(list.Items)), nil
}
