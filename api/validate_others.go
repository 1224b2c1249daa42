package api

import (
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// highestUserPriority is the most that a class may give; what is above is the
// system's own.
const highestUserPriority = int32(1000000000)

// systemPriorities are those of the classes that the system itself has.
var systemPriorities = map[string]int32{"system-cluster-critical": 2 * highestUserPriority, "system-node-critical": 2*highestUserPriority + 1000}

// ValidatePriorityClass names the faults of a PriorityClass.
func ValidatePriorityClass(c, old *schedulingv1.PriorityClass) field.ErrorList {
	value, preemption := field.NewPath("value"), field.NewPath("preemptionPolicy")
	if old != nil {
		errs := forbid(c.Value != old.Value, value, "may not be changed in an update.")
		return append(errs, unchanged(c.PreemptionPolicy, old.PreemptionPolicy, preemption)...)
	}
	var errs field.ErrorList
	if strings.HasPrefix(c.Name, "system-") {
		why := notOfSystem(c)
		errs = forbid(why != "", field.NewPath("metadata", "name"), "priority class names with 'system-' prefix are reserved for system use only. error: "+why)
	} else {
		errs = forbid(c.Value > highestUserPriority, value, fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority))
	}
	return append(errs, validPreemption(c.PreemptionPolicy, preemption)...)
}

// notOfSystem is why a class is none of the system's.
func notOfSystem(c *schedulingv1.PriorityClass) string {
	switch value, known := systemPriorities[c.Name]; {
	case !known:
		return c.Name + " is not a known system priority class"
	case c.Value != value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be false", c.Name)
	}
	return ""
}

func validPreemption(p *corev1.PreemptionPolicy, at *field.Path) field.ErrorList {
	switch {
	case p == nil:
		return nil
	case *p == "":
		return field.ErrorList{field.Required(at, "")}
	}
	return among(*p, at, corev1.PreemptLowerPriority, corev1.PreemptNever)
}

// ValidateRuntimeClass names the faults of a RuntimeClass.
func ValidateRuntimeClass(c, old *nodev1.RuntimeClass) field.ErrorList {
	at := field.NewPath("handler")
	errs := ruleOnCreate(validIfSet(c.Handler, at, label), old != nil)
	if old != nil {
		errs = append(errs, sealed(c.Handler, old.Handler, at)...)
	}
	errs = append(errs, requiredByRule(c.Handler, at)...)
	if c.Overhead != nil {
		errs = append(errs, validQuantities(c.Overhead.PodFixed, field.NewPath("overhead", "limits"))...)
	}
	if c.Scheduling == nil {
		return errs
	}
	at = field.NewPath("scheduling")
	errs = append(errs, metavalidation.ValidateLabels(c.Scheduling.NodeSelector, at.Child("nodeSelector"))...)
	at = at.Child("tolerations")
	errs = append(errs, validTolerations(c.Scheduling.Tolerations, at)...)
	seen := map[corev1.Toleration]bool{}
	for i, t := range c.Scheduling.Tolerations {
		key := corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}
		if seen[key] {
			errs = append(errs, field.Duplicate(at.Index(i), shown(t)))
		}
		seen[key] = true
	}
	return errs
}

// ValidateLease names the faults of a Lease.
func ValidateLease(l, _ *coordinationv1.Lease) field.ErrorList {
	at, spec := specPath(), &l.Spec
	var errs field.ErrorList
	if s := spec.LeaseDurationSeconds; s != nil {
		errs = append(errs, positiveNumber(int64(*s), at.Child("leaseDurationSeconds"))...)
	}
	return append(errs, nonNegativePtr(spec.LeaseTransitions, at.Child("leaseTransitions"))...)
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
