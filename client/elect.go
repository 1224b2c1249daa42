package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLostLead is returned by Lead when another instance took over.
var ErrLostLead = errors.New("lost the leader election")

// Lead waits until this process holds the lease kube-system/name, then runs run
// with a context that ends when the lease is lost. It returns when run has
// returned: nil after ctx ended, ErrLostLead when another took over, or run's
// error. The lease is released at the end, so that the next can start at once.
func Lead(ctx context.Context, clients kubernetes.Interface, name string, run func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("leader election of %s: %w", name, err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
		Client:     clients.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
	if err := waitReady(ctx, clients); err != nil {
		return nil // ctx ended: never led
	}
	elections, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	led := make(chan struct{}, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            name,
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				led <- struct{}{}
				defer cancel()
				done <- run(leading)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election of %s: %w", name, err)
	}
	elector.Run(elections) // returns when the lease is lost or elections ended
	select {
	case <-led:
	case <-ctx.Done(): // never led
		return nil
	}
	if err := <-done; err != nil || ctx.Err() != nil {
		return err
	}
	return ErrLostLead
}

// How often waitReady asks, and how long at most.
const (
	readyLook     = 100 * time.Millisecond
	readyPatience = 30 * time.Second
)

// waitReady waits until the API server says that it is ready; it fails when ctx
// ends. A component that starts beside its API server would otherwise lose
// seconds to the pause between two elections. Whoever may not ask goes on after a
// while.
func waitReady(ctx context.Context, clients kubernetes.Interface) error {
	tick, enough := time.NewTicker(readyLook), time.After(readyPatience)
	defer tick.Stop()
	for {
		if rest := clients.Discovery().RESTClient(); rest == nil {
			return nil // a fake one
		} else if _, err := rest.Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-enough:
			return nil
		case <-tick.C:
		}
	}
}
