package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateResourceQuota names the faults of a quota.
func ValidateResourceQuota(q, old *corev1.ResourceQuota) field.ErrorList {
	at := specPath()
	errs := validHard(q.Spec.Hard, at.Child("hard"))
	errs = append(errs, validScopes(&q.Spec, at.Child("scopes"))...)
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validScopeSelector(&q.Spec, at.Child("scopeSelector", "matchExpressions"))...)
	}
	if old != nil {
		was, is := scopeSet(old.Spec.Scopes), scopeSet(q.Spec.Scopes)
		errs = append(errs, refuse(!maps.Equal(was, is), at.Child("scopes"), q.Spec.Scopes, immutable)...)
	}
	return errs
}

// ValidateResourceQuotaStatus names the faults of what a quota counted.
func ValidateResourceQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
	at := field.NewPath("status")
	return append(validHard(q.Status.Hard, at.Child("hard")), validHard(q.Status.Used, at.Child("used"))...)
}

func validHard(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sortedKeys(list) {
		here := at.Key(string(name))
		errs = append(errs, validResourceName(name, here)...)
		plain := !strings.Contains(string(name), "/")
		errs = append(errs, refuse(plain && !isQuotaResource(name), here, name, "must be a standard resource for quota")...)
		errs = append(errs, validQuantity(name, list[name], here)...)
	}
	return errs
}

func scopeSet(scopes []corev1.ResourceQuotaScope) map[corev1.ResourceQuotaScope]bool {
	set := map[corev1.ResourceQuotaScope]bool{}
	for _, s := range scopes {
		set[s] = true
	}
	return set
}

// What can be limited for some of the objects only.
var (
	podCounts   = []corev1.ResourceName{corev1.ResourcePods}
	podScoped   = append(podCounts, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory)
	claimScoped = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}

	scopedResources = map[corev1.ResourceQuotaScope][]corev1.ResourceName{
		corev1.ResourceQuotaScopeTerminating: podScoped, corev1.ResourceQuotaScopeNotTerminating: podScoped,
		corev1.ResourceQuotaScopeBestEffort: podCounts, corev1.ResourceQuotaScopeNotBestEffort: podScoped,
		corev1.ResourceQuotaScopePriorityClass: podScoped, corev1.ResourceQuotaScopeCrossNamespacePodAffinity: podScoped,
		corev1.ResourceQuotaScopeVolumeAttributesClass: claimScoped,
	}
)

// misfits counts the resources of a quota that a scope says nothing about.
func misfits(hard corev1.ResourceList, scope corev1.ResourceQuotaScope) int {
	n := 0
	for name := range hard {
		if fits, known := scopedResources[scope]; known && isQuotaResource(name) && !slices.Contains(fits, name) {
			n++
		}
	}
	return n
}

func conflictingScopes(set map[corev1.ResourceQuotaScope]bool) int {
	n := 0
	for a, b := range map[corev1.ResourceQuotaScope]corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeBestEffort: corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating: corev1.ResourceQuotaScopeNotTerminating,
	} {
		if set[a] && set[b] {
			n++
		}
	}
	return n
}

func validScopes(spec *corev1.ResourceQuotaSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range spec.Scopes {
		_, known := scopedResources[scope]
		errs = append(errs, refuse(!known, at, spec.Scopes, "unsupported scope")...)
		errs = append(errs, refuse(misfits(spec.Hard, scope) > 0, at, spec.Scopes, "unsupported scope applied to resource")...)
	}
	return append(errs, refuse(conflictingScopes(scopeSet(spec.Scopes)) > 0, at, spec.Scopes, "conflicting scopes")...)
}

