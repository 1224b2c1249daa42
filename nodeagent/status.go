package nodeagent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"orrery.dev/api"
)

// report works out the pod's status and hands it to the status writer.
func (w *worker) report(wa want, h have, s step, now time.Time) {
	w.a.statuses.set(wa.pod, w.status(wa, h, s, now))
}

// status is what the API should say of a pod, given what is wanted and what
// there is.
func (w *worker) status(wa want, h have, s step, now time.Time) *corev1.PodStatus {
	pod := wa.pod
	old := pod.Status
	if latest := w.a.statuses.latest(w.uid); latest != nil {
		old = *latest
	}
	st := &corev1.PodStatus{
		ObservedGeneration:    pod.Generation,
		QOSClass:              api.PodQOS(pod),
		StartTime:             old.StartTime,
		NominatedNodeName:     pod.Status.NominatedNodeName,
		ResourceClaimStatuses: pod.Status.ResourceClaimStatuses,
		Resize:                pod.Status.Resize,
	}
	if n := len(h.sandboxes); st.StartTime == nil && n > 0 {
		st.StartTime = &metav1.Time{Time: h.sandboxes[n-1].created.Truncate(time.Second)}
	}
	if st.StartTime == nil {
		st.StartTime = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	w.startedAt = st.StartTime.Time
	st.HostIP = w.a.cfg.NodeIP
	st.HostIPs = []corev1.HostIP{{IP: w.a.cfg.NodeIP}}
	for i, ip := range w.a.addresses(pod, h) {
		if i == 0 {
			st.PodIP = ip
		}
		st.PodIPs = append(st.PodIPs, corev1.PodIP{IP: ip})
	}
	if st.PodIP == "" && len(h.sandboxes) > 0 && s.do != doSandbox {
		st.PodIP, st.PodIPs = old.PodIP, old.PodIPs // a stopped sandbox has no address any more
	}
	w.setPhase(wa, h, s, st)
	over := st.Phase == corev1.PodFailed || st.Phase == corev1.PodSucceeded
	if over && wa.stop != nil && len(h.containers) == 0 && len(old.ContainerStatuses) == 0 && wa.stop.phase == corev1.PodFailed && len(h.sandboxes) == 0 {
		// Refused at the door: there is nothing to tell of containers.
		st.Conditions = keptConditions(old.Conditions, pod.Status.Conditions, nil)
		return st
	}
	for i := range pod.Spec.InitContainers {
		st.InitContainerStatuses = append(st.InitContainerStatuses, w.containerReport(pod, &pod.Spec.InitContainers[i], h, old.InitContainerStatuses, wa))
	}
	for i := range pod.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, w.containerReport(pod, &pod.Spec.Containers[i], h, old.ContainerStatuses, wa))
	}
	for i := range pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, w.containerReport(pod, c, h, old.EphemeralContainerStatuses, wa))
	}
	own := podConditions(pod, wa.stop, h, st, now)
	if mayRestartAll(pod) {
		c := resetCondition(pod, h, st.Phase)
		c.ObservedGeneration, c.LastTransitionTime = pod.Generation, metav1.NewTime(now.Truncate(time.Second))
		own = append(own, c)
	}
	for _, c := range w.resizing.conditions(pod) {
		c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		own = append(own, c)
	}
	if pod.Spec.Resources != nil {
		st.AllocatedResources = pod.Spec.Resources.Requests.DeepCopy()
		st.Resources = pod.Spec.Resources.DeepCopy()
		if applied, known := h.applied[wholePod]; known {
			st.Resources = applied.DeepCopy()
		}
	}
	st.Conditions = keptConditions(old.Conditions, pod.Status.Conditions, own)
	return st
}

// setPhase fills in phase, reason and message.
func (w *worker) setPhase(wa want, h have, s step, st *corev1.PodStatus) {
	st.Phase = h.phase(wa.pod)
	if wa.stop == nil {
		return
	}
	st.Reason, st.Message = wa.stop.reason, wa.stop.message
	switch {
	case wa.stop.phase != "":
		// The verdict is told at once, as upstream does: a Job that is past its
		// deadline should not wait for the last container.
		st.Phase = wa.stop.phase
	case s.do == doFinish:
		st.Phase = h.finalPhase(wa.pod)
	case st.Phase == corev1.PodSucceeded || st.Phase == corev1.PodFailed:
		if !h.allEnded() {
			st.Phase = corev1.PodRunning
		}
	}
}

func (h have) allEnded() bool {
	for _, all := range h.containers {
		for _, c := range all {
			if c.state == stateRunning || c.state == stateUnknown {
				return false
			}
		}
	}
	return true
}

// addresses are a pod's own, or its host's.
func (a *Agent) addresses(pod *corev1.Pod, h have) []string {
	if pod.Spec.HostNetwork {
		return []string{a.cfg.NodeIP}
	}
	if sb, ok := h.sandbox(); ok {
		return sb.ips
	}
	return nil
}

