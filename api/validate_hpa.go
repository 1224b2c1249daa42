package api

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateHorizontalPodAutoscaler names the faults of an autoscaler.
func ValidateHorizontalPodAutoscaler(h, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	at, spec := specPath(), &h.Spec
	most := at.Child("maxReplicas")
	errs := refuse(spec.MinReplicas != nil && spec.MaxReplicas < *spec.MinReplicas, most, spec.MaxReplicas, "must be greater than or equal to `minReplicas`")
	target := spec.ScaleTargetRef
	grouped := versionOfGroup
	switch {
	case old != nil && old.Spec.ScaleTargetRef.APIVersion == target.APIVersion && old.Spec.ScaleTargetRef.Kind == target.Kind:
		grouped = anyVersion
	case target.Kind == "ReplicationController":
		grouped = versionOrNone
	}
	errs = append(errs, validReference(target, grouped, at.Child("scaleTargetRef"))...)
	errs = append(errs, validMetrics(spec, old, at.Child("metrics"))...)
	if b := spec.Behavior; b != nil {
		errs = append(errs, validScaling(b.ScaleUp, at.Child("behavior", "scaleUp"))...)
		errs = append(errs, validScaling(b.ScaleDown, at.Child("behavior", "scaleDown"))...)
	}
	errs = append(errs, nonNegativePtr(spec.MinReplicas, at.Child("minReplicas"))...)
	errs = append(errs, need(spec.MaxReplicas == 0, most, "")...)
	return append(errs, refuse(spec.MaxReplicas < 0, most, spec.MaxReplicas, content.MinError(int32(1)))...)
}

// referenced says how much the apiVersion of a reference must tell.
type referenced int

const (
	versionOfGroup referenced = iota
	versionOrNone             // the group of the first kinds has no name
	anyVersion                // it is as it was before there was a rule
)

func validReference(ref autoscalingv2.CrossVersionObjectReference, version referenced, at *field.Path) field.ErrorList {
	errs := requiredValid(ref.Kind, at.Child("kind"), content.IsPathSegmentName)
	errs = append(errs, requiredValid(ref.Name, at.Child("name"), content.IsPathSegmentName)...)
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	switch {
	case version == anyVersion:
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, err.Error()))
	case version == versionOfGroup && gv.Group == "":
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, "apiVersion must specify API group"))
	}
	return errs
}

