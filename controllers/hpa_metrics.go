package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"orrery.dev/api"
)

const (
	// hpaTolerance is how far from its target a metric may be.
	hpaTolerance = 0.1
	// cpuWarmUp is how long a pod's CPU use is that of its start.
	cpuWarmUp = 5 * time.Minute
	// firstReady bounds the time after its start in which "not ready" means
	// "has never been ready".
	firstReady = 30 * time.Second
)

// proposal is the size that one metric asks for.
type proposal struct {
	replicas int32
	name     string
	status   autoscalingv2.MetricStatus
}

// podMetric is what one pod uses, in thousandths.
type podMetric struct {
	value  int64
	at     time.Time
	window time.Duration
}

func (c *hpaController) propose(ctx context.Context, namespace string, spec *autoscalingv2.MetricSpec, current int32, selector labels.Selector, pods []*corev1.Pod, now time.Time) (proposal, error) {
	var name corev1.ResourceName
	var container string
	var target autoscalingv2.MetricTarget
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		name, target = spec.Resource.Name, spec.Resource.Target
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		name, container, target = spec.ContainerResource.Name, spec.ContainerResource.Container, spec.ContainerResource.Target
	default:
		return proposal{}, fmt.Errorf("metrics of type %s are not available", spec.Type)
	}
	used, err := c.resourceMetrics(ctx, namespace, selector, name, container)
	if err != nil {
		return proposal{}, fmt.Errorf("failed to get %s utilization: %w", name, err)
	}
	g := groupPods(pods, used, name, now)
	if len(g.used) == 0 {
		return proposal{}, fmt.Errorf("failed to get %s utilization: did not receive metrics for targeted pods (pods might be unready)", name)
	}
	per := g.averageTarget(target)
	what := fmt.Sprintf("%s resource", name)
	if container != "" {
		what = fmt.Sprintf("%s container resource", name)
	}
	if target.AverageUtilization != nil {
		what += " utilization (percentage of request)"
		if per, err = g.requests(pods, name, container, *target.AverageUtilization); err != nil {
			return proposal{}, err
		}
	}
	replicas, average, utilization := g.replicas(current, per)
	value := autoscalingv2.MetricValueStatus{AverageValue: quantity(name, average)}
	if target.AverageUtilization != nil {
		percent := int32(math.Round(utilization * float64(*target.AverageUtilization)))
		value.AverageUtilization = &percent
	}
	p := proposal{replicas: replicas, name: what, status: autoscalingv2.MetricStatus{Type: spec.Type}}
	if container != "" {
		p.status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: name, Container: container, Current: value}
	} else {
		p.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: name, Current: value}
	}
	return p, nil
}

func quantity(name corev1.ResourceName, milli int64) *resource.Quantity {
	if name == corev1.ResourceMemory {
		return resource.NewQuantity(milli/1000, resource.BinarySI)
	}
	return resource.NewMilliQuantity(milli, resource.DecimalSI)
}

// resourceMetrics reads what pods use from the metrics API.
func (c *hpaController) resourceMetrics(ctx context.Context, namespace string, selector labels.Selector, name corev1.ResourceName, container string) (map[string]podMetric, error) {
	data, err := c.scales.raw().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods").
		Param("labelSelector", selector.String()).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	var list metricsv1beta1.PodMetricsList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	out := map[string]podMetric{}
	for _, pod := range list.Items {
		sum, complete := int64(0), len(pod.Containers) > 0
		for _, used := range pod.Containers {
			if container != "" && used.Name != container {
				continue
			}
			q, ok := used.Usage[name]
			complete = complete && ok
			sum += q.MilliValue()
		}
		if complete {
			out[pod.Name] = podMetric{sum, pod.Timestamp.Time, pod.Window.Duration}
		}
	}
	return out, nil
}

// podGroups sorts pods by what is known about their use.
type podGroups struct {
	used             map[string]int64 // of ready pods
	unready, missing []string
	perPod           map[string]int64 // target of each pod, for utilization
	flat             int64            // the same target for every pod
}

