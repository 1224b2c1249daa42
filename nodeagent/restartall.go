package nodeagent

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// A container's restart rules may say that its end makes the whole pod begin
// anew, in the sandbox that it has: everything is ended at once and taken out of
// the runtime, and the init containers run again. The container that it all came
// from is taken away last, so that an agent that is started in the middle of it
// goes on.

// restartsAll says whether a container's end with exit makes its pod begin anew.
// The first rule that fits counts.
func restartsAll(c *corev1.Container, exit int32) bool {
	rule := api.RestartRule(c, exit)
	return rule != nil && rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// mayRestartAll says whether the pod has a rule that could make it begin anew.
func mayRestartAll(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containersOf(pod), func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// resetting says whether the pod is about to begin anew.
func (h have) resetting(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containersOf(pod), func(c *corev1.Container) bool {
		cur, ok := h.current(c.Name)
		return ok && cur.state == stateExited && restartsAll(c, cur.exit)
	})
}

// nextReset clears away what there is of the containers of a pod that begins
// anew: first it ends those that run.
func nextReset(pod *corev1.Pod, h have) (step, bool) {
	if !h.resetting(pod) {
		return step{}, false
	}
	var running []victim
	var others, causes []string
	for _, c := range containersOf(pod) {
		if isEphemeral(pod, c.Name) {
			continue
		}
		for _, cur := range h.containers[c.Name] {
			switch {
			case cur.state == stateRunning || cur.state == stateUnknown:
				running = append(running, victim{containerStatus: cur, spec: c, why: "Stopping container " + c.Name})
			case cur.state == stateExited && restartsAll(c, cur.exit):
				causes = append(causes, cur.id)
			default:
				others = append(others, cur.id)
			}
		}
	}
	if len(running) > 0 {
		return step{do: doKill, kill: running}, true
	}
	return step{do: doRemove, remove: append(others, causes...)}, true
}

// remove takes containers out of the runtime; their logs stay until the pod goes.
func (w *worker) remove(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := w.a.cfg.Runtime.RemoveContainer(ctx, id); err != nil && !isNotFound(err) {
			return fmt.Errorf("remove container %s: %w", id, err)
		}
		delete(w.known, id)
	}
	return nil
}

// resetCondition tells whether the pod is about to begin anew.
func resetCondition(pod *corev1.Pod, h have, phase corev1.PodPhase) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}
	switch {
	case phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case phase == corev1.PodFailed:
		c.Reason = "PodFailed"
	case h.resetting(pod):
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "RestartAllContainersStarted", "container exited with restart policy rule"
	}
	return c
}
