package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/scheduler/plugins"
	"orrery.dev/trace"
)

// bind makes the decision known. It runs in the background: the loop goes on
// with the pod assumed on its node. When it fails, the assumption is taken back
// and the pod tried again.
func (s *scheduler) bind(ctx context.Context, w *waiting, pod *corev1.Pod, snapshot *plugins.Snapshot, n *plugins.Node, began time.Time) {
	stepping, step := trace.Step(ctx, "bind")
	err := s.prepareAndBind(stepping, pod, snapshot, n)
	step.End(err)
	if err == nil {
		s.cache.bound(pod.UID)
		s.metrics.observe("scheduled", time.Since(began))
		s.metrics.bound(w)
		s.events.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, n.Name())
		s.Log.Info("scheduled", "pod", key(pod), "node", n.Name())
		return
	}
	s.cache.forget(pod.UID)
	if apierrors.IsNotFound(err) || ctx.Err() != nil {
		return // the pod is gone, or we are
	}
	s.metrics.observe("error", time.Since(began))
	s.queue.retry(w)
	s.events.Event(pod, corev1.EventTypeWarning, "FailedScheduling", err.Error())
	s.Log.Error("bind", "pod", key(pod), "node", n.Name(), "err", err)
}

func (s *scheduler) prepareAndBind(ctx context.Context, pod *corev1.Pod, snapshot *plugins.Snapshot, n *plugins.Node) error {
	for _, p := range s.plugins {
		if p.Prepare == nil {
			continue
		}
		if err := p.Prepare(ctx, s.Clients, snapshot, pod, n); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return s.Clients.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: n.Name()},
	}, metav1.CreateOptions{})
}

// reportUnschedulable writes the PodScheduled condition, and the node on which
// room is being made, if they are news.
func (s *scheduler) reportUnschedulable(ctx context.Context, pod *corev1.Pod, message, nominated string) error {
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation,
		Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: metav1.Now(),
	}
	for _, old := range pod.Status.Conditions {
		if old.Type != corev1.PodScheduled {
			continue
		}
		if old.Status == condition.Status && old.Reason == condition.Reason {
			if old.Message == message && (nominated == "" || nominated == pod.Status.NominatedNodeName) {
				return nil
			}
			condition.LastTransitionTime = old.LastTransitionTime
		}
	}
	status := map[string]any{"conditions": []corev1.PodCondition{condition}}
	if nominated != "" {
		status["nominatedNodeName"] = nominated
	}
	return s.patchStatus(ctx, pod, status)
}

func (s *scheduler) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = s.Clients.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
