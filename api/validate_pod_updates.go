package api

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validUpdate lets few fields of a pod change.
func (c *podCheck) validUpdate(pod, old *corev1.Pod) field.ErrorList {
	at := specPath()
	errs := c.validAnnotationUpdate(pod.Annotations, old.Annotations, field.NewPath("metadata", "annotations"))
	for _, list := range []struct {
		name     string
		now, old []corev1.Container
	}{{"containers", pod.Spec.Containers, old.Spec.Containers}, {"initContainers", pod.Spec.InitContainers, old.Spec.InitContainers}} {
		here := at.Child(list.name)
		if len(list.now) != len(list.old) {
			return append(errs, field.Forbidden(here, "pod updates may not add or remove containers"))
		}
		for i := range list.now {
			errs = append(errs, required(list.now[i].Image, here.Index(i).Child("image"))...)
			errs = append(errs, validImageSpace(&list.now[i], here.Index(i))...)
		}
	}
	deadline, end := validDeadlineUpdate(pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds, at.Child("activeDeadlineSeconds"))
	errs = append(errs, deadline...)
	if end {
		return errs
	}
	errs = append(errs, validTolerationUpdate(pod, old, at.Child("tolerations"))...)
	errs = append(errs, validGateUpdate(pod, old, at.Child("schedulingGates"))...)
	if equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
		return errs
	}
	asBefore := allowedChangesUndone(pod, old)
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, narrowGated(&asBefore, &old.Spec, at)...)
	}
	if !equality.Semantic.DeepEqual(asBefore, old.Spec) {
		errs = append(errs, field.Forbidden(at, "pod updates may not change fields other than "+
			"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"+
			"`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"+
			diff.Diff(inner{old.Spec}, inner{asBefore})))
	}
	return errs
}

// validAnnotationUpdate keeps the annotations that say what a running pod is.
func (c *podCheck) validAnnotationUpdate(now, old map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	fixed := func(key, verb string) {
		errs = append(errs, forbid(strings.HasPrefix(key, appArmorPrefix), at.Key(key), "may not "+verb+" AppArmor annotations")...)
		errs = append(errs, forbid(key == corev1.MirrorPodAnnotationKey, at.Key(key), "may not "+verb+" mirror pod annotation")...)
	}
	for _, key := range sortedKeys(old) {
		if value, ok := now[key]; !ok || value != old[key] {
			fixed(key, "remove or update")
		}
	}
	for _, key := range sortedKeys(now) {
		if _, ok := old[key]; !ok {
			fixed(key, "add")
		}
	}
	return append(errs, c.validAnnotations(now, at)...)
}

