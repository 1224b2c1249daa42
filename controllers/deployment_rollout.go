package controllers

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// Annotations that the Deployment controller keeps on ReplicaSets.
const (
	annotationRevision = "deployment.kubernetes.io/revision"
	annotationHistory  = "deployment.kubernetes.io/revision-history"
	annotationDesired  = "deployment.kubernetes.io/desired-replicas"
	annotationMax      = "deployment.kubernetes.io/max-replicas"
)

// setSize is a decision: set is to have so many replicas.
type setSize struct {
	set      *appsv1.ReplicaSet
	replicas int32
}

func numberIn(rs *appsv1.ReplicaSet, annotation string) (int32, bool) {
	n, err := strconv.ParseInt(rs.Annotations[annotation], 10, 32)
	return int32(n), err == nil
}

// setSizes notes the Deployment's size on a set, and says whether that changed
// anything.
func setSizes(rs *appsv1.ReplicaSet, desired, most int32) bool {
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	changed := false
	for name, n := range map[string]int32{annotationDesired: desired, annotationMax: most} {
		if v := strconv.Itoa(int(n)); rs.Annotations[name] != v {
			rs.Annotations[name] = v
			changed = true
		}
	}
	return changed
}

// active returns the sets that want pods.
func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, rs := range sets {
		if rs != nil && *rs.Spec.Replicas > 0 {
			out = append(out, rs)
		}
	}
	return out
}

// wantedPods adds up what the sets ask for, livingPods what they have.
func wantedPods(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += *rs.Spec.Replicas
	}
	return n
}

func livingPods(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += rs.Status.Replicas
	}
	return n
}

func availablePods(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += rs.Status.AvailableReplicas
	}
	return n
}

// rollUp is the size of the newest set: as large as the surge allows.
func rollUp(r *rollout) int32 {
	have, want := *r.newest.Spec.Replicas, *r.d.Spec.Replicas
	if have >= want {
		return want
	}
	return newestSize(r.d, r.all(), have)
}

// newestSize is the size that a set of have replicas may grow to beside the
// other sets.
func newestSize(d *appsv1.Deployment, all []*appsv1.ReplicaSet, have int32) int32 {
	want := *d.Spec.Replicas
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return want
	}
	room := want + maxSurge(d) - wantedPods(all)
	if room <= 0 {
		return have
	}
	return have + min(room, want-have)
}

// rollDown shrinks old sets as far as availability allows: first by pods that
// are not available anyway, then by available ones.
func rollDown(r *rollout) []setSize {
	olds := oldestFirst(active(r.old))
	if len(olds) == 0 {
		return nil
	}
	least := *r.d.Spec.Replicas - maxUnavailable(r.d)
	missing := *r.newest.Spec.Replicas - r.newest.Status.AvailableReplicas
	spare := wantedPods(r.all()) - least - missing
	if spare <= 0 {
		return nil
	}
	sizes := map[*appsv1.ReplicaSet]int32{}
	for _, rs := range olds {
		sizes[rs] = *rs.Spec.Replicas
		if sick := sizes[rs] - rs.Status.AvailableReplicas; sick > 0 && spare > 0 {
			cut := min(sick, spare)
			sizes[rs] -= cut
			spare -= cut
		}
	}
	extra := availablePods(r.all()) - least
	for _, rs := range olds {
		if cut := min(sizes[rs], extra); cut > 0 {
			sizes[rs] -= cut
			extra -= cut
		}
	}
	var out []setSize
	for _, rs := range olds {
		if sizes[rs] != *rs.Spec.Replicas {
			out = append(out, setSize{rs, sizes[rs]})
		}
	}
	return out
}

// scaleSets resizes the sets after the Deployment itself was resized. In the
// middle of a rollout the change is spread over the active sets in proportion to
// their sizes, so that no version loses its share.
func scaleSets(r *rollout) []setSize {
	want := *r.d.Spec.Replicas
	if only, ok := activeOrLatest(r); ok {
		if only == nil || *only.Spec.Replicas == want {
			return nil
		}
		return []setSize{{only, want}}
	}
	if saturated(r.d, r.newest) {
		var out []setSize
		for _, rs := range active(r.old) {
			out = append(out, setSize{rs, 0})
		}
		return out
	}
	if r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return nil
	}
	return proportional(r.d, active(r.all()))
}

