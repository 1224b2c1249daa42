package controllers

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// maxMirrored bounds the addresses of one subset that are mirrored.
const maxMirrored = 1000

// mirroring copies Endpoints that users made by hand for Services without a
// selector into EndpointSlices, which is what proxies read.
type mirroring struct {
	*env
	services, endpoints, slices cache.SharedIndexInformer
	own                         writes
}

func newEndpointSliceMirroring(e *env) Controller {
	c := &mirroring{
		env:       e,
		services:  e.factory.Core().V1().Services().Informer(),
		endpoints: e.factory.Core().V1().Endpoints().Informer(),
		slices:    e.factory.Discovery().V1().EndpointSlices().Informer(),
	}
	return Controller{
		Name: "endpointslice-mirroring-controller",
		Reads: []Source{
			when(wakesSelf(c.endpoints), func(before, after *corev1.Endpoints) bool {
				return c.mirrored(before) || c.mirrored(after)
			}),
			wakesSelf(c.services),
			wakes(c.slices, func(s *discoveryv1.EndpointSlice) []string {
				if s.Labels[discoveryv1.LabelManagedBy] != mirroringController {
					return nil
				}
				return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
			}),
		},
		Writes:  []string{"discovery.k8s.io/endpointslices"},
		Workers: 2,
		Sync:    c.sync,
	}
}

// mirrored says whether an Endpoints object is one that a user wrote.
func (c *mirroring) mirrored(ep *corev1.Endpoints) bool {
	_, lease := ep.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !lease && ep.Labels[discoveryv1.LabelSkipMirror] != "true" && ep.Labels[labelManagedEndpoints] == ""
}

func (c *mirroring) sync(ctx context.Context, key string) (time.Duration, error) {
	if !c.own.seen(key) {
		return pause, nil
	}
	namespace, name := split(key)
	var have []*discoveryv1.EndpointSlice
	for _, s := range inNamespace[*discoveryv1.EndpointSlice](c.slices, namespace) {
		if s.Labels[discoveryv1.LabelServiceName] == name && s.Labels[discoveryv1.LabelManagedBy] == mirroringController {
			have = append(have, s)
		}
	}
	var want []*discoveryv1.EndpointSlice
	ep, svc := cached[corev1.Endpoints](c.endpoints, key), cached[corev1.Service](c.services, key)
	if ep != nil && svc != nil && svc.Spec.Selector == nil && c.mirrored(ep) {
		want = mirror(ep)
	}
	return 0, c.apply(ctx, key, have, want)
}

// apply makes the slices that exist those that are wanted; a slice is kept for
// the same address type and ports.
func (c *mirroring) apply(ctx context.Context, key string, have, want []*discoveryv1.EndpointSlice) error {
	api := c.clients.DiscoveryV1()
	var errs []error
	for _, w := range want {
		i := slices.IndexFunc(have, func(h *discoveryv1.EndpointSlice) bool {
			return h.AddressType == w.AddressType && equality.Semantic.DeepEqual(h.Ports, w.Ports)
		})
		if i < 0 {
			made, err := api.EndpointSlices(w.Namespace).Create(ctx, w, metav1.CreateOptions{})
			if err == nil {
				c.own.made(key, c.slices.GetIndexer(), made)
			}
			errs = append(errs, settled(err))
			continue
		}
		h := have[i].DeepCopy()
		have = slices.Delete(slices.Clone(have), i, i+1)
		if equality.Semantic.DeepEqual(h.Endpoints, w.Endpoints) && maps.Equal(h.Labels, w.Labels) && maps.Equal(h.Annotations, w.Annotations) {
			continue
		}
		h.Endpoints, h.Labels, h.Annotations = w.Endpoints, w.Labels, w.Annotations
		made, err := api.EndpointSlices(h.Namespace).Update(ctx, h, metav1.UpdateOptions{})
		if err == nil {
			c.own.made(key, c.slices.GetIndexer(), made)
		}
		errs = append(errs, err)
	}
	for _, h := range have {
		err := api.EndpointSlices(h.Namespace).Delete(ctx, h.Name, metav1.DeleteOptions{})
		if ignoreGone(err) == nil {
			c.own.deleted(key, c.slices.GetIndexer(), h)
		}
		errs = append(errs, ignoreGone(err))
	}
	return errors.Join(errs...)
}

// mirror is the slices that say the same as an Endpoints object.
func mirror(ep *corev1.Endpoints) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, subset := range ep.Subsets {
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			endpoints := append(mirrorAddresses(subset.Addresses, family, true), mirrorAddresses(subset.NotReadyAddresses, family, false)...)
			if len(endpoints) == 0 {
				continue
			}
			out = append(out, &discoveryv1.EndpointSlice{
				ObjectMeta:  mirrorMeta(ep),
				AddressType: family,
				Ports:       mirrorPorts(subset.Ports),
				Endpoints:   endpoints[:min(len(endpoints), maxMirrored)],
			})
		}
	}
	return out
}

func mirrorMeta(ep *corev1.Endpoints) metav1.ObjectMeta {
	labels := maps.Clone(ep.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[discoveryv1.LabelServiceName] = ep.Name
	labels[discoveryv1.LabelManagedBy] = mirroringController
	annotations := maps.Clone(ep.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, corev1.EndpointsLastChangeTriggerTime)
	return metav1.ObjectMeta{
		GenerateName: ep.Name + "-", Namespace: ep.Namespace, Labels: labels, Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ep, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
	}
}

func mirrorPorts(ports []corev1.EndpointPort) []discoveryv1.EndpointPort {
	out := make([]discoveryv1.EndpointPort, 0, len(ports))
	for i := range ports {
		p := ports[i]
		out = append(out, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return out
}

func mirrorAddresses(addresses []corev1.EndpointAddress, family discoveryv1.AddressType, ready bool) []discoveryv1.Endpoint {
	var out []discoveryv1.Endpoint
	for _, a := range addresses {
		ip := net.ParseIP(a.IP)
		if ip == nil || (family == discoveryv1.AddressTypeIPv4) != (ip.To4() != nil) {
			continue
		}
		e := discoveryv1.Endpoint{Addresses: []string{a.IP}, NodeName: a.NodeName, TargetRef: a.TargetRef}
		e.Conditions.Ready = &ready
		if a.Hostname != "" {
			host := a.Hostname
			e.Hostname = &host
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
	return out
}
