package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"
)

const (
	volumeKey = "volume/"
	claimKey  = "claim/"
	// claimLook is how often a claim that waits is told why, by an event.
	claimLook = 15 * time.Second
)

// volumeBinder joins PersistentVolumeClaims and PersistentVolumes. A claim and a
// volume are bound when each names the other; whatever step is missing after a
// crash is made good by the next sync. Making volumes is the provisioners' part.
type volumeBinder struct {
	*env
	claims, volumes, classes cache.SharedIndexInformer
	events                   record.EventRecorder
	own                      writes
}

func newVolumeBinder(e *env) Controller {
	c := &volumeBinder{
		env: e, events: e.recorders("persistentvolume-controller"),
		claims:  e.factory.Core().V1().PersistentVolumeClaims().Informer(),
		volumes: e.factory.Core().V1().PersistentVolumes().Informer(),
		classes: e.factory.Storage().V1().StorageClasses().Informer(),
	}
	return Controller{
		Name: "persistentvolume-binder-controller",
		Reads: []Source{
			wakes(c.claims, c.keysOfClaim),
			wakes(c.volumes, c.keysOfVolume),
			wakes(c.classes, func(*storagev1.StorageClass) []string { return c.pendingClaims() }),
			reads(e.pods()),
		},
		Writes: []string{"persistentvolumes", "persistentvolumeclaims"},
		// One worker: two claims must not be given the same volume.
		Workers: 1,
		Sync:    c.sync,
	}
}

func (c *volumeBinder) keysOfClaim(claim *corev1.PersistentVolumeClaim) []string {
	keys := []string{claimKey + keyOf(claim)}
	if claim.Spec.VolumeName != "" {
		keys = append(keys, volumeKey+claim.Spec.VolumeName)
	}
	return keys
}

func (c *volumeBinder) keysOfVolume(v *corev1.PersistentVolume) []string {
	keys := []string{volumeKey + v.Name}
	if ref := v.Spec.ClaimRef; ref != nil {
		return append(keys, claimKey+ref.Namespace+"/"+ref.Name)
	}
	if v.Status.Phase == corev1.VolumeAvailable { // it may be what some claim waits for
		keys = append(keys, c.pendingClaims()...)
	}
	return keys
}

func (c *volumeBinder) pendingClaims() []string {
	var keys []string
	for _, claim := range everything[corev1.PersistentVolumeClaim](c.claims) {
		if claim.Status.Phase != corev1.ClaimBound {
			keys = append(keys, claimKey+keyOf(claim))
		}
	}
	return keys
}

func (c *volumeBinder) sync(ctx context.Context, key string) (time.Duration, error) {
	// All writes are noted under one key: a choice of a volume depends on all.
	if !c.own.seen("") {
		return 50 * time.Millisecond, nil
	}
	if name, ok := strings.CutPrefix(key, volumeKey); ok {
		v := cached[corev1.PersistentVolume](c.volumes, name)
		if v == nil {
			return 0, nil
		}
		return 0, c.syncVolume(ctx, v)
	}
	claim := cached[corev1.PersistentVolumeClaim](c.claims, strings.TrimPrefix(key, claimKey))
	if claim == nil {
		return 0, nil
	}
	return c.syncClaim(ctx, claim)
}

func (c *volumeBinder) syncClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	if metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) {
		return 0, c.checkBound(ctx, claim)
	}
	if claim.DeletionTimestamp != nil {
		return 0, nil
	}
	if claim.Spec.VolumeName == "" {
		return c.findVolume(ctx, claim)
	}
	v := cached[corev1.PersistentVolume](c.volumes, claim.Spec.VolumeName)
	if v != nil && (v.Spec.ClaimRef == nil || volume.IsVolumeBoundToClaim(v, claim)) {
		if v.Spec.ClaimRef == nil && (!volume.CheckAccessModes(claim, v) || volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec) || tooSmall(v, claim) || volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(claim)) {
			c.events.Eventf(claim, corev1.EventTypeWarning, "VolumeMismatch", "Cannot bind to requested volume %q: it does not fit the claim", v.Name)
			return 0, c.setClaimPhase(ctx, claim, corev1.ClaimPending)
		}
		return 0, c.bind(ctx, v, claim)
	}
	if v != nil {
		c.events.Eventf(claim, corev1.EventTypeWarning, "FailedBinding", "volume %q already bound to a different claim.", v.Name)
	}
	return 0, c.setClaimPhase(ctx, claim, corev1.ClaimPending)
}

