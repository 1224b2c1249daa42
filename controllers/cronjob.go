package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

const (
	// cronSlack makes sure that a timer fires after, not at, the time.
	cronSlack = 100 * time.Millisecond
	// manyMissed missed starts are worth a warning: a clock may be wrong.
	manyMissed = 100
)

// cronJobController makes Jobs at the times of a schedule.
type cronJobController struct {
	*env
	informer, jobs cache.SharedIndexInformer
	events         record.EventRecorder
	own            writes
}

func newCronJob(e *env) Controller {
	c := &cronJobController{env: e, events: e.recorders("cronjob-controller"),
		informer: e.factory.Batch().V1().CronJobs().Informer(), jobs: e.factory.Batch().V1().Jobs().Informer()}
	return Controller{
		Name:    "cronjob-controller",
		Reads:   []Source{wakesSelf(c.informer), wakes(c.jobs, ownerKeys[*batchv1.Job]("CronJob"))},
		Writes:  []string{"batch/jobs", "batch/cronjobs"},
		Workers: 5,
		Sync:    c.sync,
	}
}

func (c *cronJobController) sync(ctx context.Context, key string) (time.Duration, error) {
	shared := cached[batchv1.CronJob](c.informer, key)
	if shared == nil {
		c.own.forget(key)
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	cj := shared.DeepCopy()
	jobs := indexed[*batchv1.Job](c.jobs, byController, string(cj.UID))
	now := time.Now()
	c.settle(cj, jobs)
	if err := c.cleanUp(ctx, cj, jobs); err != nil {
		return 0, err
	}
	if cj.DeletionTimestamp != nil || cj.Spec.Suspend != nil && *cj.Spec.Suspend {
		return 0, c.store(ctx, key, shared, cj)
	}
	again, err := c.start(ctx, key, cj, jobs, now)
	return again, errors.Join(err, c.store(ctx, key, shared, cj))
}

func (c *cronJobController) store(ctx context.Context, key string, before, after *batchv1.CronJob) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	updated, err := c.clients.BatchV1().CronJobs(after.Namespace).UpdateStatus(ctx, after, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status of cronjob %s: %w", key, err)
	}
	c.own.made(key, c.informer.GetIndexer(), updated)
	return nil
}

// settle brings the list of active Jobs in line with the Jobs that there are.
func (c *cronJobController) settle(cj *batchv1.CronJob, jobs []*batchv1.Job) {
	byUID := map[types.UID]*batchv1.Job{}
	for _, job := range jobs {
		byUID[job.UID] = job
		listed := slices.ContainsFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == job.UID })
		end := jobFinished(job)
		switch {
		case !listed && end == nil:
			c.events.Eventf(cj, corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", job.Name)
		case listed && end != nil:
			c.events.Eventf(cj, corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, end.Type)
		}
		if end != nil && end.Type == batchv1.JobComplete && job.Status.CompletionTime != nil &&
			(cj.Status.LastSuccessfulTime == nil || job.Status.CompletionTime.After(cj.Status.LastSuccessfulTime.Time)) {
			cj.Status.LastSuccessfulTime = job.Status.CompletionTime
		}
	}
	cj.Status.Active = slices.DeleteFunc(cj.Status.Active, func(r corev1.ObjectReference) bool {
		job := byUID[r.UID]
		if job == nil {
			c.events.Eventf(cj, corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", r.Name)
		}
		return job == nil || jobFinished(job) != nil
	})
}

