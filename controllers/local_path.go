package controllers

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"

	"orrery.dev/api"
)

// localProvisioner is what a StorageClass names to get these volumes.
const localProvisioner = "orrery.dev/local-path"

// localPath provisions volumes that are directories on the node where the first
// pod that uses them runs: enough for a cluster without other storage. The
// directory is made by the node agent when the volume is mounted. When the
// volume is deleted its object goes and the directory stays on the node, until
// the node agent learns to remove what no volume names.
type localPath struct {
	*env
	claims, volumes, classes cache.SharedIndexInformer
	events                   record.EventRecorder
}

func newLocalPath(e *env) Controller {
	c := &localPath{
		env: e, events: e.recorders(localProvisioner),
		claims:  e.factory.Core().V1().PersistentVolumeClaims().Informer(),
		volumes: e.factory.Core().V1().PersistentVolumes().Informer(),
		classes: e.factory.Storage().V1().StorageClasses().Informer(),
	}
	return Controller{
		Name: "local-path-provisioner",
		Reads: []Source{
			wakes(c.claims, func(claim *corev1.PersistentVolumeClaim) []string { return []string{claimKey + keyOf(claim)} }),
			wakes(c.volumes, func(v *corev1.PersistentVolume) []string { return []string{volumeKey + v.Name} }),
			reads(c.classes), reads(e.nodes()),
		},
		Writes: []string{"persistentvolumes"},
		Sync:   c.sync,
	}
}

func (c *localPath) sync(ctx context.Context, key string) (time.Duration, error) {
	if name, ok := strings.CutPrefix(key, volumeKey); ok {
		return 0, c.reclaim(ctx, cached[corev1.PersistentVolume](c.volumes, name))
	}
	claim := cached[corev1.PersistentVolumeClaim](c.claims, strings.TrimPrefix(key, claimKey))
	if claim == nil || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || claim.Annotations[volume.AnnStorageProvisioner] != localProvisioner {
		return 0, nil
	}
	return c.provision(ctx, claim)
}

func (c *localPath) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	class := cached[storagev1.StorageClass](c.classes, volume.GetPersistentVolumeClaimClass(claim))
	if class == nil {
		return 0, nil
	}
	if claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		c.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", "a directory cannot be a block device")
		return 0, nil
	}
	node := c.nodeFor(claim, class)
	if node == nil {
		return claimLook, nil
	}
	v := localVolume(claim, class, node, c.cfg.LocalPath)
	_, err := c.clients.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return 0, nil
	}
	if err != nil {
		c.events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %v", class.Name, err)
		return 0, fmt.Errorf("provision for %s: %w", keyOf(claim), err)
	}
	c.events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", v.Name)
	return 0, nil
}

// nodeFor is the node that the scheduler chose; for a class that binds at once,
// the first that is ready.
func (c *localPath) nodeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.Node {
	if chosen := claim.Annotations[volume.AnnSelectedNode]; chosen != "" {
		return cached[corev1.Node](c.nodes(), chosen)
	}
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
		return nil
	}
	nodes := everything[corev1.Node](c.nodes())
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, node := range nodes {
		if api.IsNodeReady(node) && !node.Spec.Unschedulable {
			return node
		}
	}
	return nil
}

func localVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node, dir string) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	host := node.Labels[corev1.LabelHostname]
	if host == "" {
		host = node.Name
	}
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	create := corev1.HostPathDirectoryOrCreate
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{volume.AnnDynamicallyProvisioned: localProvisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    claim.Spec.VolumeMode,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: path.Join(dir, name+"_"+claim.Namespace+"_"+claim.Name), Type: &create,
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
			}}}},
		},
	}
}

// reclaim deletes a volume of ours whose claim is gone.
func (c *localPath) reclaim(ctx context.Context, v *corev1.PersistentVolume) error {
	if v == nil || v.DeletionTimestamp != nil || v.Annotations[volume.AnnDynamicallyProvisioned] != localProvisioner ||
		v.Status.Phase != corev1.VolumeReleased || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	return ignoreGone(c.clients.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: sameObject(v)}))
}
