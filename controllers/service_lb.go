package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"orrery.dev/api"
)

// serviceLB gives Services of type LoadBalancer the addresses of the nodes,
// where the proxy answers for them: the load balancer of a cluster that has no
// cloud. A Service that names a class, or that another provider serves, is left
// alone; -service-lb-controller leaves all of them.
type serviceLB struct {
	*env
	services cache.SharedIndexInformer
	events   record.EventRecorder
}

func newServiceLB(e *env) Controller {
	c := &serviceLB{env: e, services: e.factory.Core().V1().Services().Informer(), events: e.recorders("service-lb")}
	return Controller{
		Name: "service-lb-controller",
		Reads: []Source{
			wakesSelf(c.services),
			when(wakes(e.nodes(), func(*corev1.Node) []string {
				var keys []string
				for _, svc := range everything[corev1.Service](c.services) {
					if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
						keys = append(keys, keyOf(svc))
					}
				}
				return keys
			}), func(before, after *corev1.Node) bool {
				return api.IsNodeReady(before) != api.IsNodeReady(after) || !equality.Semantic.DeepEqual(before.Status.Addresses, after.Status.Addresses) ||
					excludedFromLB(before) != excludedFromLB(after)
			}),
		},
		Writes: []string{"services"},
		Sync:   c.sync,
	}
}

func excludedFromLB(node *corev1.Node) bool {
	_, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]
	return excluded
}

func (c *serviceLB) sync(ctx context.Context, key string) (time.Duration, error) {
	svc := cached[corev1.Service](c.services, key)
	if svc == nil || svc.DeletionTimestamp != nil {
		return 0, nil
	}
	nodes := everything[corev1.Node](c.nodes())
	want, mine := balancerAddresses(svc, nodes)
	if !mine || equality.Semantic.DeepEqual(svc.Status.LoadBalancer.Ingress, want) {
		return 0, nil
	}
	changed := svc.DeepCopy()
	changed.Status.LoadBalancer.Ingress = want
	if _, err := c.clients.CoreV1().Services(svc.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return 0, fmt.Errorf("load balancer of %s: %w", key, err)
	}
	if len(want) > 0 {
		c.events.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return 0, nil
}

// balancerAddresses are the addresses for a Service; mine is false when the
// Service is not ours to serve.
func balancerAddresses(svc *corev1.Service, nodes []*corev1.Node) (want []corev1.LoadBalancerIngress, mine bool) {
	known := map[string]bool{}
	for _, node := range nodes {
		for _, a := range node.Status.Addresses {
			known[a.Address] = true
		}
	}
	for _, have := range svc.Status.LoadBalancer.Ingress {
		if have.Hostname != "" || !known[have.IP] && svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
			return nil, false // somebody else's balancer
		}
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, true
	}
	if svc.Spec.LoadBalancerClass != nil {
		return nil, false
	}
	wantV6 := len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol
	mode := corev1.LoadBalancerIPModeVIP
	for _, node := range nodes {
		if !api.IsNodeReady(node) || excludedFromLB(node) {
			continue
		}
		if ip := outsideAddress(node, wantV6); ip != "" {
			want = append(want, corev1.LoadBalancerIngress{IP: ip, IPMode: &mode})
		}
	}
	slices.SortFunc(want, func(a, b corev1.LoadBalancerIngress) int { return strings.Compare(a.IP, b.IP) })
	return want, true
}

// outsideAddress is where a node is reached: its external address, or else its
// internal one.
func outsideAddress(node *corev1.Node, v6 bool) string {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind && strings.Contains(a.Address, ":") == v6 {
				return a.Address
			}
		}
	}
	return ""
}
