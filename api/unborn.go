package api

import (
	"reflect"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// unborn are the fields of features that are not on yet, or no more, by what has them.
var unborn = map[reflect.Type][]string{
	reflect.TypeFor[batchv1.JobSpec]():                          {"Scheduling"},
	reflect.TypeFor[corev1.NodeSpec]():                          {"PodPreemptionPolicy", "ConfigSource"},
	reflect.TypeFor[corev1.PodSpec]():                           {"SchedulingGroup", "EvictionResponders"},
	reflect.TypeFor[corev1.Lifecycle]():                         {"StopSignal"},
	reflect.TypeFor[corev1.HTTPGetAction]():                     {"Protocol"},
	reflect.TypeFor[corev1.GRPCAction]():                        {"Mode"},
	reflect.TypeFor[corev1.VolumeMount]():                       {"BindMountOptions"},
	reflect.TypeFor[corev1.EmptyDirVolumeSource]():              {"Mode"},
	reflect.TypeFor[corev1.PersistentVolumeClaimStatus]():       {"HealthStatus"},
	reflect.TypeFor[corev1.PodStatus]():                         {"NodeAllocatableResourceClaimStatuses", "VolumeHealth"},
	reflect.TypeFor[corev1.VolumeMountStatus]():                 {"VolumeStatus"},
	reflect.TypeFor[resourcev1.DeviceRequestAllocationResult](): {"SkipNodeOperations"},
	reflect.TypeFor[storagev1.CSINodeStatus]():                  {"StorageHealth"},
	reflect.TypeFor[corev1.ConfigMapVolumeSource]():             {"DefaultUser"},
	reflect.TypeFor[corev1.SecretVolumeSource]():                {"DefaultUser"},
	reflect.TypeFor[corev1.DownwardAPIVolumeSource]():           {"DefaultUser"},
	reflect.TypeFor[corev1.ProjectedVolumeSource]():             {"DefaultUser"},
	reflect.TypeFor[corev1.KeyToPath]():                         {"User"},
	reflect.TypeFor[corev1.DownwardAPIVolumeFile]():             {"User"},
	reflect.TypeFor[corev1.ServiceAccountTokenProjection]():     {"User"},
	reflect.TypeFor[corev1.ClusterTrustBundleProjection]():      {"User"},
	reflect.TypeFor[corev1.PodCertificateProjection]():          {"User"},
}

// DropUnborn empties the fields of features that are off, as if they were not
// known, unless the object had some before; old is nil on create. A lifecycle that
// said no more is then none.
func DropUnborn(obj, old any) {
	kept := map[string]bool{}
	if old != nil {
		eachUnborn(reflect.ValueOf(old), func(name string, field reflect.Value) { kept[name] = kept[name] || !field.IsZero() })
	}
	eachUnborn(reflect.ValueOf(obj), func(name string, field reflect.Value) {
		if !kept[name] {
			field.SetZero()
		}
	})
}

func eachUnborn(v reflect.Value, f func(name string, field reflect.Value)) {
	if !hasUnborn(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		eachUnborn(v.Elem(), f)
		if l, ok := v.Interface().(*corev1.Lifecycle); ok && *l == (corev1.Lifecycle{}) && v.CanSet() {
			v.SetZero()
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachUnborn(v.Index(i), f)
		}
	case reflect.Struct:
		for _, name := range unborn[v.Type()] {
			f(name, v.FieldByName(name))
		}
		for i := range v.NumField() {
			eachUnborn(v.Field(i), f)
		}
	}
}

// withUnborn remembers which types have such a field, or hold something that has.
var withUnborn sync.Map // of reflect.Type and bool

func hasUnborn(t reflect.Type) bool {
	if known, ok := withUnborn.Load(t); ok {
		return known.(bool)
	}
	found := holdsUnborn(t, nil)
	withUnborn.Store(t, found)
	return found
}

func holdsUnborn(t reflect.Type, above []reflect.Type) bool {
	if unborn[t] != nil {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return holdsUnborn(t.Elem(), above)
	case reflect.Struct:
		for i := range t.NumField() {
			if !slices.Contains(above, t) && holdsUnborn(t.Field(i).Type, append(above, t)) {
				return true
			}
		}
	}
	return false
}
