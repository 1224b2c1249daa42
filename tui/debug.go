package tui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
)

func debugActions() []action {
	return []action{{name: "debug", help: "a debug container in the pod, with tools of its own; asks first", on: []string{"pods", "containers"},
		verb: "patch", sub: "ephemeralcontainers", resource: "pods", writes: true, run: one((*app).askDebug)}}
}

func (a *app) askDebug(t target) {
	a.inContainer(t, func(container string) {
		q := question{title: a.words.say("debug %s", t), ask: a.words.say("image"), value: cmp.Or(a.config.NodeShellImage, nodeShellImage), yes: "OK"}
		q.text = append(wrapText(a.words.say("A container of this image is added to the pod. It sees the processes of %s, and cannot be taken out again: it goes with the pod.", container), 64), "")
		q.do = func(image string) { a.startDebug(t, container, strings.TrimSpace(image)) }
		a.question(q)
	})
}

// startDebug adds the container, and gives the terminal to it unless the user went
// elsewhere meanwhile.
func (a *app) startDebug(t target, beside, image string) {
	ctx, stop := context.WithCancel(a.ctx)
	p := a.newWork(a.words.say("debug %s", t), stop)
	a.push(p)
	c := a.cluster
	a.work.Go(func() {
		name, err := c.debug(ctx, t, beside, image, func(state string) { p.lines.add(state) })
		a.post(func() {
			switch {
			case a.top() != pane(p):
			case err != nil:
				p.lines.add("✗ " + a.words.told(err.Error()))
				a.fail(err)
			default:
				a.terminal(t, "attach", &corev1.PodAttachOptions{Container: name, Stdin: true, Stdout: true, TTY: true})
				a.back()
			}
		})
	})
}

// debug adds a container to a pod, which sees the processes of another one, and waits
// until it runs.
func (c *cluster) debug(ctx context.Context, t target, beside, image string, say func(string)) (name string, err error) {
	name = "debugger-" + rand.String(5)
	patch, err := json.Marshal(fields{"spec": fields{"ephemeralContainers": []corev1.EphemeralContainer{{TargetContainerName: beside,
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: image, Stdin: true, TTY: true}}}}})
	if err != nil {
		return "", err
	}
	pods := c.kube.CoreV1().Pods(t.namespace)
	if _, err := pods.Patch(ctx, t.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "ephemeralcontainers"); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeShellStart)
	defer cancel()
	for last := ""; ; {
		pod, err := pods.Get(ctx, t.name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		state, up, over := debugState(pod, name)
		switch {
		case up:
			return name, nil
		case over:
			return "", errors.New(state)
		case state != last:
			say(state)
			last = state
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the container does not start: %s", cmp.Or(last, "nothing is told of it"))
		case <-time.After(nodeShellPoll):
		}
	}
}

// debugState is what a pod tells of a debug container: that it is up, or over, or why
// not yet.
func debugState(pod *corev1.Pod, name string) (state string, up, over bool) {
	for _, s := range pod.Status.EphemeralContainerStatuses {
		switch {
		case s.Name != name:
		case s.State.Running != nil:
			return "", true, false
		case s.State.Terminated != nil:
			return fmt.Sprintf("%s: %s, exit code %d %s", name, s.State.Terminated.Reason, s.State.Terminated.ExitCode, s.State.Terminated.Message), false, true
		case s.State.Waiting != nil:
			return strings.TrimSuffix(s.State.Waiting.Reason+": "+oneLine(s.State.Waiting.Message), ": "), false, false
		}
	}
	return "", false, false
}
