package volume

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim is the PersistentVolume behind a claim.
func (h *Host) claim(ctx context.Context, r request) (Mounted, error) {
	name, readOnly := "", false
	if s := r.vol.PersistentVolumeClaim; s != nil {
		name, readOnly = s.ClaimName, s.ReadOnly
	} else {
		name = r.pod.Name + "-" + r.vol.Name
	}
	pvc, pv, err := h.Objects.Volume(ctx, r.pod.Namespace, name)
	if err != nil {
		return Mounted{}, err
	}
	if r.vol.Ephemeral != nil && !metav1.IsControlledBy(pvc, r.pod) {
		return Mounted{}, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", pvc.Namespace, pvc.Name, r.pod.Namespace, r.pod.Name)
	}
	m := Mounted{ReadOnly: readOnly}
	switch {
	case pv.Spec.HostPath != nil:
		m.Path = pv.Spec.HostPath.Path
		if pv.Spec.HostPath.Type == nil || *pv.Spec.HostPath.Type == corev1.HostPathUnset {
			// As the runtime would do on mounting, but in time for subpaths.
			if _, err := os.Stat(m.Path); os.IsNotExist(err) {
				return m, os.MkdirAll(m.Path, 0o755)
			}
		}
		return m, checkHostPath(m.Path, pv.Spec.HostPath.Type)
	case pv.Spec.Local != nil:
		m.Path = pv.Spec.Local.Path
		if _, err := os.Stat(m.Path); err != nil {
			return m, fmt.Errorf("local volume %s: %w", pv.Name, err)
		}
		if pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock {
			return m, nil
		}
		return m, own(m.Path, r.pod, readOnly)
	}
	if pv.Spec.CSI != nil {
		return Mounted{}, noDriver(pv.Spec.CSI.Driver)
	}
	return Mounted{}, errors.New("no volume plugin matched")
}

// csi is a volume of a driver that registers with the node. None can, so far.
func (h *Host) csi(_ context.Context, r request) (Mounted, error) {
	return Mounted{}, noDriver(r.vol.CSI.Driver)
}

func noDriver(name string) error {
	return fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name %s not found in the list of registered CSI drivers", name)
}

// image is the content of an OCI image. It is pulled when a container that
// mounts it starts, like that container's own, and the runtime mounts it.
func (h *Host) image(_ context.Context, r request) (Mounted, error) {
	return Mounted{Image: r.vol.Image.Reference, ReadOnly: true}, nil
}
