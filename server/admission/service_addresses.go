package admission

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
)

// Addresses hands out cluster IPs and node ports to services. What a write takes
// is kept when the write is stored and given back when it is not; what it no
// longer needs is given back once it is stored. Run mends what a crash leaves.
type Addresses struct {
	ips   ips
	ports ports
	// primary says whether IPv4 is the family of services that do not choose;
	// dual whether there are ranges of both families.
	primaryV4, dual bool
	repaired        atomic.Bool // once, at least
}

// NewAddresses makes the allocator over the configured ranges (one, or one of
// each IP family, the primary first).
func NewAddresses(reader Reader, writer OwnWriter, ranges []netip.Prefix, nodePorts PortRange) (*Addresses, error) {
	if len(ranges) == 0 || len(ranges) > 2 {
		return nil, fmt.Errorf("service cluster IP range: want one range, or two of different IP families, got %v", ranges)
	}
	if len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, fmt.Errorf("service cluster IP range: %v and %v are of the same IP family", ranges[0], ranges[1])
	}
	if nodePorts.First <= 0 || nodePorts.Last > 65535 || nodePorts.size() <= 0 {
		return nil, fmt.Errorf("service node port range: %s is not a range of ports", nodePorts)
	}
	return &Addresses{
		ips:       ips{reader, writer, ranges},
		ports:     ports{reader, writer, nodePorts},
		primaryV4: ranges[0].Addr().Is4(),
		dual:      len(ranges) == 2,
	}, nil
}

func (a *Addresses) plugin() Plugin {
	return Plugin{
		Name:    "ServiceAddresses",
		On:      on("", "services", Create, Update, Delete),
		Settled: true,
		Mutate:  a.admit,
	}
}

// holding is what a service holds.
type holding struct {
	ips   []netip.Addr
	ports []int
}

func holdingOf(s *corev1.Service) holding {
	h := holding{}
	if s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		return h
	}
	texts := s.Spec.ClusterIPs
	if len(texts) == 0 && s.Spec.ClusterIP != "" {
		texts = []string{s.Spec.ClusterIP}
	}
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			h.ips = append(h.ips, ip)
		}
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 && !slices.Contains(h.ports, int(p.NodePort)) {
			h.ports = append(h.ports, int(p.NodePort))
		}
	}
	if p := int(s.Spec.HealthCheckNodePort); p != 0 && !slices.Contains(h.ports, p) {
		h.ports = append(h.ports, p)
	}
	return h
}

// without is what h has and other has not.
func (h holding) without(other holding) holding {
	rest := holding{}
	for _, ip := range h.ips {
		if !slices.Contains(other.ips, ip) {
			rest.ips = append(rest.ips, ip)
		}
	}
	for _, p := range h.ports {
		if !slices.Contains(other.ports, p) {
			rest.ports = append(rest.ports, p)
		}
	}
	return rest
}

