package api

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// refuse complains about a value if it meets a condition.
func refuse(condition bool, at *field.Path, value any, why string) field.ErrorList {
	if !condition {
		return nil
	}
	return field.ErrorList{field.Invalid(at, shown(value), why)}
}

// forbid complains if something is set that may not be.
func forbid(set bool, at *field.Path, why string) field.ErrorList {
	if !set {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, why)}
}

// need complains if something is missing.
func need(missing bool, at *field.Path, why string) field.ErrorList {
	if !missing {
		return nil
	}
	return field.ErrorList{field.Required(at, why)}
}

// requiredFields wants strings not to be empty; they are given as name, value,
// name, value.
func requiredFields(at *field.Path, pairs ...string) field.ErrorList {
	var errs field.ErrorList
	for i := 0; i < len(pairs); i += 2 {
		errs = append(errs, required(pairs[i+1], at.Child(pairs[i]))...)
	}
	return errs
}

// requiredValid wants a string, and one that a check has nothing to say about.
func requiredValid(value string, at *field.Path, check func(string) []string) field.ErrorList {
	if value == "" {
		return required(value, at)
	}
	return invalid(at, value, check(value))
}

// subdomain and label are checks of names for requiredValid and validIfSet.
func subdomain(name string) []string { return validation.IsDNS1123Subdomain(name) }
func label(name string) []string     { return validation.IsDNS1123Label(name) }

// validIfSet checks a string that may be empty.
func validIfSet(value string, at *field.Path, check func(string) []string) field.ErrorList {
	if value == "" {
		return nil
	}
	return invalid(at, value, check(value))
}

// validPtr checks a string that may be absent.
func validPtr(value *string, at *field.Path, check func(string) []string) field.ErrorList {
	if value == nil {
		return nil
	}
	return invalid(at, *value, check(*value))
}

// inRange wants a number to be within bounds.
func inRange[N int32 | int64](n N, low, high int, at *field.Path) field.ErrorList {
	return refuse(int64(n) < int64(low) || int64(n) > int64(high), at, n, validation.InclusiveRangeError(low, high))
}

// among wants one of the given words, which are named in the given order; other
// than with oneOf, none at all is only another wrong word.
func among[T ~string](value T, at *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}

// requiredAmong is among for a word that must be there.
func requiredAmong[T ~string](value T, at *field.Path, allowed ...T) field.ErrorList {
	if value == "" {
		return required("", at)
	}
	return among(value, at, allowed...)
}

// amongIfSet lets the value be absent.
func amongIfSet[T ~string](value *T, at *field.Path, allowed ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return among(*value, at, allowed...)
}

// sortedKeys are the keys of a map in order, so that faults are too.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// invalid makes an error of each complaint about a value.
func invalid(path *field.Path, value any, complaints []string) field.ErrorList {
	var errs field.ErrorList
	for _, c := range complaints {
		errs = append(errs, field.Invalid(path, value, c))
	}
	return errs
}

// renamed are the faults of a name that depends on the rest of the object, which an
// update may have changed. The server checks the names of new objects.
func renamed[T any, O interface {
	*T
	metav1.Object
}](obj, old O, rule func(O) func(name string, prefix bool) []string) field.ErrorList {
	if old == nil {
		return nil
	}
	return invalid(field.NewPath("metadata", "name"), obj.GetName(), rule(obj)(obj.GetName(), false))
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

func required(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// unchanged wants a field to be as it was.
func unchanged(value, old any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, shown(value), immutable).WithOrigin("immutable")}
}
