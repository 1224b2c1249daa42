package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A pod may ask for other resources while it runs. It goes like this: the node
// promises them when there is room (promise), and the promise is carried out:
// in running containers where their policy allows it, else by a restart. The
// pod's conditions tell which of the two has not happened yet.

// resizing is where a pod's resize stands.
type resizing struct {
	pending    string // why what is asked for was not promised: the message
	generation int64  // of the pod that was promised, or refused
	underWay   bool   // the promise is not carried out
	failed     string // why it could not be carried out
}

// stalledResize is the name under which failures of a resize are noted; no
// container can have it.
const stalledResize = "/resize"

// promise settles what the pod may have, and returns the pod as if it asked for
// just that.
func (w *worker) promise(pod *corev1.Pod, h have) *corev1.Pod {
	if w.allotted == nil {
		w.recallPromise(pod, h)
	}
	if !w.allotted.fits(pod) && !w.static {
		w.considerResize(pod)
	} else {
		w.resizing.pending = ""
	}
	promised := w.allotted.podOf(pod)
	w.mu.Lock()
	w.promised = promised
	w.mu.Unlock()
	return promised
}

// recallPromise takes over what a former agent promised, or else takes what the
// pod asks for as promised: it was just admitted with that.
func (w *worker) recallPromise(pod *corev1.Pod, h have) {
	if !w.a.cfg.Simulated && len(h.sandboxes) > 0 && !w.static {
		al, err := w.a.readAllotment(pod)
		if err != nil {
			w.a.log.Warn("what the pod was promised can't be read", "pod", w.name, "err", err)
		}
		w.allotted = al
	}
	if w.allotted != nil {
		return
	}
	w.allotted = allot(pod)
	for _, c := range containersOf(pod) {
		if cur, ok := h.current(c.Name); ok {
			w.allotted.applied(cur.id, sizeOf(pod, c), h)
		}
	}
}

// considerResize promises what the pod asks for now if there is room for it.
func (w *worker) considerResize(pod *corev1.Pod) {
	w.a.rooms.Lock()
	_, full := w.room(pod)
	if full == "" {
		al := allot(pod)
		al.Applied = w.allotted.Applied
		w.allotted = al
		w.mu.Lock()
		w.promised = pod // counts for others from now on
		w.mu.Unlock()
	}
	w.a.rooms.Unlock()
	if full != "" {
		if w.resizing.pending == "" || w.resizing.generation != pod.Generation {
			w.event(pod, corev1.EventTypeWarning, "ResizeDeferred", resizeText("Pod resize "+corev1.PodReasonDeferred, pod, full))
		}
		w.resizing.pending, w.resizing.generation = full, pod.Generation
		return
	}
	w.resizing = resizing{generation: pod.Generation, underWay: true}
	delete(w.stalled, stalledResize)
	delete(w.failures, stalledResize)
	w.event(pod, corev1.EventTypeNormal, "ResizeStarted", resizeText("Pod resize started", pod, ""))
	if err := w.a.writeAllotment(pod, w.allotted); err != nil {
		w.a.log.Warn("what the pod was promised can't be written", "pod", w.name, "err", err)
	}
	w.a.pods.retryResizes()
}

// retryResizes has those pods try again that asked for more than there was.
func (s *podSet) retryResizes() {
	for _, w := range s.all() {
		w.mu.Lock()
		waits := w.promised != nil && w.promised != w.pod && !w.finished
		w.mu.Unlock()
		if waits {
			w.touch()
		}
	}
}

// followResize notes whether the promise is carried out, and tells when that
// comes true.
func (w *worker) followResize(pod *corev1.Pod, h have) {
	done := !h.isUnsized(pod)
	if done && w.resizing.underWay {
		w.event(pod, corev1.EventTypeNormal, "ResizeCompleted", resizeText("Pod resize completed", pod, ""))
	}
	w.resizing.underWay = !done
	w.resizing.failed = ""
	if st, ok := h.stalled[stalledResize]; ok && !done {
		w.resizing.failed = st.message
	}
}

