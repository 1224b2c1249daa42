package api

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validTemplate checks the template of pods that are kept running.
func validTemplate(kind string, t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := validTemplateMeta(&t.ObjectMeta, path.Child("metadata"))
	errs = append(errs, ValidatePodSpec(&t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	if kind == "" {
		return errs
	}
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways && t.Spec.RestartPolicy != "" {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind)))
	}
	return errs
}

func validTemplateMeta(m *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(m.Labels, path.Child("labels"))
	for key := range m.Annotations {
		errs = append(errs, invalid(path.Child("annotations"), key, validation.IsQualifiedName(strings.ToLower(key)))...)
	}
	return errs
}

// ValidateDeployment names the faults of a Deployment.
func ValidateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	path, spec := specPath(), &d.Spec
	errs := nonNegativePtr(spec.Replicas, path.Child("replicas"))
	errs = append(errs, validSelector("deployment", spec.Selector, spec.Template.Labels, path.Child("selector"), path.Child("template", "metadata", "labels"))...)
	errs = append(errs, validTemplate("Deployment", &spec.Template, path.Child("template"))...)
	errs = append(errs, validStrategy(&spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, nonNegative(spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, nonNegativePtr(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	if p := spec.ProgressDeadlineSeconds; p != nil {
		errs = append(errs, nonNegative(*p, path.Child("progressDeadlineSeconds"))...)
		if *p <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *p, "must be greater than minReadySeconds"))
		}
	}
	if old != nil {
		errs = append(errs, unchanged(spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

func validStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	errs := oneOf(s.Type, path.Child("type"), appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType)
	r, at := s.RollingUpdate, path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if r != nil {
			errs = append(errs, field.Forbidden(at, "may not be specified when strategy `type` is 'Recreate'"))
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if r == nil {
			return append(errs, field.Required(at, "this should be defaulted and never be nil"))
		}
		if r.MaxUnavailable != nil {
			errs = append(errs, intOrPercent(*r.MaxUnavailable, at.Child("maxUnavailable"))...)
			errs = append(errs, notMoreThan100Percent(*r.MaxUnavailable, at.Child("maxUnavailable"))...)
		}
		if r.MaxSurge != nil {
			errs = append(errs, intOrPercent(*r.MaxSurge, at.Child("maxSurge"))...)
		}
		if isZero(r.MaxUnavailable) && isZero(r.MaxSurge) {
			errs = append(errs, field.Invalid(at.Child("maxUnavailable"), r.MaxUnavailable, "may not be 0 when `maxSurge` is 0"))
		}
	}
	return errs
}

// ValidateReplicaSet names the faults of a ReplicaSet.
func ValidateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	path, spec := specPath(), &r.Spec
	errs := nonNegativePtr(spec.Replicas, path.Child("replicas"))
	errs = append(errs, nonNegative(spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, validSelector("replicaset", spec.Selector, spec.Template.Labels, path.Child("selector"), path.Child("template", "metadata", "labels"))...)
	errs = append(errs, validTemplate("ReplicaSet", &spec.Template, path.Child("template"))...)
	if old != nil {
		errs = append(errs, unchanged(spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

// ValidateReplicationController names the faults of a ReplicationController.
func ValidateReplicationController(rc, _ *corev1.ReplicationController) field.ErrorList {
	path, spec := specPath(), &rc.Spec
	errs := nonNegative(spec.MinReadySeconds, path.Child("minReadySeconds"))
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if spec.Replicas == nil {
		errs = append(errs, field.Required(path.Child("replicas"), ""))
	} else {
		errs = append(errs, nonNegative(*spec.Replicas, path.Child("replicas"))...)
	}
	if spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), ""))
	}
	for key, value := range spec.Selector {
		if spec.Template.Labels[key] != value {
			errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
			break
		}
	}
	return append(errs, validTemplate("ReplicationController", spec.Template, path.Child("template"))...)
}

// ValidateDaemonSet names the faults of a DaemonSet.
func ValidateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList {
	path, spec := specPath(), &d.Spec
	errs := validSelector("daemonset", spec.Selector, spec.Template.Labels, path.Child("selector"), path.Child("template", "metadata", "labels"))
	errs = append(errs, validTemplate("DaemonSet", &spec.Template, path.Child("template"))...)
	errs = append(errs, nonNegative(spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, nonNegativePtr(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	at := path.Child("updateStrategy")
	errs = append(errs, oneOf(spec.UpdateStrategy.Type, at.Child("type"), appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType)...)
	if r := spec.UpdateStrategy.RollingUpdate; r != nil && spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		at = at.Child("rollingUpdate")
		if r.MaxUnavailable != nil {
			errs = append(errs, intOrPercent(*r.MaxUnavailable, at.Child("maxUnavailable"))...)
			errs = append(errs, notMoreThan100Percent(*r.MaxUnavailable, at.Child("maxUnavailable"))...)
		}
		if r.MaxSurge != nil {
			errs = append(errs, intOrPercent(*r.MaxSurge, at.Child("maxSurge"))...)
			errs = append(errs, notMoreThan100Percent(*r.MaxSurge, at.Child("maxSurge"))...)
		}
		switch {
		case isZero(r.MaxUnavailable) && isZero(r.MaxSurge):
			errs = append(errs, field.Invalid(at.Child("maxUnavailable"), r.MaxUnavailable, "cannot be 0 when maxSurge is 0"))
		case !isZero(r.MaxUnavailable) && !isZero(r.MaxSurge):
			errs = append(errs, field.Invalid(at.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
		}
	}
	if old != nil {
		errs = append(errs, unchanged(spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

// ValidateStatefulSet names the faults of a StatefulSet.
func ValidateStatefulSet(s, old *appsv1.StatefulSet) field.ErrorList {
	path, spec := specPath(), &s.Spec
	errs := nonNegativePtr(spec.Replicas, path.Child("replicas"))
	errs = append(errs, oneOf(spec.PodManagementPolicy, path.Child("podManagementPolicy"), appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)...)
	errs = append(errs, validSelector("statefulset", spec.Selector, spec.Template.Labels, path.Child("selector"), path.Child("template", "metadata", "labels"))...)
	errs = append(errs, validSetTemplate(spec, path.Child("template"))...)
	errs = append(errs, nonNegative(spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, nonNegativePtr(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	if spec.Ordinals != nil {
		errs = append(errs, nonNegative(spec.Ordinals.Start, path.Child("ordinals", "start"))...)
	}
	at := path.Child("updateStrategy")
	errs = append(errs, oneOf(spec.UpdateStrategy.Type, at.Child("type"), appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)...)
	if r := spec.UpdateStrategy.RollingUpdate; r != nil {
		if spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			errs = append(errs, field.Invalid(at.Child("rollingUpdate"), r, "only allowed for updateStrategy 'RollingUpdate'"))
		}
		errs = append(errs, nonNegativePtr(r.Partition, at.Child("rollingUpdate", "partition"))...)
		if r.MaxUnavailable != nil {
			errs = append(errs, intOrPercent(*r.MaxUnavailable, at.Child("rollingUpdate", "maxUnavailable"))...)
			if isZero(r.MaxUnavailable) {
				errs = append(errs, field.Invalid(at.Child("rollingUpdate", "maxUnavailable"), r.MaxUnavailable, "cannot be 0"))
			}
		}
	}
	if p := spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		at := path.Child("persistentVolumeClaimRetentionPolicy")
		for name, v := range map[string]appsv1.PersistentVolumeClaimRetentionPolicyType{"whenDeleted": p.WhenDeleted, "whenScaled": p.WhenScaled} {
			errs = append(errs, oneOf(v, at.Child(name), appsv1.DeletePersistentVolumeClaimRetentionPolicyType, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)...)
		}
	}
	if old != nil {
		errs = append(errs, validSetUpdate(s, old)...)
	}
	return errs
}

// validSetTemplate checks the template with the volumes that the claims of the
// set will add.
func validSetTemplate(spec *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	t := spec.Template.DeepCopy()
	for i := range spec.VolumeClaimTemplates {
		name := spec.VolumeClaimTemplates[i].Name
		claimed := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}
		kept := []corev1.Volume{claimed}
		for _, v := range t.Spec.Volumes {
			if v.Name != name {
				kept = append(kept, v)
			}
		}
		t.Spec.Volumes = kept
	}
	return validTemplate("StatefulSet", t, path)
}

func validSetUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	spec := *s.Spec.DeepCopy()
	spec.Replicas, spec.Template, spec.UpdateStrategy = old.Spec.Replicas, old.Spec.Template, old.Spec.UpdateStrategy
	spec.MinReadySeconds, spec.Ordinals = old.Spec.MinReadySeconds, old.Spec.Ordinals
	spec.RevisionHistoryLimit = old.Spec.RevisionHistoryLimit
	spec.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if equality.Semantic.DeepEqual(spec, old.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(specPath(), "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
}

// ValidateControllerRevision names the faults of a ControllerRevision.
func ValidateControllerRevision(r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := nonNegative(r.Revision, field.NewPath("revision"))
	if r.Data.Raw == nil && r.Data.Object == nil {
		errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
	}
	if old != nil {
		errs = append(errs, unchanged(r.Data, old.Data, field.NewPath("data"))...)
	}
	return errs
}

// ValidateJob names the faults of a Job.
func ValidateJob(j, old *batchv1.Job) field.ErrorList {
	errs := validJobSpec(&j.Spec, specPath(), true)
	if manual := j.Spec.ManualSelector; manual == nil || !*manual {
		errs = append(errs, validGeneratedLabels(j)...)
	}
	if old != nil {
		errs = append(errs, validJobUpdate(j, old)...)
	}
	return errs
}

// validGeneratedLabels wants the labels that tie pods to this job, and no other.
func validGeneratedLabels(j *batchv1.Job) field.ErrorList {
	var errs field.ErrorList
	at := specPath().Child("template", "metadata", "labels")
	for name, want := range map[string]string{
		batchv1.ControllerUidLabel: string(j.UID), batchv1.JobNameLabel: j.Name,
	} {
		if got := j.Spec.Template.Labels[name]; got != want {
			errs = append(errs, field.Invalid(at.Key(name), got, fmt.Sprintf("must be '%s'", want)))
		}
	}
	if s := j.Spec.Selector; s != nil && s.MatchLabels[batchv1.ControllerUidLabel] != string(j.UID) {
		errs = append(errs, field.Invalid(specPath().Child("selector"), s, "`selector` not auto-generated"))
	}
	return errs
}

func validJobSpec(spec *batchv1.JobSpec, path *field.Path, made bool) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct {
		name  string
		value *int32
	}{
		{"parallelism", spec.Parallelism}, {"completions", spec.Completions}, {"backoffLimit", spec.BackoffLimit},
		{"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished}, {"backoffLimitPerIndex", spec.BackoffLimitPerIndex}, {"maxFailedIndexes", spec.MaxFailedIndexes},
	} {
		errs = append(errs, nonNegativePtr(n.value, path.Child(n.name))...)
	}
	errs = append(errs, nonNegativePtr(spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))...)
	if spec.CompletionMode != nil {
		errs = append(errs, oneOf(*spec.CompletionMode, path.Child("completionMode"), batchv1.IndexedCompletion, batchv1.NonIndexedCompletion)...)
		if *spec.CompletionMode == batchv1.IndexedCompletion && spec.Completions == nil {
			errs = append(errs, field.Required(path.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion)))
		}
	}
	if made {
		errs = append(errs, validSelector("job", spec.Selector, spec.Template.Labels, path.Child("selector"), path.Child("template", "metadata", "labels"))...)
	}
	errs = append(errs, validTemplate("", &spec.Template, path.Child("template"))...)
	restart := spec.Template.Spec.RestartPolicy
	if restart == "" || restart == corev1.RestartPolicyAlways {
		errs = append(errs, field.Required(path.Child("template", "spec", "restartPolicy"), fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)))
	}
	if spec.PodFailurePolicy != nil && restart != corev1.RestartPolicyNever {
		errs = append(errs, field.Invalid(path.Child("template", "spec", "restartPolicy"), restart, "only \"Never\" is supported when podFailurePolicy is specified"))
	}
	errs = append(errs, oneOfIfSet(spec.PodReplacementPolicy, path.Child("podReplacementPolicy"), batchv1.Failed, batchv1.TerminatingOrFailed)...)
	return errs
}

// validJobUpdate keeps what a running job is. A suspended one that never ran
// may still be given other places to run.
func validJobUpdate(j, old *batchv1.Job) field.ErrorList {
	path := specPath()
	now, before := &j.Spec, &old.Spec
	errs := unchanged(now.Selector, before.Selector, path.Child("selector"))
	errs = append(errs, unchanged(now.CompletionMode, before.CompletionMode, path.Child("completionMode"))...)
	errs = append(errs, unchanged(now.PodFailurePolicy, before.PodFailurePolicy, path.Child("podFailurePolicy"))...)
	errs = append(errs, unchanged(now.BackoffLimitPerIndex, before.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"))...)
	elastic := before.CompletionMode != nil && *before.CompletionMode == batchv1.IndexedCompletion &&
		now.Completions != nil && now.Parallelism != nil && *now.Completions == *now.Parallelism
	if !elastic {
		errs = append(errs, unchanged(now.Completions, before.Completions, path.Child("completions"))...)
	}
	template := now.Template.DeepCopy()
	if before.Suspend != nil && *before.Suspend && old.Status.StartTime == nil {
		template.Spec.NodeSelector, template.Spec.Affinity = before.Template.Spec.NodeSelector, before.Template.Spec.Affinity
		template.Spec.Tolerations, template.Spec.SchedulingGates = before.Template.Spec.Tolerations, before.Template.Spec.SchedulingGates
		template.Annotations, template.Labels = before.Template.Annotations, before.Template.Labels
		for i := range template.Spec.Containers {
			if i < len(before.Template.Spec.Containers) {
				template.Spec.Containers[i].Resources = before.Template.Spec.Containers[i].Resources
			}
		}
	}
	return append(errs, unchanged(*template, before.Template, path.Child("template"))...)
}

// mostCronJobName leaves room for the time that names its jobs.
const mostCronJobName = 52

// ValidateCronJob names the faults of a CronJob.
func ValidateCronJob(c, old *batchv1.CronJob) field.ErrorList {
	path, spec := specPath(), &c.Spec
	var errs field.ErrorList
	if old == nil && len(c.Name) > mostCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"))
	}
	if spec.Schedule == "" {
		errs = append(errs, field.Required(path.Child("schedule"), ""))
	} else {
		errs = append(errs, validSchedule(spec.Schedule, path.Child("schedule"))...)
	}
	if spec.TimeZone != nil {
		errs = append(errs, validTimeZone(*spec.TimeZone, path.Child("timeZone"))...)
	}
	errs = append(errs, nonNegativePtr(spec.StartingDeadlineSeconds, path.Child("startingDeadlineSeconds"))...)
	errs = append(errs, oneOf(spec.ConcurrencyPolicy, path.Child("concurrencyPolicy"), batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	errs = append(errs, nonNegativePtr(spec.SuccessfulJobsHistoryLimit, path.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, nonNegativePtr(spec.FailedJobsHistoryLimit, path.Child("failedJobsHistoryLimit"))...)
	at := path.Child("jobTemplate", "spec")
	errs = append(errs, validJobSpec(&spec.JobTemplate.Spec, at, false)...)
	if spec.JobTemplate.Spec.ManualSelector != nil && *spec.JobTemplate.Spec.ManualSelector {
		errs = append(errs, field.NotSupported(at.Child("manualSelector"), *spec.JobTemplate.Spec.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}

func validTimeZone(zone string, path *field.Path) field.ErrorList {
	switch {
	case zone == "":
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	case strings.EqualFold(zone, "Local"):
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	if _, err := time.LoadLocation(zone); err != nil {
		return field.ErrorList{field.Invalid(path, zone, err.Error())}
	}
	return nil
}

// ValidateHorizontalPodAutoscaler names the faults of an autoscaler.
func ValidateHorizontalPodAutoscaler(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	path, spec := specPath(), &h.Spec
	var errs field.ErrorList
	if spec.MinReplicas != nil && *spec.MinReplicas < 1 {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *spec.MinReplicas, "must be greater than or equal to 1"))
	}
	if spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than 0"))
	}
	if spec.MinReplicas != nil && spec.MaxReplicas < *spec.MinReplicas {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	at := path.Child("scaleTargetRef")
	errs = append(errs, required(spec.ScaleTargetRef.Kind, at.Child("kind"))...)
	errs = append(errs, required(spec.ScaleTargetRef.Name, at.Child("name"))...)
	for i, m := range spec.Metrics {
		errs = append(errs, validMetric(m, path.Child("metrics").Index(i))...)
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, validScaling(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validScaling(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validMetric(m autoscalingv2.MetricSpec, path *field.Path) field.ErrorList {
	errs := oneOf(m.Type, path.Child("type"), autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType,
		autoscalingv2.ResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ContainerResourceMetricSourceType)
	sources := map[autoscalingv2.MetricSourceType]bool{
		autoscalingv2.ObjectMetricSourceType: m.Object != nil, autoscalingv2.PodsMetricSourceType: m.Pods != nil,
		autoscalingv2.ResourceMetricSourceType: m.Resource != nil, autoscalingv2.ExternalMetricSourceType: m.External != nil,
		autoscalingv2.ContainerResourceMetricSourceType: m.ContainerResource != nil,
	}
	if here, known := sources[m.Type]; known && !here {
		name := strings.ToLower(string(m.Type[:1])) + string(m.Type[1:])
		errs = append(errs, field.Required(path.Child(name), "must populate information for the given metric source"))
	}
	for t, set := range sources {
		if set && t != m.Type {
			name := strings.ToLower(string(t[:1])) + string(t[1:])
			errs = append(errs, field.Forbidden(path.Child(name), "must populate the given metric source only"))
		}
	}
	if m.Resource != nil {
		errs = append(errs, required(string(m.Resource.Name), path.Child("resource", "name"))...)
		if m.Resource.Target.AverageUtilization == nil && m.Resource.Target.AverageValue == nil {
			errs = append(errs, field.Required(path.Child("resource", "target", "averageUtilization"), "must set either a target raw value or a target utilization"))
		}
	}
	return errs
}

func validScaling(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if s := r.StabilizationWindowSeconds; s != nil {
		errs = append(errs, nonNegative(*s, path.Child("stabilizationWindowSeconds"))...)
		if *s > 3600 {
			errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *s, "must be less than or equal to 3600"))
		}
	}
	errs = append(errs, oneOfIfSet(r.SelectPolicy, path.Child("selectPolicy"), autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect)...)
	if len(r.Policies) == 0 && (r.SelectPolicy == nil || *r.SelectPolicy != autoscalingv2.DisabledPolicySelect) {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := path.Child("policies").Index(i)
		errs = append(errs, oneOf(p.Type, at.Child("type"), autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy)...)
		errs = append(errs, positiveNumber(int64(p.Value), at.Child("value"))...)
		errs = append(errs, positiveNumber(int64(p.PeriodSeconds), at.Child("periodSeconds"))...)
		if p.PeriodSeconds > 1800 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be less than or equal to 1800"))
		}
	}
	return errs
}

// ValidateHorizontalPodAutoscalerV1 checks the older form by way of the newer.
func ValidateHorizontalPodAutoscalerV1(h, _ *autoscalingv1.HorizontalPodAutoscaler) field.ErrorList {
	current, err := HPAToV2(h)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("metadata", "annotations"), err)}
	}
	return ValidateHorizontalPodAutoscaler(current, nil)
}

// ValidatePodDisruptionBudget names the faults of a budget.
func ValidatePodDisruptionBudget(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	path, spec := specPath(), &b.Spec
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, *spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	if spec.MinAvailable != nil {
		errs = append(errs, intOrPercent(*spec.MinAvailable, path.Child("minAvailable"))...)
		errs = append(errs, notMoreThan100Percent(*spec.MinAvailable, path.Child("minAvailable"))...)
	}
	if spec.MaxUnavailable != nil {
		errs = append(errs, intOrPercent(*spec.MaxUnavailable, path.Child("maxUnavailable"))...)
		errs = append(errs, notMoreThan100Percent(*spec.MaxUnavailable, path.Child("maxUnavailable"))...)
	}
	errs = append(errs, oneOfIfSet(spec.UnhealthyPodEvictionPolicy, path.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	return append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
}
