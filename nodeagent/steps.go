package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"orrery.dev/trace"
)

func (d action) String() string {
	return [...]string{"nothing", "sandbox", "start", "kill", "resize", "remove", "drop", "finish"}[d]
}

// do takes one step. Failures that the next look should know of (an image that
// can't be pulled) are noted in w.stalled and are not errors.
func (w *worker) do(ctx context.Context, wa want, h have, s step) error {
	ctx, span := w.begin(ctx, wa.pod, stepNames[s.do])
	told := func(err error) error {
		span.End(err)
		return err
	}
	switch s.do {
	case doSandbox:
		if s.why != "" && h.phase(wa.pod) != corev1.PodPending {
			w.event(wa.pod, corev1.EventTypeNormal, "SandboxChanged", s.why)
		}
		return w.note("", "", told(w.makeSandbox(ctx, wa.pod, s.attempt)))
	case doStart:
		span.Set(attribute.String("container", s.container.Name))
		return w.note(s.container.Name, containerHash(s.container), told(w.startContainer(ctx, wa.pod, h, s)))
	case doKill:
		return told(w.kill(ctx, wa.pod, s.kill, s.hooks))
	case doResize:
		err := w.applySize(ctx, wa.pod, h, s.resize)
		if err != nil && w.resizing.failed == "" {
			w.event(wa.pod, corev1.EventTypeWarning, "ResizeError", resizeText("Pod resize error", wa.pod, err.Error()))
		}
		return w.note(stalledResize, "", told(err))
	case doRemove:
		return told(w.remove(ctx, s.remove))
	case doDrop:
		return told(w.drop(ctx, h))
	}
	return fmt.Errorf("no such step: %d", s.do)
}

// stepNames are the names of the spans of steps.
var stepNames = map[action]string{
	doSandbox: "prepare pod", doStart: "run container", doKill: "stop containers", doResize: "resize containers",
	doRemove: "remove containers", doDrop: "stop sandbox",
}

// begin starts the span of something that is done for the pod.
func (w *worker) begin(ctx context.Context, pod *corev1.Pod, name string) (context.Context, *trace.Span) {
	return w.a.cfg.Trace.Start(ctx, name, trace.Of("", "pods", pod), trace.Node(w.a.cfg.NodeName))
}

// startError is a start that failed for a reason that the pod's status tells.
// An until of zero leaves the time of the next try to the worker.
type startError struct {
	reason, message string
	until           time.Time
}

func (e *startError) Error() string { return e.reason + ": " + e.message }

// note turns a failed start into a stall: a sandbox is tried again after a
// second, then ever later up to half a minute, and a container after 10 seconds
// and later; unless the error names its own time.
func (w *worker) note(name, hash string, err error) error {
	if err == nil {
		delete(w.stalled, name)
		delete(w.failures, name)
		return nil
	}
	var failed *startError
	if !errors.As(err, &failed) {
		failed = &startError{reason: "CreateContainerError", message: err.Error()}
		if name == "" {
			failed.reason = "ContainerCreating"
		}
	}
	until := failed.until
	if until.IsZero() {
		w.failures[name]++
		wait := time.Second << min(w.failures[name]-1, 5) // mount and sandbox trouble is often short
		if name != "" {
			wait = max(wait, 10*time.Second)
		}
		until = time.Now().Add(min(wait, 30*time.Second))
	}
	w.stalled[name] = stall{reason: failed.reason, message: failed.message, until: until, hash: hash}
	w.a.log.Info("start failed", "pod", w.name, "container", name, "err", err)
	return nil
}

