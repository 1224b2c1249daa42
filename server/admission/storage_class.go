package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func storageClasses() schema.GroupResource {
	return schema.GroupResource{Group: storagev1.GroupName, Resource: "storageclasses"}
}

// defaultStorageClass gives claims that name no class (the empty name is one)
// the cluster's default.
func defaultStorageClass(reader Reader) Plugin {
	return Plugin{
		Name: "DefaultStorageClass",
		On:   on("", "persistentvolumeclaims", Create),
		Mutate: func(ctx context.Context, r *Request) error {
			claim, ok := r.Object.(*corev1.PersistentVolumeClaim)
			if !ok || claim.Spec.StorageClassName != nil {
				return nil
			}
			if _, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; old {
				return nil
			}
			all, err := list[*storagev1.StorageClass](ctx, reader, storageClasses(), "")
			if err != nil {
				return err
			}
			class, ok := newestDefault(all, func(c *storagev1.StorageClass) bool {
				return c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
					c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
			})
			if ok {
				claim.Spec.StorageClassName = &class.Name
			}
			return nil
		},
	}
}

// persistentVolumeClaimResize lets a claim grow only where its class can do it.
func persistentVolumeClaimResize(reader Reader) Plugin {
	return Plugin{
		Name: "PersistentVolumeClaimResize",
		On:   on("", "persistentvolumeclaims", Update),
		Validate: func(ctx context.Context, r *Request) error {
			claim, ok := r.Object.(*corev1.PersistentVolumeClaim)
			old, hadOld := r.Old.(*corev1.PersistentVolumeClaim)
			if !ok || !hadOld {
				return nil
			}
			size, oldSize := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
			if size.Cmp(oldSize) <= 0 {
				return nil
			}
			if old.Status.Phase != corev1.ClaimBound {
				return r.forbid("Only bound persistent volume claims can be expanded")
			}
			if !canExpand(ctx, reader, claim) {
				return r.forbid("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
			}
			return nil
		},
	}
}

func canExpand(ctx context.Context, reader Reader, claim *corev1.PersistentVolumeClaim) bool {
	name := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if name == "" && claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	if name == "" {
		return false
	}
	class, err := get[*storagev1.StorageClass](ctx, reader, storageClasses(), "", name)
	return err == nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}
