package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"orrery.dev/api"
)

// podTerminating says whether a pod has been asked to stop and has not yet.
func podTerminating(pod *corev1.Pod) bool {
	return !api.IsPodTerminal(pod) && pod.DeletionTimestamp != nil
}

// podAvailable says whether a pod has been ready for minReady, and if not yet,
// how long it still takes (0 when that is not a matter of time).
func podAvailable(pod *corev1.Pod, minReady int32, now time.Time) (bool, time.Duration) {
	if !api.IsPodReady(pod) {
		return false, 0
	}
	if minReady == 0 {
		return true, 0
	}
	since := api.PodCondition(pod, corev1.PodReady).LastTransitionTime
	if since.IsZero() {
		return false, 0
	}
	left := since.Add(time.Duration(minReady) * time.Second).Sub(now)
	return left <= 0, max(left, 0)
}

// claimsOf returns the keys of the PersistentVolumeClaims that a pod uses.
func claimsOf(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, pod.Namespace+"/"+pod.Name+"-"+v.Name)
		}
	}
	return out
}

// podFrom makes the pod that a template describes, owned by owner.
func podFrom(template *corev1.PodTemplateSpec, namespace, prefix string, owner metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       namespace,
			GenerateName:    prefix,
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			Finalizers:      slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// podMaker creates and deletes the pods of one kind of owner, with the events
// that kubectl describe shows, and notes both as the controller's own writes.
type podMaker struct {
	*env
	events record.EventRecorder
	own    *writes
}

// create makes one pod for the owner.
func (m *podMaker) create(ctx context.Context, owner runtime.Object, key string, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := m.clients.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			m.events.Eventf(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		}
		return nil, err
	}
	m.own.made(key, m.pods().GetIndexer(), created)
	m.events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", created.Name)
	return created, nil
}

// delete deletes one pod of the owner, if it is still the same pod.
func (m *podMaker) delete(ctx context.Context, owner runtime.Object, key string, pod *corev1.Pod) error {
	err := m.clients.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: sameObject(pod)})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		m.own.deleted(key, m.pods().GetIndexer(), pod)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		m.events.Eventf(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return fmt.Errorf("unable to delete pods: %w", err)
	}
	m.events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", pod.Name)
	return nil
}

// sameObject is the precondition that a name still means the object that the
// cache showed.
func sameObject(o metav1.Object) *metav1.Preconditions {
	uid := o.GetUID()
	if uid == "" {
		return nil
	}
	return &metav1.Preconditions{UID: &uid}
}

// slowStart calls do n times in growing batches, so that a quota or an admission
// webhook that refuses all is met with one request instead of hundreds. It
// returns how many calls succeeded, and the first error.
func slowStart(n int, do func(i int) error) (int, error) {
	done := 0
	for batch := 1; done < n; batch *= 2 {
		size := min(batch, n-done)
		errs := parallel(size, func(i int) error { return do(done + i) })
		for _, err := range errs {
			if err != nil {
				return done + size - countErrors(errs), err
			}
		}
		done += size
	}
	return done, nil
}

func countErrors(errs []error) int {
	n := 0
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

// parallel calls do for 0..n-1 at the same time and waits for all.
func parallel(n int, do func(i int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errs
}

// deletionOrder sorts pods so that those which are least missed come first:
// unassigned, pending, not ready, cheap by annotation, doubled up on a node,
// ready for a short time, often restarted, young. sharing is the number of
// related pods on each pod's node.
func deletionOrder(pods []*corev1.Pod, sharing map[string]int, now time.Time) {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			phaseRank(a.Status.Phase)-phaseRank(b.Status.Phase),
			falseFirst(api.IsPodReady(a), api.IsPodReady(b)),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			sharing[b.Spec.NodeName]-sharing[a.Spec.NodeName],
			youngFirst(readySince(a), readySince(b), now),
			restarts(b)-restarts(a),
			youngFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, now),
		)
	})
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func phaseRank(phase corev1.PodPhase) int {
	switch phase {
	case corev1.PodPending:
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

func deletionCost(pod *corev1.Pod) int32 {
	n, err := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func readySince(pod *corev1.Pod) time.Time {
	if c := api.PodCondition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func restarts(pod *corev1.Pod) int {
	most := int32(0)
	for _, c := range pod.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	for _, c := range pod.Status.InitContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return int(most)
}

// youngFirst compares ages by order of magnitude, so that pods of about the same
// age are picked evenly rather than always the newest.
func youngFirst(a, b time.Time, now time.Time) int {
	switch {
	case a.Equal(b):
		return 0
	case a.IsZero():
		return -1
	case b.IsZero():
		return 1
	}
	return cmp.Compare(magnitude(now.Sub(a)), magnitude(now.Sub(b)))
}

func magnitude(age time.Duration) int64 {
	if age <= 0 {
		return 0
	}
	return int64(math.Log2(float64(age.Nanoseconds())))
}

// selectorOf is a parsed label selector; a bad one selects nothing and says so.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("selector: %w", err)
	}
	return sel, nil
}
