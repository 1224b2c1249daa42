package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	sliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"orrery.dev/api"
)

const (
	sliceController     = "endpointslice-controller.k8s.io"
	mirroringController = "endpointslicemirroring-controller.k8s.io"
	maxSliceEndpoints   = 100
)

// endpointSliceController lists the pods behind each Service in EndpointSlices.
// How pods are spread over slices is the k8s.io/endpointslice library's.
type endpointSliceController struct {
	*env
	services, slices cache.SharedIndexInformer
	reconciler       *endpointslice.Reconciler
	tracker          *sliceutil.EndpointSliceTracker
	triggers         *sliceutil.TriggerTimeTracker
	topology         *topologycache.TopologyCache
}

func newEndpointSlice(e *env) Controller {
	c := &endpointSliceController{
		env:      e,
		services: e.factory.Core().V1().Services().Informer(),
		slices:   e.factory.Discovery().V1().EndpointSlices().Informer(),
		tracker:  sliceutil.NewEndpointSliceTracker(),
		triggers: sliceutil.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(),
	}
	c.reconciler = endpointslice.NewReconciler(e.clients, e.factory.Core().V1().Nodes().Lister(), maxSliceEndpoints, c.tracker, c.topology,
		e.recorders("endpoint-slice-controller"), sliceController, endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	return Controller{
		Name: "endpointslice-controller",
		Reads: []Source{
			wakesSelf(c.services),
			when(wakes(e.pods(), e.servicesOfPod), podEndpointChanged),
			wakes(c.slices, c.keysOfSlice),
			when(wakes(e.nodes(), c.nodeChanged), nodeTopologyChanged),
		},
		Writes:  []string{"discovery.k8s.io/endpointslices"},
		Workers: 5,
		Sync:    c.sync,
	}
}

// servicesOfPod are the Services that select a pod.
func (e *env) servicesOfPod(pod *corev1.Pod) []string {
	var keys []string
	for _, svc := range inNamespace[*corev1.Service](e.factory.Core().V1().Services().Informer(), pod.Namespace) {
		if len(svc.Spec.Selector) > 0 && labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			keys = append(keys, keyOf(svc))
		}
	}
	return keys
}

// podEndpointChanged spares the Services the many updates of a pod that change
// nothing that an endpoint shows.
func podEndpointChanged(before, after *corev1.Pod) bool {
	return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		before.Status.Phase != after.Status.Phase || api.IsPodReady(before) != api.IsPodReady(after) ||
		!equality.Semantic.DeepEqual(before.Status.PodIPs, after.Status.PodIPs) || before.Status.PodIP != after.Status.PodIP ||
		before.Spec.NodeName != after.Spec.NodeName || before.Spec.Hostname != after.Spec.Hostname || before.Spec.Subdomain != after.Spec.Subdomain
}

func nodeTopologyChanged(before, after *corev1.Node) bool {
	return api.IsNodeReady(before) != api.IsNodeReady(after) ||
		before.Labels[corev1.LabelTopologyZone] != after.Labels[corev1.LabelTopologyZone] ||
		!before.Status.Allocatable.Cpu().Equal(*after.Status.Allocatable.Cpu())
}

// nodeChanged refreshes the zones that topology hints are computed from, and
// wakes the Services whose pods a new or changed node carries.
func (c *endpointSliceController) nodeChanged(node *corev1.Node) []string {
	nodes := everything[corev1.Node](c.nodes())
	var keys []string
	if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Labels[corev1.LabelTopologyZone] != "" }) {
		c.topology.SetNodes(klog.Background(), nodes)
		keys = c.topology.GetOverloadedServices()
	}
	for _, pod := range indexed[*corev1.Pod](c.pods(), byNode, node.Name) {
		keys = append(keys, c.servicesOfPod(pod)...)
	}
	return keys
}

// keysOfSlice wakes the Service of a slice that is not as we left it.
func (c *endpointSliceController) keysOfSlice(slice *discoveryv1.EndpointSlice) []string {
	key, err := endpointslice.ServiceControllerKey(slice)
	if err != nil || slice.Labels[discoveryv1.LabelManagedBy] != sliceController {
		return nil
	}
	if cached[discoveryv1.EndpointSlice](c.slices, keyOf(slice)) == nil {
		c.tracker.HandleDeletion(slice)
	}
	return []string{key}
}

func (c *endpointSliceController) sync(_ context.Context, key string) (time.Duration, error) {
	namespace, name := split(key)
	svc := cached[corev1.Service](c.services, key)
	if svc == nil {
		c.triggers.DeleteService(namespace, name)
		c.reconciler.DeleteService(namespace, name)
		c.tracker.DeleteService(namespace, name)
		return 0, nil // the slices are the garbage collector's
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName || len(svc.Spec.Selector) == 0 {
		return 0, nil
	}
	var mine []*discoveryv1.EndpointSlice
	for _, slice := range inNamespace[*discoveryv1.EndpointSlice](c.slices, namespace) {
		if slice.Labels[discoveryv1.LabelServiceName] == name && slice.Labels[discoveryv1.LabelManagedBy] == sliceController && slice.DeletionTimestamp == nil {
			mine = append(mine, slice)
		}
	}
	if c.tracker.StaleSlices(svc, mine) {
		return pause, nil
	}
	pods := c.podsOfService(svc)
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(namespace, svc, pods)
	return 0, c.reconciler.Reconcile(klog.Background(), svc.DeepCopy(), pods, mine, trigger)
}

// podsOfService are the pods that a Service selects.
func (e *env) podsOfService(svc *corev1.Service) []*corev1.Pod {
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	var out []*corev1.Pod
	for _, pod := range inNamespace[*corev1.Pod](e.pods(), svc.Namespace) {
		if selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, pod)
		}
	}
	return out
}