// kill stops containers, all at the same time, and waits until they have ended.
// The preStop hooks of those that are next run at the same time.
func (w *worker) kill(ctx context.Context, pod *corev1.Pod, victims, next []victim) error {
	var wg sync.WaitGroup
	errs := make([]error, len(victims))
	for _, v := range next {
		wg.Go(func() { w.preStop(ctx, pod, v) })
	}
	for i, v := range victims {
		wg.Go(func() { errs[i] = w.killOne(ctx, pod, v) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// preStop runs a container's hook, once.
func (w *worker) preStop(ctx context.Context, pod *corev1.Pod, v victim) {
	if !v.hasHook() || !w.firstHook(v.id) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(v.grace)*time.Second)
	defer cancel()
	err := w.runHook(limited, pod, v.spec, v.id, v.spec.Lifecycle.PreStop)
	if ctx.Err() != nil {
		w.mu.Lock()
		delete(w.hooked, v.id) // the pod got less grace meanwhile: that begins again
		w.mu.Unlock()
	} else if err != nil {
		w.containerEvent(pod, v.name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

func (v victim) hasHook() bool {
	return v.spec != nil && v.spec.Lifecycle != nil && v.spec.Lifecycle.PreStop != nil && v.grace > 0 && v.state == stateRunning
}

// firstHook says whether a container's preStop hook was not begun yet.
func (w *worker) firstHook(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.hooked[id]
	w.hooked[id] = true
	return first
}

// killOne runs a container's preStop hook and stops it. The hook's time counts
// against the grace, but two seconds are always left.
func (w *worker) killOne(ctx context.Context, pod *corev1.Pod, v victim) error {
	w.a.probes.Stop(w.uid, v.name, v.id)
	w.containerEvent(pod, v.name, corev1.EventTypeNormal, "Killing", v.why)
	grace := v.grace
	if v.hasHook() {
		begin := time.Now()
		w.preStop(ctx, pod, v)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		grace = max(grace-int64(time.Since(begin).Seconds()), graceLeast)
	}
	if err := w.a.cfg.Runtime.StopContainer(ctx, v.id, grace); err != nil && !isNotFound(err) {
		return fmt.Errorf("stop container %s: %w", v.name, err)
	}
	return nil
}

// drop stops a pod's sandboxes.
func (w *worker) drop(ctx context.Context, h have) error {
	for _, sb := range h.sandboxes {
		if !sb.ready {
			continue
		}
		if err := w.a.cfg.Runtime.StopPodSandbox(ctx, sb.id); err != nil && !isNotFound(err) {
			return fmt.Errorf("stop sandbox %s: %w", sb.id, err)
		}
	}
	return nil
}

// finish gives back what a pod holds, tells the API, and clears the runtime
// when the pod is wanted no more. It may have to be repeated: over is true when
// nothing is left.
func (w *worker) finish(ctx context.Context, wa want, h have, orphan bool) (again time.Time, over bool) {
	w.a.probes.Forget(w.uid)
	retry := time.Now().Add(2 * time.Second)
	if !w.finished {
		if err := w.release(ctx); err != nil {
			w.a.log.Warn("pod can't be released", "pod", w.name, "err", err)
			return retry, false
		}
		w.mu.Lock()
		w.finished = true
		w.mu.Unlock()
		w.a.pods.retryResizes()
		w.a.touchNode()
	}
	if !orphan {
		w.syncMirror(ctx, wa.pod)
		// A deleted pod is taken out of the API once its last status is there;
		// the API's answer, the deletion event, makes it an orphan.
		if wa.pod.DeletionTimestamp != nil {
			w.a.statuses.deleteAfterward(wa.pod)
			return time.Time{}, false
		}
		return time.Time{}, false
	}
	if err := w.purge(ctx, h); err != nil {
		w.a.log.Warn("pod can't be removed", "pod", w.name, "err", err)
		return retry, false
	}
	w.a.statuses.forget(w.uid)
	return time.Time{}, true
}

// release unmounts a pod's volumes and removes its cgroups.
func (w *worker) release(ctx context.Context) error {
	if w.a.cfg.Simulated {
		return nil
	}
	if err := w.a.volumes.TearDown(w.uid); err != nil {
		return err
	}
	w.volumes = nil
	w.a.follower.set(w.uid, nil)
	w.a.certificates.forget(w.uid)
	w.a.users.release(w.uid)
	return w.a.cgroups.remove(w.uid)
}

// purge removes a pod's containers, sandboxes, logs and directory.
func (w *worker) purge(ctx context.Context, h have) error {
	byUID := map[string]string{"io.kubernetes.pod.uid": string(w.uid)}
	containers, err := w.a.cfg.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: byUID})
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := w.a.cfg.Runtime.RemoveContainer(ctx, c.Id); err != nil && !isNotFound(err) {
			return fmt.Errorf("remove container %s: %w", c.Id, err)
		}
	}
	for _, sb := range h.sandboxes {
		if err := w.a.cfg.Runtime.RemovePodSandbox(ctx, sb.id); err != nil && !isNotFound(err) {
			return fmt.Errorf("remove sandbox %s: %w", sb.id, err)
		}
	}
	if w.a.cfg.Simulated {
		return nil
	}
	pod := w.wanted()
	return errors.Join(os.RemoveAll(w.a.podLogDir(pod)), os.RemoveAll(w.a.podDir(pod)))
}

func (a *Agent) podDir(pod *corev1.Pod) string {
	return filepath.Join(a.cfg.RootDir, "pods", string(pod.UID))
}

func (a *Agent) podLogDir(pod *corev1.Pod) string {
	return filepath.Join(a.cfg.PodLogsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}
