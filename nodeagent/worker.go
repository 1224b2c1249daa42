package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/nodeagent/volume"
)

// worker takes one pod through its life. Its goroutine exists only while there
// is something to do: touch starts it, and it ends when the pod is at rest.
type worker struct {
	a      *Agent
	uid    types.UID
	name   string // namespace/name
	static bool
	born   time.Time

	mu       sync.Mutex // protects the fields up to the next blank line
	pod      *corev1.Pod
	vanished bool  // its source has it no more
	asked    *stop // by eviction or by a refused admission
	working  bool
	pending  bool
	shut     bool
	timer    *time.Timer
	cancel   context.CancelFunc // of the step at hand
	finished bool               // nothing runs, nothing is held
	promised *corev1.Pod        // as if it asked for what it was promised
	stale    bool               // what fills the volumes has changed
	changed  bool               // the pod itself has
	hooked   map[string]bool    // containers whose preStop hook was begun, by id

	// Only the worker's goroutine touches these. They spare work or errors;
	// a worker without them would do the same, later.
	known    map[string]containerStatus
	stalled  map[string]stall
	failures map[string]int // starts in a row that failed, by container name
	admitted bool
	volumes  map[string]volume.Mounted
	// volumeImages are the runtime's references to the images of image volumes,
	// as pulled for the container that is being started.
	volumeImages map[string]string
	outdated     bool        // the volumes' contents have to be looked at
	refreshed    time.Time   // when the volumes' contents were last brought up to date
	filled       *corev1.Pod // from which the volumes were last filled
	startedAt    time.Time
	last         have
	backedOff    map[string]string // the attempt of which was told that it has to wait, by container name
	allotted     *allotment
	resizing     resizing
}

func newWorker(a *Agent, pod *corev1.Pod) *worker {
	w := &worker{a: a, uid: pod.UID, name: fullName(pod), static: isStatic(pod), pod: pod, born: time.Now(),
		known: map[string]containerStatus{}, stalled: map[string]stall{}, failures: map[string]int{}, backedOff: map[string]string{}, hooked: map[string]bool{}}
	if !pod.CreationTimestamp.IsZero() {
		w.born = pod.CreationTimestamp.Time
	}
	return w
}

// set replaces the pod that is wanted. A shorter grace interrupts the step at
// hand, which may be waiting for containers to end.
func (w *worker) set(pod *corev1.Pod) {
	w.mu.Lock()
	hurry := pod.DeletionTimestamp != nil && (w.pod.DeletionTimestamp == nil || graceOf(pod) < graceOf(w.pod))
	w.changed = w.changed || pod.Generation != w.pod.Generation || !maps.Equal(pod.Labels, w.pod.Labels) || !maps.Equal(pod.Annotations, w.pod.Annotations)
	w.pod = pod
	w.vanished = false
	if hurry && w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.touch()
}

// gone tells that the pod is wanted no more.
func (w *worker) gone() {
	w.mu.Lock()
	w.vanished = true
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.touch()
}

// end asks the pod to end for a reason of the node's own.
func (w *worker) end(s stop) {
	w.mu.Lock()
	if w.asked == nil {
		w.asked = &s
	}
	w.mu.Unlock()
	w.touch()
}

// refresh has the pod look at its volumes' contents.
func (w *worker) refresh() {
	w.mu.Lock()
	w.stale = true
	w.mu.Unlock()
	w.touch()
}

// takeNews takes on what refresh and set told of. A pod that waits for its
// volumes, or for a container that could not be made, need not wait any longer;
// only what registries said stays true.
func (w *worker) takeNews() {
	w.mu.Lock()
	stale, changed := w.stale, w.changed
	w.stale, w.changed = false, false
	w.mu.Unlock()
	w.outdated = w.outdated || stale
	for name, st := range w.stalled {
		if (stale || changed) && name == "" || changed && st.reason != reasonPull && st.reason != reasonPullBackOff {
			delete(w.stalled, name)
			delete(w.failures, name)
		}
	}
}

func (w *worker) wanted() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// touch makes the worker look at its pod, now or right after the step at hand.
func (w *worker) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return
	}
	w.pending = true
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if !w.working {
		w.working = true
		w.a.wg.Go(w.work)
	}
}

// close stops the worker; the pod goes on.
func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.cancel != nil {
		w.cancel()
	}
}

// work looks at the pod until it is at rest, then sleeps without a goroutine
// until the time that the last look asked for.
func (w *worker) work() {
	for {
		w.mu.Lock()
		if !w.pending || w.shut {
			w.working = false
			w.mu.Unlock()
			return
		}
		w.pending = false
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		w.mu.Unlock()

		again, over := w.sync(ctx)

		w.mu.Lock()
		w.cancel = nil
		cancel()
		if over {
			w.shut = true
		}
		if !again.IsZero() && !w.pending && !w.shut {
			w.timer = time.AfterFunc(max(time.Until(again), 10*time.Millisecond), w.touch)
		}
		w.mu.Unlock()
		if over {
			w.a.pods.forget(w)
			if w.static && w.a.sourcesSeen() {
				w.a.removeMirrors(context.Background())
			}
		}
	}
}

