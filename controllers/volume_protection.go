package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
)

const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
	classProtection  = "kubernetes.io/vac-protection"
)

// newClaimProtection keeps a deleted claim until no pod uses it.
func newClaimProtection(e *env) Controller {
	claims := e.factory.Core().V1().PersistentVolumeClaims().Informer()
	return Controller{
		Name:   "persistentvolumeclaim-protection-controller",
		Reads:  []Source{wakesSelf(claims), wakes(e.pods(), claimsOf)},
		Writes: []string{"persistentvolumeclaims"},
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			claim := cached[corev1.PersistentVolumeClaim](claims, key)
			if claim == nil {
				return 0, nil
			}
			want := claim.DeletionTimestamp == nil || slices.ContainsFunc(indexed[*corev1.Pod](e.pods(), byClaim, key), func(pod *corev1.Pod) bool {
				return usesClaim(pod, claim)
			})
			finalizers, changed := withFinalizer(claim.Finalizers, claimProtection, want)
			if !changed || want && claim.DeletionTimestamp != nil { // nothing may be added any more
				return 0, nil
			}
			if !want { // the cache may lag behind a pod that was just bound
				used, err := e.claimInUse(ctx, claim)
				if err != nil || used {
					return pause, err
				}
			}
			update := claim.DeepCopy()
			update.Finalizers = finalizers
			_, err := e.clients.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, update, metav1.UpdateOptions{})
			return 0, ignoreNotFound(err)
		},
	}
}

// usesClaim says whether a pod on a node holds a claim. A pod that is not bound
// yet does not: no node starts it with a claim that is being deleted.
func usesClaim(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
			return true
		}
		if v.Ephemeral != nil && ephemeral.VolumeClaimName(pod, v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil {
			return true
		}
	}
	return false
}

func (e *env) claimInUse(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	pods, err := e.clients.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return usesClaim(&pod, claim) }), nil
}

// withFinalizer adds or removes a finalizer and says whether that changed any.
func withFinalizer(have []string, finalizer string, want bool) ([]string, bool) {
	if slices.Contains(have, finalizer) == want {
		return have, false
	}
	if want {
		return append(slices.Clone(have), finalizer), true
	}
	return slices.DeleteFunc(slices.Clone(have), func(f string) bool { return f == finalizer }), true
}

// newVolumeProtection keeps a deleted volume while a claim is bound to it.
func newVolumeProtection(e *env) Controller {
	volumes := e.factory.Core().V1().PersistentVolumes().Informer()
	return Controller{
		Name:   "persistentvolume-protection-controller",
		Reads:  []Source{wakesSelf(volumes)},
		Writes: []string{"persistentvolumes"},
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			v := cached[corev1.PersistentVolume](volumes, key)
			if v == nil {
				return 0, nil
			}
			want := v.DeletionTimestamp == nil || v.Status.Phase == corev1.VolumeBound
			finalizers, changed := withFinalizer(v.Finalizers, volumeProtection, want)
			if !changed || want && v.DeletionTimestamp != nil {
				return 0, nil
			}
			update := v.DeepCopy()
			update.Finalizers = finalizers
			_, err := e.clients.CoreV1().PersistentVolumes().Update(ctx, update, metav1.UpdateOptions{})
			return 0, ignoreNotFound(err)
		},
	}
}

// newAttributesClassProtection keeps a deleted VolumeAttributesClass while a
// claim or a volume has it, asks for it, or is on its way to it.
func newAttributesClassProtection(e *env) Controller {
	core := e.factory.Core().V1()
	classes, claims, volumes := e.factory.Storage().V1().VolumeAttributesClasses().Informer(), core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer()
	return Controller{
		Name:   "volumeattributesclass-protection-controller",
		Reads:  []Source{wakesSelf(classes), wakes(claims, classesOfClaim), wakes(volumes, classesOfVolume)},
		Writes: []string{"storage.k8s.io/volumeattributesclasses"},
		Sync: func(ctx context.Context, name string) (time.Duration, error) {
			class := cached[storagev1.VolumeAttributesClass](classes, name)
			if class == nil {
				return 0, nil
			}
			want := class.DeletionTimestamp == nil || len(indexed[any](claims, byAttributesClass, name))+len(indexed[any](volumes, byAttributesClass, name)) > 0
			finalizers, changed := withFinalizer(class.Finalizers, classProtection, want)
			if !changed || want && class.DeletionTimestamp != nil {
				return 0, nil
			}
			update := class.DeepCopy()
			update.Finalizers = finalizers
			_, err := e.clients.StorageV1().VolumeAttributesClasses().Update(ctx, update, metav1.UpdateOptions{})
			return 0, ignoreNotFound(err)
		},
	}
}

func classesOfClaim(claim *corev1.PersistentVolumeClaim) []string {
	names := []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName}
	if s := claim.Status.ModifyVolumeStatus; s != nil {
		names = append(names, &s.TargetVolumeAttributesClassName)
	}
	return setNames(names...)
}

func classesOfVolume(v *corev1.PersistentVolume) []string {
	return setNames(v.Spec.VolumeAttributesClassName)
}

// setNames are the names that are there, each once.
func setNames(names ...*string) []string {
	var out []string
	for _, name := range names {
		if name != nil && *name != "" && !slices.Contains(out, *name) {
			out = append(out, *name)
		}
	}
	return out
}

// newEphemeralVolume makes the claims that pods describe in place.
func newEphemeralVolume(e *env) Controller {
	claims := e.factory.Core().V1().PersistentVolumeClaims().Informer()
	events := e.recorders("ephemeral_volume")
	return Controller{
		Name: "ephemeral-volume-controller",
		Reads: []Source{
			wakes(e.pods(), func(pod *corev1.Pod) []string {
				if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil }) {
					return []string{keyOf(pod)}
				}
				return nil
			}),
			wakes(claims, ownerKeys[*corev1.PersistentVolumeClaim]("Pod")),
		},
		Writes: []string{"persistentvolumeclaims"},
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			pod := cached[corev1.Pod](e.pods(), key)
			if pod == nil || pod.DeletionTimestamp != nil {
				return 0, nil
			}
			for i := range pod.Spec.Volumes {
				v := &pod.Spec.Volumes[i]
				if v.Ephemeral == nil {
					continue
				}
				want := ephemeralClaim(pod, v)
				if have := cached[corev1.PersistentVolumeClaim](claims, keyOf(want)); have != nil {
					if err := ephemeral.VolumeIsForPod(pod, have); err != nil {
						return 0, err
					}
					continue
				}
				_, err := e.clients.CoreV1().PersistentVolumeClaims(pod.Namespace).Create(ctx, want, metav1.CreateOptions{})
				if settled(err) != nil {
					events.Eventf(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name, err)
					return 0, fmt.Errorf("create claim %s: %w", keyOf(want), err)
				}
			}
			return 0, nil
		},
	}
}

func ephemeralClaim(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	t := v.Ephemeral.VolumeClaimTemplate
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: ephemeral.VolumeClaimName(pod, v), Namespace: pod.Namespace, Labels: t.Labels, Annotations: t.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}
