package admission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// podReferences is what a pod's spec names in its namespace, as "secrets/x",
// "configmaps/x", "persistentvolumeclaims/x".
func podReferences(pod *corev1.Pod) sets.Set[string] {
	refs := sets.New[string]()
	add := func(resource, name string) {
		if name != "" {
			refs.Insert(resource + "/" + name)
		}
	}
	env := func(env []corev1.EnvVar, from []corev1.EnvFromSource) {
		for _, e := range env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				add("secrets", e.ValueFrom.SecretKeyRef.Name)
			}
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				add("configmaps", e.ValueFrom.ConfigMapKeyRef.Name)
			}
		}
		for _, f := range from {
			if f.SecretRef != nil {
				add("secrets", f.SecretRef.Name)
			}
			if f.ConfigMapRef != nil {
				add("configmaps", f.ConfigMapRef.Name)
			}
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add("secrets", s.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		env(c.Env, c.EnvFrom)
	}
	for _, c := range pod.Spec.Containers {
		env(c.Env, c.EnvFrom)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		env(c.Env, c.EnvFrom)
	}
	for i := range pod.Spec.Volumes {
		addVolumeReferences(&pod.Spec.Volumes[i], add)
	}
	return refs
}

func addVolumeReferences(v *corev1.Volume, add func(resource, name string)) {
	secret := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			add("secrets", ref.Name)
		}
	}
	switch {
	case v.Secret != nil:
		add("secrets", v.Secret.SecretName)
	case v.ConfigMap != nil:
		add("configmaps", v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		add("persistentvolumeclaims", v.PersistentVolumeClaim.ClaimName)
	case v.AzureFile != nil:
		add("secrets", v.AzureFile.SecretName)
	case v.CSI != nil:
		secret(v.CSI.NodePublishSecretRef)
	case v.CephFS != nil:
		secret(v.CephFS.SecretRef)
	case v.Cinder != nil:
		secret(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		secret(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		secret(v.ISCSI.SecretRef)
	case v.RBD != nil:
		secret(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		secret(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		secret(v.StorageOS.SecretRef)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				add("secrets", source.Secret.Name)
			}
			if source.ConfigMap != nil {
				add("configmaps", source.ConfigMap.Name)
			}
		}
	}
}
