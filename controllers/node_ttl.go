package controllers

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// clusterSizes says for how long node agents may keep what pods refer to (Secrets,
// ConfigMaps) before they look again: the more nodes, the longer. The bounds
// overlap, so that a cluster at the edge of two sizes does not go back and forth.
var clusterSizes = []struct{ least, most, seconds int }{
	{0, 100, 0},
	{90, 500, 15},
	{450, 1000, 30},
	{900, 2000, 60},
	{1800, math.MaxInt, 300},
}

// nodeTTL annotates nodes with it.
type nodeTTL struct {
	*env
	mu   sync.Mutex
	size int // index in clusterSizes; mu protects it
}

func newNodeTTL(e *env) Controller {
	c := &nodeTTL{env: e}
	return Controller{
		Name:    "ttl-controller",
		Reads:   []Source{wakesSelf(e.nodes())},
		Writes:  []string{"nodes"},
		Workers: 5,
		Every:   time.Minute, // for the other nodes, when a node more or less makes another size
		Sync:    c.sync,
	}
}

func (c *nodeTTL) sync(ctx context.Context, name string) (time.Duration, error) {
	want := strconv.Itoa(c.seconds())
	if name != "" {
		return 0, c.annotate(ctx, cached[corev1.Node](c.nodes(), name), want)
	}
	var errs []error
	for _, node := range everything[corev1.Node](c.nodes()) {
		errs = append(errs, c.annotate(ctx, node, want))
	}
	return 0, errors.Join(errs...)
}

func (c *nodeTTL) annotate(ctx context.Context, node *corev1.Node, want string) error {
	if node == nil || node.Annotations[corev1.ObjectTTLAnnotationKey] == want {
		return nil
	}
	patch := metadataPatch(map[string]any{"annotations": map[string]string{corev1.ObjectTTLAnnotationKey: want}})
	_, err := c.clients.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return ignoreNotFound(err)
}

func (c *nodeTTL) seconds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = clusterSize(c.size, len(c.nodes().GetStore().ListKeys()))
	return clusterSizes[c.size].seconds
}

// clusterSize is the size of a cluster of so many nodes that had size before.
func clusterSize(size, nodes int) int {
	for nodes > clusterSizes[size].most {
		size++
	}
	for nodes < clusterSizes[size].least {
		size--
	}
	return size
}