func (a *Addresses) admit(ctx context.Context, r *Request) error {
	old, _ := r.Old.(*corev1.Service)
	if r.Operation == Delete {
		if old != nil && !r.DryRun {
			r.OnFinish(func(ctx context.Context, stored runtime.Object) {
				if stored == nil || gone(stored) {
					a.give(ctx, old, holdingOf(old))
				}
			})
		}
		return nil
	}
	service, ok := r.Object.(*corev1.Service)
	if !ok {
		return nil
	}
	w := &assignment{Addresses: a, service: service, had: holdingOf(old), dryRun: r.DryRun}
	if !r.DryRun {
		r.OnFinish(w.settle)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if err := a.setFamilies(service, old); err != nil {
		return err
	}
	if err := w.takeIPs(ctx); err != nil {
		return err
	}
	return w.takePorts(ctx)
}

// assignment is one write of a service.
type assignment struct {
	*Addresses
	service *corev1.Service
	had     holding // by the service before
	took    holding // by this write
	dryRun  bool
}

// settle gives back what is not needed: after a failure all that was taken,
// after a success what the service had and has no more.
func (w *assignment) settle(ctx context.Context, stored runtime.Object) {
	if stored == nil {
		w.give(ctx, w.service, w.took)
		return
	}
	now, ok := stored.(*corev1.Service)
	if !ok {
		return
	}
	kept := holding{}
	if !gone(stored) {
		kept = holdingOf(now)
	}
	all := holding{append(slices.Clone(w.had.ips), w.took.ips...), append(slices.Clone(w.had.ports), w.took.ports...)}
	w.give(ctx, w.service, all.without(kept))
}

// gone reports whether an update that was stored let the object end.
func gone(obj runtime.Object) bool {
	s, ok := obj.(*corev1.Service)
	return ok && s.DeletionTimestamp != nil && len(s.Finalizers) == 0
}

// give gives back. What fails is left to the repair loop: the write is over.
func (a *Addresses) give(ctx context.Context, s *corev1.Service, h holding) {
	ctx = context.WithoutCancel(ctx) // the client may be gone
	for _, ip := range h.ips {
		if err := a.ips.give(ctx, ip, s); err != nil {
			slog.Warn("cluster IP not released", "ip", ip.String(), "service", s.Namespace+"/"+s.Name, "err", err)
		}
	}
	if len(h.ports) == 0 {
		return
	}
	err := a.ports.change(ctx, false, func(t takenPorts) error {
		for _, p := range h.ports {
			if t.r.First <= p && p <= t.r.Last {
				t.set(p, 0)
			}
		}
		return nil
	})
	if err != nil {
		slog.Warn("node ports not released", "service", s.Namespace+"/"+s.Name, "err", err)
	}
}

func headless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func family(v4 bool) corev1.IPFamily {
	if v4 {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// setFamilies fills in ipFamilyPolicy and ipFamilies.
func (a *Addresses) setFamilies(s *corev1.Service, old *corev1.Service) error {
	spec := &s.Spec
	var before corev1.ServiceSpec
	if old != nil {
		before = old.Spec
	}
	if old != nil && staysPreferred(spec, &before) {
		return nil
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	selectorless := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case before.IPFamilyPolicy != nil:
			policy = *before.IPFamilyPolicy
		case selectorless:
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	if errs := api.ValidateClusterIPs(s, before.ClusterIPs); len(errs) > 0 {
		return invalidService(s, errs...)
	}
	if errs := a.agreeFamilies(spec, &before); len(errs) > 0 {
		return invalidService(s, errs...)
	}
	if len(spec.IPFamilies) == 0 && selectorless {
		spec.IPFamilies = []corev1.IPFamily{family(a.primaryV4)}
	}
	if selectorless {
		// No address is handed out: any family may be claimed.
		if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
			addOtherFamily(spec)
		}
		return nil
	}
	if errs := a.missingFamilies(spec); len(errs) > 0 {
		return invalidService(s, errs...)
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{family(a.primaryV4)}
	}
	if a.dual && *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		addOtherFamily(spec)
	}
	return nil
}

// staysPreferred tells that a service would have had two families if it could, and
// has the same as before: what the cluster has become does not change it.
func staysPreferred(is, was *corev1.ServiceSpec) bool {
	preferred := func(p *corev1.IPFamilyPolicy) bool { return *p == corev1.IPFamilyPolicyPreferDualStack }
	return is.IPFamilyPolicy != nil && preferred(is.IPFamilyPolicy) && (was.IPFamilyPolicy == nil || preferred(was.IPFamilyPolicy)) &&
		is.Type == was.Type && is.ClusterIP == was.ClusterIP && slices.Equal(is.ClusterIPs, was.ClusterIPs) && slices.Equal(is.IPFamilies, was.IPFamilies)
}

// agreeFamilies brings policy, addresses and families together.
func (a *Addresses) agreeFamilies(is, was *corev1.ServiceSpec) field.ErrorList {
	at := field.NewPath("spec", "ipFamilyPolicy")
	single := *is.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	var errs field.ErrorList
	complain := func(when bool, why string) {
		if when {
			errs = append(errs, field.Invalid(at, *is.IPFamilyPolicy, why))
		}
	}
	if single {
		// From two families to one: the secondary goes.
		if len(is.ClusterIPs) > 1 && is.ClusterIP == was.ClusterIP && slices.Equal(is.ClusterIPs, was.ClusterIPs) {
			is.ClusterIPs = is.ClusterIPs[:1]
		}
		if len(is.IPFamilies) > 1 && slices.Equal(is.IPFamilies, was.IPFamilies) {
			is.IPFamilies = is.IPFamilies[:1]
		}
	} else {
		complain(len(is.ClusterIPs) > 0 && len(is.ClusterIPs) < len(was.ClusterIPs), "must be 'SingleStack' to release the secondary cluster IP")
		complain(len(is.IPFamilies) > 0 && len(is.IPFamilies) < len(was.IPFamilies), "must be 'SingleStack' to release the secondary IP family")
	}
	const both = "must be 'RequireDualStack' or 'PreferDualStack' when multiple "
	complain(single && len(is.ClusterIPs) == 2, both+"cluster IPs are specified")
	complain(single && len(is.IPFamilies) == 2, both+"IP families are specified")
	// Addresses that were asked for settle their families.
	for i, text := range is.ClusterIPs {
		ip, err := netip.ParseAddr(text)
		if err != nil || i < len(is.IPFamilies) {
			continue
		}
		if !a.has(family(ip.Is4())) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), is.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family(ip.Is4()))))
			continue
		}
		is.IPFamilies = append(is.IPFamilies, family(ip.Is4()))
	}
	return errs
}

func (a *Addresses) has(f corev1.IPFamily) bool { return a.dual || f == family(a.primaryV4) }

