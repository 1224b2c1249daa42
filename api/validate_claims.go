package api

import (
	"path"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidatePersistentVolume names the faults of a volume.
func ValidatePersistentVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	keep := func(_ string, errs field.ErrorList) field.ErrorList { return errs }
	if old != nil && old.Spec.NodeAffinity != nil && old.Spec.NodeAffinity.Required != nil && hasBadLabels(old.Spec.NodeAffinity.Required) {
		keep = nil
	}
	errs := validVolumeSpec(&v.Spec, v.Name, keep, specPath())
	_, options := v.Annotations[corev1.MountOptionAnnotation]
	errs = append(errs, forbid(options && !mountsWithOptions(&v.Spec.PersistentVolumeSource), field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type")...)
	if old != nil {
		errs = append(errs, validVolumeUpdate(v, old)...)
	}
	return errs
}

func hasBadLabels(s *corev1.NodeSelector) bool {
	return slices.ContainsFunc(s.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return slices.ContainsFunc(r.Values, func(value string) bool { return len(validation.IsValidLabelValue(value)) > 0 })
		})
	})
}

// mountsWithOptions tells the older types, of which some are mounted with the
// options of an annotation.
func mountsWithOptions(s *corev1.PersistentVolumeSource) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil || s.Quobyte != nil || s.ISCSI != nil ||
		s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil || s.VsphereVolume != nil || s.AzureDisk != nil || s.PhotonPersistentDisk != nil
}

