package proxy

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// toBeDeleted is the taint by which an autoscaler says that a node goes.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// cluster is what the proxy sees of the cluster.
type cluster struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	nodes    corelisters.NodeLister // only this node's object

	factories []informers.SharedInformerFactory
	synced    []cache.InformerSynced
}

// newCluster prepares the watches. changed is called at each change.
func newCluster(client kubernetes.Interface, nodeName string, changed func(before, after any)) (*cluster, error) {
	// Headless Services and other proxies' are none of our business, and may be
	// many.
	ours := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(lean),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = "!" + corev1.IsHeadlessService + ",!" + serviceProxyName
		}))
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(lean),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, nodeName).String()
		}))
	c := &cluster{
		services:  ours.Core().V1().Services().Lister(),
		slices:    ours.Discovery().V1().EndpointSlices().Lister(),
		nodes:     own.Core().V1().Nodes().Lister(),
		factories: []informers.SharedInformerFactory{ours, own},
	}
	for _, informer := range []cache.SharedIndexInformer{
		ours.Core().V1().Services().Informer(), ours.Discovery().V1().EndpointSlices().Informer(), own.Core().V1().Nodes().Informer(),
	} {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(now any) { changed(nil, now) }, UpdateFunc: changed, DeleteFunc: func(any) { changed(nil, nil) },
		})
		if err != nil {
			return nil, fmt.Errorf("watch the cluster: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// watch runs the watches until ctx ends.
func (c *cluster) watch(ctx context.Context) {
	var running sync.WaitGroup
	for _, f := range c.factories {
		f.StartWithContext(ctx)
		running.Go(func() {
			<-ctx.Done()
			f.Shutdown()
		})
	}
	running.Wait()
}

// lean drops what no route needs before an object is kept.
func lean(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
		m.SetOwnerReferences(nil)
	}
	if n, ok := obj.(*corev1.Node); ok {
		n.Status = corev1.NodeStatus{}
	}
	return obj, nil
}

// node returns what routing needs of the node, and whether the node is about to
// go.
func (c *cluster) node(name string) (Node, bool) {
	here := Node{Name: name}
	n, err := c.nodes.Get(name)
	if err != nil {
		return here, false // not registered yet; it has no zone until then
	}
	here.Zone = n.Labels[corev1.LabelTopologyZone]
	leaving := n.DeletionTimestamp != nil
	for _, t := range n.Spec.Taints {
		leaving = leaving || t.Key == toBeDeleted
	}
	return here, leaving
}

// tables computes the routes of both families from what is known now.
func (c *cluster) tables(node Node) ([]Table, error) {
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	slices, err := c.slices.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list endpoint slices: %w", err)
	}
	return tablesOf(node, services, slices), nil
}

func tablesOf(node Node, services []*corev1.Service, slices []*discoveryv1.EndpointSlice) []Table {
	return []Table{Build(IPv4, node, services, slices), Build(IPv6, node, services, slices)}
}
