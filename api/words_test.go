package api

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podOption changes a pod with two main containers that has just been made.
type podOption func(*corev1.Pod)

func newPod(options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

func phase(ph corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = ph } }
func reason(r string) podOption          { return func(p *corev1.Pod) { p.Status.Reason = r } }
func deleted(p *corev1.Pod)              { now := metav1.Now(); p.DeletionTimestamp = &now }

func condition(t corev1.PodConditionType, s corev1.ConditionStatus, why string) podOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: s, Reason: why})
	}
}

func main2(a, b corev1.ContainerStatus) podOption {
	a.Name, b.Name = "a", "b"
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{a, b} }
}

func inits(sidecar bool, statuses ...corev1.ContainerStatus) podOption {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		for i := range statuses {
			name := string(rune('i' + i))
			c := corev1.Container{Name: name}
			if sidecar {
				c.RestartPolicy = &always
			}
			statuses[i].Name = name
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, statuses[i])
		}
	}
}

func running() corev1.ContainerStatus {
	started := true
	return corev1.ContainerStatus{Ready: true, Started: &started, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func unready() corev1.ContainerStatus { s := running(); s.Ready = false; return s }

func waiting(why string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why}}}
}

func ended(code, signal int32, why string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Signal: signal, Reason: why}}}
}

func restarted(s corev1.ContainerStatus, n int32, at time.Time) corev1.ContainerStatus {
	s.RestartCount = n
	if !at.IsZero() {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}
	}
	return s
}