// unsized are the running containers that have other resources than they were
// promised.
func (h have) unsized(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for _, c := range containersOf(pod) {
		if isEphemeral(pod, c.Name) {
			continue
		}
		cur, ok := h.current(c.Name)
		if !ok || cur.state != stateRunning {
			continue // it gets them when it starts
		}
		if applied, known := h.applied[cur.id]; known && !sameSize(applied, sizeOf(pod, c)) {
			out = append(out, c)
		}
	}
	return out
}

// isUnsized says whether a promise is not carried out, for a container or for
// the pod as a whole.
func (h have) isUnsized(pod *corev1.Pod) bool {
	if applied, known := h.applied[wholePod]; known && pod.Spec.Resources != nil && len(h.containers) > 0 && !sameSize(applied, *pod.Spec.Resources) {
		return true
	}
	return len(h.unsized(pod)) > 0
}

var sizes = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// sameSize compares what can be changed while a container runs.
func sameSize(a, b corev1.ResourceRequirements) bool {
	for _, name := range sizes {
		if !sameQuantity(a, b, name) {
			return false
		}
	}
	return true
}

func sameQuantity(a, b corev1.ResourceRequirements, name corev1.ResourceName) bool {
	equal := func(x, y corev1.ResourceList) bool { p, q := x[name], y[name]; return p.Cmp(q) == 0 }
	return equal(a.Requests, b.Requests) && equal(a.Limits, b.Limits)
}

// resizeRestarts says whether c has to be restarted to get what it was promised.
func (h have) resizeRestarts(pod *corev1.Pod, c *corev1.Container, cur containerStatus) bool {
	applied, known := h.applied[cur.id]
	if !known {
		return false
	}
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer && !sameQuantity(applied, sizeOf(pod, c), p.ResourceName) {
			return true
		}
	}
	return false
}

// applySize brings running containers to what they were promised. The pod's
// cgroup is widened before and narrowed after its containers.
func (w *worker) applySize(ctx context.Context, pod *corev1.Pod, h have, containers []*corev1.Container) error {
	if err := w.checkShrink(ctx, pod, h, containers); err != nil {
		return err
	}
	if w.a.cgroups != nil {
		if err := w.a.cgroups.widen(pod, w.a.podResources(w.sizedAs(pod, h))); err != nil {
			return fmt.Errorf("resize cgroup of the pod: %w", err)
		}
	}
	for _, c := range containers {
		cur, _ := h.current(c.Name)
		want := w.a.containerResources(pod, c)
		if err := w.a.cfg.Runtime.UpdateContainerResources(ctx, cur.id, &runtimeapi.ContainerResources{Linux: want}); err != nil {
			return fmt.Errorf("resize container %s: %s", c.Name, grpcText(err))
		}
		w.allotted.applied(cur.id, sizeOf(pod, c), h)
	}
	if pod.Spec.Resources != nil {
		w.allotted.applied(wholePod, *pod.Spec.Resources, h)
	}
	if err := w.a.writeAllotment(pod, w.allotted); err != nil {
		return err
	}
	if w.a.cgroups != nil {
		return w.a.cgroups.ensure(pod)
	}
	return nil
}

