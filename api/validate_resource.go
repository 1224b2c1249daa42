package api

import (
	"encoding/json"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CompileSelector names what is wrong with an expression that picks devices.
type CompileSelector func(expression string, at *field.Path) field.ErrorList

// ValidateResourceClaim names the faults of a ResourceClaim, which is not changed
// once it is made.
func ValidateResourceClaim(c, old *resourcev1.ResourceClaim, compile CompileSelector) field.ErrorList {
	if old != nil {
		return sealed(c.Spec, old.Spec, specPath())
	}
	return claimCheck{compile, c.Spec.Devices.Requests}.devices(&c.Spec.Devices, specPath().Child("devices"))
}

// ValidateResourceClaimTemplate does the same for a template.
func ValidateResourceClaimTemplate(t, old *resourcev1.ResourceClaimTemplate, compile CompileSelector) field.ErrorList {
	at := specPath()
	errs := validClaimTemplateMeta(&t.Spec.ObjectMeta, at.Child("metadata"))
	d := &t.Spec.Spec.Devices
	errs = append(errs, claimCheck{compile, d.Requests}.devices(d, at.Child("spec", "devices"))...)
	if old == nil {
		return errs
	}
	return append(errs, unchanged(t.Spec, old.Spec, at)...)
}

// claimCheck checks what is asked of devices; the parts name requests.
type claimCheck struct {
	compile  CompileSelector
	requests []resourcev1.DeviceRequest
}

func (c claimCheck) devices(d *resourcev1.DeviceClaim, at *field.Path) field.ErrorList {
	const most = 32
	errs := listByRule(d.Requests, most, at.Child("requests"), func(a, b *resourcev1.DeviceRequest) bool { return a.Name == b.Name }, c.request)
	errs = append(errs, listByRule(d.Constraints, most, at.Child("constraints"), nil, c.constraint)...)
	return append(errs, listByRule(d.Config, most, at.Child("config"), nil, c.config)...)
}

func (c claimCheck) request(r *resourcev1.DeviceRequest, at *field.Path) field.ErrorList {
	errs := invalid(at.Child("name"), r.Name, label(r.Name))
	const either, most = "exactly one of `exactly` or `firstAvailable` is required", 8
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(at, either))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(at, nil, either+", but multiple fields are set"))
	case r.Exactly != nil:
		return append(errs, c.exactly(r.Exactly, at.Child("exactly"))...)
	}
	return append(errs, listByRule(r.FirstAvailable, most, at.Child("firstAvailable"), func(a, b *resourcev1.DeviceSubRequest) bool { return a.Name == b.Name }, c.alternative)...)
}

func (c claimCheck) exactly(r *resourcev1.ExactDeviceRequest, at *field.Path) field.ErrorList {
	errs := requiredValid(r.DeviceClassName, at.Child("deviceClassName"), subdomain)
	errs = append(errs, validSelectors(r.Selectors, at.Child("selectors"), c.compile)...)
	errs = append(errs, validHowMany(r.AllocationMode, r.Count, at)...)
	return append(errs, elements(r.Tolerations, at.Child("tolerations"), validDeviceToleration)...)
}

func (c claimCheck) alternative(r *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
	errs := invalid(at.Child("name"), r.Name, label(r.Name))
	errs = append(errs, requiredByRule(r.DeviceClassName, at.Child("deviceClassName"), validate.LongName)...)
	errs = append(errs, validSelectors(r.Selectors, at.Child("selectors"), c.compile)...)
	errs = append(errs, validHowMany(r.AllocationMode, r.Count, at)...)
	return append(errs, elements(r.Tolerations, at.Child("tolerations"), validDeviceToleration)...)
}

func validHowMany(mode resourcev1.DeviceAllocationMode, count int64, at *field.Path) field.ErrorList {
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		return refuse(count != 0, at.Child("count"), count, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode))
	case resourcev1.DeviceAllocationModeExactCount:
		return refuse(count <= 0, at.Child("count"), count, "must be greater than zero")
	}
	return wordByRule(mode, at.Child("allocationMode"), resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)
}

// validSelectors compiles the expressions, if there is something to do so.
func validSelectors(selectors []resourcev1.DeviceSelector, at *field.Path, compile CompileSelector) field.ErrorList {
	const most = 32
	return listByRule(selectors, most, at, nil, func(s *resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
		switch {
		case s.CEL == nil:
			return field.ErrorList{field.Required(at.Child("cel"), "")}
		case compile == nil:
			return nil
		}
		return compile(s.CEL.Expression, at.Child("cel", "expression"))
	})
}

func validDeviceToleration(t *resourcev1.DeviceToleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = byRule(t.Key, at.Child("key"), validate.LabelKey)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		errs = append(errs, refuse(t.Value != "", at.Child("value"), t.Value, "must be empty for operator `Exists`")...)
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
	default:
		errs = append(errs, wordByRule(t.Operator, at.Child("operator"), resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)...)
	}
	if t.Effect == "" {
		return errs
	}
	return append(errs, validDeviceTaintEffect(t.Effect, at.Child("effect"))...)
}

func validDeviceTaintEffect(e resourcev1.DeviceTaintEffect, at *field.Path) field.ErrorList {
	return wordByRule(e, at, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)
}

func (c claimCheck) constraint(r *resourcev1.DeviceConstraint, at *field.Path) field.ErrorList {
	errs := c.requestNames(r.Requests, at.Child("requests"))
	errs = append(errs, byRuleIfSet(r.MatchAttribute, at.Child("matchAttribute"), validate.ResourceFullyQualifiedName)...)
	errs = append(errs, byRuleIfSet(r.DistinctAttribute, at.Child("distinctAttribute"), validate.ResourceFullyQualifiedName)...)
	return append(errs, need(r.MatchAttribute == nil && r.DistinctAttribute == nil, at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)...)
}

