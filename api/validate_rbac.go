package api

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateRole names the faults of a Role.
func ValidateRole(r, _ *rbacv1.Role) field.ErrorList { return validRules(r.Rules, true) }

// ValidateClusterRole names the faults of a ClusterRole.
func ValidateClusterRole(r, old *rbacv1.ClusterRole) field.ErrorList {
	errs := validRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	var options metavalidation.LabelSelectorValidationOptions
	if old != nil && old.AggregationRule != nil {
		for i := range old.AggregationRule.ClusterRoleSelectors {
			options.AllowInvalidLabelValueInSelector = options.AllowInvalidLabelValueInSelector || hasBadSelector(&old.AggregationRule.ClusterRoleSelectors[i])
		}
	}
	at, selectors := field.NewPath("aggregationRule", "clusterRoleSelectors"), r.AggregationRule.ClusterRoleSelectors
	errs = append(errs, need(len(selectors) == 0, at, "at least one clusterRoleSelector required if aggregationRule is non-nil")...)
	return append(errs, elements(selectors, at, func(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
		errs := metavalidation.ValidateLabelSelector(s, options, at)
		selector, err := metav1.LabelSelectorAsSelector(s)
		return append(errs, refuse(err != nil, at, selector, "invalid label selector.")...)
	})...)
}

func validRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	return elements(rules, field.NewPath("rules"), func(r *rbacv1.PolicyRule, at *field.Path) field.ErrorList {
		errs := need(len(r.Verbs) == 0, at.Child("verbs"), "").MarkBeta()
		if urls := at.Child("nonResourceURLs"); len(r.NonResourceURLs) > 0 {
			errs = append(errs, refuse(namespaced, urls, r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs")...)
			return append(errs, refuse(len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0, urls, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")...)
		}
		errs = append(errs, need(len(r.APIGroups) == 0, at.Child("apiGroups"), "resource rules must supply at least one api group")...)
		return append(errs, need(len(r.Resources) == 0, at.Child("resources"), "resource rules must supply at least one resource")...)
	})
}

// ValidateRoleBinding names the faults of a RoleBinding.
func ValidateRoleBinding(b, old *rbacv1.RoleBinding) field.ErrorList {
	errs := validRoleRef(b.RoleRef, old != nil, "Role", "ClusterRole")
	errs = append(errs, validSubjects(b.Subjects, false)...)
	if old == nil {
		return errs
	}
	return append(errs, unchanged(b.RoleRef, old.RoleRef, field.NewPath("roleRef"))...)
}

// ValidateClusterRoleBinding names the faults of a ClusterRoleBinding.
func ValidateClusterRoleBinding(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	errs := validRoleRef(b.RoleRef, old != nil, "ClusterRole")
	errs = append(errs, validSubjects(b.Subjects, true)...)
	if old == nil {
		return errs
	}
	return append(errs, unchanged(b.RoleRef, old.RoleRef, field.NewPath("roleRef"))...)
}

func validRoleRef(ref rbacv1.RoleRef, update bool, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	errs := among(ref.APIGroup, at.Child("apiGroup"), rbacv1.GroupName)
	errs = append(errs, among(ref.Kind, at.Child("kind"), kinds...)...)
	errs = append(errs, ruleOnCreate(required(ref.Name, at.Child("name")), update)...)
	return append(errs, validIfSet(ref.Name, at.Child("name"), path.IsValidPathSegmentName)...)
}

func validSubjects(subjects []rbacv1.Subject, wide bool) field.ErrorList {
	return elements(subjects, field.NewPath("subjects"), func(s *rbacv1.Subject, at *field.Path) field.ErrorList {
		errs := requiredByRule(s.Name, at.Child("name"))
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			errs = append(errs, validIfSet(s.Name, at.Child("name"), subdomain)...)
			errs = append(errs, among(s.APIGroup, at.Child("apiGroup"), "")...)
			return append(errs, need(wide && s.Namespace == "", at.Child("namespace"), "")...)
		case rbacv1.UserKind, rbacv1.GroupKind:
			return append(errs, among(s.APIGroup, at.Child("apiGroup"), rbacv1.GroupName)...)
		}
		return append(errs, among(s.Kind, at.Child("kind"), rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
	})
}
