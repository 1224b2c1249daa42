package api

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// jobStep is a job on its way from one status to the next. What was at odds before
// may go on to be: only what changes is checked, as the spec may have changed in
// between, too.
type jobStep struct {
	spec    *batchv1.JobSpec
	is, was *batchv1.JobStatus
	errs    field.ErrorList
}

// ValidateJobStatus names the faults of a Job's new status.
func ValidateJobStatus(j, old *batchv1.Job) field.ErrorList {
	c := &jobStep{spec: &j.Spec, is: &j.Status, was: &old.Status}
	c.errs = numbers(c.is, "active", "succeeded", "failed", "ready", "terminating")
	c.pods()
	c.end()
	c.indexes()
	c.conditions()
	c.history()
	return c.errs
}

// refuse complains about a field if it meets a condition.
func (c *jobStep) refuse(condition bool, name string, value any, why string) {
	c.errs = append(c.errs, refuse(condition, statusPath().Child(name), value, why)...)
}

func jobIs(s *batchv1.JobStatus, t batchv1.JobConditionType) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue })
}

func jobFinished(s *batchv1.JobStatus) bool {
	return jobIs(s, batchv1.JobComplete) || jobIs(s, batchv1.JobFailed)
}

// sameValue tells if two optional values are the same.
func sameValue[T any](a, b *T) bool { return equality.Semantic.DeepEqual(a, b) }

// turned tells if a condition came or went.
func (c *jobStep) turned(t batchv1.JobConditionType) bool { return jobIs(c.is, t) != jobIs(c.was, t) }

// pods checks those that have ended and are to be counted still.
func (c *jobStep) pods() {
	if c.is.UncountedTerminatedPods == nil {
		return
	}
	seen := map[types.UID]bool{}
	for _, list := range []struct {
		name string
		pods []types.UID
	}{{"succeeded", c.is.UncountedTerminatedPods.Succeeded}, {"failed", c.is.UncountedTerminatedPods.Failed}} {
		for i, uid := range list.pods {
			at := statusPath().Child("uncountedTerminatedPods", list.name).Index(i)
			c.errs = append(c.errs, refuse(uid == "", at, uid, "must not be empty")...)
			if uid != "" && seen[uid] {
				c.errs = append(c.errs, field.Duplicate(at, uid))
			}
			seen[uid] = true
		}
	}
}

