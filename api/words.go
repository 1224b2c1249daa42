package api

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodWords is what kubectl shows of a pod's state in one line.
type PodWords struct {
	Status       string // Running, CrashLoopBackOff, Init:0/1, Terminating
	Ready, Total int    // containers, sidecars included
	Restarts     int
	LastRestart  metav1.Time // zero: never
}

// WordsOfPod finds the words. The phase says least, a container's own reason
// most; the first container that has something to say wins.
func WordsOfPod(pod *corev1.Pod) PodWords {
	w := PodWords{Status: string(pod.Status.Phase), Total: len(pod.Spec.Containers)}
	if pod.Status.Reason != "" {
		w.Status = pod.Status.Reason
	}
	if c := PodCondition(pod, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonSchedulingGated {
		w.Status = corev1.PodReasonSchedulingGated
	}
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; IsSidecar(c) {
			sidecars[c.Name] = true
			w.Total++
		}
	}
	initialising := w.walkInit(pod, sidecars)
	if c := PodCondition(pod, corev1.PodInitialized); !initialising || c != nil && c.Status == corev1.ConditionTrue {
		w.walkMain(pod, sidecars)
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == "NodeLost":
			w.Status = "Unknown"
		case !IsPodTerminal(pod):
			w.Status = "Terminating"
		}
	}
	return w
}

// walkInit looks at the init containers in their order up to the first that is
// not done, and reports whether there is one.
func (w *PodWords) walkInit(pod *corev1.Pod, sidecars map[string]bool) bool {
	for i, s := range pod.Status.InitContainerStatuses {
		w.countRestarts(s)
		end := s.State.Terminated
		switch {
		case end != nil && end.ExitCode == 0:
			continue
		case sidecars[s.Name] && s.Started != nil && *s.Started:
			if s.Ready {
				w.Ready++
			}
			continue
		case end != nil:
			w.Status = "Init:" + endWord(end)
		case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
			w.Status = "Init:" + s.State.Waiting.Reason
		default:
			w.Status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

// walkMain looks at the main containers, last to first, so that the first's
// word stands. Restarts of init containers that are through do not count.
func (w *PodWords) walkMain(pod *corev1.Pod, sidecars map[string]bool) {
	w.Restarts, w.LastRestart = 0, metav1.Time{}
	for _, s := range pod.Status.InitContainerStatuses {
		if sidecars[s.Name] {
			w.countRestarts(s)
		}
	}
	running := false
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		s := pod.Status.ContainerStatuses[i]
		w.countRestarts(s)
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			w.Status = s.State.Waiting.Reason
		case s.State.Terminated != nil:
			w.Status = endWord(s.State.Terminated)
		case s.Ready && s.State.Running != nil:
			running = true
			w.Ready++
		}
	}
	if w.Status == "Completed" && running {
		w.Status = "NotReady"
		if IsPodReady(pod) {
			w.Status = "Running"
		}
	}
}

func (w *PodWords) countRestarts(s corev1.ContainerStatus) {
	w.Restarts += int(s.RestartCount)
	if last := s.LastTerminationState.Terminated; last != nil && w.LastRestart.Before(&last.FinishedAt) {
		w.LastRestart = last.FinishedAt
	}
}

func endWord(end *corev1.ContainerStateTerminated) string {
	switch {
	case end.Reason != "":
		return end.Reason
	case end.Signal != 0:
		return fmt.Sprintf("Signal:%d", end.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", end.ExitCode)
}

// FailedContainers tells how many of a pod's containers ended in failure, as
// "1/2"; "" if none did, or all.
func FailedContainers(pod *corev1.Pod) string {
	failed := 0
	for _, s := range pod.Status.ContainerStatuses {
		if end := s.State.Terminated; end != nil && (end.ExitCode != 0 || end.Signal != 0) {
			failed++
		}
	}
	if all := len(pod.Spec.Containers); failed > 0 && failed < all {
		return fmt.Sprintf("%d/%d", failed, all)
	}
	return ""
}

// RestartsText is the restarts column: "3 (5m ago)".
func (w PodWords) RestartsText(now time.Time) string {
	if w.Restarts == 0 || w.LastRestart.IsZero() {
		return fmt.Sprint(w.Restarts)
	}
	return fmt.Sprintf("%d (%s ago)", w.Restarts, HumanDuration(now.Sub(w.LastRestart.Time)))
}

// JobWord is the status column of a Job.
func JobWord(j *batchv1.Job) string {
	is := func(t batchv1.JobConditionType) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == t {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	switch {
	case is(batchv1.JobComplete):
		return "Complete"
	case is(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(batchv1.JobSuspended):
		return "Suspended"
	case is(batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

// NodeWord is the status column of a node: "Ready,SchedulingDisabled".
func NodeWord(n *corev1.Node) string {
	word := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			word = "NotReady"
			if c.Status == corev1.ConditionTrue {
				word = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		word += ",SchedulingDisabled"
	}
	return word
}
