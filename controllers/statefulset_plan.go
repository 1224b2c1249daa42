package controllers

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"orrery.dev/api"
)

// statefulVersion is a template and the name of its revision.
type statefulVersion struct {
	name     string
	template *corev1.PodTemplateSpec
}

// statefulPlan decides what a StatefulSet does next.
type statefulPlan struct {
	set             *appsv1.StatefulSet
	current, update statefulVersion
	collisions      *int32
	now             time.Time
	row             []*corev1.Pod // wanted numbers from the first on; nil where there is no pod yet
	surplus         []*corev1.Pod // numbers outside, the highest first
}

type statefulDo int

const (
	statefulCreate statefulDo = iota
	statefulDelete
	statefulRepair
	statefulClaims
)

// statefulStep is one action. Steps are taken in order, and the next plan starts
// from what they have changed.
type statefulStep struct {
	do     statefulDo
	pod    *corev1.Pod
	reason string // of an event, if any
}

func (p *statefulPlan) sortPods(pods []*corev1.Pod) {
	first := firstOrdinal(p.set)
	p.row = make([]*corev1.Pod, *p.set.Spec.Replicas)
	for _, pod := range pods {
		n, ok := ordinalOf(p.set, pod.Name)
		if !ok {
			continue
		}
		if i := n - first; i >= 0 && i < len(p.row) {
			p.row[i] = pod
		} else {
			p.surplus = append(p.surplus, pod)
		}
	}
	slices.SortFunc(p.surplus, func(a, b *corev1.Pod) int {
		x, _ := ordinalOf(p.set, a.Name)
		y, _ := ordinalOf(p.set, b.Name)
		return y - x
	})
}

// made takes in a pod that was just created, for the status.
func (p *statefulPlan) made(pod *corev1.Pod) {
	if n, ok := ordinalOf(p.set, pod.Name); ok {
		if i := n - firstOrdinal(p.set); i >= 0 && i < len(p.row) && p.row[i] == nil {
			p.row[i] = pod
		}
	}
}

func (p *statefulPlan) inOrder() bool {
	return p.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

func (p *statefulPlan) available(pod *corev1.Pod) bool {
	if pod == nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	ok, _ := podAvailable(pod, p.set.Spec.MinReadySeconds, p.now)
	return ok
}

func (p *statefulPlan) healthy(pod *corev1.Pod) bool {
	return p.available(pod) && pod.DeletionTimestamp == nil
}

// steps returns what can be done now: in order, one pod at a time unless the set
// is parallel; first the wanted pods from below, then the surplus from above,
// then the rollout from above.
func (p *statefulPlan) steps() []statefulStep {
	var steps []statefulStep
	for i, pod := range p.row {
		more, wait := p.fill(i, pod)
		steps = append(steps, more...)
		if wait && p.inOrder() {
			return steps
		}
	}
	shrink, wait := p.shrink()
	steps = append(steps, shrink...)
	if wait {
		return steps
	}
	return append(steps, p.rollOut()...)
}

// fill looks at one place of the row: what to do, and whether an ordered set has
// to wait here.
func (p *statefulPlan) fill(i int, pod *corev1.Pod) (steps []statefulStep, wait bool) {
	ordinal := firstOrdinal(p.set) + i
	switch {
	case pod == nil:
		return []statefulStep{{do: statefulCreate, pod: statefulPod(p.set, p.versionFor(i), ordinal)}}, true
	case api.IsPodTerminal(pod):
		if pod.DeletionTimestamp != nil {
			return nil, true
		}
		return []statefulStep{{do: statefulDelete, pod: pod, reason: "RecreatingFailedPod"}}, true
	case pod.DeletionTimestamp != nil:
		return nil, true
	}
	if !identified(p.set, pod, ordinal) {
		repaired := pod.DeepCopy()
		if repaired.Labels == nil {
			repaired.Labels = map[string]string{}
		}
		identify(p.set, repaired, ordinal)
		steps = append(steps, statefulStep{do: statefulRepair, pod: repaired})
	}
	if len(p.set.Spec.VolumeClaimTemplates) > 0 {
		steps = append(steps, statefulStep{do: statefulClaims, pod: pod})
	}
	return steps, !p.available(pod)
}

// versionFor is the version in which a missing pod is made: the old one where
// the rollout has not come yet.
func (p *statefulPlan) versionFor(i int) statefulVersion {
	s := p.set.Spec.UpdateStrategy
	if s.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		return p.update
	}
	border := int(p.set.Status.CurrentReplicas)
	if s.RollingUpdate != nil && s.RollingUpdate.Partition != nil {
		border = int(*s.RollingUpdate.Partition)
	}
	if i < border {
		return p.current
	}
	return p.update
}

