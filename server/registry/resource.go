package registry

import (
	"errors"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	devicecel "k8s.io/dynamic-resource-allocation/cel"

	"orrery.dev/api"
)

func resourceKinds() []*Kind {
	gv := resourcev1.SchemeGroupVersion
	claims := halves[resourcev1.ResourceClaim]{}
	taints := halves[resourcev1.DeviceTaintRule]{counted: true}
	count := counted[resourcev1.ResourceSlice]()
	return []*Kind{
		kind[resourcev1.DeviceClass, resourcev1.DeviceClassList]{
			Plural: "deviceclasses", Cluster: true, ValidName: validFinalName,
			Columns: nameAgeColumns(), Row: deviceClassRow,
			Validate: func(c, old *resourcev1.DeviceClass) field.ErrorList {
				return api.ValidateDeviceClass(c, old, compileSelector)
			},
			Prepare: counted[resourcev1.DeviceClass](),
		}.erase(gv),
		kind[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleList]{
			Plural: "devicetaintrules", Cluster: true, NeedsRevision: true,
			Columns: deviceTaintColumns(), Row: deviceTaintRow,
			Default:  api.DefaultDeviceTaintRule,
			Validate: api.ValidateDeviceTaintRule,
			Prepare: func(r, old *resourcev1.DeviceTaintRule) {
				if old != nil {
					restartTaint(&r.Spec.Taint, &old.Spec.Taint)
				}
				taints.prepare(r, old)
			},
			Sub: Sub{"status": taints.pure(api.ValidateDeviceTaintRuleStatus)},
		}.erase(gv),
		kind[resourcev1.ResourceClaim, resourcev1.ResourceClaimList]{
			Plural:  "resourceclaims",
			Columns: resourceClaimColumns(), Row: resourceClaimRow,
			Default: api.DefaultResourceClaim,
			Validate: func(c, old *resourcev1.ResourceClaim) field.ErrorList {
				return api.ValidateResourceClaim(c, old, compileSelector)
			},
			Prepare: func(c, old *resourcev1.ResourceClaim) {
				dropDerived(&c.Spec)
				claims.prepare(c, old)
			},
			Sub: Sub{"status": claims.pure(api.ValidateResourceClaimStatus, func(c, old *resourcev1.ResourceClaim) { api.KeepGivenDevices(&c.Status, &old.Status) })},
		}.erase(gv),
		kind[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList]{
			Plural:  "resourceclaimtemplates",
			Columns: nameAgeColumns(), Row: claimTemplateRow,
			Default: api.DefaultResourceClaimTemplate,
			Prepare: func(t, _ *resourcev1.ResourceClaimTemplate) { dropDerived(&t.Spec.Spec) },
			Validate: func(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
				return api.ValidateResourceClaimTemplate(t, old, compileSelector)
			},
		}.erase(gv),
		kind[resourcev1.ResourceSlice, resourcev1.ResourceSliceList]{
			Plural: "resourceslices", Cluster: true,
			Columns: resourceSliceColumns(), Row: resourceSliceRow,
			Default:  api.DefaultResourceSlice,
			Validate: api.ValidateResourceSlice,
			Warn:     warnResourceSlice,
			Prepare: func(s, old *resourcev1.ResourceSlice) {
				dropUnfinished(&s.Spec)
				count(s, old)
			},
			UnknownField: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s",
			Fields: func(s *resourcev1.ResourceSlice) fields.Set {
				set := fields.Set{resourcev1.ResourceSliceSelectorDriver: s.Spec.Driver, resourcev1.ResourceSliceSelectorNodeName: ""}
				if s.Spec.NodeName != nil {
					set[resourcev1.ResourceSliceSelectorNodeName] = *s.Spec.NodeName
				}
				return set
			},
		}.erase(gv),
	}
}

// compileSelector names what is wrong with an expression that picks devices.
func compileSelector(text string, at *field.Path) field.ErrorList {
	if len(text) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	env := environment.NewExpressions
	result := devicecel.GetCompiler(devicecel.Features{EnableConsumableCapacity: true}).CompileCELExpression(text, devicecel.Options{EnvType: &env})
	var fault *apiservercel.Error
	switch {
	case errors.As(result.Error, &fault):
		return compileError(fault, text, at)
	case result.Error != nil:
		return field.ErrorList{field.InternalError(at, fmt.Errorf("unsupported error type: %w", result.Error))}
	case result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(at, "too complex, exceeds cost limit")}
	}
	return nil
}

// restartTaint lets a taint that has another effect begin now, unless its author
// says since when.
func restartTaint(t, old *resourcev1.DeviceTaint) {
	if t.Effect != old.Effect && t.TimeAdded.Equal(old.TimeAdded) {
		now := metav1.Now().Rfc3339Copy()
		t.TimeAdded = &now
	}
}

// dropDerived and dropUnfinished take away the fields of features that upstream
// has off.
func dropDerived(spec *resourcev1.ResourceClaimSpec) {
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.DerivedAttributes = nil
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

func dropUnfinished(spec *resourcev1.ResourceSliceSpec) {
	spec.PartitionTypeAttribute, spec.SkipNodeOperations = nil, nil
	for i := range spec.Devices {
		d := &spec.Devices[i]
		d.NodeAllocatableResources = nil
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CompatibilityGroups = nil
		}
		for name, a := range d.Attributes {
			a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

func warnResourceSlice(s, _ *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}
