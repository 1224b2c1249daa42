package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"orrery.dev/api"
)

const (
	jobBurst = 500
	// jobOrphanKey prefixes the key of a pod that has the finalizer of Jobs and
	// no Job.
	jobOrphanKey = "pod:"
)

// jobController runs pods until enough of them have succeeded. job_plan.go
// decides, with job_policy.go and job_indexes.go; this file acts.
type jobController struct {
	podMaker
	informer cache.SharedIndexInformer
}

func newJob(e *env) Controller {
	c := &jobController{
		podMaker: podMaker{env: e, events: e.recorders("job-controller"), own: &writes{}},
		informer: e.factory.Batch().V1().Jobs().Informer(),
	}
	return Controller{
		Name:    "job-controller",
		Reads:   []Source{wakesSelf(c.informer), wakes(e.pods(), c.keysOfPod)},
		Writes:  []string{"pods", "batch/jobs"},
		Workers: 5,
		Sync:    c.sync,
	}
}

// keysOfPod wakes a pod's Job, and sees to pods whose Job has gone.
func (c *jobController) keysOfPod(pod *corev1.Pod) []string {
	keys := adopterKeys(c.informer, "Job", func(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector })(pod)
	if metav1.GetControllerOfNoCopy(pod) == nil && slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
		keys = append(keys, jobOrphanKey+keyOf(pod))
	}
	return keys
}