// shrink deletes surplus pods. An ordered set waits until everything else is
// healthy, save for the lowest pod that is not, which may be why it is shrunk.
func (p *statefulPlan) shrink() (steps []statefulStep, wait bool) {
	sick := p.lowestSick()
	for _, pod := range p.surplus {
		if pod.DeletionTimestamp != nil {
			if p.inOrder() {
				return steps, true
			}
			continue
		}
		if p.inOrder() && !p.available(pod) && pod != sick {
			return steps, true
		}
		if len(p.set.Spec.VolumeClaimTemplates) > 0 {
			steps = append(steps, statefulStep{do: statefulClaims, pod: pod})
		}
		steps = append(steps, statefulStep{do: statefulDelete, pod: pod})
		if p.inOrder() {
			return steps, true
		}
	}
	return steps, false
}

func (p *statefulPlan) lowestSick() *corev1.Pod {
	for _, pod := range p.row {
		if pod != nil && !p.healthy(pod) {
			return pod
		}
	}
	for _, pod := range slices.Backward(p.surplus) {
		if !p.healthy(pod) {
			return pod
		}
	}
	return nil
}

// rollOut deletes pods of an old version, the highest first, down to the
// partition, with no more than maxUnavailable away at a time.
func (p *statefulPlan) rollOut() []statefulStep {
	s := p.set.Spec.UpdateStrategy
	if s.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		return nil
	}
	lowest, budget := 0, 1
	if s.RollingUpdate != nil {
		if s.RollingUpdate.Partition != nil {
			lowest = int(*s.RollingUpdate.Partition)
		}
		if m := s.RollingUpdate.MaxUnavailable; m != nil {
			if n, err := intstr.GetScaledValueFromIntOrPercent(m, len(p.row), true); err == nil {
				budget = max(n, 1)
			}
		}
	}
	var steps []statefulStep
	for i := len(p.row) - 1; i >= lowest && budget > 0; i-- {
		pod := p.row[i]
		switch {
		case pod == nil:
			budget--
		case revisionLabel(pod) != p.update.name && pod.DeletionTimestamp == nil:
			steps = append(steps, statefulStep{do: statefulDelete, pod: pod})
			budget--
		case !p.healthy(pod):
			budget--
		}
	}
	return steps
}

// status adds up the pods, and says when that changes by itself.
func (p *statefulPlan) status() (appsv1.StatefulSetStatus, time.Duration) {
	s := appsv1.StatefulSetStatus{
		ObservedGeneration: p.set.Generation, CollisionCount: p.collisions, Conditions: p.set.Status.Conditions,
		CurrentRevision: p.current.name, UpdateRevision: p.update.name,
	}
	if s.CollisionCount == nil {
		s.CollisionCount = new(int32)
	}
	var again time.Duration
	for _, pod := range append(slices.Clone(p.row), p.surplus...) {
		if pod == nil {
			continue
		}
		s.Replicas++
		if pod.Status.Phase == corev1.PodRunning && api.IsPodReady(pod) {
			s.ReadyReplicas++
			ok, left := podAvailable(pod, p.set.Spec.MinReadySeconds, p.now)
			if ok {
				s.AvailableReplicas++
			}
			again = sooner(again, left)
		}
		if pod.DeletionTimestamp != nil || api.IsPodTerminal(pod) {
			continue
		}
		if revisionLabel(pod) == p.current.name {
			s.CurrentReplicas++
		}
		if revisionLabel(pod) == p.update.name {
			s.UpdatedReplicas++
		}
	}
	if p.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.CurrentRevision != s.UpdateRevision &&
		s.UpdatedReplicas == s.Replicas && s.ReadyReplicas == s.Replicas && s.Replicas == *p.set.Spec.Replicas {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
	return s, again
}