func validScopeSelector(spec *corev1.ResourceQuotaSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	set := map[corev1.ResourceQuotaScope]bool{}
	for _, r := range spec.ScopeSelector.MatchExpressions {
		_, known := scopedResources[r.ScopeName]
		errs = append(errs, refuse(!known, at.Child("scopeName"), r.ScopeName, "unsupported scope")...)
		errs = append(errs, refuse(misfits(spec.Hard, r.ScopeName) > 0, at, spec.ScopeSelector, "unsupported scope applied to resource")...)
		valued := r.ScopeName == corev1.ResourceQuotaScopePriorityClass || r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
		errs = append(errs, refuse(known && !valued && r.Operator != corev1.ScopeSelectorOpExists, at.Child("operator"), r.Operator,
			"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")...)
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			errs = append(errs, need(len(r.Values) == 0, at.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")...)
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			errs = append(errs, refuse(len(r.Values) > 0, at.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")...)
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
		set[r.ScopeName] = true
	}
	return append(errs, refuse(conflictingScopes(set) > 0, at, spec.Scopes, "conflicting scopes")...)
}

// ValidateLimitRange names the faults of a LimitRange.
func ValidateLimitRange(l, _ *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	for i := range l.Spec.Limits {
		item, at := &l.Spec.Limits[i], specPath().Child("limits").Index(i)
		bad := validation.IsQualifiedName(string(item.Type))
		errs = append(errs, invalid(at.Child("type"), item.Type, bad)...)
		known := item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer || item.Type == corev1.LimitTypePersistentVolumeClaim
		plain := !strings.Contains(string(item.Type), "/")
		errs = append(errs, refuse(len(bad) == 0 && plain && !known, at.Child("type"), item.Type, "must be a standard limit type or fully qualified")...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validLimitNames(item, at)...)
		errs = append(errs, validLimitOrder(item, at)...)
	}
	return errs
}

func validLimitNames(item *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	check := validResourceName
	if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
		check = validContainerResource
	}
	var errs field.ErrorList
	names := func(name string, list corev1.ResourceList) {
		for _, key := range sortedKeys(list) {
			errs = append(errs, check(key, at.Child(name).Key(string(key)))...)
		}
	}
	names("max", item.Max)
	names("min", item.Min)
	if item.Type == corev1.LimitTypePod {
		errs = append(errs, forbid(len(item.Default) > 0, at.Child("default"), "may not be specified when `type` is 'Pod'")...)
		errs = append(errs, forbid(len(item.DefaultRequest) > 0, at.Child("defaultRequest"), "may not be specified when `type` is 'Pod'")...)
	} else {
		names("default", item.Default)
		names("defaultRequest", item.DefaultRequest)
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := item.Min[corev1.ResourceStorage]
		_, most := item.Max[corev1.ResourceStorage]
		errs = append(errs, need(!least && !most, at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided")...)
	}
	names("maxLimitRequestRatio", item.MaxLimitRequestRatio)
	return errs
}

// validLimitOrder wants min <= defaultRequest <= default <= max, and a ratio that
// these can have.
func validLimitOrder(item *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	byDefault, request := item.Default, item.DefaultRequest
	if item.Type == corev1.LimitTypePod {
		byDefault, request = nil, nil
	}
	names := map[corev1.ResourceName]bool{}
	for _, list := range []corev1.ResourceList{item.Max, item.Min, byDefault, request, item.MaxLimitRequestRatio} {
		for name := range list {
			names[name] = true
		}
	}
	var errs field.ErrorList
	for _, name := range sortedKeys(names) {
		for _, order := range []struct {
			of                  string // the field that is shown
			low, high           corev1.ResourceList
			lowWords, highWords string
			showHigh            bool
		}{
			{"min", item.Min, item.Max, "min", "max", false},
			{"defaultRequest", item.Min, request, "min", "default request", true},
			{"defaultRequest", request, item.Max, "default request", "max", false},
			{"defaultRequest", request, byDefault, "default request", "default limit", false},
			{"default", item.Min, byDefault, "min", "default", false},
			{"default", byDefault, item.Max, "default", "max", true},
		} {
			low, ok := order.low[name]
			high, both := order.high[name]
			if !ok || !both || low.Cmp(high) <= 0 {
				continue
			}
			value := low
			if order.showHigh {
				value = high
			}
			errs = append(errs, field.Invalid(at.Child(order.of).Key(string(name)), value,
				fmt.Sprintf("%s value %s is greater than %s value %s", order.lowWords, low.String(), order.highWords, high.String())))
		}
		errs = append(errs, validRatio(item, name, at.Child("maxLimitRequestRatio").Key(string(name)))...)
		was, ok := byDefault[name]
		asked, both := request[name]
		if ok && both && !overcommittable(name) && was.Cmp(asked) != 0 {
			errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(string(name)), asked, fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", was.String(), asked.String(), name)))
		}
	}
	return errs
}

func validRatio(item *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return nil
	}
	errs := refuse(ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0, at, ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String()))
	least, ok := item.Min[name]
	most, both := item.Max[name]
	if !ok || !both {
		return errs
	}
	asked, low, high := float64(ratio.Value()), least.Value(), most.Value()
	if max(ratio.Value(), low, high) < resource.MaxMilliValue {
		asked, low, high = float64(ratio.MilliValue())/1000, least.MilliValue(), most.MilliValue()
	}
	possible := float64(high) / float64(low)
	return append(errs, refuse(asked > possible, at, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), possible))...)
}