// missingFamilies names what a service wants that this cluster has no range for.
func (a *Addresses) missingFamilies(spec *corev1.ServiceSpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if !a.dual && *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), *spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, f := range spec.IPFamilies {
		if !a.has(f) {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	return errs
}

func addOtherFamily(spec *corev1.ServiceSpec) {
	if len(spec.IPFamilies) == 1 {
		spec.IPFamilies = append(spec.IPFamilies, family(spec.IPFamilies[0] != corev1.IPv4Protocol))
	}
}

func invalidService(s *corev1.Service, errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, s.Name, errs)
}

// takeIPs takes one address per family: the one asked for, or any.
func (w *assignment) takeIPs(ctx context.Context) error {
	spec := &w.service.Spec
	if headless(w.service) {
		spec.ClusterIP, spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		return nil
	}
	for i, f := range spec.IPFamilies {
		if i >= len(spec.ClusterIPs) {
			ip, err := w.ips.takeAny(ctx, f == corev1.IPv4Protocol, w.service, w.dryRun)
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP: %w", err))
			}
			w.took.ips = append(w.took.ips, ip)
			spec.ClusterIPs = append(spec.ClusterIPs, ip.String())
			continue
		}
		ip, err := netip.ParseAddr(spec.ClusterIPs[i])
		if err != nil || slices.Contains(w.had.ips, ip) {
			continue // what is no address, validation will say
		}
		if err := w.ips.take(ctx, ip, w.service, w.dryRun); err != nil {
			return invalidService(w.service, field.Invalid(field.NewPath("spec", "clusterIPs"), spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %v: %v", ip, err)))
		}
		w.took.ips = append(w.took.ips, ip)
	}
	if len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	return nil
}

// takePorts takes node ports, all in one transaction.
func (w *assignment) takePorts(ctx context.Context) error {
	spec := &w.service.Spec
	nodePorts := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	automatic := spec.Type == corev1.ServiceTypeNodePort || spec.AllocateLoadBalancerNodePorts == nil || *spec.AllocateLoadBalancerNodePorts
	health := spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if !nodePorts || !w.needsPorts(automatic, health) {
		return nil
	}
	asked := spec.DeepCopy()
	err := w.ports.change(ctx, w.dryRun, func(t takenPorts) error {
		// The transaction may be tried again: start from what was asked for.
		spec.Ports, spec.HealthCheckNodePort, w.took.ports = asked.DeepCopy().Ports, asked.HealthCheckNodePort, nil
		if err := w.assignPorts(t, automatic); err != nil {
			return err
		}
		if health {
			return w.assignHealthPort(t)
		}
		return nil
	})
	if err != nil {
		w.took.ports = nil // nothing was written
	}
	return err
}

// needsPorts saves the transaction when all is held already.
func (w *assignment) needsPorts(automatic, health bool) bool {
	want := holdingOf(w.service)
	if len(want.without(w.had).ports) > 0 || health && w.service.Spec.HealthCheckNodePort == 0 {
		return true
	}
	return automatic && slices.ContainsFunc(w.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == 0 })
}

func (w *assignment) assignPorts(t takenPorts, automatic bool) error {
	spec := &w.service.Spec
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.NodePort == 0 && !automatic {
			continue
		}
		if p.NodePort == 0 {
			p.NodePort = sharedNodePort(spec.Ports, p.Port)
		}
		switch asked := int(p.NodePort); {
		case slices.Contains(w.had.ports, asked) || slices.Contains(w.took.ports, asked):
			// Held, or the same number for another protocol: validation sees
			// to it that two ports of one protocol differ.
		case asked != 0:
			if err := t.take(asked); err != nil {
				return invalidService(w.service, field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), p.NodePort, err.Error()))
			}
			w.took.ports = append(w.took.ports, asked)
		default:
			port, err := t.takeAny()
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
			}
			w.took.ports = append(w.took.ports, port)
			p.NodePort = int32(port)
		}
	}
	return nil
}

// sharedNodePort is the node port of the same port for another protocol: DNS
// has one number for TCP and UDP.
func sharedNodePort(all []corev1.ServicePort, port int32) int32 {
	for _, p := range all {
		if p.Port == port && p.NodePort != 0 {
			return p.NodePort
		}
	}
	return 0
}

func (w *assignment) assignHealthPort(t takenPorts) error {
	spec := &w.service.Spec
	asked := int(spec.HealthCheckNodePort)
	if asked != 0 && slices.Contains(w.had.ports, asked) {
		return nil
	}
	if asked != 0 {
		if err := t.take(asked); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", asked, err))
		}
		w.took.ports = append(w.took.ports, asked)
		return nil
	}
	port, err := t.takeAny()
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort: %w", err))
	}
	w.took.ports = append(w.took.ports, port)
	spec.HealthCheckNodePort = int32(port)
	return nil
}