func validMetrics(spec *autoscalingv2.HorizontalPodAutoscalerSpec, old *autoscalingv2.HorizontalPodAutoscaler, at *field.Path) field.ErrorList {
	version := versionOrNone
	if old != nil {
		for _, m := range old.Spec.Metrics {
			if m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil {
				if _, err := schema.ParseGroupVersion(m.Object.DescribedObject.APIVersion); err != nil {
					version = anyVersion
				}
			}
		}
	}
	var errs field.ErrorList
	fromOutside := false
	for i := range spec.Metrics {
		m := &spec.Metrics[i]
		errs = append(errs, validMetric(m, version, at.Index(i))...)
		fromOutside = fromOutside || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	toZero := spec.MinReplicas != nil && *spec.MinReplicas == 0
	return append(errs, forbid(toZero && !fromOutside, at, "must specify at least one Object or External metric to support scaling to zero replicas")...)
}

// validMetric wants exactly the source that the type names, and checks the first
// that is there.
func validMetric(m *autoscalingv2.MetricSpec, version referenced, at *field.Path) field.ErrorList {
	errs := need(m.Type == "", at.Child("type"), "must specify a metric source type")
	errs = append(errs, among(m.Type, at.Child("type"), autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
		autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)...)
	sources := []struct {
		is    autoscalingv2.MetricSourceType
		name  string
		set   bool
		check func(*field.Path) field.ErrorList
	}{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList { return validObjectMetric(m.Object, version, at) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList { return validExternalMetric(m.External, at) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList { return validPodsMetric(m.Pods, at) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList {
			errs := need(m.Resource.Name == "", at.Child("name"), "must specify a resource name")
			return append(errs, validUsage(m.Resource.Target, at.Child("target"))...)
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(at *field.Path) field.ErrorList {
			return validContainerMetric(m.ContainerResource, at)
		}},
	}
	set, missing := 0, false
	for _, s := range sources {
		if s.set {
			if set++; set == 1 {
				errs = append(errs, s.check(at.Child(s.name))...)
			}
		}
	}
	for _, s := range sources {
		if missing = s.is == m.Type && !s.set; missing {
			errs = append(errs, field.Required(at.Child(s.name), "must populate information for the given metric source"))
		}
	}
	for _, s := range sources {
		errs = append(errs, forbid(set > 1 && s.set && s.is != m.Type, at.Child(s.name), "must populate the given metric source only")...)
	}
	return errs
}

func validObjectMetric(s *autoscalingv2.ObjectMetricSource, version referenced, at *field.Path) field.ErrorList {
	errs := validReference(s.DescribedObject, version, at.Child("describedObject"))
	errs = append(errs, validMetricName(s.Metric, at)...)
	errs = append(errs, validMetricTarget(s.Target, at.Child("target"))...)
	return append(errs, need(s.Target.Value == nil && s.Target.AverageValue == nil, at.Child("target", "averageValue"), "must set either a target value or averageValue")...)
}

func validExternalMetric(s *autoscalingv2.ExternalMetricSource, at *field.Path) field.ErrorList {
	errs := validMetricName(s.Metric, at)
	errs = append(errs, validMetricTarget(s.Target, at.Child("target"))...)
	value, average := s.Target.Value != nil, s.Target.AverageValue != nil
	errs = append(errs, need(!value && !average, at.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target")...)
	return append(errs, forbid(value && average, at.Child("target", "value"), "may not set both a target value for metric and a per-pod target")...)
}

func validPodsMetric(s *autoscalingv2.PodsMetricSource, at *field.Path) field.ErrorList {
	errs := validMetricName(s.Metric, at)
	errs = append(errs, validMetricTarget(s.Target, at.Child("target"))...)
	return append(errs, need(s.Target.AverageValue == nil, at.Child("target", "averageValue"), "must specify a positive target averageValue")...)
}

func validContainerMetric(s *autoscalingv2.ContainerResourceMetricSource, at *field.Path) field.ErrorList {
	errs := need(s.Name == "", at.Child("name"), "must specify a resource name")
	if s.Name != "" {
		errs = validContainerResource(s.Name, at.Child("name"))
	}
	errs = append(errs, need(s.Container == "", at.Child("container"), "must specify a container")...)
	errs = append(errs, validIfSet(s.Container, at.Child("container"), label)...)
	return append(errs, validUsage(s.Target, at.Child("target"))...)
}

// validUsage wants either a percentage or an amount.
func validUsage(t autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	errs := validMetricTarget(t, at)
	percent, amount := t.AverageUtilization != nil, t.AverageValue != nil
	errs = append(errs, need(!percent && !amount, at.Child("averageUtilization"), "must set either a target raw value or a target utilization")...)
	return append(errs, forbid(percent && amount, at.Child("averageValue"), "may not set both a target raw value and a target utilization")...)
}

func validMetricName(id autoscalingv2.MetricIdentifier, at *field.Path) field.ErrorList {
	at = at.Child("metric", "name")
	return append(need(id.Name == "", at, "must specify a metric name"), validIfSet(id.Name, at, content.IsPathSegmentName)...)
}

func validMetricTarget(t autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	errs := need(t.Type == "", at.Child("type"), "must specify a metric target type")
	known := t.Type == autoscalingv2.UtilizationMetricType || t.Type == autoscalingv2.ValueMetricType || t.Type == autoscalingv2.AverageValueMetricType
	errs = append(errs, refuse(!known, at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue")...)
	errs = append(errs, refuse(t.Value != nil && t.Value.Sign() <= 0, at.Child("value"), t.Value, "must be positive")...)
	errs = append(errs, refuse(t.AverageValue != nil && t.AverageValue.Sign() <= 0, at.Child("averageValue"), t.AverageValue, "must be positive")...)
	return append(errs, refuse(t.AverageUtilization != nil && *t.AverageUtilization < 1, at.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0")...)
}

func validScaling(r *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	const longestWindow, longestPeriod = 3600, 1800
	if r == nil {
		return nil
	}
	s := r.StabilizationWindowSeconds
	errs := refuse(s != nil && *s < 0, at.Child("stabilizationWindowSeconds"), s, "must be greater than or equal to zero")
	errs = append(errs, refuse(s != nil && *s > longestWindow, at.Child("stabilizationWindowSeconds"), s, fmt.Sprintf("must be less than or equal to %v", longestWindow))...)
	errs = append(errs, amongIfSet(r.SelectPolicy, at.Child("selectPolicy"), autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	errs = append(errs, need(len(r.Policies) == 0, at.Child("policies"), "must specify at least one Policy")...)
	for i, p := range r.Policies {
		here := at.Child("policies").Index(i)
		errs = append(errs, among(p.Type, here.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)...)
		errs = append(errs, refuse(p.Value <= 0, here.Child("value"), p.Value, "must be greater than zero")...)
		errs = append(errs, refuse(p.PeriodSeconds <= 0, here.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero")...)
		errs = append(errs, refuse(p.PeriodSeconds > longestPeriod, here.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %v", longestPeriod))...)
	}
	if r.Tolerance != nil {
		errs = append(errs, notNegativeQuantity(*r.Tolerance, at.Child("tolerance"))...)
	}
	return errs
}