func (c claimCheck) config(r *resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
	return append(c.requestNames(r.Requests, at.Child("requests")), validOpaque(r.Opaque, at.Child("opaque"), true)...)
}

func (c claimCheck) requestNames(names []string, at *field.Path) field.ErrorList {
	const most = 32
	return listByRule(names, most, at, func(a, b *string) bool { return *a == *b }, c.requestName)
}

// requestName wants the name of a request, or those of one and of an alternative
// in it.
func (c claimCheck) requestName(name *string, at *field.Path) field.ErrorList {
	const form = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(*name, "/")
	if len(parts) > 2 {
		return field.ErrorList{field.Invalid(at, *name, form)}
	}
	var errs field.ErrorList
	for _, part := range parts {
		errs = append(errs, invalid(at, part, label(part))...)
	}
	return append(errs, refuse(!c.knows(parts), at, *name, form)...)
}

func (c claimCheck) knows(parts []string) bool {
	for _, r := range c.requests {
		if r.Name != parts[0] {
			continue
		}
		if len(parts) == 1 {
			return true
		}
		for _, s := range r.FirstAvailable {
			if s.Name == parts[1] {
				return true
			}
		}
	}
	return false
}

// validOpaque checks what a driver is told; what is stored may be of any size.
func validOpaque(o *resourcev1.OpaqueDeviceConfiguration, at *field.Path, limited bool) field.ErrorList {
	if o == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := requiredByRule(o.Driver, at.Child("driver"), validate.LongNameCaseless, maxLength[string](validation.DNS1123LabelMaxLength))
	return append(errs, validRawObject(o.Parameters, at.Child("parameters"), limited)...)
}

// validRawObject wants a JSON object.
func validRawObject(raw runtime.RawExtension, at *field.Path, limited bool) field.ErrorList {
	const most = 10 * 1024
	var v any
	switch err := json.Unmarshal(raw.Raw, &v); {
	case len(raw.Raw) == 0:
		return field.ErrorList{field.Required(at, "")}
	case limited && len(raw.Raw) > most:
		return field.ErrorList{field.TooLong(at, "", most)}
	case err != nil:
		return field.ErrorList{field.Invalid(at, "<value omitted>", "error parsing data as JSON: "+err.Error())}
	case v == nil:
		return field.ErrorList{field.Required(at, "")}
	}
	_, object := v.(map[string]any)
	return refuse(!object, at, "<value omitted>", "must be a valid JSON object")
}

// ValidateDeviceClass names the faults of a DeviceClass.
func ValidateDeviceClass(c, old *resourcev1.DeviceClass, compile CompileSelector) field.ErrorList {
	at, limited := specPath(), true
	if old != nil {
		if equality.Semantic.DeepEqual(c.Spec.Selectors, old.Spec.Selectors) {
			compile = nil
		}
		limited = !equality.Semantic.DeepEqual(c.Spec.Config, old.Spec.Config)
	}
	const most = 32
	errs := validSelectors(c.Spec.Selectors, at.Child("selectors"), compile)
	errs = append(errs, listByRule(c.Spec.Config, most, at.Child("config"), nil, func(c *resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
		return validOpaque(c.Opaque, at.Child("opaque"), limited)
	})...)
	return append(errs, byRuleIfSet(c.Spec.ExtendedResourceName, at.Child("extendedResourceName"), validate.ExtendedResourceName)...)
}

// ValidateDeviceTaintRule names the faults of a DeviceTaintRule.
func ValidateDeviceTaintRule(r, old *resourcev1.DeviceTaintRule) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if s := r.Spec.DeviceSelector; s != nil {
		here := at.Child("deviceSelector")
		if s.Driver != nil {
			errs = append(errs, validDriverName(*s.Driver, here.Child("driver"))...)
		}
		if s.Pool != nil {
			errs = append(errs, validPoolName(*s.Pool, here.Child("pool"))...)
		}
		errs = append(errs, validPtr(s.Device, here.Child("device"), label)...)
	}
	return append(errs, validDeviceTaint(&r.Spec.Taint, at.Child("taint"), old != nil && old.Spec.Taint.Effect == r.Spec.Taint.Effect)...)
}

// ValidateDeviceTaintRuleStatus names the faults of a DeviceTaintRule with a new
// status.
func ValidateDeviceTaintRuleStatus(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
	const most = 8
	at := field.NewPath("status", "conditions")
	errs := metavalidation.ValidateConditions(r.Status.Conditions, at)
	if n := len(r.Status.Conditions); n > most {
		errs = append(errs, field.TooMany(at, n, most))
	}
	return errs
}

// validDeviceTaint checks a taint, but not an effect that was there before.
func validDeviceTaint(t *resourcev1.DeviceTaint, at *field.Path, sameEffect bool) field.ErrorList {
	errs := metavalidation.ValidateLabelName(t.Key, at.Child("key"))
	errs = append(errs, validIfSet(t.Value, at.Child("value"), validation.IsValidLabelValue)...)
	if sameEffect {
		return errs
	}
	return append(errs, validDeviceTaintEffect(t.Effect, at.Child("effect"))...)
}

// validPoolName wants domains, with slashes between them.
func validPoolName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return required(name, at)
	}
	var errs field.ErrorList
	if len(name) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	for _, part := range strings.Split(name, "/") {
		errs = append(errs, invalid(at, part, subdomain(part))...)
	}
	return errs
}

func validNodeName(name string, at *field.Path) field.ErrorList {
	return invalid(at, name, apivalidation.NameIsDNSSubdomain(name, false))
}
