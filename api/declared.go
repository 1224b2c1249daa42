package api

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Upstream checks an object twice: by code, and by rules that its types declare.
// What the declared rules find has words of its own and comes last, however deep
// in the object it is. Here it is found with the rest, and marked.

// declared marks what upstream finds by rules that types declare.
func declared(errs ...*field.Error) field.ErrorList { return field.ErrorList(errs).MarkBeta() }

// InOrder puts faults in upstream's order.
func InOrder(errs field.ErrorList) field.ErrorList {
	rank := func(e *field.Error) int {
		if e.IsBeta() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return rank(a) - rank(b) })
	return errs
}

// rule is a check of the library that types' rules are made of.
type rule[T any] func(ctx context.Context, op operation.Operation, at *field.Path, value, old *T) field.ErrorList

// byRule applies rules to a value.
func byRule[T any](value T, at *field.Path, rules ...rule[T]) field.ErrorList {
	var errs field.ErrorList
	for _, r := range rules {
		errs = append(errs, r(context.Background(), operation.Operation{}, at, &value, nil)...)
	}
	return errs.MarkBeta()
}

// requiredByRule wants a value, and one that the rules accept.
func requiredByRule[T ~string](value T, at *field.Path, rules ...rule[T]) field.ErrorList {
	if value == "" {
		return declared(field.Required(at, ""))
	}
	return byRule(value, at, rules...)
}

// byRuleIfSet lets the value be absent.
func byRuleIfSet[T any](value *T, at *field.Path, rules ...rule[T]) field.ErrorList {
	if value == nil {
		return nil
	}
	return byRule(*value, at, rules...)
}

// wordByRule wants one of the given words.
func wordByRule[T ~string](value T, at *field.Path, allowed ...T) field.ErrorList {
	return oneOf(value, at, allowed...).MarkBeta()
}

func maxLength[T ~string](most int) rule[T] {
	return func(ctx context.Context, op operation.Operation, at *field.Path, value, old *T) field.ErrorList {
		return validate.MaxLength(ctx, op, at, value, old, most)
	}
}

// ruleOnCreate marks what upstream finds by rules on create, and by code on update:
// there the rules end at the change of what may not change.
func ruleOnCreate(errs field.ErrorList, update bool) field.ErrorList {
	if update {
		return errs
	}
	return errs.MarkBeta()
}

// listByRule checks a list of at most so many elements (0: of any number), no two
// of which may be the same, if there is such a thing.
func listByRule[T any](list []T, most int, at *field.Path, same func(a, b *T) bool, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if most > 0 && len(list) > most {
		return declared(field.TooMany(at, len(list), most))
	}
	var errs field.ErrorList
	if same != nil {
		errs = validate.ValSliceUnique(context.Background(), operation.Operation{}, at, list, nil, same).MarkBeta()
	}
	return append(errs, elements(list, at, check)...)
}

// elements checks those of a list.
func elements[T any](list []T, at *field.Path, check func(*T, *field.Path) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, check(&list[i], at.Index(i))...)
	}
	return errs
}

// sealed wants a field to be as it was, by rule.
func sealed(value, old any, at *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return declared(field.Invalid(at, nil, immutable).WithOrigin("immutable"))
}