func (c *jobController) sync(ctx context.Context, key string) (time.Duration, error) {
	if podKey, ok := strings.CutPrefix(key, jobOrphanKey); ok {
		return 0, c.freeOrphan(ctx, podKey)
	}
	shared := cached[batchv1.Job](c.informer, key)
	if shared == nil {
		c.own.forget(key)
		return 0, c.freeAll(ctx, key, "")
	}
	if by := shared.Spec.ManagedBy; by != nil && *by != batchv1.JobControllerName {
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	if jobFinished(shared) != nil {
		return 0, c.freeAll(ctx, key, shared.UID)
	}
	job := shared.DeepCopy()
	now := time.Now()
	c.noteStart(job, now)
	pods, err := c.claimPods(ctx, job)
	if err != nil {
		return 0, err
	}
	plan := planJob(job, pods, now)
	end, again := plan.end()
	acted := c.account(ctx, key, plan)
	if acted == nil && job.DeletionTimestamp == nil {
		var wait time.Duration
		wait, acted = c.act(ctx, key, plan, end)
		again = sooner(again, wait)
	}
	finished, err := c.conclude(ctx, key, plan, end)
	if err != nil {
		return 0, errors.Join(acted, err)
	}
	if finished {
		return 0, nil
	}
	return again, acted
}

// noteStart keeps the start time, and what suspending does to it.
func (c *jobController) noteStart(job *batchv1.Job, now time.Time) {
	at := metav1.NewTime(now)
	if !suspended(job) {
		if job.Status.StartTime == nil {
			job.Status.StartTime = &at
		}
		if setJobCondition(&job.Status, batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", now) {
			job.Status.StartTime = &at
			c.events.Event(job, corev1.EventTypeNormal, "Resumed", "Job resumed")
		}
	}
}

func (c *jobController) claimPods(ctx context.Context, job *batchv1.Job) ([]*corev1.Pod, error) {
	selector, err := selectorOf(job.Spec.Selector)
	if err != nil {
		return nil, err
	}
	pods := claim[*corev1.Pod]{
		owner: job, kind: batchv1.SchemeGroupVersion.WithKind("Job"), selector: selector, drops: batchv1.JobTrackingFinalizer,
		live: func(ctx context.Context) (metav1.Object, error) {
			return c.clients.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		},
		patch: c.patchPod,
	}
	return pods.from(ctx, candidates[*corev1.Pod](c.pods(), job))
}

// account notes ended pods in the status, takes their finalizers, and then
// counts them: in this order a crash at any point loses nothing.
func (c *jobController) account(ctx context.Context, key string, p *jobPlan) error {
	job := p.job
	if job.Status.UncountedTerminatedPods == nil {
		job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	u := job.Status.UncountedTerminatedPods
	u.Succeeded = append(u.Succeeded, p.newSucceeded...)
	u.Failed = append(u.Failed, p.newFailed...)
	if isIndexed(job) {
		job.Status.CompletedIndexes = p.done.String()
		if job.Spec.BackoffLimitPerIndex != nil {
			text := p.lost.String()
			job.Status.FailedIndexes = &text
		}
	}
	if len(p.release) > 0 {
		if p.failJob != "" { // the reason is lost with the pod
			setJobCondition(&job.Status, batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonPodFailurePolicy, p.failJob, p.now)
		}
		if err := c.store(ctx, key, job); err != nil {
			return err
		}
	}
	errs := parallel(len(p.release), func(i int) error { return c.free(ctx, key, p.release[i]) })
	held := map[types.UID]bool{}
	for i, pod := range p.release {
		if errs[i] != nil {
			held[pod.UID] = true
		}
	}
	count := func(uids []types.UID, counter *int32) []types.UID {
		return slices.DeleteFunc(slices.Clone(uids), func(uid types.UID) bool {
			if !held[uid] {
				*counter++
			}
			return !held[uid]
		})
	}
	u = job.Status.UncountedTerminatedPods
	if u == nil {
		u = &batchv1.UncountedTerminatedPods{}
		job.Status.UncountedTerminatedPods = u
	}
	u.Succeeded = count(u.Succeeded, &job.Status.Succeeded)
	u.Failed = count(u.Failed, &job.Status.Failed)
	if isIndexed(job) {
		job.Status.Succeeded = int32(p.done.len())
	}
	return errors.Join(errs...)
}

// free takes the finalizer from a pod.
func (c *jobController) free(ctx context.Context, key string, pod *corev1.Pod) error {
	patch := metadataPatch(map[string]any{"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}})
	freed, err := c.clients.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if ignoreGone(err) != nil {
		return fmt.Errorf("release pod %s: %w", keyOf(pod), err)
	}
	if err == nil {
		c.own.made(key, c.pods().GetIndexer(), freed)
	}
	return nil
}

// freeAll takes the finalizers from the pods that name the Job of key, which has
// ended; without a uid the Job is gone.
func (c *jobController) freeAll(ctx context.Context, key string, uid types.UID) error {
	namespace, name := split(key)
	var errs []error
	for _, pod := range inNamespace[*corev1.Pod](c.pods(), namespace) {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil || ref.Kind != "Job" || ref.Name != name || uid != "" && ref.UID != uid || !slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
			continue
		}
		errs = append(errs, c.free(ctx, key, pod))
	}
	return errors.Join(errs...)
}

func (c *jobController) freeOrphan(ctx context.Context, podKey string) error {
	pod := cached[corev1.Pod](c.pods(), podKey)
	if pod == nil || metav1.GetControllerOfNoCopy(pod) != nil || !slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
		return nil
	}
	return c.free(ctx, jobOrphanKey+podKey, pod)
}

// act deletes and creates pods.
func (c *jobController) act(ctx context.Context, key string, p *jobPlan, end ending) (time.Duration, error) {
	job := p.job
	if end.kind != "" {
		return 0, c.removePods(ctx, key, p, p.active, end.kind == batchv1.JobFailed)
	}
	moves := p.moves()
	if err := c.removePods(ctx, key, p, moves.remove, false); err != nil {
		return 0, err
	}
	if suspended(job) && len(p.active) == 0 {
		if setJobCondition(&job.Status, batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", p.now) {
			c.events.Event(job, corev1.EventTypeNormal, "Suspended", "Job suspended")
		}
		job.Status.StartTime = nil
	}
	owner := *metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))
	made := make([]*corev1.Pod, min(moves.create, jobBurst))
	_, err := slowStart(len(made), func(i int) error {
		pod := podFrom(&job.Spec.Template, job.Namespace, job.Name+"-", owner)
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
		if isIndexed(job) {
			giveIndex(p, pod, moves.indexes[i])
		}
		created, err := c.create(ctx, job, key, pod)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		made[i] = created
		return err
	})
	for _, pod := range made {
		if pod != nil {
			p.active = append(p.active, pod)
		}
	}
	return moves.again, err
}