// checkShrink refuses to take away memory that is in use now: the kernel would
// kill for it. More may come into use before the limit is set; nothing helps
// against that.
func (w *worker) checkShrink(ctx context.Context, pod *corev1.Pod, h have, containers []*corev1.Container) error {
	shrinks := func(from, to int64) bool { return to > 0 && (from == 0 || to < from) }
	limits := map[string]int64{} // by container id
	for _, c := range containers {
		cur, _ := h.current(c.Name)
		from := h.applied[cur.id].Limits[corev1.ResourceMemory]
		to := sizeOf(pod, c).Limits[corev1.ResourceMemory]
		if shrinks(from.Value(), to.Value()) {
			limits[cur.id] = to.Value()
		}
	}
	whole := w.a.podResources(pod).MemoryLimitInBytes
	wholeShrinks := shrinks(w.a.podResources(w.sizedAs(pod, h)).MemoryLimitInBytes, whole)
	if !wholeShrinks && len(limits) == 0 {
		return nil
	}
	sb, _ := h.sandbox()
	stats, err := w.a.cfg.Runtime.PodSandboxStats(ctx, sb.id)
	if err != nil {
		return fmt.Errorf("cannot decrease memory limits: usage of the pod: %s", grpcText(err))
	}
	var errs []error
	if used := stats.GetLinux().GetMemory().GetUsageBytes().GetValue(); wholeShrinks && used >= uint64(whole) {
		errs = append(errs, fmt.Errorf("attempting to set pod memory limit (%d) below current usage (%d)", whole, used))
	}
	for _, c := range stats.GetLinux().GetContainers() {
		limit, ok := limits[c.GetAttributes().GetId()]
		if used := c.GetMemory().GetUsageBytes().GetValue(); ok && used >= uint64(limit) {
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)",
				c.GetAttributes().GetMetadata().GetName(), limit, used))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("cannot decrease memory limits: %w", utilerrors.NewAggregate(errs))
	}
	return nil
}

// sizedAs is the pod as if it asked for what its containers have.
func (w *worker) sizedAs(pod *corev1.Pod, h have) *corev1.Pod {
	pod = pod.DeepCopy()
	if whole, known := h.applied[wholePod]; known {
		pod.Spec.Resources = whole.DeepCopy()
	}
	for _, c := range containersOf(pod) {
		if cur, ok := h.current(c.Name); ok {
			if applied, known := h.applied[cur.id]; known {
				c.Resources = applied
			}
		}
	}
	return pod
}

// resizeConditions are the pod's conditions that tell of a resize.
func (r resizing) conditions(pod *corev1.Pod) []corev1.PodCondition {
	var out []corev1.PodCondition
	if r.pending != "" {
		out = append(out, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: r.pending})
	}
	if r.underWay {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if r.failed != "" {
			c.Reason, c.Message = corev1.PodReasonError, r.failed
		}
		out = append(out, c)
	}
	for i := range out {
		if out[i].ObservedGeneration = r.generation; r.generation == 0 {
			out[i].ObservedGeneration = pod.Generation
		}
	}
	return out
}

// reportResources tells what a container was promised and what it has. A limit
// that is the pod's is told with the pod.
func reportResources(c *corev1.Container, h have, cur containerStatus, st *corev1.ContainerStatus) {
	st.AllocatedResources = c.Resources.Requests.DeepCopy()
	st.Resources = c.Resources.DeepCopy()
	st.Resources.Claims = nil
	applied, known := h.applied[cur.id]
	if cur.state != stateRunning || !known {
		return
	}
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity, ok bool) {
		if !ok {
			delete(*list, name)
			return
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q
	}
	for _, name := range sizes {
		q, ok := applied.Requests[name]
		set(&st.Resources.Requests, name, q, ok)
		if _, own := c.Resources.Limits[name]; own {
			q, ok = applied.Limits[name]
			set(&st.Resources.Limits, name, q, ok)
		}
	}
}

// reportMounts tells how a container's volumes are mounted.
func reportMounts(c *corev1.Container, st *corev1.ContainerStatus) {
	for _, m := range c.VolumeMounts {
		vm := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			vm.RecursiveReadOnly = &mode
		}
		st.VolumeMounts = append(st.VolumeMounts, vm)
	}
}

// resizeText is the message of an event about a resize: what is asked for, for
// machines to read.
func resizeText(what string, pod *corev1.Pod, failure string) string {
	type container struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	}
	summary := struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{Generation: pod.Generation, Error: failure}
	for _, c := range pod.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, container{c.Name, c.Resources})
	}
	for _, c := range pod.Spec.Containers {
		summary.Containers = append(summary.Containers, container{c.Name, c.Resources})
	}
	data, err := json.Marshal(summary)
	if err != nil {
		return what
	}
	return what + ": " + string(data)
}