// cleanUp deletes finished Jobs beyond the history limits, the oldest first.
func (c *cronJobController) cleanUp(ctx context.Context, cj *batchv1.CronJob, jobs []*batchv1.Job) error {
	for kind, limit := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: cj.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: cj.Spec.FailedJobsHistoryLimit,
	} {
		if limit == nil {
			continue
		}
		var ended []*batchv1.Job
		for _, job := range jobs {
			if end := jobFinished(job); end != nil && end.Type == kind && job.DeletionTimestamp == nil {
				ended = append(ended, job)
			}
		}
		slices.SortFunc(ended, func(a, b *batchv1.Job) int {
			return cmp.Or(jobStart(a).Compare(jobStart(b)), strings.Compare(a.Name, b.Name))
		})
		for i := 0; i < len(ended)-int(*limit); i++ {
			if err := c.deleteJob(ctx, cj, ended[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func jobStart(job *batchv1.Job) time.Time {
	if job.Status.StartTime == nil {
		return job.CreationTimestamp.Time
	}
	return job.Status.StartTime.Time
}

func (c *cronJobController) deleteJob(ctx context.Context, cj *batchv1.CronJob, job *batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	err := c.clients.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	if ignoreNotFound(err) != nil {
		c.events.Eventf(cj, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("delete job %s: %w", keyOf(job), err)
	}
	cj.Status.Active = slices.DeleteFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == job.UID })
	c.events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", job.Name)
	return nil
}

// start makes the Job that is due, if any, and returns the time to the next.
func (c *cronJobController) start(ctx context.Context, key string, cj *batchv1.CronJob, jobs []*batchv1.Job, now time.Time) (time.Duration, error) {
	schedule, zone, err := scheduleOf(cj)
	if err != nil {
		c.events.Event(cj, corev1.EventTypeWarning, reasonOf(err), err.Error())
		return 0, nil // an edit of the CronJob wakes us
	}
	due, missed := lastDue(cj, schedule, now)
	next := schedule.Next(now).Sub(now) + cronSlack
	if missed > manyMissed {
		c.events.Eventf(cj, corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if due.IsZero() {
		return next, nil
	}
	if late := cj.Spec.StartingDeadlineSeconds; late != nil && due.Add(time.Duration(*late)*time.Second).Before(now) {
		c.events.Eventf(cj, corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s", due.UTC().Format(time.RFC1123Z))
		return next, nil
	}
	name := fmt.Sprintf("%s-%d", cj.Name, due.Unix()/60)
	if slices.ContainsFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.Name == name }) ||
		cj.Status.LastScheduleTime != nil && cj.Status.LastScheduleTime.Time.Equal(due) {
		return next, nil
	}
	switch {
	case cj.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(cj.Status.Active) > 0:
		c.events.Event(cj, corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
		return next, nil
	case cj.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent:
		for _, job := range jobs {
			if slices.ContainsFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == job.UID }) {
				if err := c.deleteJob(ctx, cj, job); err != nil {
					return 0, err
				}
			}
		}
	}
	return next, c.createJob(ctx, key, cj, cronJobRun(cj, name, due, zone), due)
}

// cronJobRun is the Job of one run.
func cronJobRun(cj *batchv1.CronJob, name string, due time.Time, zone *time.Location) *batchv1.Job {
	t := cj.Spec.JobTemplate
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: cj.Namespace, Labels: withLabels(t.Labels),
			Annotations:       withLabel(t.Annotations, batchv1.CronJobScheduledTimestampAnnotation, due.In(zone).Format(time.RFC3339)),
			CreationTimestamp: metav1.NewTime(due),
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(cj, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

func withLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		out[k] = v
	}
	return out
}

func (c *cronJobController) createJob(ctx context.Context, key string, cj *batchv1.CronJob, job *batchv1.Job, due time.Time) error {
	created, err := c.clients.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsAlreadyExists(err): // made before we fell over; the status lacks it
		if created, err = c.clients.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !metav1.IsControlledBy(created, cj) {
			return fmt.Errorf("job %s exists and is not ours", keyOf(job))
		}
	case err != nil:
		c.events.Eventf(cj, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("create job %s: %w", keyOf(job), err)
	default:
		c.own.made(key, c.jobs.GetIndexer(), created)
		c.events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", created.Name)
	}
	if jobFinished(created) == nil {
		cj.Status.Active = append(cj.Status.Active, corev1.ObjectReference{
			APIVersion: "batch/v1", Kind: "Job", Namespace: created.Namespace, Name: created.Name, UID: created.UID, ResourceVersion: created.ResourceVersion,
		})
	}
	at := metav1.NewTime(due)
	cj.Status.LastScheduleTime = &at
	return nil
}

// scheduleError has the reason of its event.
type scheduleError struct{ reason, message string }

func (e scheduleError) Error() string { return e.message }

func reasonOf(err error) string {
	var e scheduleError
	if errors.As(err, &e) {
		return e.reason
	}
	return "InvalidSchedule"
}

func scheduleOf(cj *batchv1.CronJob) (cron.Schedule, *time.Location, error) {
	zone := time.Local
	text := cj.Spec.Schedule
	if cj.Spec.TimeZone != nil {
		loaded, err := time.LoadLocation(*cj.Spec.TimeZone)
		if err != nil {
			return nil, nil, scheduleError{"UnknownTimeZone", fmt.Sprintf("invalid timeZone: %q: %s", *cj.Spec.TimeZone, err)}
		}
		zone = loaded
		text = "TZ=" + *cj.Spec.TimeZone + " " + text
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return nil, nil, scheduleError{"UnparseableSchedule", fmt.Sprintf("unparseable schedule: %q : %s", cj.Spec.Schedule, err)}
	}
	return schedule, zone, nil
}

// lastDue is the latest time of the schedule that has come and not been run, and
// about how many have.
func lastDue(cj *batchv1.CronJob, schedule cron.Schedule, now time.Time) (due time.Time, missed int) {
	from := cj.CreationTimestamp.Time
	if cj.Status.LastScheduleTime != nil {
		from = cj.Status.LastScheduleTime.Time
	}
	if late := cj.Spec.StartingDeadlineSeconds; late != nil {
		if earliest := now.Add(-time.Duration(*late) * time.Second); earliest.After(from) {
			from = earliest
		}
	}
	first := schedule.Next(from)
	if first.IsZero() || first.After(now) {
		return time.Time{}, 0
	}
	second := schedule.Next(first)
	if second.IsZero() || second.After(now) {
		return first, 1
	}
	// Skip the bulk of a long gap at the rate of the schedule's first step.
	step := second.Sub(first)
	missed = int(now.Sub(first)/step) + 1
	start := first
	if jump := now.Add(-2 * step).Add(-26 * time.Hour); jump.After(first) {
		start = schedule.Next(jump)
	}
	for t := start; !t.IsZero() && !t.After(now); t = schedule.Next(t) {
		due = t
	}
	if due.IsZero() {
		due = first
	}
	return due, missed
}
