package controllers

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/api"
)

// jobPlan is a Job with its pods, and what follows from them.
type jobPlan struct {
	job *batchv1.Job
	now time.Time

	pods, active, terminating []*corev1.Pod
	// Counts include pods that ended and are not in the status yet.
	succeeded, failed int
	done, lost        indexSet // of an indexed job: succeeded, and failed for good

	newSucceeded, newFailed []types.UID   // to note as uncounted
	release                 []*corev1.Pod // whose finalizer goes once they are noted
	failJob                 string        // why the failure policy fails the Job
}

// planJob sorts a Job's pods. Terminated pods keep a finalizer until the status
// accounts for them, so that none is counted twice or never.
func planJob(job *batchv1.Job, pods []*corev1.Pod, now time.Time) *jobPlan {
	p := &jobPlan{job: job, now: now, pods: pods}
	if isIndexed(job) {
		p.done = parseIndexes(job.Status.CompletedIndexes, int(*job.Spec.Completions))
		if job.Status.FailedIndexes != nil {
			p.lost = parseIndexes(*job.Status.FailedIndexes, int(*job.Spec.Completions))
		}
	}
	uncounted := job.Status.UncountedTerminatedPods
	for _, pod := range pods {
		switch {
		case api.IsPodActive(pod):
			p.active = append(p.active, pod)
		case podTerminating(pod):
			p.terminating = append(p.terminating, pod)
		}
		if slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
			p.account(pod, uncounted)
		}
	}
	p.succeeded = int(job.Status.Succeeded) + len(p.newSucceeded)
	p.failed = int(job.Status.Failed) + len(p.newFailed)
	if uncounted != nil {
		p.succeeded += len(uncounted.Succeeded)
		p.failed += len(uncounted.Failed)
	}
	if isIndexed(job) {
		p.succeeded = p.done.len()
	}
	return p
}

func (p *jobPlan) account(pod *corev1.Pod, uncounted *batchv1.UncountedTerminatedPods) {
	index := indexOf(pod)
	inRange := !isIndexed(p.job) || index >= 0 && index < int(*p.job.Spec.Completions)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		p.release = append(p.release, pod)
		switch {
		case isIndexed(p.job):
			if inRange {
				p.done = p.done.with(index)
			}
		case uncounted == nil || !slices.Contains(uncounted.Succeeded, pod.UID):
			p.newSucceeded = append(p.newSucceeded, pod.UID)
		}
	case p.hasFailed(pod):
		p.release = append(p.release, pod)
		v := judgePod(p.job, pod)
		if v.action == batchv1.PodFailurePolicyActionFailJob && p.failJob == "" {
			p.failJob = v.message
		}
		if limit := p.job.Spec.BackoffLimitPerIndex; limit != nil && inRange && !p.done.has(index) {
			if v.action == batchv1.PodFailurePolicyActionFailIndex || v.action != batchv1.PodFailurePolicyActionIgnore && indexFailures(pod) >= int(*limit) {
				p.lost = p.lost.with(index)
			}
		}
		if v.action != batchv1.PodFailurePolicyActionIgnore && inRange && (uncounted == nil || !slices.Contains(uncounted.Failed, pod.UID)) {
			p.newFailed = append(p.newFailed, pod.UID)
		}
	case p.job.DeletionTimestamp != nil:
		p.release = append(p.release, pod)
	}
}

// hasFailed says whether a pod counts as failed. Unless the Job waits for pods
// to have ended, one that is being deleted does: it may never report.
func (p *jobPlan) hasFailed(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return pod.DeletionTimestamp != nil && !replacesFailedOnly(p.job)
}

// replacesFailedOnly is so too for a Job with a failure policy, which can't judge
// a pod before it has ended.
func replacesFailedOnly(job *batchv1.Job) bool {
	return job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batchv1.Failed || job.Spec.PodFailurePolicy != nil
}

