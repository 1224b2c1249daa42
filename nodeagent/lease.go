package nodeagent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepLease renews the node's heartbeat lease, four times in its duration.
func (a *Agent) keepLease(ctx context.Context) error {
	seconds := a.cfg.Kubelet.NodeLeaseDurationSeconds
	every := time.Duration(seconds) * time.Second / 4
	var lease *coordinationv1.Lease
	for {
		wait := every
		renewed, err := a.renewLease(ctx, lease)
		lease = renewed
		if err != nil {
			a.log.Debug("node lease not renewed", "err", err)
			wait = time.Second
		}
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// renewLease renews lease, or reads or makes it when it is nil. After an error
// it returns nil, so that the next call starts afresh.
func (a *Agent) renewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	leases := a.clients.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if lease == nil {
		found, err := leases.Get(ctx, a.cfg.NodeName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil {
			lease = found
		}
	}
	now := metav1.NewMicroTime(time.Now())
	if lease != nil {
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &now
		lease.Spec.HolderIdentity = &a.cfg.NodeName
		lease.Spec.LeaseDurationSeconds = &a.cfg.Kubelet.NodeLeaseDurationSeconds
		a.ownLease(lease)
		return orNil(leases.Update(ctx, lease, metav1.UpdateOptions{}))
	}
	lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: a.cfg.NodeName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &a.cfg.NodeName, LeaseDurationSeconds: &a.cfg.Kubelet.NodeLeaseDurationSeconds, RenewTime: &now,
		},
	}
	a.ownLease(lease)
	return orNil(leases.Create(ctx, lease, metav1.CreateOptions{}))
}

func orNil(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// ownLease ties the lease to the node, so that it goes when the node goes.
func (a *Agent) ownLease(lease *coordinationv1.Lease) {
	if node := a.node.Load(); node != nil && len(lease.OwnerReferences) == 0 {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
}
