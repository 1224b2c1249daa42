package proxy

import (
	"context"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"orrery.dev/api"
	"orrery.dev/trace"
)

// newsMost is how many changes are told of at most after one sync.
const newsMost = 100

// news are the endpoint slices that have changed since the last sync, for those who
// are told when routes to new pods are there.
type news struct {
	mu  sync.Mutex // protects all
	all []changedSlice
}

type changedSlice struct {
	slice *discoveryv1.EndpointSlice
	pods  []string // that have come, by uid
}

func (n *news) add(before, after any) {
	now, ok := after.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	was, _ := before.(*discoveryv1.EndpointSlice)
	pods := api.NewlyReady(was, now)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(pods) > 0 && len(n.all) < newsMost {
		n.all = append(n.all, changedSlice{now, pods})
	}
}

func (n *news) take() []changedSlice {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}

// tell says that a sync which began then has put a change into the kernel.
func (c changedSlice) tell(config Config, began time.Time, err error) {
	_, span := config.Trace.StartAt(context.Background(), began, "program routes",
		trace.Of(discoveryv1.GroupName, "endpointslices", c.slice), trace.Node(config.NodeName))
	span.Also(c.pods)
	span.End(err)
}
