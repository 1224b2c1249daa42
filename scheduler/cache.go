package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/scheduler/plugins"
)

// assumeFor is how long a pod counts on its node after binding before the watch
// has confirmed it. A confirmation that never comes must not hold room for ever.
const assumeFor = 15 * time.Minute

// cache knows the nodes and the pods assigned to them: those that the API says
// are, and those that we have just decided on (assumed).
type cache struct {
	mu      sync.Mutex                // protects the fields below
	nodes   []*plugins.Node           // in the order of their names
	pods    map[types.UID]*corev1.Pod // assigned or assumed
	guesses map[types.UID]time.Time   // assumed: since when it may expire; zero while binding
	// homeless are pods of nodes that the API has not shown us yet, by node.
	homeless map[string]map[types.UID]*corev1.Pod
	// fresh are the nodes that no snapshot holds: the others are cloned before a change.
	fresh map[string]bool
	last  *plugins.Snapshot // nil: something changed since
}

func newCache() *cache {
	return &cache{
		pods: map[types.UID]*corev1.Pod{}, guesses: map[types.UID]time.Time{},
		homeless: map[string]map[types.UID]*corev1.Pod{}, fresh: map[string]bool{},
	}
}

// snapshot is the present state. It costs nothing when nothing changed, and else
// one slice: nodes are shared, and cloned on the next change.
func (c *cache) snapshot(facts plugins.Facts) *plugins.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil {
		return c.last
	}
	clear(c.fresh)
	c.last = plugins.NewSnapshot(slices.Clone(c.nodes), facts)
	return c.last
}

// writable returns a node that may be changed, or nil. Callers hold mu.
func (c *cache) writable(name string) *plugins.Node {
	c.last = nil
	i, found := plugins.FindNode(c.nodes, name)
	if !found {
		return nil
	}
	if !c.fresh[name] {
		c.nodes[i] = c.nodes[i].Clone()
		c.fresh[name] = true
	}
	return c.nodes[i]
}

func (c *cache) setNode(object *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.writable(object.Name); n != nil {
		n.SetObject(object)
		return
	}
	n := plugins.NewNode(object)
	i, _ := plugins.FindNode(c.nodes, object.Name)
	c.nodes = slices.Insert(c.nodes, i, n)
	c.fresh[object.Name] = true
	for _, pod := range c.homeless[object.Name] {
		n.Add(plugins.NewPod(pod))
	}
	delete(c.homeless, object.Name)
}

func (c *cache) removeNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = nil
	for uid, pod := range c.pods {
		if pod.Spec.NodeName == name {
			c.shelter(uid, pod)
		}
	}
	if i, found := plugins.FindNode(c.nodes, name); found {
		c.nodes = slices.Delete(c.nodes, i, i+1)
	}
	delete(c.fresh, name)
}

func (c *cache) shelter(uid types.UID, pod *corev1.Pod) {
	name := pod.Spec.NodeName
	if c.homeless[name] == nil {
		c.homeless[name] = map[types.UID]*corev1.Pod{}
	}
	c.homeless[name][uid] = pod
}

// setPod takes over the API's word on an assigned pod.
func (c *cache) setPod(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.guesses, pod.UID)
	c.take(pod.UID)
	c.put(pod)
}

func (c *cache) removePod(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.guesses, uid)
	c.take(uid)
}

// assume counts a pod on its node before it is bound.
func (c *cache) assume(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guesses[pod.UID] = time.Time{}
	c.take(pod.UID)
	c.put(pod)
}

// bound starts the time within which the watch should confirm the pod.
func (c *cache) bound(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, guess := c.guesses[uid]; guess {
		c.guesses[uid] = time.Now()
	}
}

// forget takes an assumption back.
func (c *cache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, guess := c.guesses[uid]; guess {
		delete(c.guesses, uid)
		c.take(uid)
	}
}

func (c *cache) assumed(pod *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, guess := c.guesses[pod.UID]
	return guess
}

func (c *cache) put(pod *corev1.Pod) {
	c.pods[pod.UID] = pod
	if n := c.writable(pod.Spec.NodeName); n != nil {
		n.Add(plugins.NewPod(pod))
		return
	}
	c.shelter(pod.UID, pod)
}

func (c *cache) take(uid types.UID) {
	pod, ok := c.pods[uid]
	if !ok {
		return
	}
	delete(c.pods, uid)
	delete(c.homeless[pod.Spec.NodeName], uid)
	if n := c.writable(pod.Spec.NodeName); n != nil {
		n.Remove(pod)
	}
}

// expire drops assumptions that were never confirmed.
func (c *cache) expire(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.mu.Lock()
			for uid, since := range c.guesses {
				if !since.IsZero() && now.Sub(since) > assumeFor {
					delete(c.guesses, uid)
					c.take(uid)
				}
			}
			c.mu.Unlock()
		}
	}
}
