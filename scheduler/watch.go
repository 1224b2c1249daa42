package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"orrery.dev/api"
	"orrery.dev/client"
	"orrery.dev/scheduler/plugins"
)

// facts answers the plugins' questions from informers' caches.
type facts struct {
	namespaces  corelisters.NamespaceLister
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	classes     storagelisters.StorageClassLister
	csiNodes    storagelisters.CSINodeLister
	services    corelisters.ServiceLister
	replicaSets appslisters.ReplicaSetLister
	stateful    appslisters.StatefulSetLister
	controllers corelisters.ReplicationControllerLister
	budgets     policylisters.PodDisruptionBudgetLister
}

func orNil[T any](object *T, err error) *T {
	if err != nil {
		return nil
	}
	return object
}

func (f *facts) Namespace(name string) *corev1.Namespace { return orNil(f.namespaces.Get(name)) }
func (f *facts) Claim(ns, name string) *corev1.PersistentVolumeClaim {
	return orNil(f.claims.PersistentVolumeClaims(ns).Get(name))
}
func (f *facts) Volume(name string) *corev1.PersistentVolume { return orNil(f.volumes.Get(name)) }
func (f *facts) Volumes() []*corev1.PersistentVolume {
	all, _ := f.volumes.List(labels.Everything()) // a cache's list cannot fail
	return all
}
func (f *facts) Class(name string) *storagev1.StorageClass { return orNil(f.classes.Get(name)) }
func (f *facts) CSINode(name string) *storagev1.CSINode    { return orNil(f.csiNodes.Get(name)) }

// SelectorsOf joins the selectors of all Services of the pod with that of its
// controller.
func (f *facts) SelectorsOf(pod *corev1.Pod) labels.Selector {
	all := labels.NewSelector()
	add := func(s labels.Selector) {
		if requirements, ok := s.Requirements(); ok {
			all = all.Add(requirements...)
		}
	}
	services, _ := f.services.Services(pod.Namespace).List(labels.Everything())
	for _, s := range services {
		if len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			add(labels.SelectorFromSet(s.Spec.Selector))
		}
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return all
	}
	switch owner.Kind {
	case "ReplicaSet":
		if o := orNil(f.replicaSets.ReplicaSets(pod.Namespace).Get(owner.Name)); o != nil {
			addSelector(o.Spec.Selector, add)
		}
	case "StatefulSet":
		if o := orNil(f.stateful.StatefulSets(pod.Namespace).Get(owner.Name)); o != nil {
			addSelector(o.Spec.Selector, add)
		}
	case "ReplicationController":
		if o := orNil(f.controllers.ReplicationControllers(pod.Namespace).Get(owner.Name)); o != nil {
			add(labels.SelectorFromSet(o.Spec.Selector))
		}
	}
	return all
}

func addSelector(selector *metav1.LabelSelector, add func(labels.Selector)) {
	if s, err := metav1.LabelSelectorAsSelector(selector); err == nil {
		add(s)
	}
}