// containerReport is the status of one container.
func (w *worker) containerReport(pod *corev1.Pod, c *corev1.Container, h have, old []corev1.ContainerStatus, wa want) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: ptr.To(false)}
	reportMounts(c, &st)
	all := h.containers[c.Name]
	if len(all) == 0 {
		return w.unborn(pod, c, h, old, wa, st)
	}
	cur := all[0]
	st.ContainerID = w.a.containerID(cur.id)
	st.RestartCount = int32(cur.attempt)
	st.Image, st.ImageID = cur.image, cur.imageRef
	st.User = cur.user
	if cur.signal != "" {
		st.StopSignal = ptr.To(corev1.Signal(cur.signal))
	}
	if cur.image == "" || strings.HasPrefix(cur.image, "sha256:") {
		st.Image = c.Image
	}
	if len(all) > 1 && all[1].state == stateExited {
		st.LastTerminationState.Terminated = w.terminated(all[1])
	}
	switch cur.state {
	case stateRunning:
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(cur.started)}
		w.readiness(pod, c, h, cur, &st)
	case stateExited:
		w.ended(pod, c, h, cur, wa, &st)
	default:
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	if stalled, ok := h.stalled[c.Name]; ok && cur.state != stateRunning && wa.stop == nil {
		if st.State.Terminated != nil {
			st.LastTerminationState.Terminated = st.State.Terminated
		}
		st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: stalled.reason, Message: stalled.message}}
	}
	reportResources(c, h, cur, &st)
	return st
}

// unborn is the status of a container that the runtime knows nothing of.
func (w *worker) unborn(pod *corev1.Pod, c *corev1.Container, h have, old []corev1.ContainerStatus, wa want, st corev1.ContainerStatus) corev1.ContainerStatus {
	for _, before := range old {
		if before.Name == c.Name && before.ContainerID != "" {
			if wa.stop != nil && before.State.Terminated != nil {
				return before // collected since
			}
			// It ran, and the runtime lost it.
			st.RestartCount = before.RestartCount
			st.LastTerminationState = before.LastTerminationState
			lost := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown",
				Message: "The container could not be located when the pod was terminated", ContainerID: before.ContainerID}
			if before.State.Terminated != nil {
				lost = before.State.Terminated
			}
			if wa.stop != nil {
				st.State.Terminated = lost
				return st
			}
			if before.State.Running != nil || before.State.Terminated != nil {
				st.LastTerminationState.Terminated = lost
			}
		}
	}
	st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if initPending(pod, c, h) {
		st.State.Waiting.Reason = "PodInitializing"
	}
	if stalled, ok := h.stalled[c.Name]; ok {
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: stalled.reason, Message: stalled.message}
	}
	if isEphemeral(pod, c.Name) {
		st.Started = nil
	}
	return st
}

// initPending says whether c waits for init containers (as an init container,
// for those before it).
func initPending(pod *corev1.Pod, c *corev1.Container, h have) bool {
	return !isEphemeral(pod, c.Name) && len(pod.Spec.InitContainers) > 0 && !h.begun(pod)
}

// readiness fills in started and ready of a running container.
func (w *worker) readiness(pod *corev1.Pod, c *corev1.Container, h have, cur containerStatus, st *corev1.ContainerStatus) {
	p, probed := h.probed[c.Name]
	probed = probed && p.id == cur.id
	started, ready := c.StartupProbe == nil, c.ReadinessProbe == nil
	if w.a.cfg.Simulated && !failsProbes(pod) {
		started, ready = true, true
	} else if probed {
		started, ready = p.started, p.ready
	}
	st.Started = &started
	st.Ready = started && ready
	switch {
	case isEphemeral(pod, c.Name):
		st.Started, st.Ready = nil, false
	case initIndex(pod, c.Name) >= 0 && !api.IsSidecar(c):
		st.Ready = false
	}
}

// ended fills in the state of a container that is not running: terminated, or
// waiting for its restart.
func (w *worker) ended(pod *corev1.Pod, c *corev1.Container, h have, cur containerStatus, wa want, st *corev1.ContainerStatus) {
	st.State.Terminated = w.terminated(cur)
	if initIndex(pod, c.Name) >= 0 && !api.IsSidecar(c) {
		st.Ready = cur.exit == 0
	}
	if wa.stop != nil || !mayRestart(pod, c, cur.exit) || initIndex(pod, c.Name) >= 0 && !api.IsSidecar(c) && h.begun(pod) {
		return
	}
	wait, _ := h.crashWait(c, cur)
	if wait == 0 {
		return // restarted at once
	}
	st.LastTerminationState.Terminated = st.State.Terminated
	st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			wait, c.Name, pod.Name, pod.Namespace, pod.UID),
	}}
}

