package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	repairEvery = 3 * time.Minute
	// leakGrace is how old an address must be to count as lost: a younger one
	// may belong to a service that is just being stored.
	leakGrace = time.Minute
	// portGrace is the same for ports, counted from when the loss was first seen.
	portGrace = 5 * time.Minute
	// startRepairs are made soon after the start, a few seconds apart: services
	// that are written past admission (kubernetes) come about then.
	startRepairs = 5
)

// Run makes the ServiceCIDR object named kubernetes, and then, now and again,
// makes the books agree with the services: addresses of services that are not
// in them are added (after a restore, or for services written past admission),
// those that no service has are given back.
func (a *Addresses) Run(ctx context.Context) error {
	leaks := map[int]time.Time{}
	for round := 0; ; round++ {
		err := a.repair(ctx, leaks)
		switch {
		case err == nil:
			a.repaired.Store(true)
		case ctx.Err() == nil:
			slog.Warn("service addresses not repaired", "err", err)
		}
		wait := repairEvery
		if round < startRepairs {
			wait = 2 * time.Second
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// Repaired tells whether the books have agreed with the services since the start.
func (a *Addresses) Repaired(context.Context) error {
	if !a.repaired.Load() {
		return errors.New("service addresses have not been looked at yet")
	}
	return nil
}

func (a *Addresses) repair(ctx context.Context, leaks map[int]time.Time) error {
	if err := a.ensureRange(ctx); err != nil {
		return err
	}
	services, err := list[*corev1.Service](ctx, a.ips.reader, core("services"), "")
	if err != nil {
		return err
	}
	if err := a.repairIPs(ctx, services); err != nil {
		return err
	}
	return a.repairPorts(ctx, services, leaks)
}

// rangeManager is the name under which ranges are found ready.
const rangeManager = "kubernetes-service-cidr-controller"

// ensureRange makes the object that shows the configured range. It is ready at
// once: there is nothing that it could overlap with.
func (a *Addresses) ensureRange(ctx context.Context) error {
	const name = "kubernetes"
	have, err := a.ips.reader.Get(ctx, cidrResource(), "", name)
	if apierrors.IsNotFound(err) {
		want := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.Now().Rfc3339Copy()}}
		for _, r := range a.ips.ranges {
			want.Spec.CIDRs = append(want.Spec.CIDRs, r.Masked().String())
		}
		have, err = a.ips.writer.Create(ctx, cidrResource(), want)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if r, ok := have.(*networkingv1.ServiceCIDR); err != nil || ok && len(r.Status.Conditions) > 0 {
		return err
	}
	return a.ips.writer.ApplyCondition(ctx, cidrResource(), name, rangeManager, &metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes default Service CIDR is ready", LastTransitionTime: metav1.Now(),
	})
}

func (a *Addresses) repairIPs(ctx context.Context, services []*corev1.Service) error {
	owners := map[netip.Addr]*corev1.Service{}
	for _, s := range services {
		for _, ip := range holdingOf(s).ips {
			if first, twice := owners[ip]; twice {
				slog.Warn("two services have one cluster IP", "ip", ip.String(), "service", s.Namespace+"/"+s.Name, "other", first.Namespace+"/"+first.Name)
				continue
			}
			owners[ip] = s
		}
	}
	objects, err := list[*networkingv1.IPAddress](ctx, a.ips.reader, ipResource(), "")
	if err != nil {
		return err
	}
	known := map[netip.Addr]bool{}
	for _, o := range objects {
		ip, err := netip.ParseAddr(o.Name)
		if err != nil {
			continue
		}
		known[ip] = true
		ref := o.Spec.ParentRef
		if o.Labels[networkingv1.LabelManagedBy] != "ipallocator.k8s.io" || ref == nil || ref.Resource != "services" {
			continue
		}
		owner := owners[ip]
		if owner != nil && owner.Namespace == ref.Namespace && owner.Name == ref.Name || time.Since(o.CreationTimestamp.Time) < leakGrace {
			continue
		}
		if owner == nil || owner.CreationTimestamp.Time.Before(time.Now().Add(-leakGrace)) {
			if err := a.ips.writer.Delete(ctx, ipResource(), "", o.Name); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("release %s: %w", ip, err)
			}
			known[ip] = false
		}
	}
	for ip, s := range owners {
		if known[ip] {
			continue
		}
		if _, err := a.ips.writer.Create(ctx, ipResource(), newIPAddress(ip, s)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("record %s: %w", ip, err)
		}
	}
	return nil
}

// repairPorts takes what services have, and gives back what none has had for a
// while. leaks says since when.
func (a *Addresses) repairPorts(ctx context.Context, services []*corev1.Service, leaks map[int]time.Time) error {
	held := map[int]bool{}
	for _, s := range services {
		for _, p := range holdingOf(s).ports {
			held[p] = true
		}
	}
	return a.ports.change(ctx, false, func(t takenPorts) error {
		for p := t.r.First; p <= t.r.Last; p++ {
			switch {
			case held[p]:
				t.set(p, 1)
				delete(leaks, p)
			case !t.has(p):
				delete(leaks, p)
			case leaks[p].IsZero():
				leaks[p] = time.Now()
			case time.Since(leaks[p]) > portGrace:
				t.set(p, 0)
				delete(leaks, p)
			}
		}
		return nil
	})
}
