package controllers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/api"
)

func aJob(completions, parallelism int32) *batchv1.Job {
	labels := map[string]string{"job": "j"}
	t := podTemplate(labels, "v1")
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "default", UID: "j"},
		Spec: batchv1.JobSpec{
			Completions: &completions, Parallelism: &parallelism, BackoffLimit: ptr(int32(6)),
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: t,
		},
	}
}

func jobPod(name string, phase corev1.PodPhase, index int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Namespace: "default", Finalizers: []string{batchv1.JobTrackingFinalizer},
			Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index)},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func TestIndexSets(t *testing.T) {
	s := parseIndexes("0,2-4,9", 8)
	if got := s.String(); got != "0,2-4" || s.len() != 4 {
		t.Errorf("got %q of %d", got, s.len())
	}
	if got := s.with(1, 6, 3).String(); got != "0-4,6" {
		t.Errorf("with: got %q", got)
	}
	if got := (indexSet{}).with(1, 2).String(); got != "1,2" {
		t.Errorf("two in a row: got %q", got)
	}
	for i, want := range []bool{true, false, true, true, true, false} {
		if s.has(i) != want {
			t.Errorf("has(%d) = %v", i, !want)
		}
	}
}

func TestJobEndings(t *testing.T) {
	now := time.Now()
	indexed := func(j *batchv1.Job) { m := batchv1.IndexedCompletion; j.Spec.CompletionMode = &m }
	for _, c := range []struct {
		name string
		job  func(*batchv1.Job)
		pods []*corev1.Pod
		want string
	}{
		{"goes on", nil, []*corev1.Pod{jobPod("a", corev1.PodSucceeded, 0)}, ""},
		{"complete", nil, []*corev1.Pod{jobPod("a", corev1.PodSucceeded, 0), jobPod("b", corev1.PodSucceeded, 1)}, "CompletionsReached"},
		{"backoff limit", func(j *batchv1.Job) { *j.Spec.BackoffLimit = 0 }, []*corev1.Pod{jobPod("a", corev1.PodFailed, 0)}, "BackoffLimitExceeded"},
		{"deadline", func(j *batchv1.Job) {
			j.Spec.ActiveDeadlineSeconds = ptr(int64(5))
			j.Status.StartTime = &metav1.Time{Time: now.Add(-time.Minute)}
		}, nil, "DeadlineExceeded"},
		{"same index twice is one", indexed, []*corev1.Pod{jobPod("a", corev1.PodSucceeded, 0), jobPod("b", corev1.PodSucceeded, 0)}, ""},
		{"all indexes", indexed, []*corev1.Pod{jobPod("a", corev1.PodSucceeded, 0), jobPod("b", corev1.PodSucceeded, 1)}, "CompletionsReached"},
		{"an index is lost", func(j *batchv1.Job) {
			indexed(j)
			j.Spec.BackoffLimitPerIndex = ptr(int32(0))
		}, []*corev1.Pod{jobPod("a", corev1.PodSucceeded, 0), jobPod("b", corev1.PodFailed, 1)}, "FailedIndexes"},
		{"success policy", func(j *batchv1.Job) {
			indexed(j)
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr("0")}}}
		}, []*corev1.Pod{jobPod("a", corev1.PodSucceeded, 0)}, "SuccessPolicy"},
		{"failure policy", func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:      batchv1.PodFailurePolicyActionFailJob,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}},
			}}}
		}, []*corev1.Pod{exited(jobPod("a", corev1.PodFailed, 0), 42)}, "PodFailurePolicy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := aJob(2, 2)
			if c.job != nil {
				c.job(job)
			}
			end, _ := planJob(job, c.pods, now).end()
			if end.reason != c.want {
				t.Errorf("got %+v, want %q", end, c.want)
			}
		})
	}
}

func exited(pod *corev1.Pod, code int32) *corev1.Pod {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
	return pod
}

