package api

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Validation is functions ValidateX(obj, old) that name every fault of an
// object by its field, in Kubernetes' words: clients and tests know them. old
// is nil on create. Metadata is checked elsewhere, for all kinds alike.

const (
	immutable   = "field is immutable"
	notNegative = "must be greater than or equal to 0"
)

func specPath() *field.Path { return field.NewPath("spec") }

// invalid makes an error of each complaint about a value.
func invalid(path *field.Path, value any, complaints []string) field.ErrorList {
	var errs field.ErrorList
	for _, c := range complaints {
		errs = append(errs, field.Invalid(path, value, c))
	}
	return errs
}

func nonNegative[N int32 | int64 | int](n N, path *field.Path) field.ErrorList {
	if n < 0 {
		return field.ErrorList{field.Invalid(path, int64(n), notNegative).WithOrigin("minimum")}
	}
	return nil
}

func nonNegativePtr[N int32 | int64 | int](n *N, path *field.Path) field.ErrorList {
	if n == nil {
		return nil
	}
	return nonNegative(*n, path)
}

func positiveNumber(n int64, path *field.Path) field.ErrorList {
	if n <= 0 {
		return field.ErrorList{field.Invalid(path, n, "must be greater than 0").WithOrigin("minimum")}
	}
	return nil
}

// oneOf wants one of the given words; they are named in alphabetical order.
func oneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	sorted := slices.Clone(allowed)
	slices.Sort(sorted)
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, value, sorted)}
}

// oneOfIfSet lets the value be absent.
func oneOfIfSet[T ~string](value *T, path *field.Path, allowed ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return oneOf(*value, path, allowed...)
}

func required(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// requiredLabel wants a DNS label, and one at all.
func requiredLabel(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, value, validation.IsDNS1123Label(value))
}

func subdomainIfSet(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	return invalid(path, value, validation.IsDNS1123Subdomain(value))
}

// unchanged wants a field to be as it was.
func unchanged(value, old any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, immutable).WithOrigin("immutable")}
}

// validSelector checks the selector of a workload and that it picks the pods of
// the workload's own template.
func validSelector(kind string, s *metav1.LabelSelector, template map[string]string, path, labelsPath *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, s, "empty selector is invalid for "+kind))
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		if len(errs) == 0 {
			errs = append(errs, field.Invalid(path, s, "invalid label selector"))
		}
		return errs
	}
	if !selector.Empty() && !selector.Matches(labels.Set(template)) {
		errs = append(errs, field.Invalid(labelsPath, template, "`selector` does not match template `labels`"))
	}
	return errs
}

// intOrPercent wants a count, or a percentage.
func intOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if v.Type == intstr.String {
		return invalid(path, v.String(), validation.IsValidPercent(v.StrVal))
	}
	return nonNegative(v.IntVal, path)
}

// percentOf is the percentage that a value is, and whether it is one.
func percentOf(v intstr.IntOrString) (int, bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	var n int
	if _, err := fmt.Sscanf(strings.TrimSuffix(v.StrVal, "%"), "%d", &n); err != nil {
		return 0, false
	}
	return n, true
}

func notMoreThan100Percent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if n, ok := percentOf(v); ok && n > 100 {
		return field.ErrorList{field.Invalid(path, v.String(), "must not be greater than 100%")}
	}
	return nil
}

func isZero(v *intstr.IntOrString) bool {
	if v == nil {
		return true
	}
	if n, ok := percentOf(*v); ok {
		return n == 0
	}
	return v.Type == intstr.Int && v.IntVal == 0
}
