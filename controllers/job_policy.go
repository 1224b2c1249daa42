package controllers

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

const (
	jobFirstBackoff = 10 * time.Second
	jobLastBackoff  = 10 * time.Minute
)

// verdict is what a Job's failure policy says about one failed pod.
type verdict struct {
	action  batchv1.PodFailurePolicyAction
	message string // for FailJob
}

// judgePod finds the first rule of the failure policy that matches a failed pod;
// without one the failure counts.
func judgePod(job *batchv1.Job, pod *corev1.Pod) verdict {
	count := verdict{action: batchv1.PodFailurePolicyActionCount}
	if job.Spec.PodFailurePolicy == nil || pod.Status.Phase != corev1.PodFailed {
		return count
	}
	for i, rule := range job.Spec.PodFailurePolicy.Rules {
		var message string
		switch {
		case rule.OnExitCodes != nil:
			if c := exitCodeMatch(rule.OnExitCodes, pod); c != nil {
				message = fmt.Sprintf("Container %s for pod %s failed with exit code %d matching %v rule at index %d", c.Name, keyOf(pod), c.State.Terminated.ExitCode, rule.Action, i)
			}
		case len(rule.OnPodConditions) > 0:
			if c := conditionMatch(rule.OnPodConditions, pod); c != "" {
				message = fmt.Sprintf("Pod %s has condition %v matching %v rule at index %d", keyOf(pod), c, rule.Action, i)
			}
		}
		if message != "" {
			return verdict{rule.Action, message}
		}
	}
	return count
}

func exitCodeMatch(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.Pod) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			c := &list[i]
			if c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != c.Name {
				continue
			}
			if slices.Contains(rule.Values, c.State.Terminated.ExitCode) == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return c
			}
		}
	}
	return nil
}

func conditionMatch(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, pod *corev1.Pod) corev1.PodConditionType {
	for _, p := range patterns {
		want := p.Status
		if want == "" {
			want = corev1.ConditionTrue
		}
		if c := api.PodCondition(pod, p.Type); c != nil && c.Status == want {
			return p.Type
		}
	}
	return ""
}

// successMet returns the rule of the success policy that is met, or -1.
func successMet(job *batchv1.Job, succeeded indexSet) int {
	if job.Spec.SuccessPolicy == nil {
		return -1
	}
	for i, rule := range job.Spec.SuccessPolicy.Rules {
		need, have := 0, succeeded.len()
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes, int(*job.Spec.Completions))
			need, have = wanted.len(), 0
			for _, r := range wanted {
				for n := r[0]; n <= r[1]; n++ {
					if succeeded.has(n) {
						have++
					}
				}
			}
		}
		if rule.SucceededCount != nil {
			need = int(*rule.SucceededCount)
		}
		if need > 0 && have >= need {
			return i
		}
	}
	return -1
}

// podEnded is when a pod's last container ended.
func podEnded(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated != nil && c.State.Terminated.FinishedAt.After(last) {
			last = c.State.Terminated.FinishedAt.Time
		}
	}
	if last.IsZero() {
		if c := api.PodCondition(pod, corev1.PodReady); c != nil {
			last = c.LastTransitionTime.Time
		}
	}
	if last.IsZero() && pod.DeletionTimestamp != nil {
		last = pod.DeletionTimestamp.Time
	}
	if last.IsZero() {
		last = pod.CreationTimestamp.Time
	}
	return last
}

// jobBackoff is how long to wait before a pod is made after failures: 10 s,
// doubled for each since the last success.
func jobBackoff(pods []*corev1.Pod, now time.Time) time.Duration {
	var failures []time.Time
	var lastSuccess time.Time
	for _, pod := range pods {
		switch pod.Status.Phase {
		case corev1.PodFailed:
			failures = append(failures, podEnded(pod))
		case corev1.PodSucceeded:
			if at := podEnded(pod); at.After(lastSuccess) {
				lastSuccess = at
			}
		}
	}
	n := 0
	var last time.Time
	for _, at := range failures {
		if at.After(lastSuccess) {
			n++
			if at.After(last) {
				last = at
			}
		}
	}
	return backoffAfter(n, last, now)
}

func backoffAfter(failures int, last, now time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := jobLastBackoff
	if failures < 10 {
		wait = min(wait, jobFirstBackoff<<(failures-1))
	}
	return max(last.Add(wait).Sub(now), 0)
}

// indexFailures is how often a pod's index had failed before this pod.
func indexFailures(pod *corev1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[batchv1.JobIndexFailureCountAnnotation])
	if err != nil {
		return 0
	}
	return n
}