func (w *worker) terminated(c containerStatus) *corev1.ContainerStateTerminated {
	reason := c.reason
	if reason == "" {
		reason = "Completed"
		if c.exit != 0 {
			reason = "Error"
		}
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: c.exit, Reason: reason, Message: c.message,
		StartedAt: metav1.NewTime(c.started), FinishedAt: metav1.NewTime(c.finished),
		ContainerID: w.a.containerID(c.id),
	}
}

func (a *Agent) containerID(id string) string {
	return a.runtimeName.Load().(string) + "://" + id
}

// podConditions are those that the node decides on.
func podConditions(pod *corev1.Pod, stop *stop, h have, st *corev1.PodStatus, now time.Time) []corev1.PodCondition {
	over := st.Phase == corev1.PodSucceeded || st.Phase == corev1.PodFailed
	gen := pod.Generation
	sb, ok := h.sandbox()
	out := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, ok && sb.ready && (len(sb.ips) > 0 || pod.Spec.HostNetwork), "", ""),
		initializedCondition(pod, h, st),
	}
	ready := containersReady(pod, st)
	out = append(out, readyCondition(pod, ready), ready)
	out = append(out, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	if stop != nil && stop.disrupts {
		out = append(out, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: stop.message,
		})
	}
	for i := range out {
		out[i].ObservedGeneration = gen
		out[i].LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		if over && st.Phase == corev1.PodSucceeded && out[i].Status == corev1.ConditionFalse && (out[i].Type == corev1.PodReady || out[i].Type == corev1.ContainersReady) {
			out[i].Reason, out[i].Message = "PodCompleted", ""
		}
		if st.Phase == corev1.PodFailed && (out[i].Type == corev1.PodReady || out[i].Type == corev1.ContainersReady) {
			out[i].Status, out[i].Reason, out[i].Message = corev1.ConditionFalse, "PodFailed", ""
		}
	}
	return out
}

func condition(kind corev1.PodConditionType, ok bool, reason, message string) corev1.PodCondition {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue}
	if !ok {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
	}
	return c
}

func initializedCondition(pod *corev1.Pod, h have, st *corev1.PodStatus) corev1.PodCondition {
	if h.begun(pod) || st.Phase == corev1.PodSucceeded {
		c := condition(corev1.PodInitialized, true, "", "")
		if st.Phase == corev1.PodSucceeded {
			c.Reason = "PodCompleted"
		}
		return c
	}
	var incomplete []string
	for i, s := range st.InitContainerStatuses {
		done := s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		if api.IsSidecar(&pod.Spec.InitContainers[i]) {
			done = s.Started != nil && *s.Started
		}
		if !done {
			incomplete = append(incomplete, s.Name)
		}
	}
	return condition(corev1.PodInitialized, len(incomplete) == 0, "ContainersNotInitialized",
		fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(incomplete, " ")))
}

func containersReady(pod *corev1.Pod, st *corev1.PodStatus) corev1.PodCondition {
	var unready []string
	for i, s := range st.InitContainerStatuses {
		if api.IsSidecar(&pod.Spec.InitContainers[i]) && !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	for _, s := range st.ContainerStatuses {
		if !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	return condition(corev1.ContainersReady, len(unready) == 0, "ContainersNotReady",
		fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " ")))
}

// readyCondition adds the pod's readiness gates to the containers' readiness.
func readyCondition(pod *corev1.Pod, containers corev1.PodCondition) corev1.PodCondition {
	if containers.Status != corev1.ConditionTrue {
		c := containers
		c.Type = corev1.PodReady
		return c
	}
	var messages []string
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			messages = append(messages, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", string(gate.ConditionType)))
		case pod.Status.Conditions[i].Status != corev1.ConditionTrue:
			messages = append(messages, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", string(gate.ConditionType), pod.Status.Conditions[i].Status))
		}
	}
	return condition(corev1.PodReady, len(messages) == 0, "ReadinessGatesNotReady", strings.Join(messages, ", "))
}

// keptConditions puts own conditions over those of others, and keeps the
// transition time of what did not change.
func keptConditions(last, api, own []corev1.PodCondition) []corev1.PodCondition {
	for i := range own {
		for _, list := range [][]corev1.PodCondition{last, api} {
			j := slices.IndexFunc(list, func(c corev1.PodCondition) bool { return c.Type == own[i].Type })
			if j < 0 {
				continue
			}
			if list[j].Status == own[i].Status && (list[j].Reason == own[i].Reason || !isResize(own[i].Type)) {
				own[i].LastTransitionTime = list[j].LastTransitionTime
			}
			break
		}
	}
	for _, c := range api {
		if !isResize(c.Type) && !slices.ContainsFunc(own, func(o corev1.PodCondition) bool { return o.Type == c.Type }) {
			own = append(own, c)
		}
	}
	return own
}

// isResize says whether a condition tells of a resize: it is there only while
// there is something to tell.
func isResize(kind corev1.PodConditionType) bool {
	return kind == corev1.PodResizePending || kind == corev1.PodResizeInProgress
}