// allowedChangesUndone is the new spec with the fields that may change as they
// were.
func allowedChangesUndone(pod, old *corev1.Pod) corev1.PodSpec {
	spec := *pod.Spec.DeepCopy()
	for i := range spec.Containers {
		spec.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range spec.InitContainers {
		spec.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	if len(spec.InitContainers) == 0 {
		spec.InitContainers = nil
	}
	spec.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	spec.SchedulingGates = old.Spec.SchedulingGates
	spec.Tolerations = old.Spec.Tolerations
	if g := old.Spec.TerminationGracePeriodSeconds; g != nil && *g < 0 && spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 1 {
		spec.TerminationGracePeriodSeconds = g
	}
	return spec
}

// narrowGated lets a pod that is held back be narrowed down to fewer nodes, and
// takes that back from the spec.
func narrowGated(spec, old *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(spec.NodeSelector, old.NodeSelector) {
		for key, value := range old.NodeSelector {
			if now, ok := spec.NodeSelector[key]; !ok || now != value {
				errs = append(errs, field.Invalid(at.Child("nodeSelector"), spec.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
				break
			}
		}
		spec.NodeSelector = old.NodeSelector
	}
	var now, before *corev1.NodeAffinity
	if spec.Affinity != nil {
		now = spec.Affinity.NodeAffinity
	}
	if old.Affinity != nil {
		before = old.Affinity.NodeAffinity
	}
	if equality.Semantic.DeepEqual(now, before) {
		return errs
	}
	errs = append(errs, validNarrowing(now, before, at.Child("affinity", "nodeAffinity"))...)
	switch a := spec.Affinity; {
	case a == nil:
		spec.Affinity = &corev1.Affinity{NodeAffinity: before}
	case old.Affinity == nil && a.PodAffinity == nil && a.PodAntiAffinity == nil:
		spec.Affinity = nil
	default:
		a.NodeAffinity = before
	}
	return errs
}

// validNarrowing lets requirements be added to terms, or terms where there were
// none.
func validNarrowing(now, before *corev1.NodeAffinity, at *field.Path) field.ErrorList {
	if before == nil || before.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	at = at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	old := before.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var terms []corev1.NodeSelectorTerm
	if now != nil && now.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = now.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	if len(old) > 0 && len(old) != len(terms) {
		return refuse(true, at, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
	}
	var errs field.ErrorList
	for i := range old {
		was, is := old[i], terms[i]
		matchedNone := len(was.MatchExpressions)+len(was.MatchFields) == 0
		changed := matchedNone && len(is.MatchExpressions)+len(is.MatchFields) > 0 ||
			!extends(is.MatchExpressions, was.MatchExpressions) || !extends(is.MatchFields, was.MatchFields)
		errs = append(errs, refuse(changed, at.Index(i), is, "only additions are allowed (no mutations or deletions)")...)
	}
	return errs
}

func extends(list, by []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(by) && equality.Semantic.DeepEqual(list[:len(by)], by)
}

// validDeadlineUpdate lets a deadline be set or come closer. end says that nothing
// else is looked at.
func validDeadlineUpdate(now, before *int64, at *field.Path) (errs field.ErrorList, end bool) {
	switch {
	case now == nil:
		return refuse(before != nil, at, now, "must not update from a positive integer to nil value"), false
	case *now < 0 || *now > math.MaxInt32:
		return field.ErrorList{field.Invalid(at, *now, validation.InclusiveRangeError(0, math.MaxInt32))}, true
	case before != nil && *before < *now:
		return field.ErrorList{field.Invalid(at, *now, "must be less than or equal to previous value")}, true
	}
	return nil, false
}

func validTolerationUpdate(pod, old *corev1.Pod, at *field.Path) field.ErrorList {
	for _, before := range old.Spec.Tolerations {
		kept := false
		for _, now := range pod.Spec.Tolerations {
			// How long a taint is tolerated may change.
			now.TolerationSeconds, before.TolerationSeconds = nil, nil
			kept = kept || now == before
		}
		if !kept {
			return field.ErrorList{field.Forbidden(at, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return validTolerations(pod.Spec.Tolerations, at)
}

func validGateUpdate(pod, old *corev1.Pod, at *field.Path) field.ErrorList {
	had := map[string]bool{}
	for _, g := range old.Spec.SchedulingGates {
		had[g.Name] = true
	}
	var errs field.ErrorList
	for i, g := range pod.Spec.SchedulingGates {
		errs = append(errs, forbid(!had[g.Name], at.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name))...)
		had[g.Name] = true
	}
	return errs
}

// ValidatePodResize names the faults of new resources for a running pod.
func ValidatePodResize(pod, old *corev1.Pod) field.ErrorList {
	errs := newPodCheck(pod, old).validPod(pod)
	at := specPath()
	switch {
	case IsMirror(old):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	errs = append(errs, refuse(PodQOS(old) != QOSClass(pod), at, string(pod.Status.QOSClass), "Pod QOS Class may not change as a result of resizing")...)
	errs = append(errs, forbid(!canResize(old), at, "Pod running on node without support for resize")...)
	errs = append(errs, validPodLevelResize(pod.Spec.Resources, old.Spec.Resources, at)...)
	others := sameContainers(pod.Spec.Containers, old.Spec.Containers, at.Child("containers"), "containers")
	others = append(others, sameContainers(pod.Spec.InitContainers, old.Spec.InitContainers, at.Child("initContainers"), "initContainers")...)
	if len(others) > 0 {
		return append(errs, others...)
	}
	for _, list := range []struct {
		name     string
		now, old []corev1.Container
	}{{"initContainers", pod.Spec.InitContainers, old.Spec.InitContainers}, {"containers", pod.Spec.Containers, old.Spec.Containers}} {
		for i := range list.old {
			now, before, here := &list.now[i].Resources, &list.old[i].Resources, at.Child(list.name).Index(i)
			errs = append(errs, forbid(lost(now.Requests, before.Requests), here.Child("resources", "requests"), "resource requests cannot be removed")...)
			errs = append(errs, forbid(lost(now.Limits, before.Limits), here.Child("resources", "limits"), "resource limits cannot be removed")...)
		}
	}
	return append(errs, validResizedContainers(pod, old, at)...)
}

// sameContainers wants the containers that there were, in their order.
func sameContainers(now, old []corev1.Container, at *field.Path, what string) field.ErrorList {
	if len(now) != len(old) {
		return field.ErrorList{field.Forbidden(at, what+" may not be added or removed on resize")}
	}
	var errs field.ErrorList
	for i := range old {
		errs = append(errs, forbid(now[i].Name != old[i].Name, at.Index(i).Child("name"), what+" may not be renamed or reordered on resize")...)
	}
	return errs
}

// canResize asks the first running container: a node that can resize tells of its
// resources.
func canResize(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running != nil {
			return s.Resources != nil
		}
	}
	return true
}

func lost(now, before corev1.ResourceList) bool {
	for name := range before {
		if _, ok := now[name]; !ok {
			return true
		}
	}
	return false
}

func validPodLevelResize(now, before *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	here := at.Child("resources")
	if before == nil {
		before = &corev1.ResourceRequirements{}
	} else if now == nil {
		return field.ErrorList{field.Forbidden(here, "pod-level resources cannot be removed")}
	}
	if now == nil {
		return nil
	}
	errs := forbid(lost(now.Requests, before.Requests), here.Child("requests"), "pod-level resource requests cannot be removed")
	errs = append(errs, forbid(lost(now.Limits, before.Limits), here.Child("limits"), "pod-level resource limits cannot be removed")...)
	return append(errs, forbid(!onlyAmounts(now, before), at, "only cpu and memory resources are mutable at pod-level")...)
}

// validResizedContainers wants only cpu and memory to be other than before.
func validResizedContainers(pod, old *corev1.Pod, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range old.Spec.Containers {
		errs = append(errs, forbid(!onlyResized(&pod.Spec.Containers[i], &old.Spec.Containers[i]), at, "only cpu and memory resources are mutable")...)
	}
	for i := range old.Spec.InitContainers {
		now, before, here := &pod.Spec.InitContainers[i], &old.Spec.InitContainers[i], at.Child("initContainers").Index(i)
		errs = append(errs, forbid(!onlyResized(now, before), here, "only cpu and memory resources for init or sidecar containers are mutable")...)
		if IsSidecar(now) || equality.Semantic.DeepEqual(now, before) {
			continue
		}
		for _, p := range now.ResizePolicy {
			errs = append(errs, forbid(p.RestartPolicy == corev1.RestartContainer, here, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")...)
		}
	}
	return errs
}

// onlyResized reports whether all of a container but cpu and memory is as before.
func onlyResized(now, before *corev1.Container) bool {
	rest := *now
	rest.Resources = before.Resources
	return onlyAmounts(&now.Resources, &before.Resources) && equality.Semantic.DeepEqual(&rest, before)
}

// onlyAmounts reports whether all but cpu and memory is as before.
func onlyAmounts(now, before *corev1.ResourceRequirements) bool {
	rest := func(list corev1.ResourceList) corev1.ResourceList {
		list = list.DeepCopy()
		delete(list, corev1.ResourceCPU)
		delete(list, corev1.ResourceMemory)
		return list
	}
	return equality.Semantic.DeepEqual(rest(now.Requests), rest(before.Requests)) &&
		equality.Semantic.DeepEqual(rest(now.Limits), rest(before.Limits)) && equality.Semantic.DeepEqual(now.Claims, before.Claims)
}

// ValidatePodEphemeralContainers names the faults of a change to the ephemeral
// containers: they may be added, never changed or taken away.
func ValidatePodEphemeralContainers(pod, old *corev1.Pod) field.ErrorList {
	c := newPodCheck(pod, old)
	errs := c.validPod(pod)
	errs = append(errs, c.validAnnotationUpdate(pod.Annotations, old.Annotations, field.NewPath("metadata", "annotations"))...)
	if IsMirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	at := specPath().Child("ephemeralContainers")
	now := map[string]*corev1.EphemeralContainer{}
	for i := range pod.Spec.EphemeralContainers {
		now[pod.Spec.EphemeralContainers[i].Name] = &pod.Spec.EphemeralContainers[i]
	}
	for _, before := range old.Spec.EphemeralContainers {
		one := now[before.Name]
		switch {
		case one == nil:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", before.Name)))
		case !equality.Semantic.DeepEqual(before, *one):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", before.Name, diff.Diff(inner{before}, inner{*one}))))
		}
	}
	return errs
}
