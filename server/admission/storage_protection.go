package admission

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// storageObjectInUseProtection adds the finalizers by which controllers keep
// volumes and claims as long as something uses them.
func storageObjectInUseProtection() Plugin {
	finalizers := map[string]string{
		"/persistentvolumeclaims":                "kubernetes.io/pvc-protection",
		"/persistentvolumes":                     "kubernetes.io/pv-protection",
		"storage.k8s.io/volumeattributesclasses": "kubernetes.io/vac-protection",
	}
	return Plugin{
		Name: "StorageObjectInUseProtection",
		On:   func(r *Request) bool { return r.Operation == Create && r.Subresource == "" },
		Mutate: func(_ context.Context, r *Request) error {
			finalizer, ok := finalizers[r.Resource.Group+"/"+r.Resource.Resource]
			m, hasMeta := r.Object.(metav1.Object)
			if ok && hasMeta && !slices.Contains(m.GetFinalizers(), finalizer) {
				m.SetFinalizers(append(m.GetFinalizers(), finalizer))
			}
			return nil
		},
	}
}
