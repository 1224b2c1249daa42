package plugins

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
)

// Annotations and classes by which scheduler, volume controller and provisioner
// agree on where a volume comes to be.
const (
	selectedNode  = "volume.kubernetes.io/selected-node"
	bindCompleted = "pv.kubernetes.io/bind-completed"
	noProvisioner = "kubernetes.io/no-provisioner"
)

// volumes lets a pod run only where its volumes can be: bound ones by their node
// affinity, ones that wait for a consumer where a volume matches or can be
// provisioned. Before binding it tells the volume controller the chosen node and
// waits until the claims are bound.
func volumes() Plugin {
	return Plugin{
		Name:    "VolumeBinding",
		Filter:  filterVolumes,
		Prepare: bindVolumes,
		Wakes:   []Change{VolumesChanged, NodeChanged, PodGone},
	}
}

// claimsOf are the names of the claims of a pod, those of its ephemeral volumes
// included.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}

func filterVolumes(s *Snapshot, pod *corev1.Pod) func(*Node) Reason {
	names := claimsOf(pod)
	if len(names) == 0 {
		return nil
	}
	always := func(text string) func(*Node) Reason {
		return func(*Node) Reason { return Reason{Text: text, Final: true} }
	}
	var bound []*corev1.PersistentVolume
	var waiting []*corev1.PersistentVolumeClaim
	for _, name := range names {
		claim := s.Facts.Claim(pod.Namespace, name)
		switch {
		case claim == nil:
			return always(fmt.Sprintf("persistentvolumeclaim %q not found", name))
		case claim.Status.Phase == corev1.ClaimLost:
			return always(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName))
		case claim.DeletionTimestamp != nil:
			return always(fmt.Sprintf("persistentvolumeclaim %q is being deleted", name))
		case isBound(claim):
			volume := s.Facts.Volume(claim.Spec.VolumeName)
			if volume == nil {
				return always("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
			}
			bound = append(bound, volume)
		case claim.Spec.VolumeName != "" || !waitsForConsumer(s.Facts, claim):
			return always("pod has unbound immediate PersistentVolumeClaims")
		default:
			waiting = append(waiting, claim)
		}
	}
	return func(n *Node) Reason {
		for _, volume := range bound {
			if !reaches(volume, n.Object) {
				return Reason{Text: "node(s) had volume node affinity conflict", Final: true}
			}
		}
		for _, claim := range waiting {
			if chosen := claim.Annotations[selectedNode]; chosen != "" && chosen != n.Name() {
				return Reason{Text: "node(s) had volume node affinity conflict", Final: true}
			}
			if matchingVolume(s.Facts, claim, n.Object) == nil && !canProvision(s.Facts, claim, n.Object) {
				return Reason{Text: "node(s) didn't find available persistent volumes to bind", Final: true}
			}
		}
		return exclusive(s, pod, names)
	}
}

// exclusive refuses a second pod of a ReadWriteOncePod claim.
func exclusive(s *Snapshot, pod *corev1.Pod, names []string) Reason {
	for _, name := range names {
		claim := s.Facts.Claim(pod.Namespace, name)
		if claim == nil || !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			continue
		}
		for _, n := range s.Nodes {
			for _, other := range n.Pods {
				if other.Namespace == pod.Namespace && other.UID != pod.UID && slices.Contains(claimsOf(other.Pod), name) {
					return Reason{Text: "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"}
				}
			}
		}
	}
	return fits
}

func isBound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName != "" && claim.Annotations[bindCompleted] != "" || claim.Status.Phase == corev1.ClaimBound
}

func waitsForConsumer(facts Facts, claim *corev1.PersistentVolumeClaim) bool {
	class := classOf(facts, claim)
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

func classOf(facts Facts, claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil
	}
	return facts.Class(*claim.Spec.StorageClassName)
}

func reaches(volume *corev1.PersistentVolume, node *corev1.Node) bool {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return true
	}
	match, err := schedulinghelper.MatchNodeSelectorTerms(node, volume.Spec.NodeAffinity.Required)
	return err == nil && match
}

// matchingVolume is the smallest free volume on the node that satisfies the
// claim, or nil.
func matchingVolume(facts Facts, claim *corev1.PersistentVolumeClaim, node *corev1.Node) *corev1.PersistentVolume {
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		selector = selectorOf(claim.Spec.Selector)
	}
	var best *corev1.PersistentVolume
	for _, v := range facts.Volumes() {
		size := v.Spec.Capacity[corev1.ResourceStorage]
		if v.Status.Phase != corev1.VolumeAvailable && v.Spec.ClaimRef == nil || v.DeletionTimestamp != nil || size.Cmp(want) < 0 {
			continue
		}
		if ref := v.Spec.ClaimRef; ref != nil && (ref.Namespace != claim.Namespace || ref.Name != claim.Name || ref.UID != "" && ref.UID != claim.UID) {
			continue
		}
		if claim.Spec.StorageClassName != nil && v.Spec.StorageClassName != *claim.Spec.StorageClassName ||
			!selector.Matches(labels.Set(v.Labels)) || !hasModes(v.Spec.AccessModes, claim.Spec.AccessModes) || !reaches(v, node) {
			continue
		}
		if best == nil || size.Cmp(best.Spec.Capacity[corev1.ResourceStorage]) < 0 {
			best = v
		}
	}
	return best
}

func hasModes(have, want []corev1.PersistentVolumeAccessMode) bool {
	for _, mode := range want {
		if !slices.Contains(have, mode) {
			return false
		}
	}
	return true
}

func canProvision(facts Facts, claim *corev1.PersistentVolumeClaim, node *corev1.Node) bool {
	class := classOf(facts, claim)
	if class == nil || class.Provisioner == "" || class.Provisioner == noProvisioner {
		return false
	}
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(e.Values, node.Labels[e.Key])
		})
	})
}

// bindTimeout is upstream's for waiting until a pod's claims are bound.
const bindTimeout = 10 * time.Minute

// bindVolumes names the chosen node (or volume) on each waiting claim, and waits
// until the volume controller has bound them all.
func bindVolumes(ctx context.Context, client kubernetes.Interface, s *Snapshot, pod *corev1.Pod, n *Node) error {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	for _, name := range claimsOf(pod) {
		claim := s.Facts.Claim(pod.Namespace, name)
		if claim == nil || isBound(claim) {
			continue
		}
		if err := chooseVolume(ctx, client, s.Facts, claim, n); err != nil {
			return fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		if err := awaitBound(ctx, s.Facts, claim); err != nil {
			return err
		}
	}
	return nil
}

func chooseVolume(ctx context.Context, client kubernetes.Interface, facts Facts, claim *corev1.PersistentVolumeClaim, n *Node) error {
	if volume := matchingVolume(facts, claim, n.Object); volume != nil {
		if volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID != "" {
			return nil
		}
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}},"spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","namespace":%q,"name":%q,"uid":%q}}}`,
			volume.ResourceVersion, claim.Namespace, claim.Name, claim.UID)
		_, err := client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if claim.Annotations[selectedNode] == n.Name() {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, selectedNode, n.Name())
	_, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func awaitBound(ctx context.Context, facts Facts, claim *corev1.PersistentVolumeClaim) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		now := facts.Claim(claim.Namespace, claim.Name)
		if now == nil {
			return fmt.Errorf("claim %s/%s was deleted", claim.Namespace, claim.Name)
		}
		if isBound(now) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, ctx.Err())
		case <-tick.C:
		}
	}
}