// Whichever container's word stands, how many failed is told.
func TestFailedContainers(t *testing.T) {
	bad, good := ended(1, 0, "Error"), ended(0, 0, "Completed")
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"first":     {newPod(main2(bad, good)), "1/2"},
		"last":      {newPod(main2(good, bad)), "1/2"},
		"by signal": {newPod(main2(running(), ended(0, 9, ""))), "1/2"},
		"all":       {newPod(main2(bad, bad)), ""},
		"none":      {newPod(main2(good, running())), ""},
		"waiting":   {newPod(main2(waiting("CrashLoopBackOff"), running())), ""},
	} {
		if got := FailedContainers(c.pod); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestWordsOfPod(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := now.Add(-5 * time.Minute)
	never := time.Time{}
	isReady := condition(corev1.PodReady, corev1.ConditionTrue, "")
	initialized := condition(corev1.PodInitialized, corev1.ConditionTrue, "")
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		status   string
		ready    string
		restarts string
		state    State
	}{
		"new":                  {newPod(phase(corev1.PodPending)), "Pending", "0/2", "0", StateProgressing},
		"no phase":             {newPod(phase("")), "", "0/2", "0", StateUnknown},
		"unschedulable":        {newPod(phase(corev1.PodPending), condition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable")), "Pending", "0/2", "0", StateWarning},
		"gated":                {newPod(phase(corev1.PodPending), condition(corev1.PodScheduled, corev1.ConditionFalse, "SchedulingGated")), "SchedulingGated", "0/2", "0", StateProgressing},
		"creating":             {newPod(phase(corev1.PodPending), main2(waiting("ContainerCreating"), waiting("ContainerCreating"))), "ContainerCreating", "0/2", "0", StateProgressing},
		"image":                {newPod(phase(corev1.PodPending), main2(waiting("ImagePullBackOff"), running())), "ImagePullBackOff", "1/2", "0", StateError},
		"first wins":           {newPod(main2(waiting("ErrImagePull"), waiting("CrashLoopBackOff"))), "ErrImagePull", "0/2", "0", StateError},
		"running":              {newPod(main2(running(), running()), isReady), "Running", "2/2", "0", StateOK},
		"one not ready":        {newPod(main2(running(), unready())), "Running", "1/2", "0", StateWarning},
		"crash loop":           {newPod(main2(running(), restarted(waiting("CrashLoopBackOff"), 3, ago))), "CrashLoopBackOff", "1/2", "3 (5m ago)", StateError},
		"restarts summed":      {newPod(main2(restarted(running(), 1, ago.Add(-time.Hour)), restarted(running(), 2, ago))), "Running", "2/2", "3 (5m ago)", StateOK},
		"restarts, time lost":  {newPod(main2(restarted(running(), 4, never), running())), "Running", "2/2", "4", StateOK},
		"error":                {newPod(main2(ended(1, 0, "Error"), running())), "Error", "1/2", "0", StateError},
		"oom":                  {newPod(main2(ended(137, 0, "OOMKilled"), running())), "OOMKilled", "1/2", "0", StateError},
		"exit code":            {newPod(main2(ended(3, 0, ""), running())), "ExitCode:3", "1/2", "0", StateError},
		"signal":               {newPod(main2(ended(0, 9, ""), running())), "Signal:9", "1/2", "0", StateError},
		"completed":            {newPod(phase(corev1.PodSucceeded), main2(ended(0, 0, "Completed"), ended(0, 0, "Completed"))), "Completed", "0/2", "0", StateDone},
		"half done, ready":     {newPod(main2(ended(0, 0, "Completed"), running()), isReady), "Running", "1/2", "0", StateWarning},
		"half done, not ready": {newPod(main2(ended(0, 0, "Completed"), running())), "NotReady", "1/2", "0", StateWarning},
		"half done, last":      {newPod(main2(running(), ended(0, 0, "Completed")), isReady), "Running", "1/2", "0", StateWarning},
		"succeeded bare":       {newPod(phase(corev1.PodSucceeded)), "Succeeded", "0/2", "0", StateDone},
		"evicted":              {newPod(phase(corev1.PodFailed), reason("Evicted")), "Evicted", "0/2", "0", StateError},
		"failed":               {newPod(phase(corev1.PodFailed)), "Failed", "0/2", "0", StateError},
		"unknown":              {newPod(phase(corev1.PodUnknown)), "Unknown", "0/2", "0", StateUnknown},

		"init first":            {newPod(phase(corev1.PodPending), inits(false, waiting(""), waiting(""))), "Init:0/2", "0/2", "0", StateProgressing},
		"init second":           {newPod(phase(corev1.PodPending), inits(false, ended(0, 0, "Completed"), running())), "Init:1/2", "0/2", "0", StateProgressing},
		"init pod initializing": {newPod(phase(corev1.PodPending), inits(false, waiting("PodInitializing"))), "Init:0/1", "0/2", "0", StateProgressing},
		"init error":            {newPod(phase(corev1.PodPending), inits(false, ended(1, 0, "Error"))), "Init:Error", "0/2", "0", StateError},
		"init exit code":        {newPod(phase(corev1.PodPending), inits(false, ended(2, 0, ""))), "Init:ExitCode:2", "0/2", "0", StateError},
		"init signal":           {newPod(phase(corev1.PodPending), inits(false, ended(2, 15, ""))), "Init:Signal:15", "0/2", "0", StateError},
		"init crash loop":       {newPod(phase(corev1.PodPending), inits(false, restarted(waiting("CrashLoopBackOff"), 2, ago))), "Init:CrashLoopBackOff", "0/2", "2 (5m ago)", StateError},
		"init image":            {newPod(phase(corev1.PodPending), inits(false, waiting("ImagePullBackOff"))), "Init:ImagePullBackOff", "0/2", "0", StateError},
		"init done":             {newPod(phase(corev1.PodPending), inits(false, restarted(ended(0, 0, "Completed"), 2, ago)), main2(waiting("PodInitializing"), waiting("PodInitializing"))), "PodInitializing", "0/2", "0", StateProgressing},
		"init redone":           {newPod(initialized, inits(false, running()), main2(running(), running())), "Init:0/1", "2/2", "0", StateProgressing},

		"sidecar":            {newPod(inits(true, running()), main2(running(), running())), "Running", "3/3", "0", StateOK},
		"sidecar unready":    {newPod(inits(true, unready()), main2(running(), running())), "Running", "2/3", "0", StateWarning},
		"sidecar starting":   {newPod(phase(corev1.PodPending), inits(true, waiting(""))), "Init:0/1", "0/3", "0", StateProgressing},
		"sidecar restarts":   {newPod(inits(true, restarted(running(), 2, ago)), main2(restarted(running(), 1, never), running())), "Running", "3/3", "3 (5m ago)", StateOK},
		"sidecar crash loop": {newPod(phase(corev1.PodPending), inits(true, waiting("CrashLoopBackOff"))), "Init:CrashLoopBackOff", "0/3", "0", StateError},

		"terminating":          {newPod(deleted, main2(running(), running())), "Terminating", "2/2", "0", StateTerminating},
		"terminating, pending": {newPod(deleted, phase(corev1.PodPending)), "Terminating", "0/2", "0", StateTerminating},
		"deleted when done":    {newPod(deleted, phase(corev1.PodSucceeded), main2(ended(0, 0, "Completed"), ended(0, 0, "Completed"))), "Completed", "0/2", "0", StateDone},
		"node lost":            {newPod(deleted, reason("NodeLost")), "Unknown", "0/2", "0", StateTerminating},
	} {
		w := WordsOfPod(c.pod)
		if ready := itoa(w.Ready) + "/" + itoa(w.Total); w.Status != c.status || ready != c.ready || w.RestartsText(now) != c.restarts {
			t.Errorf("%s: %s %s %q, want %s %s %q", name, w.Status, ready, w.RestartsText(now), c.status, c.ready, c.restarts)
		}
		if got := StateOf(c.pod); got != c.state {
			t.Errorf("%s (%s): state %s, want %s", name, w.Status, got, c.state)
		}
	}
}

func itoa(n int) string { return string(rune('0' + n)) }

func TestJobWord(t *testing.T) {
	job := func(t batchv1.JobConditionType, s corev1.ConditionStatus) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: t, Status: s}}}}
	}
	gone := job(batchv1.JobSuspended, corev1.ConditionTrue)
	now := metav1.Now()
	gone.DeletionTimestamp = &now
	for want, j := range map[string]*batchv1.Job{
		"Running": job(batchv1.JobComplete, corev1.ConditionFalse), "Complete": job(batchv1.JobComplete, corev1.ConditionTrue),
		"Failed": job(batchv1.JobFailed, corev1.ConditionTrue), "Suspended": job(batchv1.JobSuspended, corev1.ConditionTrue),
		"FailureTarget": job(batchv1.JobFailureTarget, corev1.ConditionTrue), "SuccessCriteriaMet": job(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue),
		"Terminating": gone,
	} {
		if got := JobWord(j); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
