package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// routeProtocol marks our routes (`ip route show proto 111`); the number is
	// nobody's (rt_protos of iproute2).
	routeProtocol netlink.RouteProtocol = 111
	// routesSync is how often to look whether the routes are still there.
	routesSync = 30 * time.Second
)

// podRoutes leads to the pods of each other node through that node. It needs a
// network on which nodes reach each other without tunnels, and whose routers, if
// there are any between nodes, know the same routes.
type podRoutes struct {
	node  string
	nodes corelisters.NodeLister
	wake  chan struct{} // holds one: a change waits
}

// runPodRoutes keeps the routes in step with the nodes until ctx ends, and leaves
// them in place.
func runPodRoutes(ctx context.Context, client kubernetes.Interface, node string, log *slog.Logger) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(leanNode))
	informer := factory.Core().V1().Nodes().Informer()
	r := &podRoutes{node: node, nodes: factory.Core().V1().Nodes().Lister(), wake: make(chan struct{}, 1)}
	changed := func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(before, now any) {
			if podRouteOf(before.(*corev1.Node)) != podRouteOf(now.(*corev1.Node)) {
				changed()
			}
		}, DeleteFunc: func(any) { changed() },
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	tick := time.NewTicker(routesSync)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := r.sync(); err != nil {
			log.Warn("not all pod routes are set", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-tick.C:
		}
	}
	return nil
}

// leanNode keeps what a route needs.
func leanNode(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		addresses := n.Status.Addresses
		n.Status = corev1.NodeStatus{Addresses: addresses}
	}
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
	}
	return obj, nil
}

// podRoute leads to the pods of a node through its address.
type podRoute struct {
	pods netip.Prefix
	node netip.Addr
}

// podRouteOf is the route to a node's pods; the zero value if it has none yet.
func podRouteOf(n *corev1.Node) podRoute {
	pods, err := netip.ParsePrefix(n.Spec.PodCIDR)
	if err != nil || !pods.Addr().Is4() {
		return podRoute{}
	}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil && ip.Is4() {
			return podRoute{pods.Masked(), ip}
		}
	}
	return podRoute{}
}

// sync sets the routes that are missing and removes ours that lead nowhere any
// more. One that cannot be set does not keep the others from being.
func (r *podRoutes) sync() error {
	nodes, err := r.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	wanted := map[netip.Prefix]bool{}
	var errs []error
	for _, n := range nodes {
		route := podRouteOf(n)
		if n.Name == r.node || !route.pods.IsValid() {
			continue
		}
		wanted[route.pods] = true
		if err := route.set(); err != nil {
			errs = append(errs, fmt.Errorf("route to the pods of node %s (%s through %s): %w", n.Name, route.pods, route.node, err))
		}
	}
	return errors.Join(append(errs, removeRoutes(wanted))...)
}

// set leads to the next hop on the way to the node: the node itself where it is
// on the same link, else the router in between.
func (p podRoute) set() error {
	way, err := netlink.RouteGet(p.node.AsSlice())
	if err != nil {
		return err
	}
	if len(way) == 0 {
		return errors.New("the node cannot be reached")
	}
	hop := way[0].Gw
	if hop == nil {
		hop = p.node.AsSlice()
	}
	return netlink.RouteReplace(&netlink.Route{
		Dst: &net.IPNet{IP: p.pods.Addr().AsSlice(), Mask: net.CIDRMask(p.pods.Bits(), 32)},
		Gw:  hop, LinkIndex: way[0].LinkIndex, Protocol: routeProtocol,
	})
}

func removeRoutes(wanted map[netip.Prefix]bool) error {
	have, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var errs []error
	for _, route := range have {
		if route.Dst == nil {
			continue
		}
		if pods, err := netip.ParsePrefix(route.Dst.String()); err == nil && wanted[pods] {
			continue
		}
		if err := netlink.RouteDel(&route); err != nil {
			errs = append(errs, fmt.Errorf("remove route %s: %w", route.Dst, err))
		}
	}
	return errors.Join(errs...)
}
