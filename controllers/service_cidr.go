package controllers

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworking "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

const (
	serviceCIDRProtection = "networking.k8s.io/service-cidr-finalizer"
	// ipAllocator is the label value of the addresses that services have.
	ipAllocator = "ipallocator.k8s.io"
	// serviceCIDRGrace is how long a deleted range stays when nothing uses it: an
	// API server that does not know yet could still hand out one of its addresses.
	serviceCIDRGrace = 10 * time.Second
)

// serviceCIDRController declares ranges of service addresses ready, and keeps a
// deleted one until no service would be left with an address outside all ranges.
type serviceCIDRController struct {
	*env
	ranges, addresses cache.SharedIndexInformer
	events            record.EventRecorder
}

func newServiceCIDR(e *env) Controller {
	v1 := e.factory.Networking().V1()
	c := &serviceCIDRController{env: e, ranges: v1.ServiceCIDRs().Informer(), addresses: v1.IPAddresses().Informer(), events: e.recorders("service-cidr-controller")}
	return Controller{
		Name: "service-cidr-controller",
		Reads: []Source{
			wakes(c.ranges, c.rangesAround),
			when(wakes(c.addresses, c.rangesOf), func(_, _ *networkingv1.IPAddress) bool { return false }),
		},
		Writes:  []string{"networking.k8s.io/servicecidrs"},
		Workers: 5,
		Sync:    c.sync,
	}
}

// rangesAround are a range and those that overlap with it: each may be what lets
// the others go.
func (c *serviceCIDRController) rangesAround(changed *networkingv1.ServiceCIDR) []string {
	keys := []string{changed.Name}
	for _, other := range everything[networkingv1.ServiceCIDR](c.ranges) {
		if other.Name != changed.Name && slices.ContainsFunc(prefixesOf(other), func(p netip.Prefix) bool {
			return slices.ContainsFunc(prefixesOf(changed), p.Overlaps)
		}) {
			keys = append(keys, other.Name)
		}
	}
	return keys
}

func (c *serviceCIDRController) rangesOf(address *networkingv1.IPAddress) []string {
	var keys []string
	ip, err := netip.ParseAddr(address.Name)
	if err != nil || address.Labels[networkingv1.LabelManagedBy] != ipAllocator {
		return nil
	}
	for _, r := range everything[networkingv1.ServiceCIDR](c.ranges) {
		if holdsAddress(r, ip) {
			keys = append(keys, r.Name)
		}
	}
	return keys
}

func (c *serviceCIDRController) sync(ctx context.Context, name string) (time.Duration, error) {
	r := cached[networkingv1.ServiceCIDR](c.ranges, name)
	switch {
	case r == nil:
		return 0, nil
	case r.DeletionTimestamp != nil:
		return c.release(ctx, r)
	case !slices.Contains(r.Finalizers, serviceCIDRProtection):
		if err := c.patch(ctx, r, map[string]any{"finalizers": []string{serviceCIDRProtection}}); err != nil {
			return 0, err
		}
	}
	err := c.tell(ctx, r, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready")
	if err != nil {
		c.events.Event(r, corev1.EventTypeWarning, "KubernetesServiceCIDRError", "The ServiceCIDR Status can not be set to Ready=True")
	}
	return 0, err
}

// release lets a deleted range go, or says why it can't.
func (c *serviceCIDRController) release(ctx context.Context, r *networkingv1.ServiceCIDR) (time.Duration, error) {
	if !slices.Contains(r.Finalizers, serviceCIDRProtection) {
		return 0, nil
	}
	if !dispensable(r, everything[networkingv1.ServiceCIDR](c.ranges), everything[networkingv1.IPAddress](c.addresses)) {
		return 0, c.tell(ctx, r, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR")
	}
	if left := serviceCIDRGrace - time.Since(r.DeletionTimestamp.Time); left > 0 {
		return left, nil
	}
	return 0, c.patch(ctx, r, map[string]any{"$deleteFromPrimitiveList/finalizers": []string{serviceCIDRProtection}})
}

func (c *serviceCIDRController) patch(ctx context.Context, r *networkingv1.ServiceCIDR, metadata map[string]any) error {
	_, err := c.clients.NetworkingV1().ServiceCIDRs().Patch(ctx, r.Name, types.StrategicMergePatchType, metadataPatch(metadata), metav1.PatchOptions{})
	return ignoreNotFound(err)
}

// tell applies the condition Ready where it says something else.
func (c *serviceCIDRController) tell(ctx context.Context, r *networkingv1.ServiceCIDR, value metav1.ConditionStatus, reason, message string) error {
	have := meta.FindStatusCondition(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	if have != nil && have.Status == value && have.Reason == reason && have.Message == message {
		return nil
	}
	ready := applymeta.Condition().WithType(networkingv1.ServiceCIDRConditionReady).WithStatus(value).
		WithReason(reason).WithMessage(message).WithLastTransitionTime(metav1.Now())
	want := applynetworking.ServiceCIDR(r.Name).WithStatus(applynetworking.ServiceCIDRStatus().WithConditions(ready))
	_, err := c.clients.NetworkingV1().ServiceCIDRs().ApplyStatus(ctx, want, metav1.ApplyOptions{FieldManager: "service-cidr-controller", Force: true})
	return ignoreNotFound(err)
}

// dispensable says whether no address of a service would be outside all ranges
// without r: other ranges hold all of r, or all addresses in use.
func dispensable(r *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress) bool {
	heldElsewhere := func(p netip.Prefix) bool {
		return slices.ContainsFunc(all, func(other *networkingv1.ServiceCIDR) bool {
			return other.Name != r.Name && slices.ContainsFunc(prefixesOf(other), func(o netip.Prefix) bool {
				return o.Bits() <= p.Bits() && o.Overlaps(p)
			})
		})
	}
	if !slices.ContainsFunc(prefixesOf(r), func(p netip.Prefix) bool { return !heldElsewhere(p) }) {
		return true
	}
	for _, address := range addresses {
		ip, err := netip.ParseAddr(address.Name)
		if err != nil || address.Labels[networkingv1.LabelManagedBy] != ipAllocator || !holdsAddress(r, ip) {
			continue
		}
		if !slices.ContainsFunc(all, func(other *networkingv1.ServiceCIDR) bool { return other.Name != r.Name && holdsAddress(other, ip) }) {
			return false
		}
	}
	return true
}

func prefixesOf(r *networkingv1.ServiceCIDR) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range r.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// holdsAddress says whether ip is one of the addresses that r has to give.
func holdsAddress(r *networkingv1.ServiceCIDR, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixesOf(r), func(p netip.Prefix) bool {
		return p.Contains(ip) && ip != p.Masked().Addr() && !(ip.Is4() && !p.Contains(ip.Next()))
	})
}
