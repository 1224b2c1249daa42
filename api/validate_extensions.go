package api

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// APIServiceName checks the name of an APIService: its version and its group.
func APIServiceName(a *APIService) func(name string, prefix bool) []string {
	want := a.Spec.Version + "." + a.Spec.Group
	return func(name string, _ bool) []string {
		if bad := path.IsValidPathSegmentName(name); len(bad) > 0 || name == want {
			return bad
		}
		return []string{fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)}
	}
}

// ValidateAPIService names the faults of an APIService.
func ValidateAPIService(a, old *APIService) field.ErrorList {
	at, spec := specPath(), &a.Spec
	errs := renamed(a, old, APIServiceName)
	errs = append(errs, need(spec.Group == "" && spec.Version != "v1", at.Child("group"), "only v1 may have an empty group and it better be legacy kube")...)
	errs = append(errs, validIfSet(spec.Group, at.Child("group"), subdomain)...)
	errs = append(errs, invalid(at.Child("version"), spec.Version, validation.IsDNS1035Label(spec.Version))...)
	priority := func(name string, p, most int32) {
		errs = append(errs, refuse(p <= 0 || p > most, at.Child(name), p, fmt.Sprintf("must be positive and less than %d", most))...)
	}
	priority("groupPriorityMinimum", spec.GroupPriorityMinimum, 20000)
	priority("versionPriority", spec.VersionPriority, 1000)
	skip := at.Child("insecureSkipTLSVerify")
	s := spec.Service
	if s == nil {
		errs = append(errs, refuse(len(spec.CABundle) > 0, at.Child("caBundle"), fmt.Sprintf("%d bytes", len(spec.CABundle)), "local APIServices may not have a caBundle")...)
		return append(errs, refuse(spec.InsecureSkipTLSVerify, skip, true, "local APIServices may not have insecureSkipTLSVerify")...)
	}
	at = at.Child("service")
	errs = append(errs, requiredFields(at, "namespace", s.Namespace, "name", s.Name)...)
	if s.Port != nil {
		complaints := validation.IsValidPortNum(int(*s.Port))
		errs = append(errs, refuse(len(complaints) > 0, at.Child("port"), *s.Port, "port is not valid: "+strings.Join(complaints, ", "))...)
	}
	return append(errs, refuse(spec.InsecureSkipTLSVerify && len(spec.CABundle) > 0, skip, true, "may not be true if caBundle is present")...)
}

// ValidateAPIServiceStatus names the faults of an APIService with a new status.
func ValidateAPIServiceStatus(a, _ *APIService) field.ErrorList {
	return elements(a.Status.Conditions, field.NewPath("status", "conditions"), func(c *APIServiceCondition, at *field.Path) field.ErrorList {
		return among(string(c.Status), at.Child("status"), "True", "False", "Unknown")
	})
}
