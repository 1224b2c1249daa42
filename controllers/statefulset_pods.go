package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ordinalOf reads a pod's number from its name.
func ordinalOf(set *appsv1.StatefulSet, pod string) (int, bool) {
	text, ok := strings.CutPrefix(pod, set.Name+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}

func firstOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func revisionLabel(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

// statefulPod is the pod of a number, of one version of the template.
func statefulPod(set *appsv1.StatefulSet, v statefulVersion, ordinal int) *corev1.Pod {
	owner := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	pod := podFrom(v.template, set.Namespace, "", owner)
	pod.Name = fmt.Sprintf("%s-%d", set.Name, ordinal)
	pod.Labels = withLabel(pod.Labels, appsv1.StatefulSetRevisionLabel, v.name)
	identify(set, pod, ordinal)
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = set.Spec.ServiceName
	return pod
}

// identify gives a pod the labels and volumes of its number.
func identify(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) {
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
	claims := claimsFor(set, ordinal)
	var volumes []corev1.Volume
	for i, template := range set.Spec.VolumeClaimTemplates {
		volumes = append(volumes, corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claims[i].Name},
		}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool { return t.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}

// identified says whether a pod still has the identity of its number.
func identified(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) bool {
	if pod.Labels[appsv1.StatefulSetPodNameLabel] != pod.Name || pod.Labels[appsv1.PodIndexLabel] != strconv.Itoa(ordinal) {
		return false
	}
	claims := claimsFor(set, ordinal)
	for i, template := range set.Spec.VolumeClaimTemplates {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == template.Name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claims[i].Name
		}) {
			return false
		}
	}
	return true
}

// claimsFor are the volume claims of a number, in the order of the templates.
func claimsFor(set *appsv1.StatefulSet, ordinal int) []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for i := range set.Spec.VolumeClaimTemplates {
		claim := set.Spec.VolumeClaimTemplates[i].DeepCopy()
		claim.Name = fmt.Sprintf("%s-%s-%d", claim.Name, set.Name, ordinal)
		claim.Namespace = set.Namespace
		claim.Status = corev1.PersistentVolumeClaimStatus{}
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
		out = append(out, claim)
	}
	return out
}

// setClaimOwners makes a claim belong to the set, to the pod, or to nobody, as
// the retention policy wants it, and says whether that changed anything. A claim
// of a pod that is scaled away goes with the pod.
func setClaimOwners(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int, claim *corev1.PersistentVolumeClaim) bool {
	deleted, scaled := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if p := set.Spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		deleted, scaled = p.WhenDeleted, p.WhenScaled
	}
	first := firstOrdinal(set)
	surplus := ordinal < first || ordinal >= first+int(*set.Spec.Replicas)
	toPod := pod != nil && surplus && scaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	toSet := !toPod && deleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType

	owners := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return r.Kind == "StatefulSet" && r.Name == set.Name || r.Kind == "Pod" && r.Name == fmt.Sprintf("%s-%d", set.Name, ordinal)
	})
	if toSet {
		ref := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
		owners = append(owners, ref)
	}
	if toPod {
		ref := *metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))
		owners = append(owners, ref)
	}
	if slices.EqualFunc(owners, claim.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
		return false
	}
	claim.OwnerReferences = owners
	return true
}
