package api

import (
	"maps"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultDeployment fills in a Deployment.
func DefaultDeployment(d *appsv1.Deployment) {
	DefaultPodSpec(&d.Spec.Template.Spec)
	fillPtr(&d.Spec.Replicas, 1)
	fillPtr(&d.Spec.RevisionHistoryLimit, 10)
	fillPtr(&d.Spec.ProgressDeadlineSeconds, 600)
	fill(&d.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		fillPtr(&d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		fillPtr(&d.Spec.Strategy.RollingUpdate.MaxUnavailable, percent("25%"))
		fillPtr(&d.Spec.Strategy.RollingUpdate.MaxSurge, percent("25%"))
	}
}

// DefaultReplicaSet fills in a ReplicaSet.
func DefaultReplicaSet(r *appsv1.ReplicaSet) {
	DefaultPodSpec(&r.Spec.Template.Spec)
	fillPtr(&r.Spec.Replicas, 1)
}

// DefaultDaemonSet fills in a DaemonSet.
func DefaultDaemonSet(d *appsv1.DaemonSet) {
	DefaultPodSpec(&d.Spec.Template.Spec)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == "" {
		d.Annotations = maps.Clone(d.Annotations)
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[appsv1.DeprecatedTemplateGeneration] = "0"
	}
	fillPtr(&d.Spec.RevisionHistoryLimit, 10)
	fill(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		fillPtr(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		fillPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		fillPtr(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
}

// DefaultStatefulSet fills in a StatefulSet.
func DefaultStatefulSet(s *appsv1.StatefulSet) {
	DefaultPodSpec(&s.Spec.Template.Spec)
	fill(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	fillPtr(&s.Spec.Replicas, 1)
	fillPtr(&s.Spec.RevisionHistoryLimit, 10)
	if s.Spec.UpdateStrategy.Type == "" {
		s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		fillPtr(&s.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.Spec.UpdateStrategy.RollingUpdate != nil {
		fillPtr(&s.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
		fillPtr(&s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	fillPtr(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	fill(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	fill(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	NameClaimTemplates(s)
	for i := range s.Spec.VolumeClaimTemplates {
		DefaultPersistentVolumeClaim(&s.Spec.VolumeClaimTemplates[i])
	}
}

// NameClaimTemplates says of what kind the templates of claims are.
func NameClaimTemplates(s *appsv1.StatefulSet) {
	for i := range s.Spec.VolumeClaimTemplates {
		s.Spec.VolumeClaimTemplates[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	}
}

// DefaultJob fills in a Job. Without completions and parallelism it is one pod;
// with parallelism only it is a work queue.
func DefaultJob(j *batchv1.Job) {
	spec := &j.Spec
	DefaultPodSpec(&spec.Template.Spec)
	if spec.Completions == nil && spec.Parallelism == nil {
		fillPtr(&spec.Completions, 1)
	}
	fillPtr(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		fillPtr(&spec.BackoffLimit, math.MaxInt32)
	}
	fillPtr(&spec.BackoffLimit, 6)
	fillPtr(&spec.ManualSelector, false)
	fillPtr(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	fillPtr(&spec.Suspend, false)
	fillPtr(&spec.ManualSelector, false)
	if spec.PodFailurePolicy != nil {
		fillPtr(&spec.PodReplacementPolicy, batchv1.Failed)
		for i := range spec.PodFailurePolicy.Rules {
			conditions := spec.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				fill(&conditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	fillPtr(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	if len(j.Labels) == 0 && len(spec.Template.Labels) > 0 {
		j.Labels = maps.Clone(spec.Template.Labels)
	}
}

// DefaultCronJob fills in a CronJob. Its job template is left alone but for the
// pod: the jobs made from it get their own defaults.
func DefaultCronJob(c *batchv1.CronJob) {
	DefaultPodSpec(&c.Spec.JobTemplate.Spec.Template.Spec)
	fill(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	fillPtr(&c.Spec.Suspend, false)
	fillPtr(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	fillPtr(&c.Spec.FailedJobsHistoryLimit, 1)
}

// DefaultHorizontalPodAutoscaler fills in an autoscaler.
func DefaultHorizontalPodAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	fillPtr(&h.Spec.MinReplicas, 1)
	defaultMetrics(&h.Spec)
	b := h.Spec.Behavior
	if b == nil {
		return
	}
	fillPtr(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
	fillPtr(&b.ScaleUp.StabilizationWindowSeconds, 0)
	fillPtr(&b.ScaleUp.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if b.ScaleUp.Policies == nil {
		b.ScaleUp.Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		}
	}
	fillPtr(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
	fillPtr(&b.ScaleDown.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if b.ScaleDown.Policies == nil {
		b.ScaleDown.Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
		}
	}
}

func defaultMetrics(spec *autoscalingv2.HorizontalPodAutoscalerSpec) {
	if len(spec.Metrics) == 0 {
		spec.Metrics = []autoscalingv2.MetricSpec{cpuTarget(defaultCPUUtilization)}
	}
}