func tooSmall(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	have := v.Spec.Capacity[corev1.ResourceStorage]
	return have.Cmp(claim.Spec.Resources.Requests[corev1.ResourceStorage]) < 0
}

// findVolume binds a claim to the smallest volume that fits, or asks for one.
func (c *volumeBinder) findVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	className := volume.GetPersistentVolumeClaimClass(claim)
	class := cached[storagev1.StorageClass](c.classes, className)
	delayed := class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	var fitting []*corev1.PersistentVolume
	for _, v := range everything[corev1.PersistentVolume](c.volumes) {
		if volume.CheckAccessModes(claim, v) {
			fitting = append(fitting, v)
		}
	}
	v, err := volume.FindMatchingVolume(claim, fitting, nil, nil, delayed, true)
	if err != nil {
		return 0, fmt.Errorf("match claim %s: %w", keyOf(claim), err)
	}
	if v != nil {
		return 0, c.bind(ctx, v, claim)
	}
	if err := c.setClaimPhase(ctx, claim, corev1.ClaimPending); err != nil {
		return 0, err
	}
	switch {
	case delayed && !volume.IsDelayBindingProvisioning(claim):
		reason, message := "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
		if pods := c.waitingPods(claim); len(pods) > 0 {
			reason, message = "WaitForPodScheduled", "waiting for pod "+strings.Join(pods, ",")+" to be scheduled"
		}
		c.events.Event(claim, corev1.EventTypeNormal, reason, message)
	case className == "":
		c.events.Event(claim, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case class == nil:
		c.events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "storageclass.storage.k8s.io %q not found", className)
	default:
		return claimLook, c.askProvisioner(ctx, claim, class)
	}
	return claimLook, nil
}

func (c *volumeBinder) waitingPods(claim *corev1.PersistentVolumeClaim) []string {
	var names []string
	for _, pod := range indexed[*corev1.Pod](c.pods(), byClaim, keyOf(claim)) {
		if pod.Spec.NodeName == "" {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// askProvisioner names the class's provisioner on the claim, which is what
// provisioners look for.
func (c *volumeBinder) askProvisioner(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if class.Provisioner == "kubernetes.io/no-provisioner" {
		return nil
	}
	if claim.Annotations[volume.AnnStorageProvisioner] != class.Provisioner {
		changed := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, volume.AnnStorageProvisioner, class.Provisioner)
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, volume.AnnBetaStorageProvisioner, class.Provisioner)
		if err := c.updateClaim(ctx, changed); err != nil {
			return err
		}
	}
	c.events.Eventf(claim, corev1.EventTypeNormal, "ExternalProvisioning",
		"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner)
	return nil
}

// bind makes volume and claim name each other, and both say so.
func (c *volumeBinder) bind(ctx context.Context, v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	bound, dirty, err := volume.GetBindVolumeToClaim(v, claim)
	if err != nil {
		return err
	}
	if dirty {
		if bound, err = c.clients.CoreV1().PersistentVolumes().Update(ctx, bound, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("bind volume %s: %w", v.Name, err)
		}
		c.own.made("", c.volumes.GetIndexer(), bound)
	}
	if err := c.setVolumePhase(ctx, bound, corev1.VolumeBound); err != nil {
		return err
	}
	changed := claim.DeepCopy()
	if changed.Spec.VolumeName == "" {
		changed.Spec.VolumeName = v.Name
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, volume.AnnBoundByController, "yes")
	}
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, volume.AnnBindCompleted, "yes")
	if changed.Spec.VolumeName != claim.Spec.VolumeName || !maps.Equal(changed.Annotations, claim.Annotations) {
		if changed, err = c.clients.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("bind claim %s: %w", keyOf(claim), err)
		}
		c.own.made("", c.claims.GetIndexer(), changed)
	}
	return c.setClaimBound(ctx, changed, v)
}

