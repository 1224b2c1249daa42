package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		return podFinished(a) != podFinished(b) || !equality.Semantic.DeepEqual(a.Spec, was) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
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
	var errs []error
	for name := range quota.Spec.Hard {
		n, watched, err := c.usage(ctx, quota, name)
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
		used[name] = n
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

// usage is how much of one resource a quota's namespace uses. watched is false
// when no event will tell that it changed.
func (c *quotaController) usage(ctx context.Context, quota *corev1.ResourceQuota, name corev1.ResourceName) (resource.Quantity, bool, error) {
	ns := quota.Namespace
	switch {
	case isPodResource(name):
		total := resource.Quantity{}
		for _, pod := range inNamespace[*corev1.Pod](c.pods(), ns) {
			if inScope(quota, pod) {
				total.Add(podUsage(pod, name, time.Now()))
			}
		}
		return total, true, nil
	case name == corev1.ResourceServicesLoadBalancers || name == corev1.ResourceServicesNodePorts:
		total := int64(0)
		for _, svc := range inNamespace[*corev1.Service](c.watched["services"], ns) {
			total += servicePorts(svc, name)
		}
		return *resource.NewQuantity(total, resource.DecimalSI), true, nil
	case name == corev1.ResourceRequestsStorage || strings.Contains(string(name), ".storageclass.storage.k8s.io/"):
		total := resource.Quantity{}
		for _, claim := range inNamespace[*corev1.PersistentVolumeClaim](c.watched["persistentvolumeclaims"], ns) {
			total.Add(claimUsage(claim, name))
		}
		return total, true, nil
	}
	if strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
		total := resource.Quantity{}
		for _, claim := range inNamespace[*resourcev1.ResourceClaim](c.watched["resourceclaims.resource.k8s.io"], ns) {
			total.Add(api.ClaimedDevices(claim)[name])
		}
		return total, true, nil
	}
	counted := strings.TrimPrefix(string(name), "count/")
	if informer := c.watched[counted]; informer != nil {
		items, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, ns)
		return *resource.NewQuantity(int64(len(items)), resource.DecimalSI), true, err
	}
	n, err := c.countOnServer(ctx, ns, counted)
	return *resource.NewQuantity(n, resource.DecimalSI), false, err
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

func servicePorts(svc *corev1.Service, name corev1.ResourceName) int64 {
	balanced := svc.Spec.Type == corev1.ServiceTypeLoadBalancer
	if name == corev1.ResourceServicesLoadBalancers {
		if balanced {
			return 1
		}
		return 0
	}
	if balanced && svc.Spec.AllocateLoadBalancerNodePorts != nil && !*svc.Spec.AllocateLoadBalancerNodePorts {
		n := int64(0)
		for _, p := range svc.Spec.Ports {
			if p.NodePort != 0 {
				n++
			}
		}
		return n
	}
	if balanced || svc.Spec.Type == corev1.ServiceTypeNodePort {
		return int64(len(svc.Spec.Ports))
	}
	return 0
}

func claimUsage(claim *corev1.PersistentVolumeClaim, name corev1.ResourceName) resource.Quantity {
	class, field, perClass := strings.Cut(string(name), ".storageclass.storage.k8s.io/")
	if perClass && (claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != class) {
		return resource.Quantity{}
	}
	if perClass && field == "persistentvolumeclaims" {
		return *resource.NewQuantity(1, resource.DecimalSI)
	}
	return claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

func isPodResource(name corev1.ResourceName) bool {
	if slices.Contains([]corev1.ResourceName{
		corev1.ResourcePods, "count/pods", corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	}, name) {
		return true
	}
	text := string(name)
	if name == corev1.ResourceRequestsStorage || strings.Contains(text, ".storageclass.storage.k8s.io/") {
		return false
	}
	return strings.HasPrefix(text, "requests.") || strings.HasPrefix(text, "limits.") || strings.HasPrefix(text, "hugepages-")
}
