package api

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateFlowSchema names the faults of a FlowSchema.
func ValidateFlowSchema(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if f.Spec.MatchingPrecedence <= 0 {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), f.Spec.MatchingPrecedence, "must be a positive value"))
	}
	if f.Spec.MatchingPrecedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), f.Spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	}
	if f.Spec.PriorityLevelConfiguration.Name == "" {
		errs = append(errs, field.Required(at.Child("priorityLevelConfiguration", "name"), "must reference a priority level"))
	}
	if f.Spec.DistinguisherMethod != nil {
		errs = append(errs, oneOf(f.Spec.DistinguisherMethod.Type, at.Child("distinguisherMethod", "type"), flowcontrolv1.FlowDistinguisherMethodByUserType, flowcontrolv1.FlowDistinguisherMethodByNamespaceType)...)
	}
	for i, rule := range f.Spec.Rules {
		here := at.Child("rules").Index(i)
		if len(rule.Subjects) == 0 {
			errs = append(errs, field.Required(here.Child("subjects"), "subjects must contain at least one value"))
		}
		if len(rule.ResourceRules)+len(rule.NonResourceRules) == 0 {
			errs = append(errs, field.Required(here, "at least one of resourceRules and nonResourceRules has to be non-empty"))
		}
	}
	return errs
}

// ValidatePriorityLevel names the faults of a PriorityLevelConfiguration.
func ValidatePriorityLevel(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	at := specPath()
	errs := oneOf(l.Spec.Type, at.Child("type"), flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	switch l.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if l.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(at.Child("limited"), "must be nil if the type is not Limited"))
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if l.Spec.Limited == nil {
			return append(errs, field.Required(at.Child("limited"), "must not be empty when type is Limited"))
		}
		errs = append(errs, oneOf(l.Spec.Limited.LimitResponse.Type, at.Child("limited", "limitResponse", "type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	}
	return errs
}

// ValidateAPIService names the faults of an APIService.
func ValidateAPIService(a, _ *APIService) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if want := a.Spec.Version + "." + a.Spec.Group; a.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), a.Name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	if a.Spec.Group != "" {
		errs = append(errs, invalid(at.Child("group"), a.Spec.Group, validation.IsDNS1123Subdomain(a.Spec.Group))...)
	}
	errs = append(errs, invalid(at.Child("version"), a.Spec.Version, validation.IsDNS1035Label(a.Spec.Version))...)
	if p := a.Spec.GroupPriorityMinimum; p <= 0 || p > 20000 {
		errs = append(errs, field.Invalid(at.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := a.Spec.VersionPriority; p <= 0 || p > 1000 {
		errs = append(errs, field.Invalid(at.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if s := a.Spec.Service; s != nil {
		errs = append(errs, required(s.Name, at.Child("service", "name"))...)
		errs = append(errs, required(s.Namespace, at.Child("service", "namespace"))...)
		if a.Spec.InsecureSkipTLSVerify && len(a.Spec.CABundle) > 0 {
			errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), a.Spec.InsecureSkipTLSVerify, "may not be true if caBundle is present"))
		}
	} else if len(a.Spec.CABundle) > 0 || a.Spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(at.Child("caBundle"), "", "local APIServices may not have a caBundle"))
	}
	return errs
}