func TestJobMoves(t *testing.T) {
	now := time.Now()
	m := batchv1.IndexedCompletion
	job := aJob(5, 3)
	job.Spec.CompletionMode = &m
	p := planJob(job, []*corev1.Pod{jobPod("a", corev1.PodSucceeded, 0), jobPod("b", corev1.PodRunning, 2)}, now)
	if moves := p.moves(); !slices.Equal(moves.indexes, []int{1, 3}) {
		t.Errorf("next indexes: got %v", moves.indexes)
	}
	late := exited(jobPod("a", corev1.PodFailed, 0), 1)
	late.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(now.Add(-4 * time.Second))
	if moves := planJob(aJob(1, 1), []*corev1.Pod{late}, now).moves(); moves.create != 0 || moves.again.Round(time.Second) != 6*time.Second {
		t.Errorf("after a failure 4 s ago: %+v", moves)
	}
}

func TestJobRunsToItsEnd(t *testing.T) {
	set := fakeClients()
	ctx := context.Background()
	if _, err := set.BatchV1().Jobs("default").Create(ctx, aJob(3, 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running(t, set, "job-controller")
	eventually(t, func() error {
		pods, _ := set.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		for _, pod := range pods.Items {
			if !api.IsPodTerminal(&pod) {
				pod.Status.Phase = corev1.PodSucceeded
				if _, err := set.CoreV1().Pods("default").UpdateStatus(ctx, &pod, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
		}
		job, err := set.BatchV1().Jobs("default").Get(ctx, "j", metav1.GetOptions{})
		if err != nil || jobConditionTrue(job, batchv1.JobComplete) == nil || job.Status.Succeeded != 3 {
			return fmt.Errorf("%v: %+v", err, job.Status)
		}
		for _, pod := range pods.Items {
			if len(pod.Finalizers) > 0 {
				return fmt.Errorf("pod %s keeps its finalizer", pod.Name)
			}
		}
		return nil
	})
}

func TestLastDue(t *testing.T) {
	start := time.Date(2026, 1, 1, 10, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		schedule string
		now      time.Time
		due      string
		missed   int
	}{
		{"*/5 * * * *", start.Add(time.Minute), "0001-01-01 00:00", 0},
		{"*/5 * * * *", start.Add(5 * time.Minute), "2026-01-01 10:05", 1},
		{"*/5 * * * *", start.Add(21 * time.Minute), "2026-01-01 10:20", 4},
		{"* * * * *", start.Add(30 * 24 * time.Hour), "2026-01-31 10:00", 43200},
		{"0 0 1 1 *", start.Add(800 * 24 * time.Hour), "2028-01-01 00:00", 2},
	} {
		utc := "UTC"
		cj := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: c.schedule, TimeZone: &utc}}
		cj.CreationTimestamp = metav1.NewTime(start)
		s, _, err := scheduleOf(cj)
		if err != nil {
			t.Fatal(err)
		}
		due, missed := lastDue(cj, s, c.now)
		if due.UTC().Format("2006-01-02 15:04") != c.due || missed != c.missed {
			t.Errorf("%s at %s: got %s, %d missed", c.schedule, c.now, due, missed)
		}
	}
}

func TestCronJobMakesJobs(t *testing.T) {
	cj := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", UID: "c", CreationTimestamp: metav1.NewTime(time.Now().Add(-90 * time.Second))},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: aJob(1, 1).Spec}},
	}
	set := fakeClients(cj)
	running(t, set, "cronjob-controller")
	eventually(t, func() error {
		jobs, _ := set.BatchV1().Jobs("default").List(context.Background(), metav1.ListOptions{})
		got, _ := set.BatchV1().CronJobs("default").Get(context.Background(), "c", metav1.GetOptions{})
		if len(jobs.Items) != 1 || got.Status.LastScheduleTime == nil || len(got.Status.Active) != 1 {
			return fmt.Errorf("%d jobs, status %+v", len(jobs.Items), got.Status)
		}
		return nil
	})
}
