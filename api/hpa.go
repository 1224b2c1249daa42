package api

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// autoscaling/v1 can say one thing only, a target for cpu. All else that v2
// says travels in these annotations, so that a client of v1 loses nothing.
const (
	hpaMetrics        = "autoscaling.alpha.kubernetes.io/metrics"
	hpaCurrentMetrics = "autoscaling.alpha.kubernetes.io/current-metrics"
	hpaConditions     = "autoscaling.alpha.kubernetes.io/conditions"
	hpaBehavior       = "autoscaling.alpha.kubernetes.io/behavior"
)

// defaultCPUUtilization is the target when an autoscaler names no metric.
const defaultCPUUtilization = 80

// HPAToV1 shows an autoscaler in the older form.
func HPAToV1(h *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	h = h.DeepCopy()
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: h.ObjectMeta}
	out.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"))
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(h.Spec.ScaleTargetRef),
		MinReplicas:    h.Spec.MinReplicas, MaxReplicas: h.Spec.MaxReplicas,
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: h.Status.ObservedGeneration, LastScaleTime: h.Status.LastScaleTime,
		CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas,
	}
	var metrics []autoscalingv1.MetricSpec
	for _, m := range h.Spec.Metrics {
		if r := m.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Target.AverageUtilization != nil && out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = r.Target.AverageUtilization
			continue
		}
		metrics = append(metrics, metricToV1(m))
	}
	var current []autoscalingv1.MetricStatus
	for _, m := range h.Status.CurrentMetrics {
		if r := m.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = r.Current.AverageUtilization
		}
		current = append(current, currentToV1(m))
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range h.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	extra := map[string]any{}
	if len(metrics) > 0 {
		extra[hpaMetrics] = metrics
	}
	if len(current) > 0 {
		extra[hpaCurrentMetrics] = current
	}
	if len(conditions) > 0 {
		extra[hpaConditions] = conditions
	}
	if h.Spec.Behavior != nil {
		extra[hpaBehavior] = behaviorText{rulesText(h.Spec.Behavior.ScaleUp), rulesText(h.Spec.Behavior.ScaleDown)}
	}
	for name, value := range extra {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", name, err)
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[name] = string(text)
	}
	return out, nil
}

// behaviorText is a behavior in its annotation, where the names of the fields
// are in capitals, other than everywhere else.
type behaviorText struct{ ScaleUp, ScaleDown *scalingRulesText }

type scalingRulesText struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []scalingPolicyText
	Tolerance                  *resource.Quantity
}

type scalingPolicyText struct {
	Type                 autoscalingv2.HPAScalingPolicyType
	Value, PeriodSeconds int32
}

func rulesText(r *autoscalingv2.HPAScalingRules) *scalingRulesText {
	if r == nil {
		return nil
	}
	text := &scalingRulesText{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		text.Policies = append(text.Policies, scalingPolicyText(p))
	}
	return text
}

// HPAToV2 is the inverse. Annotations that do not parse are dropped, as if they
// were not there.
func HPAToV2(h *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	h = h.DeepCopy()
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: h.ObjectMeta}
	out.SetGroupVersionKind(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"))
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(h.Spec.ScaleTargetRef),
		MinReplicas:    h.Spec.MinReplicas, MaxReplicas: h.Spec.MaxReplicas,
	}
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: h.Status.ObservedGeneration, LastScaleTime: h.Status.LastScaleTime,
		CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas,
	}
	var metrics []autoscalingv1.MetricSpec
	if takeAnnotation(out.Annotations, hpaMetrics, &metrics) {
		for _, m := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricToV2(m))
		}
	}
	if p := h.Spec.TargetCPUUtilizationPercentage; p != nil {
		out.Spec.Metrics = append([]autoscalingv2.MetricSpec{cpuTarget(*p)}, out.Spec.Metrics...)
	}
	// A part of the conversion, so that who applies the older form and says nothing of
	// metrics takes none away.
	defaultMetrics(&out.Spec)
	var current []autoscalingv1.MetricStatus
	if takeAnnotation(out.Annotations, hpaCurrentMetrics, &current) {
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, currentToV2(m))
		}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if takeAnnotation(out.Annotations, hpaConditions, &conditions) {
		for _, c := range conditions {
			out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			})
		}
	}
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if takeAnnotation(out.Annotations, hpaBehavior, &behavior) {
		out.Spec.Behavior = &behavior
	}
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	return out, nil
}

func takeAnnotation(annotations map[string]string, name string, into any) bool {
	text, ok := annotations[name]
	if !ok {
		return false
	}
	delete(annotations, name)
	return json.Unmarshal([]byte(text), into) == nil
}