func validVolumeSpec(spec *corev1.PersistentVolumeSpec, name string, keep func(string, field.ErrorList) field.ErrorList, at *field.Path) field.ErrorList {
	errs := need(len(spec.AccessModes) == 0, at.Child("accessModes"), "")
	errs = append(errs, validAccessModes(spec.AccessModes, at.Child("accessModes"))...)
	capacity := at.Child("capacity")
	errs = append(errs, need(len(spec.Capacity) == 0, capacity, "")...)
	if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(capacity, spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, key := range sortedKeys(spec.Capacity) {
		q, here := spec.Capacity[key], capacity.Key(string(key))
		errs = append(errs, validVolumeSize(q, here)...)
		errs = append(errs, positiveQuantity(q, here)...)
	}
	policy := spec.PersistentVolumeReclaimPolicy
	if policy != "" {
		errs = append(errs, among(policy, at.Child("persistentVolumeReclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	}
	if a := spec.NodeAffinity; a != nil {
		here := at.Child("nodeAffinity", "required")
		errs = append(errs, need(a.Required == nil, here, "must specify required node constraints")...)
		if a.Required != nil {
			errs = append(errs, validNodeSelector(a.Required, here, keep)...)
		}
	}
	errs = append(errs, validSource(&spec.PersistentVolumeSource, pvTypes, volumeIn{name: name, affine: spec.NodeAffinity != nil}, at)...)
	recycledRoot := spec.HostPath != nil && path.Clean(spec.HostPath.Path) == "/" && policy == corev1.PersistentVolumeReclaimRecycle
	errs = append(errs, forbid(recycledRoot, at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")...)
	errs = append(errs, validIfSet(spec.StorageClassName, at.Child("storageClassName"), subdomain)...)
	errs = append(errs, amongIfSet(spec.VolumeMode, at.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	if class := spec.VolumeAttributesClassName; class != nil {
		here := at.Child("volumeAttributesClassName")
		errs = append(errs, need(*class == "", here, "an empty string is disallowed")...)
		errs = append(errs, validIfSet(*class, here, subdomain)...)
		errs = append(errs, need(spec.CSI == nil, at.Child("csi"), "has to be specified when using volumeAttributesClassName")...)
	}
	return errs
}

// validVolumeUpdate keeps what a volume is. Not all of its faults tell that they are
// of the spec.
func validVolumeUpdate(v, old *corev1.PersistentVolume) field.ErrorList {
	is, was := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if is.CSI != nil && was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil {
		// A secret for growing may still be given.
		is.CSI = is.CSI.DeepCopy()
		is.CSI.ControllerExpandSecretRef = nil
	}
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(specPath().Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation\n"+diff.Diff(inner{was}, inner{is})))
	}
	errs = append(errs, unchanged(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if was := old.Spec.NodeAffinity; was != nil {
		newer := was.DeepCopy()
		renameLabels(newer.Required, v.Spec.NodeAffinity)
		moved := !equality.Semantic.DeepEqual(v.Spec.NodeAffinity, newer)
		errs = append(errs, refuse(moved, field.NewPath("nodeAffinity"), v.Spec.NodeAffinity, immutable+", except for updating from beta label to GA")...)
	}
	lost := old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil
	return append(errs, forbid(lost, specPath().Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden")...)
}

// stableLabels are the names that labels of nodes have now, by those they had.
var stableLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os": corev1.LabelOSStable, "beta.kubernetes.io/arch": corev1.LabelArchStable, corev1.LabelInstanceType: corev1.LabelInstanceTypeStable,
}

// renameLabels gives the labels of a selector their new names where another, in the
// same places, has these.
func renameLabels(s *corev1.NodeSelector, as *corev1.VolumeNodeAffinity) {
	if s == nil || as == nil || as.Required == nil {
		return
	}
	for i := range min(len(s.NodeSelectorTerms), len(as.Required.NodeSelectorTerms)) {
		old, now := s.NodeSelectorTerms[i].MatchExpressions, as.Required.NodeSelectorTerms[i].MatchExpressions
		for j := range min(len(old), len(now)) {
			if stableLabels[old[j].Key] == now[j].Key {
				old[j].Key = now[j].Key
			}
		}
	}
}

func validAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	alone, shared := false, false
	for _, m := range modes {
		bad := among(m, at, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = append(errs, bad...)
		alone = alone || m == corev1.ReadWriteOncePod
		shared = shared || m != corev1.ReadWriteOncePod && len(bad) == 0
	}
	return append(errs, forbid(alone && shared, at, "may not use ReadWriteOncePod with other access modes")...)
}

// ValidatePersistentVolumeClaim names the faults of a claim.
func ValidatePersistentVolumeClaim(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	if old == nil {
		return validClaimSpec(&c.Spec, nil, specPath())
	}
	return append(validClaimSpec(&c.Spec, &old.Spec, specPath()), validClaimUpdate(c, old)...)
}

func validClaimSpec(spec, old *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	errs := need(len(spec.AccessModes) == 0, at.Child("accessModes"), "at least 1 access mode is required")
	if old == nil || len(validLabels(old.Selector, nil)) == 0 {
		errs = append(errs, validLabels(spec.Selector, at.Child("selector"))...)
	}
	errs = append(errs, validAccessModes(spec.AccessModes, at.Child("accessModes"))...)
	here := at.Child("resources").Key(string(corev1.ResourceStorage))
	size, ok := spec.Resources.Requests[corev1.ResourceStorage]
	errs = append(errs, need(!ok, here, "")...)
	if ok {
		errs = append(errs, positiveQuantity(size, here)...)
	}
	if spec.StorageClassName != nil {
		errs = append(errs, validIfSet(*spec.StorageClassName, at.Child("storageClassName"), subdomain)...)
	}
	errs = append(errs, amongIfSet(spec.VolumeMode, at.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
	errs = append(errs, validDataSource(spec, old, at)...)
	if spec.VolumeAttributesClassName != nil {
		errs = append(errs, validIfSet(*spec.VolumeAttributesClassName, at.Child("volumeAttributesClassName"), subdomain)...)
	}
	return errs
}

// validDataSource checks what a new volume is filled from, said in two ways.
func validDataSource(spec, old *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	anyGroup := old != nil && (old.DataSource != nil && old.DataSource.APIGroup != nil || old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil)
	check := func(group *string, kind, name string, at *field.Path) field.ErrorList {
		errs := requiredFields(at, "name", name, "kind", kind)
		errs = append(errs, refuse((group == nil || *group == "") && kind != "PersistentVolumeClaim", at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")...)
		if group != nil && !anyGroup {
			errs = append(errs, validIfSet(*group, at.Child("apiGroup"), subdomain)...)
		}
		return errs
	}
	var errs field.ErrorList
	from, ref := spec.DataSource, spec.DataSourceRef
	if from != nil {
		errs = append(errs, check(from.APIGroup, from.Kind, from.Name, at.Child("dataSource"))...)
	}
	if ref == nil {
		return errs
	}
	errs = append(errs, check(ref.APIGroup, ref.Kind, ref.Name, at.Child("dataSourceRef"))...)
	elsewhere := ref.Namespace != nil && *ref.Namespace != ""
	if elsewhere {
		errs = append(errs, invalid(at.Child("dataSourceRef", "namespace"), *ref.Namespace, label(*ref.Namespace))...)
	}
	// As it happens, both show a path, which has no fields of its own.
	errs = append(errs, refuse(from != nil && elsewhere, at, struct{}{}, "may not be specified when dataSourceRef.namespace is specified")...)
	differs := from != nil && !elsewhere && (!reflect.DeepEqual(from.APIGroup, ref.APIGroup) || from.Kind != ref.Kind || from.Name != ref.Name)
	return append(errs, refuse(differs, at, struct{}{}, "must match dataSourceRef")...)
}

func validClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	at := specPath()
	is, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = is.VolumeName
	}
	errs := keepClass(c, old, is, was)
	if c.Status.Phase == corev1.ClaimBound {
		if is.Resources.Requests != nil {
			is.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		is.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(at, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+diff.Diff(inner{*was}, inner{*is})))
	}
	size, before, real := c.Spec.Resources.Requests.Storage(), old.Spec.Resources.Requests.Storage(), old.Status.Capacity.Storage()
	errs = append(errs, forbid(size.Cmp(*before) < 0 && size.Cmp(*real) <= 0, at.Child("resources", "requests", "storage"), "field can not be less than status.capacity")...)
	errs = append(errs, unchanged(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Status.CurrentVolumeAttributesClassName == nil || equality.Semantic.DeepEqual(c.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName) {
		return errs
	}
	const set, class = " is forbidden when status.currentVolumeAttributesClassName is not nil", "volumeAttributesClassName"
	now := c.Spec.VolumeAttributesClassName
	errs = append(errs, forbid(now == nil, at.Child(class), "update to nil"+set)...)
	return append(errs, forbid(now != nil && *now == "", at.Child(class), "update to empty string"+set)...)
}

// keepClass lets a claim's storage class be said in its field where it was said in
// an annotation or nowhere.
func keepClass(c, old *corev1.PersistentVolumeClaim, is, was *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	const key = corev1.BetaStorageClassAnnotation
	before, had := old.Annotations[key]
	now, has := c.Annotations[key]
	named := was.StorageClassName == nil && is.StorageClassName != nil
	if named && had && *is.StorageClassName == before && (!has || now == before) {
		is.StorageClassName = nil
		return nil
	}
	if named && (!had || *is.StorageClassName == before) {
		is.StorageClassName = was.StorageClassName
	}
	return refuse(now != before, field.NewPath("metadata", "annotations", key), now, immutable)
}