func groupPods(pods []*corev1.Pod, metrics map[string]podMetric, name corev1.ResourceName, now time.Time) *podGroups {
	g := &podGroups{used: map[string]int64{}}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		m, measured := metrics[pod.Name]
		switch {
		case pod.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, pod.Name)
		case !measured:
			g.missing = append(g.missing, pod.Name)
		case name == corev1.ResourceCPU && warmingUp(pod, m, now):
			g.unready = append(g.unready, pod.Name)
		default:
			g.used[pod.Name] = m.value
		}
	}
	return g
}

// warmingUp says whether a pod's CPU use is that of its start.
func warmingUp(pod *corev1.Pod, m podMetric, now time.Time) bool {
	ready := api.PodCondition(pod, corev1.PodReady)
	if ready == nil || pod.Status.StartTime == nil {
		return true
	}
	if pod.Status.StartTime.Add(cpuWarmUp).After(now) {
		return ready.Status == corev1.ConditionFalse || m.at.Before(ready.LastTransitionTime.Add(m.window))
	}
	return ready.Status == corev1.ConditionFalse && pod.Status.StartTime.Add(firstReady).After(ready.LastTransitionTime.Time)
}

func (g *podGroups) averageTarget(target autoscalingv2.MetricTarget) int64 {
	if target.AverageValue != nil {
		return target.AverageValue.MilliValue()
	}
	return 0
}

// requests turns a utilization into what each pod is to use.
func (g *podGroups) requests(pods []*corev1.Pod, name corev1.ResourceName, container string, percent int32) (int64, error) {
	g.perPod = map[string]int64{}
	for _, pod := range pods {
		sum := int64(0)
		for _, c := range pod.Spec.Containers {
			if container != "" && c.Name != container {
				continue
			}
			request, ok := c.Resources.Requests[name]
			if !ok {
				return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, pod.Name)
			}
			sum += request.MilliValue()
		}
		g.perPod[pod.Name] = sum * int64(percent) / 100
	}
	return 0, nil
}

func (g *podGroups) target(pod string) int64 {
	if g.perPod != nil {
		return g.perPod[pod]
	}
	return g.flat
}

func (g *podGroups) ratio(used map[string]int64) float64 {
	sum, target := int64(0), int64(0)
	for pod, n := range used {
		sum += n
		target += g.target(pod)
	}
	if target == 0 {
		return 1
	}
	return float64(sum) / float64(target)
}

// replicas is how many pods would meet the target. Pods whose use is not known
// are assumed to use what makes the change smaller.
func (g *podGroups) replicas(current int32, flat int64) (n int32, average int64, utilization float64) {
	g.flat = flat
	for _, used := range g.used {
		average += used
	}
	average /= int64(len(g.used))
	ratio := g.ratio(g.used)
	utilization = ratio
	if len(g.missing) == 0 && (len(g.unready) == 0 || ratio <= 1) {
		if math.Abs(ratio-1) <= hpaTolerance {
			return current, average, utilization
		}
		return int32(math.Ceil(ratio * float64(len(g.used)))), average, utilization
	}
	assumed := map[string]int64{}
	for pod, used := range g.used {
		assumed[pod] = used
	}
	for _, pod := range g.missing {
		switch {
		case ratio < 1:
			assumed[pod] = g.target(pod)
		case ratio > 1:
			assumed[pod] = 0
		}
	}
	if ratio > 1 {
		for _, pod := range g.unready {
			assumed[pod] = 0
		}
	}
	again := g.ratio(assumed)
	if math.Abs(again-1) <= hpaTolerance || (ratio < 1) != (again < 1) {
		return current, average, utilization
	}
	n = int32(math.Ceil(again * float64(len(assumed))))
	if again < 1 && n > current || again > 1 && n < current {
		n = current
	}
	return n, average, utilization
}
