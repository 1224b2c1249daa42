package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	netutils "k8s.io/utils/net"

	"orrery.dev/server/auth"
	"orrery.dev/server/storage"
)

// StepsOf are the steps that another package has.
func StepsOf(all []auth.Step) []Step {
	var steps []Step
	for _, step := range all {
		steps = append(steps, Step(step))
	}
	return steps
}

// Bootstrap makes what every cluster starts with, side by side: the steps of the
// configuration, and the kubernetes Service with the Endpoints that name this
// server. It can be called again at any time; Run does so.
func (s *Server) Bootstrap(ctx context.Context) error {
	steps := s.bootstrapSteps()
	failed := make([]error, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Go(func() {
			err := step.Run(ctx)
			if err != nil {
				err = fmt.Errorf("bootstrap %s: %w", step.Name, err)
			}
			failed[i] = err
			s.health.finished(err, step.Name)
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

func (s *Server) bootstrapSteps() []Step {
	steps := append([]Step(nil), s.Config.Bootstrap...)
	if s.AdvertiseAddress != "" {
		steps = append(steps, Step{Name: "bootstrap-controller", Run: s.publishAddress})
	}
	if len(s.AuthenticationInfo) > 0 {
		steps = append(steps, Step{Name: "start-cluster-authentication-info-controller", Run: s.publishAuthentication})
	}
	return steps
}

// Times between rounds: the first ones come quickly, as etcd may still be
// starting.
const (
	bootstrapRetry = time.Second
	bootstrapAgain = 10 * time.Second
)

// keepBootstrapped runs Bootstrap at once and then again and again until ctx
// ends.
func (s *Server) keepBootstrapped(ctx context.Context) {
	for {
		wait := bootstrapAgain
		if err := s.Bootstrap(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("bootstrap is not complete", "err", err)
			wait = bootstrapRetry
		}
		select {
		case <-ctx.Done():
			s.withdrawAddress()
			return
		case <-time.After(wait):
		}
	}
}

// serviceName is the Service by which pods find the API.
const serviceName = "kubernetes"

// publishAddress keeps the kubernetes Service, its Endpoints and EndpointSlice.
// Several servers share them: each adds its own address, and leaves the others'
// alone unless they have stopped renewing it (see lease).
func (s *Server) publishAddress(ctx context.Context) error {
	if net.ParseIP(s.AdvertiseAddress) == nil {
		return fmt.Errorf("advertise address %q is not an IP address", s.AdvertiseAddress)
	}
	if err := s.ensure(ctx, "", "services", s.apiService(), nil); err != nil {
		return err
	}
	addresses, err := s.liveServers(ctx)
	if err != nil {
		return err
	}
	endpoints := s.apiEndpoints(addresses)
	if err := s.ensure(ctx, "", "endpoints", endpoints, func(have runtime.Object) {
		have.(*corev1.Endpoints).Subsets = endpoints.Subsets
	}); err != nil {
		return err
	}
	slice := s.apiSlice(addresses)
	return s.ensure(ctx, discoveryv1.GroupName, "endpointslices", slice, func(have runtime.Object) {
		have.(*discoveryv1.EndpointSlice).Endpoints = slice.Endpoints
		have.(*discoveryv1.EndpointSlice).Ports = slice.Ports
	})
}

// publishAuthentication keeps the ConfigMap of AuthenticationInfo.
func (s *Server) publishAuthentication(ctx context.Context) error {
	info := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
		Data:       s.AuthenticationInfo,
	}
	return s.ensure(ctx, "", "configmaps", info, func(have runtime.Object) {
		have.(*corev1.ConfigMap).Data = maps.Clone(info.Data)
	})
}

// ensure creates an object if it is missing, and lets mend change it otherwise.
// Kinds that are not served are skipped.
func (s *Server) ensure(ctx context.Context, group, resource string, want metav1.Object, mend func(have runtime.Object)) error {
	gr := schema.GroupResource{Group: group, Resource: resource}
	col := s.Store.Collection(gr)
	if col == nil {
		return nil
	}
	what := fmt.Sprintf("%s %s/%s", resource, want.GetNamespace(), want.GetName())
	item, err := col.Get(ctx, want.GetNamespace(), want.GetName(), "")
	if apierrors.IsNotFound(err) {
		obj := want.(runtime.Object).DeepCopyObject()
		m := obj.(metav1.Object)
		m.SetUID(uuid.NewUUID())
		m.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
		obj = s.fields.begunByServer(ctx, gr, obj)
		if service, ok := obj.(*corev1.Service); ok {
			service.Spec.IPFamilies = []corev1.IPFamily{familyOf(service.Spec.ClusterIP)}
		}
		if _, err = col.Create(ctx, obj, storage.WriteOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", what, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	if mend == nil {
		return nil
	}
	mended := item.Object().DeepCopyObject()
	if mend(mended); equality.Semantic.DeepEqual(mended, item.Object()) {
		return nil
	}
	_, err = col.Update(ctx, want.GetNamespace(), want.GetName(), storage.WriteOptions{}, func(current runtime.Object) (runtime.Object, error) {
		before := current.DeepCopyObject()
		mend(current)
		return s.fields.ownByServer(gr, "", before, current), nil
	})
	if err != nil {
		return fmt.Errorf("update %s: %w", what, err)
	}
	return nil
}

func (s *Server) apiService() *corev1.Service {
	single, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: apiMeta(map[string]string{"component": "apiserver", "provider": "kubernetes"}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: s.ServiceAddress, IPFamilyPolicy: &single, InternalTrafficPolicy: &cluster,
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports:           []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(s.AdvertisePort)}},
		},
	}
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func apiMeta(labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: serviceName, Labels: labels}
}

func (s *Server) apiEndpoints(addresses []string) *corev1.Endpoints {
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: s.AdvertisePort}}}
	for _, a := range addresses {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a})
	}
	e := &corev1.Endpoints{
		TypeMeta:   metav1.TypeMeta{Kind: "Endpoints", APIVersion: "v1"},
		ObjectMeta: apiMeta(map[string]string{discoveryv1.LabelSkipMirror: "true"}),
	}
	if len(addresses) > 0 {
		e.Subsets = []corev1.EndpointSubset{subset}
	}
	return e
}

func (s *Server) apiSlice(addresses []string) *discoveryv1.EndpointSlice {
	name, protocol, ready := "https", corev1.ProtocolTCP, true
	family := discoveryv1.AddressTypeIPv4
	if ip := net.ParseIP(s.AdvertiseAddress); ip != nil && ip.To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
		ObjectMeta:  apiMeta(map[string]string{discoveryv1.LabelServiceName: serviceName}),
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &s.AdvertisePort}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return slice
}
