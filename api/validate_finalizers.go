package api

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateFinalizerNames wants finalizers to be the standard ones or to have a
// domain, in all but some younger groups.
func ValidateFinalizerNames(of schema.GroupResource, finalizers []string) field.ErrorList {
	switch of.Group {
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", APIRegistrationGroup, "coordination.k8s.io", "node.k8s.io", "policy":
		return nil
	}
	var errs field.ErrorList
	for i, f := range finalizers {
		errs = append(errs, validFinalizerName(f, field.NewPath("metadata", "finalizers").Index(i))...)
	}
	return errs
}

var standardFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

func validFinalizerName(f string, at *field.Path) field.ErrorList {
	known := strings.Contains(f, "/") || slices.Contains(standardFinalizers, f)
	return refuse(!known, at, f, "name is neither a standard finalizer name nor is it fully qualified")
}
