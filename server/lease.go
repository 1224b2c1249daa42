package server

import (
	"context"
	"fmt"
	"sort"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/storage"
)

// Servers find one another by leases in kube-system. A server whose lease is not
// renewed any more loses its place in the Endpoints of the kubernetes Service.

const (
	serverLeaseTime  = time.Minute
	serverForgotten  = time.Hour // then the lease goes, too
	serverLeaseLabel = "apiserver.kubernetes.io/identity"
	serverAddress    = "orrery.dev/advertise-address"
)

func (s *Server) leaseName() string { return "apiserver-" + s.AdvertiseAddress }

// liveServers renews this server's lease, and lists the addresses of all whose
// leases are valid.
func (s *Server) liveServers(ctx context.Context) ([]string, error) {
	col := s.Store.Collection(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"})
	if col == nil {
		return []string{s.AdvertiseAddress}, nil
	}
	err := s.renewLease(ctx)
	if s.health.finished(err, leaseHooks...); err != nil {
		return nil, err
	}
	page, err := col.List(ctx, storage.ListOptions{Selection: storage.Selection{
		Namespace: metav1.NamespaceSystem, Labels: labels.SelectorFromSet(labels.Set{serverLeaseLabel: "kube-apiserver"}),
	}})
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	addresses := []string{s.AdvertiseAddress}
	for _, item := range page.Items {
		lease := item.Object().(*coordinationv1.Lease)
		address := lease.Annotations[serverAddress]
		renewed := lease.Spec.RenewTime
		if address == "" || address == s.AdvertiseAddress || renewed == nil {
			continue
		}
		if silent := time.Since(renewed.Time); silent > serverLeaseTime {
			if silent > serverForgotten {
				s.forgetServer(ctx, col, lease)
			}
			continue
		}
		addresses = append(addresses, address)
	}
	sort.Strings(addresses)
	return addresses, nil
}

// forgetServer removes the lease of a server that is not coming back, unless it
// just has.
func (s *Server) forgetServer(ctx context.Context, col *storage.Collection, lease *coordinationv1.Lease) {
	seen := storage.WriteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}}
	if _, err := col.Delete(ctx, lease.Namespace, lease.Name, seen, nil); err != nil {
		s.Log.Debug("lease of another server stays", "key", lease.Name, "err", err)
	}
}

func (s *Server) renewLease(ctx context.Context) error {
	now, seconds, holder := metav1.NowMicro(), int32(serverLeaseTime/time.Second), s.leaseName()
	lease := &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: s.leaseName(),
			Labels:      map[string]string{serverLeaseLabel: "kube-apiserver"},
			Annotations: map[string]string{serverAddress: s.AdvertiseAddress},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	return s.ensure(ctx, coordinationv1.GroupName, "leases", lease, func(have runtime.Object) {
		have.(*coordinationv1.Lease).Spec.RenewTime = &now
	})
}

// withdrawAddress gives this server's place up when it ends, so that clients
// stop coming at once.
func (s *Server) withdrawAddress() {
	col := s.Store.Collection(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"})
	if s.AdvertiseAddress == "" || col == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := col.Delete(ctx, metav1.NamespaceSystem, s.leaseName(), storage.WriteOptions{}, nil); err != nil {
		s.Log.Debug("lease was not given up", "err", err)
	}
}
