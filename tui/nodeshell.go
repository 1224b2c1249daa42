package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
)

const (
	nodeShellImage = "busybox:1.37"
	nodeShellLimit = 8 * time.Hour // after which the cluster ends it, whatever became of the console
	nodeShellStart = 2 * time.Minute
	nodeShellPoll  = 500 * time.Millisecond
)

// nodeShellMain is what the container runs: it ends when nobody has the pipe open
// any more. A shell at a terminal would keep it open after its console was killed,
// as nobody tells it; nodeShellHold, whose input comes from the console, ends with
// that.
var (
	nodeShellMain    = [...]string{"sh", "-c", "mkfifo /tmp/shell && exec cat /tmp/shell"}
	nodeShellHold    = [...]string{"sh", "-c", "test -p /tmp/shell || sleep 1; exec 9>/tmp/shell; exec cat"}
	nodeShellCommand = [...]string{"sh", "-c", "export TERM=xterm-256color; cd /host 2>/dev/null; if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh"}
)

func nodeShellActions() []action {
	return []action{{name: "node-shell", hint: "shell", help: "a shell on the node: in a privileged pod that is removed afterwards; asks first", on: []string{"nodes"},
		verb: "create", resource: "jobs.batch", home: true, writes: true, run: one((*app).askNodeShell)}}
}

func (a *app) askNodeShell(t target) {
	namespace := a.home()
	q := question{title: a.words.say("shell on %s", t.name), ask: a.words.say("image"), value: cmp.Or(a.config.NodeShellImage, nodeShellImage), yes: "OK"}
	for _, line := range []string{
		a.words.say("A privileged pod starts on the node, in the namespace %s.", namespace),
		a.words.say("It shares the node's processes and network; its disk is at /host."),
		a.words.say("A Job holds it, and the cluster removes both once the shell has ended, even if this console is killed."),
	} {
		q.text = append(q.text, wrapText(line, 64)...)
	}
	q.text = append(q.text, "")
	q.do = func(image string) { a.startNodeShell(t.name, namespace, strings.TrimSpace(image)) }
	a.question(q)
}

// startNodeShell makes the pod, and gives the terminal to a shell in it unless
// the user went elsewhere meanwhile. What was made is removed in any case.
func (a *app) startNodeShell(node, namespace, image string) {
	ctx, stop := context.WithCancel(a.ctx)
	p := a.newWork(a.words.say("shell on %s", node), stop)
	a.push(p)
	c := a.cluster
	a.work.Go(func() {
		defer stop()
		job, pod, err := c.nodeShell(ctx, node, namespace, image, func(text string) { p.lines.add(a.words.say(text)) })
		if err == nil {
			of := target{namespace: namespace, name: pod}
			a.work.Go(func() { c.holdNodeShell(ctx, of) })
			over := make(chan struct{})
			a.post(func() {
				defer close(over)
				if a.top() == pane(p) {
					a.terminal(of, "exec", &corev1.PodExecOptions{Container: "shell", Command: nodeShellCommand[:], Stdin: true, Stdout: true, TTY: true})
					a.back()
				}
			})
			select {
			case <-over:
			case <-a.ctx.Done():
			}
		}
		left := ctx.Err() != nil
		removed := c.removeNodeShell(namespace, job)
		a.post(func() {
			switch {
			case err != nil && !left:
				p.lines.add("✗ " + a.words.told(err.Error()))
				a.fail(err)
			case removed != nil:
				a.fail(removed)
			case job != "":
				a.note("%s", a.words.say("the pod of the shell is removed"))
			}
		})
	})
}

