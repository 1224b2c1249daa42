package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/api"
)

const (
	podGCLook = 20 * time.Second
	// podQuarantine is how long a node has to be missing before its pods go.
	podQuarantine = 40 * time.Second
)

// podGC deletes pods that no node agent will finish: those on nodes that are no
// more, those deleted before they were ever bound, those on nodes declared out
// of service, and the oldest finished ones beyond a threshold.
type podGC struct {
	*env
	mu      sync.Mutex           // protects missing
	missing map[string]time.Time // since when a node has been missing
}

func newPodGC(e *env) Controller {
	c := &podGC{env: e, missing: map[string]time.Time{}}
	return Controller{
		Name:   "pod-garbage-collector-controller",
		Reads:  []Source{reads(e.pods()), reads(e.nodes())},
		Writes: []string{"pods"},
		Every:  podGCLook,
		Sync: func(ctx context.Context, _ string) (time.Duration, error) {
			return 0, c.collect(ctx, time.Now())
		},
	}
}

// doomedPod is a pod to delete, and what its status says before.
type doomedPod struct {
	pod             *corev1.Pod
	reason, message string
}

func (c *podGC) collect(ctx context.Context, now time.Time) error {
	pods := everything[corev1.Pod](c.pods())
	doomed := finishedBeyond(pods, c.cfg.TerminatedPodGCThreshold)
	for _, pod := range pods {
		node := cached[corev1.Node](c.nodes(), pod.Spec.NodeName)
		switch {
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil:
			doomed = append(doomed, doomedPod{pod: pod})
		case node != nil && pod.DeletionTimestamp != nil && !api.IsNodeReady(node) && outOfService(node):
			doomed = append(doomed, doomedPod{pod, "DeletionByPodGC", "PodGC: node out-of-service"})
		}
	}
	abandoned, err := c.onMissingNodes(ctx, pods, now)
	doomed = append(doomed, abandoned...)
	errs := []error{err}
	for _, d := range doomed {
		errs = append(errs, c.deleteForGood(ctx, d))
	}
	return errors.Join(errs...)
}

// finishedBeyond returns the oldest finished pods beyond the threshold.
func finishedBeyond(pods []*corev1.Pod, threshold int) []doomedPod {
	var finished []*corev1.Pod
	for _, pod := range pods {
		if api.IsPodTerminal(pod) && pod.DeletionTimestamp == nil {
			finished = append(finished, pod)
		}
	}
	if threshold < 0 || len(finished) <= threshold {
		return nil
	}
	slices.SortFunc(finished, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var out []doomedPod
	for _, pod := range finished[:len(finished)-threshold] {
		out = append(out, doomedPod{pod: pod})
	}
	return out
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

func (c *podGC) onMissingNodes(ctx context.Context, pods []*corev1.Pod, now time.Time) ([]doomedPod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []doomedPod
	still := map[string]time.Time{}
	for _, pod := range pods {
		name := pod.Spec.NodeName
		if name == "" || cached[corev1.Node](c.nodes(), name) != nil {
			continue
		}
		since, known := c.missing[name]
		if !known {
			since = now
		}
		still[name] = since
		if now.Sub(since) < podQuarantine {
			continue
		}
		if _, err := c.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			continue // back, or nobody knows
		}
		out = append(out, doomedPod{pod, "DeletionByPodGC", "PodGC: node no longer exists"})
	}
	c.missing = still
	return out, nil
}

func (c *podGC) deleteForGood(ctx context.Context, d doomedPod) error {
	pod := d.pod
	if !api.IsPodTerminal(pod) && d.reason != "" {
		if err := c.fail(ctx, d); ignoreGone(err) != nil {
			return fmt.Errorf("fail pod %s: %w", keyOf(pod), err)
		}
	}
	now := int64(0)
	err := c.clients.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: sameObject(pod)})
	if ignoreGone(err) != nil {
		return fmt.Errorf("delete pod %s: %w", keyOf(pod), err)
	}
	return nil
}

// fail records that a pod has ended, and why, by a patch: that is what the
// controller's role allows.
func (c *podGC) fail(ctx context.Context, d doomedPod) error {
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: d.reason, Message: d.message,
		LastTransitionTime: metav1.Now(), ObservedGeneration: d.pod.Generation,
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.pod.UID},
		"status":   map[string]any{"phase": corev1.PodFailed, "conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	_, err = c.clients.CoreV1().Pods(d.pod.Namespace).Patch(ctx, d.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