func jobCondition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if job.Status.Conditions[i].Type == kind {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

func jobConditionTrue(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	if c := jobCondition(job, kind); c != nil && c.Status == corev1.ConditionTrue {
		return c
	}
	return nil
}

// jobFinished returns the condition that ended the Job, nil while it goes on.
func jobFinished(job *batchv1.Job) *batchv1.JobCondition {
	if c := jobConditionTrue(job, batchv1.JobComplete); c != nil {
		return c
	}
	return jobConditionTrue(job, batchv1.JobFailed)
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

// ending is how a Job is about to end; the zero value means that it goes on.
type ending struct {
	kind            batchv1.JobConditionType // JobComplete or JobFailed
	reason, message string
}

// end decides whether the Job is over. again is when the deadline is due.
func (p *jobPlan) end() (e ending, again time.Duration) {
	job := p.job
	if c := jobConditionTrue(job, batchv1.JobFailureTarget); c != nil {
		return ending{batchv1.JobFailed, c.Reason, c.Message}, 0
	}
	if c := jobConditionTrue(job, batchv1.JobSuccessCriteriaMet); c != nil {
		return ending{batchv1.JobComplete, c.Reason, c.Message}, 0
	}
	if p.failJob != "" {
		return ending{batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy, p.failJob}, 0
	}
	if p.failed > int(*job.Spec.BackoffLimit) || p.restartedTooOften() {
		return ending{batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"}, 0
	}
	if job.Spec.ActiveDeadlineSeconds != nil && job.Status.StartTime != nil && !suspended(job) {
		again = job.Status.StartTime.Add(time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second).Sub(p.now)
		if again <= 0 {
			return ending{batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"}, 0
		}
	}
	if i := successMet(job, p.done); i >= 0 {
		return ending{batchv1.JobComplete, batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", i)}, 0
	}
	if e := p.endOfIndexes(); e.kind != "" {
		return e, 0
	}
	complete := job.Spec.Completions != nil && p.succeeded >= int(*job.Spec.Completions)
	if job.Spec.Completions == nil {
		complete = p.succeeded > 0 && len(p.active) == 0
	}
	if complete && !(suspended(job) && job.Spec.Completions == nil) {
		return ending{batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"}, 0
	}
	return ending{}, again
}

func (p *jobPlan) endOfIndexes() ending {
	job := p.job
	if job.Spec.BackoffLimitPerIndex == nil || p.lost.len() == 0 {
		return ending{}
	}
	if most := job.Spec.MaxFailedIndexes; most != nil && p.lost.len() > int(*most) {
		return ending{batchv1.JobFailed, batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"}
	}
	if p.lost.len()+p.done.len() >= int(*job.Spec.Completions) {
		return ending{batchv1.JobFailed, batchv1.JobReasonFailedIndexes, "Job has failed indexes"}
	}
	return ending{}
}

// restartedTooOften counts restarts in place against the limit, where failing
// containers are not failing pods.
func (p *jobPlan) restartedTooOften() bool {
	if p.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	n := int32(0)
	for _, pod := range p.active {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range pod.Status.InitContainerStatuses {
			n += c.RestartCount
		}
		for _, c := range pod.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	if *p.job.Spec.BackoffLimit == 0 {
		return n > 0
	}
	return n >= *p.job.Spec.BackoffLimit
}

// wantActive is how many pods should run at once.
func (p *jobPlan) wantActive() int {
	parallel := int(*p.job.Spec.Parallelism)
	if p.job.Spec.Completions == nil {
		if p.succeeded > 0 { // the first success ends a work queue
			return min(len(p.active), parallel)
		}
		return parallel
	}
	return max(min(int(*p.job.Spec.Completions)-p.succeeded-p.lost.len(), parallel), 0)
}

// jobMoves says which pods to delete, and how many or which indexes to create.
type jobMoves struct {
	remove  []*corev1.Pod
	create  int
	indexes []int // of an indexed job, one for each pod to create
	again   time.Duration
}

func (p *jobPlan) moves() jobMoves {
	if suspended(p.job) {
		return jobMoves{remove: p.active}
	}
	var m jobMoves
	active := p.active
	if isIndexed(p.job) {
		active, m.remove = p.sortIndexes()
	}
	want := p.wantActive()
	if len(active) > want {
		surplus := slices.Clone(active)
		deletionOrder(surplus, nil, p.now)
		m.remove = append(m.remove, surplus[:len(active)-want]...)
		return m
	}
	busy := len(active)
	if replacesFailedOnly(p.job) {
		busy += len(p.terminating)
	}
	need := want - busy
	if need <= 0 {
		return m
	}
	if p.job.Spec.BackoffLimitPerIndex == nil {
		if m.again = jobBackoff(p.pods, p.now); m.again > 0 {
			return m
		}
	}
	if !isIndexed(p.job) {
		m.create = need
		return m
	}
	m.indexes, m.again = p.nextIndexes(active, need)
	m.create = len(m.indexes)
	return m
}

// sortIndexes keeps one active pod for each index that still has to be done.
func (p *jobPlan) sortIndexes() (keep, remove []*corev1.Pod) {
	byIndex := map[int][]*corev1.Pod{}
	for _, pod := range p.active {
		i := indexOf(pod)
		if i < 0 || i >= int(*p.job.Spec.Completions) || p.done.has(i) || p.lost.has(i) {
			remove = append(remove, pod)
			continue
		}
		byIndex[i] = append(byIndex[i], pod)
	}
	for _, same := range byIndex {
		deletionOrder(same, nil, p.now)
		remove = append(remove, same[:len(same)-1]...)
		keep = append(keep, same[len(same)-1])
	}
	return keep, remove
}

// nextIndexes are the lowest indexes that nobody works on.
func (p *jobPlan) nextIndexes(active []*corev1.Pod, need int) (indexes []int, again time.Duration) {
	busy := map[int]bool{}
	for _, pod := range active {
		busy[indexOf(pod)] = true
	}
	if replacesFailedOnly(p.job) {
		for _, pod := range p.terminating {
			busy[indexOf(pod)] = true
		}
	}
	for i := 0; i < int(*p.job.Spec.Completions) && len(indexes) < need; i++ {
		if busy[i] || p.done.has(i) || p.lost.has(i) {
			continue
		}
		if p.job.Spec.BackoffLimitPerIndex != nil {
			if last := p.lastFailure(i); last != nil {
				if wait := backoffAfter(indexFailures(last)+1, podEnded(last), p.now); wait > 0 {
					again = sooner(again, wait)
					continue
				}
			}
		}
		indexes = append(indexes, i)
	}
	return indexes, again
}

// lastFailure is the failed pod of an index that knows of the most failures.
func (p *jobPlan) lastFailure(index int) *corev1.Pod {
	var last *corev1.Pod
	for _, pod := range p.pods {
		if indexOf(pod) == index && p.hasFailed(pod) && (last == nil || indexFailures(pod) >= indexFailures(last)) {
			last = pod
		}
	}
	return last
}

// failuresBefore is the failure count for the next pod of an index.
func (p *jobPlan) failuresBefore(index int) int {
	last := p.lastFailure(index)
	if last == nil {
		return 0
	}
	if judgePod(p.job, last).action == batchv1.PodFailurePolicyActionIgnore {
		return indexFailures(last)
	}
	return indexFailures(last) + 1
}

// setJobCondition puts a condition in place and says whether that changed it.
func setJobCondition(status *batchv1.JobStatus, kind batchv1.JobConditionType, value corev1.ConditionStatus, reason, message string, now time.Time) bool {
	at := metav1.NewTime(now)
	c := batchv1.JobCondition{Type: kind, Status: value, Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at}
	for i := range status.Conditions {
		if status.Conditions[i].Type != kind {
			continue
		}
		if status.Conditions[i].Status == value && status.Conditions[i].Reason == reason {
			return false
		}
		status.Conditions[i] = c
		return true
	}
	if value == corev1.ConditionFalse {
		return false // what never was needs no denial
	}
	status.Conditions = append(status.Conditions, c)
	return true
}
