package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// statusWriter brings pods' statuses to the API: the latest of each pod, and
// only when it changed. A static pod's goes to its mirror.
type statusWriter struct {
	a *Agent

	mu      sync.Mutex // protects the fields below
	entries map[types.UID]*statusEntry
	dirty   []types.UID
	awake   chan struct{} // one slot
}

type statusEntry struct {
	pod    *corev1.Pod // as last seen in its source
	status *corev1.PodStatus
	sent   *corev1.PodStatus
	sentAt string    // resourceVersion that sending it made
	mirror types.UID // of the mirror that sent went to
	queued bool
	delete bool // take the pod out of the API after the status
}

func newStatusWriter(a *Agent) *statusWriter {
	return &statusWriter{a: a, entries: map[types.UID]*statusEntry{}, awake: make(chan struct{}, 1)}
}

// set notes a pod's status; it returns at once.
func (s *statusWriter) set(pod *corev1.Pod, st *corev1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[pod.UID]
	if e == nil {
		e = &statusEntry{}
		s.entries[pod.UID] = e
	}
	e.pod = pod
	if e.status != nil && isOver(e.status) && !isOver(st) {
		st.Phase, st.Reason, st.Message = e.status.Phase, e.status.Reason, e.status.Message // no way back
	}
	e.status = st
	base := e.sent
	if base == nil {
		base = &pod.Status
	}
	if !equality.Semantic.DeepEqual(base, st) || isStatic(pod) {
		s.queue(pod.UID, e)
	}
}

func isOver(st *corev1.PodStatus) bool {
	return st.Phase == corev1.PodFailed || st.Phase == corev1.PodSucceeded
}

// deleteAfterward has the pod taken out of the API once its status is there.
func (s *statusWriter) deleteAfterward(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[pod.UID]; e != nil {
		e.delete, e.pod = true, pod
		s.queue(pod.UID, e)
	}
}

// resend has a static pod's status written again, to a new mirror.
func (s *statusWriter) resend(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[uid]; e != nil {
		s.queue(uid, e)
	}
}

func (s *statusWriter) queue(uid types.UID, e *statusEntry) {
	if e.queued {
		return
	}
	e.queued = true
	s.dirty = append(s.dirty, uid)
	select {
	case s.awake <- struct{}{}:
	default:
	}
}

// latest is the status last set; it must not be changed.
func (s *statusWriter) latest(uid types.UID) *corev1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[uid]; e != nil {
		return e.status
	}
	return nil
}

func (s *statusWriter) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, uid)
}

// run writes what is dirty until ctx ends. What fails is tried again a moment
// later, together with what came up meanwhile.
func (s *statusWriter) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.awake:
		}
		for ctx.Err() == nil {
			uid, ok := s.pop()
			if !ok {
				break
			}
			if err := s.write(ctx, uid); err != nil && ctx.Err() == nil {
				s.a.log.Debug("pod status not written", "uid", uid, "err", err)
				time.AfterFunc(time.Second, func() { s.resend(uid) })
			}
		}
	}
}

func (s *statusWriter) pop() (types.UID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirty) == 0 {
		return "", false
	}
	uid := s.dirty[0]
	s.dirty = s.dirty[1:]
	if e := s.entries[uid]; e != nil {
		e.queued = false
	}
	return uid, true
}

// write patches one pod's status, and deletes the pod if that is due.
func (s *statusWriter) write(ctx context.Context, uid types.UID) error {
	s.mu.Lock()
	e := s.entries[uid]
	if e == nil {
		s.mu.Unlock()
		return nil
	}
	local, status, gone := e.pod, e.status.DeepCopy(), e.delete
	base, mirrored := e.sent, e.mirror
	s.mu.Unlock()

	target := local
	if isStatic(local) {
		if target = s.a.pods.mirror(fullName(local)); target == nil {
			return nil // there is no mirror yet; making one brings us back
		}
		if mirrored != target.UID {
			base = nil
		}
		// The mirror's own generation is what its readers compare with.
		status.ObservedGeneration = target.Generation
		for i := range status.Conditions {
			status.Conditions[i].ObservedGeneration = target.Generation
		}
	}
	if base == nil {
		base = &target.Status
	}
	pods := s.a.clients.CoreV1().Pods(target.Namespace)
	before, after := ours(base), ours(status)
	if !equality.Semantic.DeepEqual(before, after) {
		patch, err := statusPatch(target.UID, before, after)
		if err != nil {
			return err
		}
		made, err := pods.Patch(ctx, target.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // deleted, or another pod of that name
		}
		if err != nil {
			return fmt.Errorf("patch status of %s: %w", fullName(target), err)
		}
		s.mu.Lock()
		if e := s.entries[uid]; e != nil {
			e.sent, e.sentAt, e.mirror = status, made.ResourceVersion, target.UID
		}
		s.mu.Unlock()
	}
	if !gone {
		return nil
	}
	var now int64
	err := pods.Delete(ctx, target.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &target.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// observe compares what the API has of a pod (of a static pod's mirror) with what
// was last sent. Somebody else may have written what is ours to say: the node
// controller does, when it takes the node for dead. Then it is said again.
func (s *statusWriter) observe(uid types.UID, seen *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || e.sent == nil || e.mirror != seen.UID || !isOursChanged(e.sent, &seen.Status) {
		return
	}
	if order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, e.sentAt); err == nil && order < 0 {
		return // from before our last word
	}
	e.sent = seen.Status.DeepCopy()
	time.AfterFunc(contradictAfter, func() { s.resend(uid) })
}

// contradictAfter keeps us and the node controller from talking past each other
// while the node is in fact not ready.
const contradictAfter = time.Second

// isOursChanged looks at the conditions that only a node agent sets, and the
// phase.
func isOursChanged(sent, seen *corev1.PodStatus) bool {
	if sent.Phase != seen.Phase {
		return true
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodReadyToStartContainers} {
		if conditionStatus(sent, kind) != conditionStatus(seen, kind) {
			return true
		}
	}
	return false
}

func conditionStatus(st *corev1.PodStatus, kind corev1.PodConditionType) corev1.ConditionStatus {
	for i := range st.Conditions {
		if st.Conditions[i].Type == kind {
			return st.Conditions[i].Status
		}
	}
	return ""
}

// ours is the part of a status that the node agent tells. The rest is others':
// what they wrote since the agent last looked must not be overwritten with what
// it saw then.
func ours(st *corev1.PodStatus) *corev1.PodStatus {
	out := st.DeepCopy()
	out.Conditions = slices.DeleteFunc(out.Conditions, func(c corev1.PodCondition) bool { return !isOurs(&c) })
	out.NominatedNodeName, out.ResourceClaimStatuses, out.ExtendedResourceClaimStatus = "", nil, nil
	return out
}

func isOurs(c *corev1.PodCondition) bool {
	switch c.Type {
	case corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
		corev1.PodResizePending, corev1.PodResizeInProgress:
		return true
	case corev1.DisruptionTarget:
		return c.Reason == corev1.PodReasonTerminationByKubelet
	}
	return false
}

// statusPatch is the difference between two statuses, for the pod with uid
// only.
func statusPatch(uid types.UID, from, to *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: *from})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *to})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}