// end checks how a job says that it has ended, and what must then be so.
func (c *jobStep) end() {
	is, none := c.is, field.OmitValueType{}
	complete, failed, finished := jobIs(is, batchv1.JobComplete), jobIs(is, batchv1.JobFailed), jobFinished(is)
	completed, hasFailed := c.turned(batchv1.JobComplete), c.turned(batchv1.JobFailed)
	doomed, met := jobIs(is, batchv1.JobFailureTarget), jobIs(is, batchv1.JobSuccessCriteriaMet)
	began, ended := is.StartTime, is.CompletionTime
	beginning, ending := !sameValue(began, c.was.StartTime), !sameValue(ended, c.was.CompletionTime)
	c.refuse((completed || hasFailed) && complete && failed, "conditions", none, "cannot set Complete=True and Failed=true conditions")
	c.refuse((completed || c.turned(batchv1.JobFailureTarget)) && complete && doomed, "conditions", none, "cannot set Complete=True and FailureTarget=true conditions")
	c.refuse((completed || ending) && ended != nil && !complete, "completionTime", ended, "cannot set completionTime when there is no Complete=True condition")
	c.errs = append(c.errs, need((completed || ending) && ended == nil && complete, statusPath().Child("completionTime"), "completionTime is required for Complete jobs")...)
	c.refuse((beginning || ending) && began != nil && ended != nil && ended.Before(began), "completionTime", ended, "must be equal to or after `startTime`")
	c.refuse((hasFailed || c.failedIndexesChanged()) && failed && !doomed, "conditions", none, "cannot set Failed=True condition without the FailureTarget=true condition")
	c.refuse((completed || c.turned(batchv1.JobSuccessCriteriaMet)) && complete && !met, "conditions", none, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")

	nowFinished := finished != jobFinished(c.was)
	c.refuse((nowFinished || is.Active != c.was.Active) && finished && is.Active > 0, "active", is.Active, "active>0 is invalid for finished job")
	neverRuns := ptr.Deref(c.spec.Suspend, false) && c.spec.Completions != nil && *c.spec.Completions == 0
	c.errs = append(c.errs, need((nowFinished || beginning) && !neverRuns && began == nil && finished, statusPath().Child("startTime"), "startTime is required for finished job")...)
	u := is.UncountedTerminatedPods
	uncounted := finished && u != nil && len(u.Failed)+len(u.Succeeded) > 0
	c.refuse(uncounted && (nowFinished || !sameValue(u, c.was.UncountedTerminatedPods)), "uncountedTerminatedPods", u, "must be empty for finished job")
}

func (c *jobStep) failedIndexesChanged() bool {
	return !sameValue(c.is.FailedIndexes, c.was.FailedIndexes)
}

// indexes checks which pods of an indexed job are done.
func (c *jobStep) indexes() {
	done, failed, all := c.is.CompletedIndexes, c.is.FailedIndexes, c.spec.Completions
	doneChanged, failedChanged := done != c.was.CompletedIndexes, c.failedIndexesChanged()
	check := func(name, text string) {
		if _, err := countIndexes(text, *all); err != nil {
			c.refuse(true, name, text, fmt.Sprintf("error parsing %s: %v", name, err))
		}
	}
	if doneChanged && all != nil {
		check("completedIndexes", done)
	}
	if failedChanged && all != nil && failed != nil && c.spec.BackoffLimitPerIndex != nil {
		check("failedIndexes", *failed)
	}
	c.refuse(doneChanged && done != "" && !isIndexed(c.spec), "completedIndexes", done, "cannot set non-empty completedIndexes when non-indexed completion mode")
	if failed == nil {
		return
	}
	c.refuse(failedChanged && c.spec.BackoffLimitPerIndex == nil, "failedIndexes", *failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	if (failedChanged || doneChanged) && all != nil {
		if i, both := overlap(done, *failed, *all); both {
			c.refuse(true, "failedIndexes", *failed, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", i))
		}
	}
}

// overlap is the first number that is in two lists of indexes. What cannot be read
// of them was complained of.
func overlap(a, b string, all int32) (first int32, found bool) {
	for _, one := range strings.Split(a, ",") {
		for _, other := range strings.Split(b, ",") {
			low, high, err := indexRange(one, all)
			from, to, otherErr := indexRange(other, all)
			if err == nil && otherErr == nil && low <= to && from <= high && (!found || max(low, from) < first) {
				first, found = max(low, from), true
			}
		}
	}
	return first, found
}

// conditions checks those that are at odds with each other, or with the numbers.
func (c *jobStep) conditions() {
	is, none := c.is, field.OmitValueType{}
	if t := is.Terminating; t != nil && *t > 0 && jobFinished(is) {
		c.refuse(jobFinished(is) != jobFinished(c.was) || !sameValue(t, c.was.Terminating), "terminating", t, "terminating>0 is invalid for finished job")
	}
	if r := is.Ready; r != nil && *r > is.Active {
		c.refuse(is.Active != c.was.Active || !sameValue(r, c.was.Ready), "ready", *r, "cannot set more ready pods than active")
	}
	met := jobIs(is, batchv1.JobSuccessCriteriaMet)
	c.refuse(met && jobIs(is, batchv1.JobFailed), "conditions", none, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	c.refuse(met && jobIs(is, batchv1.JobFailureTarget), "conditions", none, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	c.refuse(c.spec.SuccessPolicy != nil && !met && jobIs(is, batchv1.JobComplete), "conditions", none, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
}

// history checks what no status may take back.
func (c *jobStep) history() {
	is, was, none := c.is, c.was, field.OmitValueType{}
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		c.refuse(jobIs(was, t) && !jobIs(is, t), "conditions", none, fmt.Sprintf("cannot disable the terminal %s=True condition", t))
	}
	c.refuse(is.Failed < was.Failed, "failed", is.Failed, "cannot decrease the failed counter")
	shrinks := isIndexed(c.spec) && sameValue(c.spec.Completions, c.spec.Parallelism)
	c.refuse(is.Succeeded < was.Succeeded && !shrinks, "succeeded", is.Succeeded, "cannot decrease the succeeded counter")
	c.refuse(is.CompletionTime != nil && was.CompletionTime != nil && !sameValue(is.CompletionTime, was.CompletionTime), "completionTime", is.CompletionTime, immutable)
	resumes := jobIs(was, batchv1.JobSuspended) && slices.ContainsFunc(is.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionFalse
	})
	c.refuse(was.StartTime != nil && !sameValue(is.StartTime, was.StartTime) && !ptr.Deref(c.spec.Suspend, false) && !resumes, "startTime", is.StartTime, "field is immutable for unsuspended job once set")
	met, wasMet := jobIs(is, batchv1.JobSuccessCriteriaMet), jobIs(was, batchv1.JobSuccessCriteriaMet)
	c.refuse(wasMet && !met, "conditions", none, "cannot disable the SuccessCriteriaMet=True condition")
	c.refuse(jobIs(was, batchv1.JobComplete) && !wasMet && met, "conditions", none, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}