// watch starts the informers, and waits until they have the present state. The
// function that it returns waits until they have stopped, after ctx ended.
func (s *scheduler) watch(ctx context.Context) (func(), error) {
	factory := informers.NewSharedInformerFactoryWithOptions(s.Clients, 0, informers.WithTransform(client.Slim))
	core, apps, storage := factory.Core().V1(), factory.Apps().V1(), factory.Storage().V1()
	s.facts = &facts{
		namespaces: core.Namespaces().Lister(), claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		classes: storage.StorageClasses().Lister(), csiNodes: storage.CSINodes().Lister(), services: core.Services().Lister(),
		replicaSets: apps.ReplicaSets().Lister(), stateful: apps.StatefulSets().Lister(),
		controllers: core.ReplicationControllers().Lister(), budgets: factory.Policy().V1().PodDisruptionBudgets().Lister(),
	}
	var synced []toolscache.InformerSynced
	on := func(informer toolscache.SharedIndexInformer, handler toolscache.ResourceEventHandlerFuncs) error {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		synced = append(synced, registration.HasSynced)
		return nil
	}
	wake := func(change plugins.Change) toolscache.ResourceEventHandlerFuncs {
		return toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.queue.changed(change) },
			UpdateFunc: func(any, any) { s.queue.changed(change) },
			DeleteFunc: func(any) { s.queue.changed(change) },
		}
	}
	for _, err := range []error{
		on(core.Nodes().Informer(), s.nodeHandler()),
		on(core.Pods().Informer(), s.podHandler()),
		on(core.PersistentVolumeClaims().Informer(), wake(plugins.VolumesChanged)),
		on(core.PersistentVolumes().Informer(), wake(plugins.VolumesChanged)),
		on(storage.StorageClasses().Informer(), wake(plugins.VolumesChanged)),
		on(storage.CSINodes().Informer(), wake(plugins.VolumesChanged)),
		on(core.Namespaces().Informer(), wake(plugins.NamespaceChange)),
	} {
		if err != nil {
			return nil, err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, ctx.Err()
	}
	return factory.Shutdown, nil
}

func (s *scheduler) nodeHandler() toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			s.cache.setNode(object.(*corev1.Node))
			s.queue.changed(plugins.NodeChanged)
		},
		UpdateFunc: func(before, after any) {
			old, node := before.(*corev1.Node), after.(*corev1.Node)
			s.cache.setNode(node)
			if matters(old, node) {
				s.queue.changed(plugins.NodeChanged)
			}
		},
		DeleteFunc: func(object any) {
			if node, ok := unwrap[*corev1.Node](object); ok {
				s.cache.removeNode(node.Name)
			}
		},
	}
}

// matters reports whether a change of a node may let a pod fit: heartbeats do
// not.
func matters(old, node *corev1.Node) bool {
	return old.Spec.Unschedulable != node.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) ||
		!equality.Semantic.DeepEqual(old.Labels, node.Labels) ||
		!equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable)
}

func (s *scheduler) podHandler() toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.sawPod(nil, object.(*corev1.Pod)) },
		UpdateFunc: func(before, after any) { s.sawPod(before.(*corev1.Pod), after.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			pod, ok := unwrap[*corev1.Pod](object)
			if !ok {
				return
			}
			s.queue.remove(pod.UID)
			s.cache.removePod(pod.UID)
			s.queue.changed(plugins.PodGone)
		},
	}
}

// sawPod sorts a pod into the cache or the queue. old is nil for a new one.
func (s *scheduler) sawPod(old, pod *corev1.Pod) {
	switch {
	case api.IsPodTerminal(pod):
		s.queue.remove(pod.UID)
		s.cache.removePod(pod.UID)
		if old == nil || !api.IsPodTerminal(old) {
			s.queue.changed(plugins.PodGone)
		}
	case pod.Spec.NodeName != "":
		s.queue.remove(pod.UID)
		s.cache.setPod(pod)
		if old == nil || old.Spec.NodeName == "" || !equality.Semantic.DeepEqual(old.Labels, pod.Labels) {
			s.queue.changed(plugins.PodAssigned)
		} else if !equality.Semantic.DeepEqual(old.Spec.Containers, pod.Spec.Containers) || !equality.Semantic.DeepEqual(old.Status.ContainerStatuses, pod.Status.ContainerStatuses) && pod.Generation != old.Generation {
			s.queue.changed(plugins.PodGone) // resized: there may be room
		}
	case pod.Spec.SchedulerName != s.Name || pod.DeletionTimestamp != nil:
		s.queue.remove(pod.UID)
	case len(pod.Spec.SchedulingGates) > 0: // waits for its gates to be lifted
	case !s.cache.assumed(pod):
		s.queue.add(pod)
	}
}

// unwrap looks into the tombstone of a deletion that the watch missed.
func unwrap[T any](object any) (T, bool) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	typed, ok := object.(T)
	return typed, ok
}

// earliest is the start of a pod, or now for one that has none.
func earliest(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return time.Now()
}