// activeOrLatest returns the one set that can take the whole change: the only
// active one, or the latest if none is; ok is false when there are several.
func activeOrLatest(r *rollout) (only *appsv1.ReplicaSet, ok bool) {
	switch act := active(r.all()); len(act) {
	case 0:
		if r.newest != nil {
			return r.newest, true
		}
		if len(r.old) == 0 {
			return nil, true
		}
		sorted := oldestFirst(r.old)
		return sorted[len(sorted)-1], true
	case 1:
		return act[0], true
	}
	return nil, false
}

func saturated(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	if rs == nil {
		return false
	}
	want := *d.Spec.Replicas
	desired, ok := numberIn(rs, annotationDesired)
	return ok && desired == want && *rs.Spec.Replicas == want && rs.Status.AvailableReplicas == want
}

func proportional(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) []setSize {
	var allowed int32
	if *d.Spec.Replicas > 0 {
		allowed = *d.Spec.Replicas + maxSurge(d)
	}
	add := allowed - wantedPods(sets)
	bySize(sets, add > 0)
	var added int32
	out := make([]setSize, len(sets))
	for i, rs := range sets {
		share := shareOf(d, rs, add-added)
		if add == 0 {
			share = 0
		}
		out[i] = setSize{rs, *rs.Spec.Replicas + share}
		added += share
	}
	if len(out) > 0 && add != 0 { // rounding leaves a rest for the largest set
		out[0].replicas = max(out[0].replicas+add-added, 0)
	}
	return out
}

// shareOf is the part of rest that falls to a set.
func shareOf(d *appsv1.Deployment, rs *appsv1.ReplicaSet, rest int32) int32 {
	if rest == 0 || *rs.Spec.Replicas == 0 {
		return 0
	}
	fraction := fractionOf(d, rs)
	if rest > 0 {
		return min(fraction, rest)
	}
	return max(fraction, rest)
}

// fractionOf is how much a set would grow if it kept its share of the whole.
func fractionOf(d *appsv1.Deployment, rs *appsv1.ReplicaSet) int32 {
	if *d.Spec.Replicas == 0 {
		return -*rs.Spec.Replicas
	}
	before, ok := numberIn(rs, annotationMax)
	if !ok || before == 0 {
		if before = d.Status.Replicas; before == 0 {
			return 0
		}
	}
	size := float64(*rs.Spec.Replicas) * float64(*d.Spec.Replicas+maxSurge(d)) / float64(before)
	return int32(math.Round(size)) - *rs.Spec.Replicas
}

// bySize sorts sets from large to small; equal ones by age.
func bySize(sets []*appsv1.ReplicaSet, newerFirst bool) {
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		age := byAge(a, b)
		if newerFirst {
			age = -age
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), age)
	})
}

func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

func oldestFirst(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	sorted := slices.Clone(sets)
	slices.SortFunc(sorted, byAge)
	return sorted
}

// expendable returns the old sets that go beyond the history limit and have
// nothing left to do, lowest revision first.
func expendable(old []*appsv1.ReplicaSet, limit int) []*appsv1.ReplicaSet {
	var kept []*appsv1.ReplicaSet
	for _, rs := range old {
		if rs.DeletionTimestamp == nil {
			kept = append(kept, rs)
		}
	}
	if len(kept) <= limit {
		return nil
	}
	slices.SortFunc(kept, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revisionOf(a.Annotations), revisionOf(b.Annotations)), byAge(a, b))
	})
	var out []*appsv1.ReplicaSet
	for _, rs := range kept[:len(kept)-limit] {
		if rs.Status.Replicas == 0 && *rs.Spec.Replicas == 0 && rs.Generation <= rs.Status.ObservedGeneration {
			out = append(out, rs)
		}
	}
	return out
}

// revisionOf is an object's revision number, 0 without one.
func revisionOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[annotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