func (c *volumeBinder) setClaimBound(ctx context.Context, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	changed := claim.DeepCopy()
	changed.Status.Phase = corev1.ClaimBound
	changed.Status.AccessModes = v.Spec.AccessModes
	if _, resized := claim.Status.Capacity[corev1.ResourceStorage]; !resized { // later the resizer's
		changed.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: v.Spec.Capacity[corev1.ResourceStorage]}
	}
	changed.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	return c.updateClaimStatus(ctx, claim, changed)
}

func (c *volumeBinder) setClaimPhase(ctx context.Context, claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) error {
	changed := claim.DeepCopy()
	changed.Status.Phase = phase
	if phase != corev1.ClaimBound {
		changed.Status.AccessModes, changed.Status.Capacity = nil, nil
	}
	return c.updateClaimStatus(ctx, claim, changed)
}

func (c *volumeBinder) updateClaimStatus(ctx context.Context, before, after *corev1.PersistentVolumeClaim) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	updated, err := c.clients.CoreV1().PersistentVolumeClaims(after.Namespace).UpdateStatus(ctx, after, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status of claim %s: %w", keyOf(after), err)
	}
	c.own.made("", c.claims.GetIndexer(), updated)
	return nil
}

func (c *volumeBinder) updateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	updated, err := c.clients.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update claim %s: %w", keyOf(claim), err)
	}
	c.own.made("", c.claims.GetIndexer(), updated)
	return nil
}

// checkBound sees that a bound claim still has its volume.
func (c *volumeBinder) checkBound(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	lose := func(reason, message string) error {
		if claim.Status.Phase != corev1.ClaimLost {
			c.events.Event(claim, corev1.EventTypeWarning, reason, message)
		}
		return c.setClaimPhase(ctx, claim, corev1.ClaimLost)
	}
	if claim.Spec.VolumeName == "" {
		return lose("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v := cached[corev1.PersistentVolume](c.volumes, claim.Spec.VolumeName)
	switch {
	case v == nil:
		return lose("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == claim.UID:
		return c.bind(ctx, v, claim)
	}
	return lose("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

func (c *volumeBinder) syncVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" { // free, or kept by its maker for a claim to come
		return c.setVolumePhase(ctx, v, corev1.VolumeAvailable)
	}
	claim := cached[corev1.PersistentVolumeClaim](c.claims, ref.Namespace+"/"+ref.Name)
	if claim == nil || claim.UID != ref.UID {
		live, err := c.clients.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err != nil || live.UID != ref.UID {
			return c.release(ctx, v)
		}
		claim = live
	}
	switch claim.Spec.VolumeName {
	case "":
		return nil // being bound: the claim's sync goes on
	case v.Name:
		return c.setVolumePhase(ctx, v, corev1.VolumeBound)
	}
	if metav1.HasAnnotation(v.ObjectMeta, volume.AnnDynamicallyProvisioned) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return c.release(ctx, v) // made for a claim that took another
	}
	return c.unbind(ctx, v)
}

// release marks a volume whose claim is gone. Deleting it is its provisioner's.
func (c *volumeBinder) release(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	return c.setVolumePhase(ctx, v, corev1.VolumeReleased)
}

func (c *volumeBinder) unbind(ctx context.Context, v *corev1.PersistentVolume) error {
	changed := v.DeepCopy()
	if metav1.HasAnnotation(v.ObjectMeta, volume.AnnBoundByController) {
		changed.Spec.ClaimRef = nil
		delete(changed.Annotations, volume.AnnBoundByController)
	} else {
		changed.Spec.ClaimRef.UID = ""
	}
	updated, err := c.clients.CoreV1().PersistentVolumes().Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("unbind volume %s: %w", v.Name, err)
	}
	c.own.made("", c.volumes.GetIndexer(), updated)
	return c.setVolumePhase(ctx, updated, corev1.VolumeAvailable)
}

func (c *volumeBinder) setVolumePhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) error {
	if v.Status.Phase == phase {
		return nil
	}
	changed := v.DeepCopy()
	changed.Status.Phase, changed.Status.Message = phase, ""
	at := metav1.Now()
	changed.Status.LastPhaseTransitionTime = &at
	updated, err := c.clients.CoreV1().PersistentVolumes().UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("phase of volume %s: %w", v.Name, err)
	}
	c.own.made("", c.volumes.GetIndexer(), updated)
	return nil
}