// nodeShell makes a Job whose pod is privileged on a node, and waits until that
// runs.
func (c *cluster) nodeShell(ctx context.Context, node, namespace, image string, say func(string)) (job, pod string, err error) {
	made := nodeShellJob(node, image)
	// What is wrong with the pod is told at once, if it is asked for as such.
	trial := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: made.GenerateName}, Spec: made.Spec.Template.Spec}
	ctx, cancel := context.WithTimeout(ctx, nodeShellStart)
	defer cancel()
	_, err = c.kube.CoreV1().Pods(namespace).Create(ctx, trial, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && !strings.Contains(err.Error(), "cannot create resource") { // who may make no pods may yet make Jobs
		return "", "", err
	}
	// Once asked for, it is waited for: nobody else would remove it.
	sure, sured := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer sured()
	if made, err = c.kube.BatchV1().Jobs(namespace).Create(sure, made, metav1.CreateOptions{}); err != nil {
		return "", "", err
	}
	for last := ""; ; {
		name, state, err := c.nodeShellState(ctx, made)
		switch {
		case ctx.Err() != nil:
			return made.Name, "", fmt.Errorf("the pod does not start: %s", cmp.Or(last, "no pod"))
		case err != nil:
			return made.Name, "", err
		case state == string(corev1.PodRunning):
			return made.Name, name, nil
		case state != last:
			say(state)
			last = state
		}
		select {
		case <-ctx.Done():
		case <-time.After(nodeShellPoll):
		}
	}
}

// holdNodeShell keeps the container until ctx ends, or the connection.
func (c *cluster) holdNodeShell(ctx context.Context, of target) {
	executor, err := c.exec(of, "exec", &corev1.PodExecOptions{Container: "shell", Command: nodeShellHold[:], Stdin: true, Stdout: true})
	if err != nil {
		return // which the shell tells
	}
	in, end := io.Pipe()
	defer context.AfterFunc(ctx, func() { end.Close() })()
	_ = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard})
}

// nodeShellState is what the pod of a Job waits for; Running if for nothing.
func (c *cluster) nodeShellState(ctx context.Context, job *batchv1.Job) (name, state string, err error) {
	pods, err := c.kube.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
	if err != nil {
		return "", "", err
	}
	if len(pods.Items) == 0 {
		events, err := c.kube.CoreV1().Events(job.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + job.Name})
		if err != nil { // which not all may read
			return "", "…", nil
		}
		for _, e := range events.Items {
			if e.Type == corev1.EventTypeWarning {
				return "", "", errors.New(e.Message)
			}
		}
		return "", "…", nil
	}
	pod := &pods.Items[0]
	state = string(pod.Status.Phase)
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			state = strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
		if t := s.State.Terminated; t != nil {
			return "", "", fmt.Errorf("%s, exit code %d %s", t.Reason, t.ExitCode, t.Message)
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return "", "", fmt.Errorf("%s %s", pod.Status.Reason, pod.Status.Message)
	}
	return pod.Name, state, nil
}

// nodeShellJob has a pod as kubectl debug node/ makes it, privileged.
func nodeShellJob(node, image string) *batchv1.Job {
	pod := corev1.PodSpec{
		NodeName: node, HostPID: true, HostNetwork: true, HostIPC: true, RestartPolicy: corev1.RestartPolicyNever,
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		TerminationGracePeriodSeconds: new(int64(1)),
		Volumes:                       []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		Containers: []corev1.Container{{Name: "shell", Image: image, Command: nodeShellMain[:], SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}}},
	}
	simulated := map[string]string{"simulate.orrery.dev/run-for": nodeShellLimit.String()} // where nodes are; those end the pods of Jobs soon
	labels := map[string]string{"app.kubernetes.io/managed-by": "orrery-tui", "app.kubernetes.io/name": "node-shell"}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-shell-" + strings.Trim(cutText(node, 40), ".-") + "-", Labels: labels},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: new(int32(0)), ActiveDeadlineSeconds: new(int64(nodeShellLimit / time.Second)),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: simulated}, Spec: pod}},
	}
}

// removeNodeShell removes a Job with its pod, also while the console ends.
func (c *cluster) removeNodeShell(namespace, job string) error {
	if job == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	background := metav1.DeletePropagationBackground
	err := c.kube.BatchV1().Jobs(namespace).Delete(ctx, job, metav1.DeleteOptions{PropagationPolicy: &background})
	if apierrors.IsNotFound(err) { // the cluster was quicker
		return nil
	}
	return err
}
