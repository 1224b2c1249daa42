package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// hpaLook is the time between two looks at a workload's metrics.
const hpaLook = 15 * time.Second

// hpaController sizes workloads by what their pods use. hpa_metrics.go computes
// sizes from metrics, hpa_behavior.go holds changes to the rules; both are pure.
// It knows the resource metrics of metrics.k8s.io; metrics of pods, objects and
// outside sources are reported as not available.
type hpaController struct {
	*env
	informer cache.SharedIndexInformer
	events   record.EventRecorder
	scales   *scaler

	mu   sync.Mutex // protects past
	past map[types.UID]*hpaPast
}

func newHPA(e *env) Controller {
	c := &hpaController{env: e, informer: e.factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer(),
		events: e.recorders("horizontal-pod-autoscaler"), scales: newScaler(e), past: map[types.UID]*hpaPast{}}
	return Controller{
		Name: "horizontal-pod-autoscaler-controller",
		Reads: []Source{
			when(wakesSelf(c.informer), func(before, after *autoscalingv2.HorizontalPodAutoscaler) bool {
				return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
			}),
			reads(e.pods()),
		},
		Writes:  []string{"*/scale", "autoscaling/horizontalpodautoscalers"},
		Workers: 5,
		Sync:    c.sync,
	}
}

func (c *hpaController) sync(ctx context.Context, key string) (time.Duration, error) {
	shared := cached[autoscalingv2.HorizontalPodAutoscaler](c.informer, key)
	if shared == nil {
		return 0, nil
	}
	if shared.DeletionTimestamp != nil {
		return 0, nil
	}
	hpa := shared.DeepCopy()
	err := c.rescale(ctx, hpa, time.Now())
	hpa.Status.ObservedGeneration = &hpa.Generation
	if !equality.Semantic.DeepEqual(shared.Status, hpa.Status) {
		if _, e := c.clients.AutoscalingV2().HorizontalPodAutoscalers(hpa.Namespace).UpdateStatus(ctx, hpa, metav1.UpdateOptions{}); e != nil {
			return hpaLook, fmt.Errorf("status of autoscaler %s: %w", key, e)
		}
	}
	_ = err // it is in the conditions and events; the next look is due anyway
	return hpaLook, nil
}

func (c *hpaController) history(uid types.UID) *hpaPast {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.past[uid] == nil {
		c.past[uid] = &hpaPast{}
	}
	return c.past[uid]
}

// rescale brings the workload to the size that its metrics ask for.
func (c *hpaController) rescale(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, now time.Time) error {
	ref := hpa.Spec.ScaleTargetRef
	scale, gvr, err := c.scales.get(ctx, hpa.Namespace, ref.APIVersion, ref.Kind, ref.Name)
	if err != nil {
		c.events.Event(hpa, corev1.EventTypeWarning, "FailedGetScale", err.Error())
		setHPACondition(hpa, autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale", fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", err), now)
		return err
	}
	setHPACondition(hpa, autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale", now)
	current := scale.Spec.Replicas
	desired, reason, err := c.desired(ctx, hpa, scale, now)
	hpa.Status.CurrentReplicas = scale.Status.Replicas
	if err != nil {
		hpa.Status.DesiredReplicas = current
		return err
	}
	hpa.Status.DesiredReplicas = desired
	if desired == current {
		return nil
	}
	if err := c.scales.set(ctx, gvr, scale, desired); err != nil {
		c.events.Eventf(hpa, corev1.EventTypeWarning, "FailedRescale", "New size: %d; reason: %s; error: %v", desired, reason, err)
		setHPACondition(hpa, autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err), now)
		return err
	}
	c.events.Eventf(hpa, corev1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", desired, reason)
	setHPACondition(hpa, autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", desired), now)
	at := metav1.NewTime(now)
	hpa.Status.LastScaleTime = &at
	c.history(hpa.UID).changed(now, desired-current)
	return nil
}

// desired is the size to have, and why.
func (c *hpaController) desired(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale, now time.Time) (int32, string, error) {
	current, least := scale.Spec.Replicas, int32(1)
	if hpa.Spec.MinReplicas != nil {
		least = *hpa.Spec.MinReplicas
	}
	switch {
	case current == 0 && least != 0:
		setHPACondition(hpa, autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero", now)
		return 0, "", nil
	case current > hpa.Spec.MaxReplicas:
		return hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas", nil
	case current < least:
		return least, "Current number of replicas below Spec.MinReplicas", nil
	}
	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil || scale.Status.Selector == "" {
		setHPACondition(hpa, autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "the HPA target's scale is missing a selector", now)
		c.events.Event(hpa, corev1.EventTypeWarning, "SelectorRequired", "selector is required")
		return 0, "", fmt.Errorf("selector %q of the target: %v", scale.Status.Selector, err)
	}
	wanted, metric, err := c.byMetrics(ctx, hpa, scale, selector, now)
	if err != nil {
		return 0, "", err
	}
	reason := "All metrics below target"
	if wanted > current {
		reason = metric + " above target"
	}
	return c.history(hpa.UID).limit(hpa, current, wanted, least, now), reason, nil
}

// byMetrics is the largest size that a metric asks for. When a metric cannot be
// had, the workload may grow by the others, but not shrink.
func (c *hpaController) byMetrics(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale, selector labels.Selector, now time.Time) (int32, string, error) {
	current := scale.Spec.Replicas
	var pods []*corev1.Pod
	for _, pod := range inNamespace[*corev1.Pod](c.pods(), hpa.Namespace) {
		if selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	var best int32 = -1
	var bestMetric string
	var failure error
	hpa.Status.CurrentMetrics = nil
	for i := range hpa.Spec.Metrics {
		p, err := c.propose(ctx, hpa.Namespace, &hpa.Spec.Metrics[i], current, selector, pods, now)
		if err != nil {
			if failure == nil {
				failure = err
			}
			continue
		}
		hpa.Status.CurrentMetrics = append(hpa.Status.CurrentMetrics, p.status)
		if p.replicas > best {
			best, bestMetric = p.replicas, p.name
		}
	}
	if failure != nil && (best < 0 || best < current) {
		c.events.Event(hpa, corev1.EventTypeWarning, "FailedComputeMetricsReplicas", fmt.Sprintf("invalid metrics (%d invalid out of %d), first error is: %v",
			len(hpa.Spec.Metrics)-len(hpa.Status.CurrentMetrics), len(hpa.Spec.Metrics), failure))
		setHPACondition(hpa, autoscalingv2.ScalingActive, corev1.ConditionFalse, "FailedGetResourceMetric", fmt.Sprintf("the HPA was unable to compute the replica count: %v", failure), now)
		return 0, "", failure
	}
	setHPACondition(hpa, autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+bestMetric, now)
	return best, bestMetric, nil
}

func setHPACondition(hpa *autoscalingv2.HorizontalPodAutoscaler, kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) {
	c := autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
	for i := range hpa.Status.Conditions {
		if hpa.Status.Conditions[i].Type != kind {
			continue
		}
		if hpa.Status.Conditions[i].Status == status {
			c.LastTransitionTime = hpa.Status.Conditions[i].LastTransitionTime
		}
		hpa.Status.Conditions[i] = c
		return
	}
	hpa.Status.Conditions = append(hpa.Status.Conditions, c)
}