// sync looks at the pod and takes steps until there is none to take. It returns
// when to look again, and whether the pod is over and done with.
func (w *worker) sync(ctx context.Context) (again time.Time, over bool) {
	if w.a.pods.elder(w) && !w.hasBegun() {
		return time.Time{}, false // touched again when the elder is forgotten
	}
	// replacing is true between the end of a container that is to be another one
	// now and the start of that: nobody should see the pod without it.
	replacing := false
	for {
		w.takeNews()
		have, err := w.a.observe(ctx, w.uid, w.known)
		if err != nil {
			if ctx.Err() == nil {
				w.a.log.Warn("pod can't be observed", "pod", w.name, "err", err)
			}
			return time.Now().Add(2 * time.Second), false
		}
		have.stalled = maps.Clone(w.stalled)
		have.probed = w.probeResults(have)
		w.last = have
		now := time.Now()
		want, orphan := w.want(now)
		if want.stop == nil && !w.admitted {
			_, span := w.begin(ctx, want.pod, "admit")
			refusal := w.admit(ctx, want.pod, have)
			span.End(refusal.err())
			if refusal != nil {
				w.end(*refusal)
				continue
			}
			w.admitted = true
		}
		if want.stop == nil {
			want.pod = w.promise(want.pod, have)
		} else {
			want.pod = w.allotted.podOf(want.pod)
		}
		if w.allotted != nil {
			have.applied = maps.Clone(w.allotted.Applied)
		}
		w.followResize(want.pod, have)
		step := next(want, have, now)
		if !replacing || step.do != doStart {
			w.report(want, have, step, now)
		}
		switch step.do {
		case doNothing:
			w.tellBackOff(want.pod, have, now)
			w.syncMirror(ctx, want.pod)
			return w.rest(ctx, want.pod, have, step, now), false
		case doFinish:
			return w.finish(ctx, want, have, orphan)
		}
		if err := w.do(ctx, want, have, step); err != nil {
			if ctx.Err() != nil {
				return time.Now(), false
			}
			w.a.log.Warn("step on a pod did not work", "pod", w.name, "step", step.do.String(), "err", err)
			return time.Now().Add(time.Second), false
		}
		if ctx.Err() != nil {
			return time.Now(), false
		}
		replacing = step.do == doKill && step.replace
	}
}

// tellBackOff tells, once for each attempt, that a container has to wait for its
// next one.
func (w *worker) tellBackOff(pod *corev1.Pod, h have, now time.Time) {
	for _, c := range containersOf(pod) {
		cur, ok := h.current(c.Name)
		if !ok || cur.state != stateExited || w.backedOff[c.Name] == cur.id || !mayRestart(pod, c, cur.exit) {
			continue
		}
		if wait, _ := h.crashWait(c, cur); now.Before(cur.finished.Add(wait)) {
			w.backedOff[c.Name] = cur.id
			w.containerEvent(pod, c.Name, corev1.EventTypeWarning, "BackOff",
				fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, pod.Name, pod.Namespace, pod.UID))
		}
	}
}

func (w *worker) hasBegun() bool { return w.admitted || len(w.known) > 0 }

// want says what is wanted of the pod now; orphan is true for one that nobody
// wants to hear of any more.
func (w *worker) want(now time.Time) (out want, orphan bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out.pod = w.pod
	switch {
	case w.vanished:
		out.stop = &stop{grace: graceOf(w.pod)}
		return out, true
	case w.asked != nil:
		out.stop = w.asked
	case w.pod.DeletionTimestamp != nil:
		out.stop = &stop{grace: graceOf(w.pod)}
	case w.pod.Status.Phase == corev1.PodFailed || w.pod.Status.Phase == corev1.PodSucceeded:
		out.stop = &stop{phase: w.pod.Status.Phase, reason: w.pod.Status.Reason, message: w.pod.Status.Message, grace: graceOf(w.pod)}
	default:
		out.stop, _ = deadline(w.pod, w.startTime(w.pod), now)
		if out.stop != nil {
			w.asked = out.stop
		}
	}
	if out.stop != nil && w.pod.DeletionTimestamp != nil {
		s := *out.stop
		s.grace = min(s.grace, graceOf(w.pod))
		out.stop = &s
	}
	return out, false
}

// startTime is when the node accepted the pod. startedAt is the goroutine's own.
func (w *worker) startTime(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return w.startedAt
}

// rest does what a pod at rest needs: probes run, volumes are kept fresh. It
// returns when to look again.
func (w *worker) rest(ctx context.Context, pod *corev1.Pod, h have, s step, now time.Time) time.Time {
	again := s.at
	if w.a.cfg.Simulated {
		if failsProbes(pod) {
			w.syncProbes(pod, h)
		}
		return again
	}
	w.syncProbes(pod, h)
	every := w.a.cfg.Kubelet.SyncFrequency.Duration
	if (w.volumes != nil || hasRunning(h)) && (w.outdated || w.volumes == nil || now.Sub(w.refreshed) >= every || !sameDownward(w.filled, pod)) {
		w.outdated, w.refreshed = false, now
		if err := w.refreshVolumes(ctx, pod); err != nil {
			w.a.log.Warn("refresh volumes", "pod", w.name, "err", err)
		}
	}
	sooner(&again, now.Add(every))
	if _, at := deadline(pod, w.startTime(pod), now); !at.IsZero() {
		sooner(&again, at)
	}
	return again
}

// sameDownward says whether what a pod's volumes tell of itself is the same for
// both, as far as it can change while the pod runs.
func sameDownward(a, b *corev1.Pod) bool {
	return a != nil && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(resourcesOf(a), resourcesOf(b))
}

func resourcesOf(pod *corev1.Pod) []corev1.ResourceRequirements {
	var out []corev1.ResourceRequirements
	for _, c := range containersOf(pod) {
		out = append(out, c.Resources)
	}
	return out
}

func hasRunning(h have) bool {
	for _, all := range h.containers {
		for _, c := range all {
			if c.state == stateRunning {
				return true
			}
		}
	}
	return false
}