func cpuTarget(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

func metricToV1(m autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(m.Type)}
	switch {
	case m.Object != nil:
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(m.Object.DescribedObject), MetricName: m.Object.Metric.Name,
			Selector: m.Object.Metric.Selector, AverageValue: m.Object.Target.AverageValue, TargetValue: orZero(m.Object.Target.Value),
		}
	case m.Pods != nil:
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: m.Pods.Metric.Name, Selector: m.Pods.Metric.Selector, TargetAverageValue: orZero(m.Pods.Target.AverageValue),
		}
	case m.Resource != nil:
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name: m.Resource.Name, TargetAverageUtilization: m.Resource.Target.AverageUtilization, TargetAverageValue: m.Resource.Target.AverageValue,
		}
	case m.ContainerResource != nil:
		c := m.ContainerResource
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: c.Name, Container: c.Container, TargetAverageUtilization: c.Target.AverageUtilization, TargetAverageValue: c.Target.AverageValue,
		}
	case m.External != nil:
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: m.External.Metric.Name, MetricSelector: m.External.Metric.Selector,
			TargetValue: m.External.Target.Value, TargetAverageValue: m.External.Target.AverageValue,
		}
	}
	return out
}

func metricToV2(m autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	switch {
	case m.Object != nil:
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(m.Object.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: m.Object.MetricName, Selector: m.Object.Selector},
			Target:          valueTarget(&m.Object.TargetValue, m.Object.AverageValue),
		}
	case m.Pods != nil:
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: m.Pods.MetricName, Selector: m.Pods.Selector},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &m.Pods.TargetAverageValue},
		}
	case m.Resource != nil:
		out.Resource = &autoscalingv2.ResourceMetricSource{
			Name: m.Resource.Name, Target: usageTarget(m.Resource.TargetAverageUtilization, m.Resource.TargetAverageValue),
		}
	case m.ContainerResource != nil:
		c := m.ContainerResource
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: c.Name, Container: c.Container, Target: usageTarget(c.TargetAverageUtilization, c.TargetAverageValue),
		}
	case m.External != nil:
		out.External = &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: m.External.MetricName, Selector: m.External.MetricSelector},
			Target: valueTarget(m.External.TargetValue, m.External.TargetAverageValue),
		}
	}
	return out
}

func currentToV1(m autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(m.Type)}
	switch {
	case m.Object != nil:
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target: autoscalingv1.CrossVersionObjectReference(m.Object.DescribedObject), MetricName: m.Object.Metric.Name,
			Selector: m.Object.Metric.Selector, CurrentValue: orZero(m.Object.Current.Value), AverageValue: m.Object.Current.AverageValue,
		}
	case m.Pods != nil:
		out.Pods = &autoscalingv1.PodsMetricStatus{
			MetricName: m.Pods.Metric.Name, Selector: m.Pods.Metric.Selector, CurrentAverageValue: orZero(m.Pods.Current.AverageValue),
		}
	case m.Resource != nil:
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name: m.Resource.Name, CurrentAverageUtilization: m.Resource.Current.AverageUtilization, CurrentAverageValue: orZero(m.Resource.Current.AverageValue),
		}
	case m.ContainerResource != nil:
		c := m.ContainerResource
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name: c.Name, Container: c.Container, CurrentAverageUtilization: c.Current.AverageUtilization, CurrentAverageValue: orZero(c.Current.AverageValue),
		}
	case m.External != nil:
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName: m.External.Metric.Name, MetricSelector: m.External.Metric.Selector,
			CurrentValue: orZero(m.External.Current.Value), CurrentAverageValue: m.External.Current.AverageValue,
		}
	}
	return out
}

func currentToV2(m autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(m.Type)}
	switch {
	case m.Object != nil:
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(m.Object.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: m.Object.MetricName, Selector: m.Object.Selector},
			Current:         autoscalingv2.MetricValueStatus{Value: &m.Object.CurrentValue, AverageValue: m.Object.AverageValue},
		}
	case m.Pods != nil:
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: m.Pods.MetricName, Selector: m.Pods.Selector},
			Current: autoscalingv2.MetricValueStatus{AverageValue: &m.Pods.CurrentAverageValue},
		}
	case m.Resource != nil:
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: m.Resource.Name, Current: autoscalingv2.MetricValueStatus{
			AverageUtilization: m.Resource.CurrentAverageUtilization, AverageValue: &m.Resource.CurrentAverageValue,
		}}
	case m.ContainerResource != nil:
		c := m.ContainerResource
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: c.Name, Container: c.Container, Current: autoscalingv2.MetricValueStatus{
			AverageUtilization: c.CurrentAverageUtilization, AverageValue: &c.CurrentAverageValue,
		}}
	case m.External != nil:
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: m.External.MetricName, Selector: m.External.MetricSelector},
			Current: autoscalingv2.MetricValueStatus{Value: &m.External.CurrentValue, AverageValue: m.External.CurrentAverageValue},
		}
	}
	return out
}

// valueTarget aims at an average where one is given, else at a value.
func valueTarget(value, average *resource.Quantity) autoscalingv2.MetricTarget {
	if average != nil {
		return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: average}
	}
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: value}
}

func usageTarget(percent *int32, average *resource.Quantity) autoscalingv2.MetricTarget {
	if percent != nil {
		return autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: percent}
	}
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: average}
}

func orZero(q *resource.Quantity) resource.Quantity {
	if q == nil {
		return resource.Quantity{}
	}
	return *q
}
