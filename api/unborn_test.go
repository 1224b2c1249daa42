package api

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestDropUnborn: what features that are off add to a pod is dropped, and stays where
// it was before.
func TestDropUnborn(t *testing.T) {
	pod := func() *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			SchedulingGroup: &corev1.PodSchedulingGroup{},
			Containers: []corev1.Container{{
				Lifecycle:    &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGTERM)},
				VolumeMounts: []corev1.VolumeMount{{Name: "v", BindMountOptions: []string{"nodev"}}},
			}},
			Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: ptr.To[int32](1)}}}},
		}}
	}
	fresh := pod()
	DropUnborn(fresh, nil)
	c := fresh.Spec.Containers[0]
	if fresh.Spec.SchedulingGroup != nil || c.Lifecycle != nil || c.VolumeMounts[0].BindMountOptions != nil || fresh.Spec.Volumes[0].EmptyDir.Mode != nil {
		t.Errorf("a new pod keeps %+v", fresh.Spec)
	}
	old, changed := pod(), pod()
	old.Spec.SchedulingGroup = nil
	DropUnborn(changed, old)
	if changed.Spec.SchedulingGroup != nil || changed.Spec.Containers[0].Lifecycle == nil || changed.Spec.Volumes[0].EmptyDir.Mode == nil {
		t.Errorf("an old pod has %+v", changed.Spec)
	}
}
