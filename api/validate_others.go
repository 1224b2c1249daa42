package api

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateStorageClass names the faults of a StorageClass.
func ValidateStorageClass(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, oneOfIfSet(c.ReclaimPolicy, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	errs = append(errs, oneOfIfSet(c.VolumeBindingMode, field.NewPath("volumeBindingMode"), storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	for key := range c.Parameters {
		if key == "" {
			errs = append(errs, field.Invalid(field.NewPath("parameters"), key, "field can not be empty."))
		}
	}
	if old == nil {
		return errs
	}
	if !slices.Equal(sortedPairs(c.Parameters), sortedPairs(old.Parameters)) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	if c.Provisioner != old.Provisioner {
		errs = append(errs, field.Forbidden(field.NewPath("provisioner"), "updates to provisioner are forbidden."))
	}
	if c.ReclaimPolicy != nil && old.ReclaimPolicy != nil && *c.ReclaimPolicy != *old.ReclaimPolicy {
		errs = append(errs, field.Forbidden(field.NewPath("reclaimPolicy"), "updates to reclaimPolicy are forbidden."))
	}
	return append(errs, unchanged(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

func sortedPairs(m map[string]string) []string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

func validProvisioner(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return invalid(at, strings.ToLower(name), validation.IsQualifiedName(strings.ToLower(name)))
}

// ValidateCSIDriver names the faults of a CSIDriver.
func ValidateCSIDriver(d, old *storagev1.CSIDriver) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if d.Spec.AttachRequired == nil {
		errs = append(errs, field.Required(at.Child("attachedRequired"), ""))
	}
	for i, m := range d.Spec.VolumeLifecycleModes {
		errs = append(errs, oneOf(m, at.Child("volumeLifecycleModes").Index(i), storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	errs = append(errs, oneOfIfSet(d.Spec.FSGroupPolicy, at.Child("fsGroupPolicy"), storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy)...)
	if old != nil {
		errs = append(errs, unchanged(d.Spec.AttachRequired, old.Spec.AttachRequired, at.Child("attachedRequired"))...)
		errs = append(errs, unchanged(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, at.Child("volumeLifecycleModes"))...)
	}
	return errs
}

// ValidateCSINode names the faults of a CSINode.
func ValidateCSINode(n, _ *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, d := range n.Spec.Drivers {
		at := specPath().Child("drivers").Index(i)
		errs = append(errs, required(d.Name, at.Child("name"))...)
		errs = append(errs, required(d.NodeID, at.Child("nodeID"))...)
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen[d.Name] = true
	}
	return errs
}

// ValidateVolumeAttachment names the faults of a VolumeAttachment.
func ValidateVolumeAttachment(a, old *storagev1.VolumeAttachment) field.ErrorList {
	at := specPath()
	errs := required(a.Spec.Attacher, at.Child("attacher"))
	errs = append(errs, required(a.Spec.NodeName, at.Child("nodeName"))...)
	if (a.Spec.Source.InlineVolumeSpec == nil) == (a.Spec.Source.PersistentVolumeName == nil) {
		errs = append(errs, field.Required(at.Child("source"), "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	}
	if old != nil {
		errs = append(errs, unchanged(a.Spec, old.Spec, at)...)
	}
	return errs
}

// highestUserPriority is the most that a class may give; what is above is the
// system's own.
const highestUserPriority = int32(1000000000)

// ValidatePriorityClass names the faults of a PriorityClass.
func ValidatePriorityClass(c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(c.Name, "system-") && c.Name != "system-cluster-critical" && c.Name != "system-node-critical" {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only. error: "+c.Name+" is not a known system priority class"))
	} else if !strings.HasPrefix(c.Name, "system-") && c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	errs = append(errs, oneOfIfSet(c.PreemptionPolicy, field.NewPath("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	if old != nil {
		if c.Value != old.Value {
			errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
		}
		errs = append(errs, unchanged(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
	}
	return errs
}

// ValidateRuntimeClass names the faults of a RuntimeClass.
func ValidateRuntimeClass(c, old *nodev1.RuntimeClass) field.ErrorList {
	at := field.NewPath("handler")
	errs := requiredLabel(c.Handler, at)
	if c.Overhead != nil {
		errs = append(errs, validQuantities(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if c.Scheduling != nil {
		errs = append(errs, metavalidation.ValidateLabels(c.Scheduling.NodeSelector, field.NewPath("scheduling", "nodeSelector"))...)
		errs = append(errs, validTolerations(c.Scheduling.Tolerations, field.NewPath("scheduling", "tolerations"))...)
	}
	if old != nil {
		errs = append(errs, unchanged(c.Handler, old.Handler, at)...)
	}
	return errs
}

// ValidateLease names the faults of a Lease.
func ValidateLease(l, _ *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	at := specPath()
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		errs = append(errs, positiveNumber(int64(*s), at.Child("leaseDurationSeconds"))...)
	}
	errs = append(errs, nonNegativePtr(l.Spec.LeaseTransitions, at.Child("leaseTransitions"))...)
	if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == "" && l.Spec.Strategy != nil {
		errs = append(errs, field.Required(at.Child("holderIdentity"), "must not be empty"))
	}
	return errs
}

// ValidateResourceClaim names the faults of a ResourceClaim.
func ValidateResourceClaim(c, old *resourcev1.ResourceClaim) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if old != nil {
		errs = append(errs, unchanged(c.Spec, old.Spec, at)...)
	}
	seen := map[string]bool{}
	for i, r := range c.Spec.Devices.Requests {
		here := at.Child("devices", "requests").Index(i)
		errs = append(errs, requiredLabel(r.Name, here.Child("name"))...)
		if seen[r.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), r.Name))
		}
		seen[r.Name] = true
		switch {
		case r.Exactly == nil && len(r.FirstAvailable) == 0:
			errs = append(errs, field.Required(here, "exactly one of `exactly` or `firstAvailable` is required"))
		case r.Exactly != nil && len(r.FirstAvailable) > 0:
			errs = append(errs, field.Invalid(here, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
		case r.Exactly != nil:
			errs = append(errs, required(r.Exactly.DeviceClassName, here.Child("exactly", "deviceClassName"))...)
		}
	}
	return errs
}

// ValidateStorageVersionMigration names the faults of a StorageVersionMigration.
func ValidateStorageVersionMigration(m, old *migrationv1.StorageVersionMigration) field.ErrorList {
	at := specPath().Child("resource")
	var errs field.ErrorList
	if m.Spec.Resource.Resource == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource is required to be set"))
	} else if complaints := validation.IsDNS1035Label(m.Spec.Resource.Resource); len(complaints) > 0 {
		errs = append(errs, field.Invalid(at.Child("resource"), m.Spec.Resource.Resource, strings.Join(complaints, ",")))
	}
	if complaints := validation.IsDNS1123Subdomain(m.Spec.Resource.Group); m.Spec.Resource.Group != "" && len(complaints) > 0 {
		errs = append(errs, field.Invalid(at.Child("group"), m.Spec.Resource.Group, strings.Join(complaints, ",")))
	}
	if old != nil {
		errs = append(errs, unchanged(m.Spec, old.Spec, specPath())...)
	}
	return errs
}

// ValidateMigrationStatus names the faults of a StorageVersionMigration with a
// new status: what it has ended in, it stays in.
func ValidateMigrationStatus(m, old *migrationv1.StorageVersionMigration) field.ErrorList {
	at := field.NewPath("status")
	var errs field.ErrorList
	if rv := m.Status.ResourceVersion; rv != "" {
		if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
			errs = append(errs, field.Invalid(at.Child("resourceVersion"), rv, err.Error()))
		}
	}
	conditions := at.Child("conditions")
	errs = append(errs, metavalidation.ValidateConditions(m.Status.Conditions, conditions)...)
	if old.Status.ResourceVersion != "" && m.Status.ResourceVersion != old.Status.ResourceVersion {
		errs = append(errs, field.Invalid(at.Child("resourceVersion"), m.Status.ResourceVersion, immutable))
	}
	is := func(m *migrationv1.StorageVersionMigration, t migrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
	}
	if is(m, migrationv1.MigrationSucceeded) && is(m, migrationv1.MigrationFailed) {
		errs = append(errs, field.Invalid(conditions, m.Status.Conditions, "Both success and failed conditions cannot be true at the same time"))
	}
	if is(old, migrationv1.MigrationSucceeded) && !is(m, migrationv1.MigrationSucceeded) {
		errs = append(errs, field.Invalid(conditions, m.Status.Conditions, "Success condition cannot be set to false once it is true"))
	}
	if is(old, migrationv1.MigrationFailed) && !is(m, migrationv1.MigrationFailed) {
		errs = append(errs, field.Invalid(conditions, m.Status.Conditions, "Failed condition cannot be set to false once it is true"))
	}
	return errs
}