// removePods deletes active pods. Those that merely are too many lose their
// finalizer first, so that they do not count as failed; those of a Job that
// fails do count.
func (c *jobController) removePods(ctx context.Context, key string, p *jobPlan, pods []*corev1.Pod, asFailed bool) error {
	doomed := slices.Clone(pods)
	errs := parallel(min(len(doomed), jobBurst), func(i int) error {
		if !asFailed && slices.Contains(doomed[i].Finalizers, batchv1.JobTrackingFinalizer) {
			if err := c.free(ctx, key, doomed[i]); err != nil {
				return err
			}
		}
		return c.delete(ctx, p.job, key, doomed[i])
	})
	for i, err := range errs {
		if err == nil {
			p.active = slices.DeleteFunc(p.active, func(pod *corev1.Pod) bool { return pod.UID == doomed[i].UID })
			p.terminating = append(p.terminating, doomed[i])
		}
	}
	return errors.Join(errs...)
}

// giveIndex makes a pod the one that works on an index.
func giveIndex(p *jobPlan, pod *corev1.Pod, index int) {
	text := strconv.Itoa(index)
	pod.GenerateName = p.job.Name + "-" + text + "-"
	pod.Spec.Hostname = p.job.Name + "-" + text
	pod.Annotations = withLabel(pod.Annotations, batchv1.JobCompletionIndexAnnotation, text)
	pod.Labels = withLabel(pod.Labels, batchv1.JobCompletionIndexAnnotation, text)
	if p.job.Spec.BackoffLimitPerIndex != nil {
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(p.failuresBefore(index))
	}
	env := corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']"},
	}}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].Env, func(e corev1.EnvVar) bool { return e.Name == env.Name }) {
				list[i].Env = append(list[i].Env, env)
			}
		}
	}
}

// conclude writes the status; the Job ends only when no pod of it is left
// running and all are counted.
func (c *jobController) conclude(ctx context.Context, key string, p *jobPlan, end ending) (finished bool, err error) {
	job := p.job
	s := &job.Status
	s.Active = int32(len(p.active))
	ready, terminating := int32(0), int32(len(p.terminating))
	for _, pod := range p.active {
		if api.IsPodReady(pod) {
			ready++
		}
	}
	s.Ready, s.Terminating = &ready, &terminating
	if end.kind != "" {
		target := batchv1.JobFailureTarget
		if end.kind == batchv1.JobComplete {
			target = batchv1.JobSuccessCriteriaMet
		}
		setJobCondition(s, target, corev1.ConditionTrue, end.reason, end.message, p.now)
		counted := s.UncountedTerminatedPods == nil || len(s.UncountedTerminatedPods.Succeeded)+len(s.UncountedTerminatedPods.Failed) == 0
		if s.Active == 0 && terminating == 0 && counted {
			setJobCondition(s, end.kind, corev1.ConditionTrue, end.reason, end.message, p.now)
			if end.kind == batchv1.JobComplete {
				at := metav1.NewTime(p.now)
				s.CompletionTime = &at
			}
			s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
			finished = true
		}
	}
	if err := c.store(ctx, key, job); err != nil {
		return false, err
	}
	if finished && end.kind == batchv1.JobComplete {
		c.events.Event(job, corev1.EventTypeNormal, "Completed", "Job completed")
	} else if finished {
		c.events.Event(job, corev1.EventTypeWarning, end.reason, end.message)
	}
	return finished, nil
}

// store writes the status if it differs from what the cache has.
func (c *jobController) store(ctx context.Context, key string, job *batchv1.Job) error {
	stored := cached[batchv1.Job](c.informer, key)
	if stored != nil && stored.ResourceVersion == job.ResourceVersion && equality.Semantic.DeepEqual(stored.Status, job.Status) {
		return nil
	}
	updated, err := c.clients.BatchV1().Jobs(job.Namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status of job %s: %w", key, err)
	}
	c.own.made(key, c.informer.GetIndexer(), updated)
	*job = *updated
	return nil
}
