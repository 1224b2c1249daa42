package api

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateRole names the faults of a Role.
func ValidateRole(r, _ *rbacv1.Role) field.ErrorList { return validRules(r.Rules, true) }

// ValidateClusterRole names the faults of a ClusterRole.
func ValidateClusterRole(r, _ *rbacv1.ClusterRole) field.ErrorList {
	errs := validRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		errs = append(errs, metavalidation.ValidateLabelSelector(&r.AggregationRule.ClusterRoleSelectors[i], metavalidation.LabelSelectorValidationOptions{}, at.Index(i))...)
	}
	return errs
}

func validRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, r := range rules {
		at := field.NewPath("rules").Index(i)
		noVerbs := func() {
			if len(r.Verbs) == 0 {
				errs = append(errs, field.Required(at.Child("verbs"), ""))
			}
		}
		if len(r.NonResourceURLs) > 0 {
			noVerbs()
			if namespaced {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
		noVerbs()
	}
	return errs
}

// ValidateRoleBinding names the faults of a RoleBinding.
func ValidateRoleBinding(b, old *rbacv1.RoleBinding) field.ErrorList {
	errs := validRoleRef(b.RoleRef, "Role", "ClusterRole")
	errs = append(errs, validSubjects(b.Subjects, false)...)
	if old != nil && b.RoleRef != old.RoleRef {
		errs = append(errs, field.Invalid(field.NewPath("roleRef"), b.RoleRef, "cannot change roleRef"))
	}
	return errs
}

// ValidateClusterRoleBinding names the faults of a ClusterRoleBinding.
func ValidateClusterRoleBinding(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	errs := validRoleRef(b.RoleRef, "ClusterRole")
	errs = append(errs, validSubjects(b.Subjects, true)...)
	if old != nil && b.RoleRef != old.RoleRef {
		errs = append(errs, field.Invalid(field.NewPath("roleRef"), b.RoleRef, "cannot change roleRef"))
	}
	return errs
}

func validRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	var errs field.ErrorList
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		return append(errs, field.Required(at.Child("name"), ""))
	}
	return append(errs, invalid(at.Child("name"), ref.Name, path.ValidatePathSegmentName(ref.Name, false))...)
}

func validSubjects(subjects []rbacv1.Subject, wide bool) field.ErrorList {
	var errs field.ErrorList
	for i, s := range subjects {
		at := field.NewPath("subjects").Index(i)
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			if s.Name != "" {
				errs = append(errs, invalid(at.Child("name"), s.Name, validation.IsDNS1123Subdomain(s.Name))...)
			}
			if s.APIGroup != "" {
				errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{""}))
			}
			if wide && s.Namespace == "" {
				errs = append(errs, field.Required(at.Child("namespace"), ""))
			}
		case rbacv1.UserKind, rbacv1.GroupKind:
			if s.APIGroup != rbacv1.GroupName {
				errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
		}
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
	}
	return errs
}
