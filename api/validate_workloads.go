package api

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validSelector checks the selector of a workload; kind is what it says it is.
func validSelector(kind string, s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	return append(validLabels(s, at), emptySelector(kind, s, at)...)
}

func emptySelector(kind string, s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return refuse(s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0, at, s, "empty selector is invalid for "+kind)
}

// picks wants a selector to pick the pods of the workload's own template.
func picks(s labels.Selector, t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	return refuse(!s.Matches(labels.Set(t.Labels)), at.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")
}

// validRunning wants the pods of a template to be kept running.
func validRunning(kind string, t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	errs := among(t.Spec.RestartPolicy, at.Child("spec", "restartPolicy"), corev1.RestartPolicyAlways)
	return append(errs, forbid(t.Spec.ActiveDeadlineSeconds != nil, at.Child("spec", "activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind))...)
}

// validReplicaTemplate checks the template of a ReplicaSet, or of a Deployment, which
// makes some, if its selector can be understood.
func validReplicaTemplate(s *metav1.LabelSelector, t, old *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return refuse(true, at.Child("selector"), s, "invalid label selector")
	}
	at = at.Child("template")
	var errs field.ErrorList
	if !selector.Empty() {
		errs = picks(selector, t, at)
	}
	errs = append(errs, validTemplate(t, old, at)...)
	return append(errs, validRunning("ReplicaSet", t, at)...)
}

// intOrPercent wants a count, or a percentage.
func intOrPercent(v intstr.IntOrString, at *field.Path) field.ErrorList {
	if v.Type == intstr.String {
		return invalid(at, v, validation.IsValidPercent(v.StrVal))
	}
	return nonNegative(v.IntVal, at)
}

// share is the number, or the percentage, that a value is; one that is neither is
// taken for nothing.
func share(v intstr.IntOrString) (n int, percentage bool) {
	if v.Type == intstr.String && len(validation.IsValidPercent(v.StrVal)) == 0 {
		v, percentage = intstr.FromString(strings.TrimSuffix(v.StrVal, "%")), true
	}
	return v.IntValue(), percentage
}

func notMoreThan100Percent(v intstr.IntOrString, at *field.Path) field.ErrorList {
	n, percentage := share(v)
	return refuse(percentage && n > 100, at, v, "must not be greater than 100%")
}

func isZero(v *intstr.IntOrString) bool {
	if v == nil {
		return true
	}
	n, _ := share(*v)
	return n == 0
}

// ValidateDeployment names the faults of a Deployment.
func ValidateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	at, spec := specPath(), &d.Spec
	errs := nonNegativePtr(spec.Replicas, at.Child("replicas"))
	errs = append(errs, validSelector("deployment", spec.Selector, at.Child("selector"))...)
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Spec.Template
	}
	errs = append(errs, validReplicaTemplate(spec.Selector, &spec.Template, before, at)...)
	errs = append(errs, validStrategy(&spec.Strategy, at.Child("strategy"))...)
	errs = append(errs, nonNegative(spec.MinReadySeconds, at.Child("minReadySeconds"))...)
	errs = append(errs, nonNegativePtr(spec.RevisionHistoryLimit, at.Child("revisionHistoryLimit"))...)
	if p := spec.ProgressDeadlineSeconds; p != nil {
		errs = append(errs, nonNegative(*p, at.Child("progressDeadlineSeconds"))...)
		errs = append(errs, refuse(*p <= spec.MinReadySeconds, at.Child("progressDeadlineSeconds"), *p, "must be greater than minReadySeconds")...)
	}
	if old != nil {
		errs = append(errs, unchanged(spec.Selector, old.Spec.Selector, at.Child("selector"))...)
	}
	return errs
}

func validStrategy(s *appsv1.DeploymentStrategy, at *field.Path) field.ErrorList {
	r, here := s.RollingUpdate, at.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		return forbid(r != nil, here, "may not be specified when strategy `type` is 'Recreate'")
	case appsv1.RollingUpdateDeploymentStrategyType:
		if r == nil {
			return field.ErrorList{field.Required(here, "this should be defaulted and never be nil")}
		}
		errs := intOrPercent(*r.MaxUnavailable, here.Child("maxUnavailable"))
		errs = append(errs, intOrPercent(*r.MaxSurge, here.Child("maxSurge"))...)
		errs = append(errs, refuse(isZero(r.MaxUnavailable) && isZero(r.MaxSurge), here.Child("maxUnavailable"), r.MaxUnavailable, "may not be 0 when `maxSurge` is 0")...)
		return append(errs, notMoreThan100Percent(*r.MaxUnavailable, here.Child("maxUnavailable"))...)
	}
	return field.ErrorList{field.NotSupported(at, shown(s), []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
}

// ValidateReplicaSet names the faults of a ReplicaSet.
func ValidateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	at, spec := specPath(), &r.Spec
	errs := nonNegativePtr(spec.Replicas, at.Child("replicas"))
	errs = append(errs, nonNegative(spec.MinReadySeconds, at.Child("minReadySeconds"))...)
	errs = append(errs, validSelector("deployment", spec.Selector, at.Child("selector"))...)
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Spec.Template
	}
	errs = append(errs, validReplicaTemplate(spec.Selector, &spec.Template, before, at)...)
	if old != nil {
		errs = append(errs, unchanged(spec.Selector, old.Spec.Selector, at.Child("selector"))...)
	}
	return errs
}

// ValidateReplicationController names the faults of a ReplicationController.
func ValidateReplicationController(rc, old *corev1.ReplicationController) field.ErrorList {
	at, spec := specPath(), &rc.Spec
	errs := need(len(spec.Selector) == 0, at.Child("selector"), "")
	if spec.Template == nil {
		errs = append(errs, field.Required(at.Child("template"), ""))
	} else {
		var before *corev1.PodTemplateSpec
		if old != nil {
			before = old.Spec.Template
		}
		here := at.Child("template")
		if s := labels.Set(spec.Selector).AsSelector(); !s.Empty() {
			errs = append(errs, picks(s, spec.Template, here)...)
		}
		errs = append(errs, validTemplate(spec.Template, before, here)...)
		errs = append(errs, validRunning("ReplicationController", spec.Template, here)...)
	}
	errs = append(errs, need(spec.Replicas == nil, at.Child("replicas"), "")...)
	errs = append(errs, nonNegativePtr(spec.Replicas, at.Child("replicas"))...)
	return append(errs, nonNegative(spec.MinReadySeconds, at.Child("minReadySeconds"))...)
}

// ValidateDaemonSet names the faults of a DaemonSet.
func ValidateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList {
	at, spec := specPath(), &d.Spec
	var errs field.ErrorList
	var before *corev1.PodTemplateSpec
	strict := true
	if old != nil {
		before = &old.Spec.Template
		errs = append(errs, unchanged(spec.Selector, old.Spec.Selector, at.Child("selector"))...)
		strict = !metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: !strict}, at.Child("selector"))...)
	here := at.Child("template")
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil {
		errs = append(errs, picks(selector, &spec.Template, here)...)
	}
	errs = append(errs, emptySelector("daemonset", spec.Selector, at.Child("selector"))...)
	errs = append(errs, validTemplate(&spec.Template, before, here)...)
	errs = append(errs, validRunning("DaemonSet", &spec.Template, here)...)
	errs = append(errs, nonNegative(spec.MinReadySeconds, at.Child("minReadySeconds"))...)
	errs = append(errs, validDaemonStrategy(&spec.UpdateStrategy, at.Child("updateStrategy"))...)
	return append(errs, nonNegativePtr(spec.RevisionHistoryLimit, at.Child("revisionHistoryLimit"))...)
}

func validDaemonStrategy(s *appsv1.DaemonSetUpdateStrategy, at *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(at, shown(s), []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
	r, at := s.RollingUpdate, at.Child("rollingUpdate")
	if r == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := intOrPercent(*r.MaxUnavailable, at.Child("maxUnavailable"))
	errs = append(errs, intOrPercent(*r.MaxSurge, at.Child("maxSurge"))...)
	errs = append(errs, notMoreThan100Percent(*r.MaxUnavailable, at.Child("maxUnavailable"))...)
	errs = append(errs, notMoreThan100Percent(*r.MaxSurge, at.Child("maxSurge"))...)
	errs = append(errs, refuse(!isZero(r.MaxUnavailable) && !isZero(r.MaxSurge), at.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero")...)
	return append(errs, need(isZero(r.MaxUnavailable) && isZero(r.MaxSurge), at.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0")...)
}

// ValidateStatefulSet names the faults of a StatefulSet. What may not change is not
// looked at again when the rest does.
func ValidateStatefulSet(s, old *appsv1.StatefulSet) field.ErrorList {
	at := specPath()
	if old == nil {
		return validSet(&s.Spec, nil, at)
	}
	errs := validSet(&s.Spec, &old.Spec, at)
	errs = append(errs, unchanged(s.Spec.Selector, old.Spec.Selector, at.Child("selector"))...)
	errs = append(errs, unchanged(s.Spec.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates, at.Child("volumeClaimTemplates"))...)
	errs = append(errs, unchanged(s.Spec.ServiceName, old.Spec.ServiceName, at.Child("serviceName"))...)
	return append(errs, unchanged(s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy, at.Child("podManagementPolicy"))...)
}

func validSet(spec, old *appsv1.StatefulSetSpec, at *field.Path) field.ErrorList {
	errs := required(string(spec.PodManagementPolicy), at.Child("podManagementPolicy"))
	known := spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement || spec.PodManagementPolicy == appsv1.ParallelPodManagement
	errs = append(errs, refuse(spec.PodManagementPolicy != "" && !known, at.Child("podManagementPolicy"), spec.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'")...)
	errs = append(errs, validSetStrategy(&spec.UpdateStrategy, at.Child("updateStrategy"))...)
	if p := spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		here := at.Child("persistentVolumeClaimRetentionPolicy")
		const keep, drop = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		errs = append(errs, among(p.WhenDeleted, here.Child("whenDeleted"), keep, drop)...)
		errs = append(errs, among(p.WhenScaled, here.Child("whenScaled"), keep, drop)...)
	}
	if old == nil {
		for i := range spec.VolumeClaimTemplates {
			errs = append(errs, validClaimSpec(&spec.VolumeClaimTemplates[i].Spec, nil, at.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
		}
	}
	errs = append(errs, nonNegativePtr(spec.Replicas, at.Child("replicas"))...)
	errs = append(errs, nonNegative(spec.MinReadySeconds, at.Child("minReadySeconds"))...)
	if spec.Ordinals != nil {
		errs = append(errs, nonNegative(spec.Ordinals.Start, at.Child("ordinals.start"))...)
	}
	if old == nil {
		errs = append(errs, validIfSet(spec.ServiceName, at.Child("serviceName"), label)...)
	}
	errs = append(errs, validSelector("statefulset", spec.Selector, at.Child("selector"))...)
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), spec.Selector, ""))
	} else {
		errs = append(errs, validSetTemplate(spec, old, selector, at.Child("template"))...)
	}
	return append(errs, validRunning("StatefulSet", &spec.Template, at.Child("template"))...)
}

func validSetStrategy(s *appsv1.StatefulSetUpdateStrategy, at *field.Path) field.ErrorList {
	r, here := s.RollingUpdate, at.Child("rollingUpdate")
	switch s.Type {
	case "":
		return field.ErrorList{field.Required(at, "")}
	case appsv1.OnDeleteStatefulSetStrategyType:
		return refuse(r != nil, here, r, "only allowed for updateStrategy 'RollingUpdate'")
	case appsv1.RollingUpdateStatefulSetStrategyType:
	default:
		return refuse(true, at, *s, "must be 'RollingUpdate' or 'OnDelete'")
	}
	if r == nil {
		return nil
	}
	errs := nonNegativePtr(r.Partition, here.Child("partition"))
	if most := r.MaxUnavailable; most != nil {
		here = here.Child("maxUnavailable")
		errs = append(errs, intOrPercent(*most, here)...)
		errs = append(errs, refuse(isZero(most), here, *most, "cannot be 0")...)
		errs = append(errs, notMoreThan100Percent(*most, here)...)
	}
	return errs
}

// validSetTemplate checks the template with the volumes that the claims of the set
// will add, and without the names that it will give.
func validSetTemplate(spec, old *appsv1.StatefulSetSpec, selector labels.Selector, at *field.Path) field.ErrorList {
	t := spec.Template.DeepCopy()
	t.Spec.Hostname, t.Spec.Subdomain = "", ""
	if len(spec.VolumeClaimTemplates) > 0 {
		var volumes []corev1.Volume
		claimed := map[string]bool{}
		for i := range spec.VolumeClaimTemplates {
			name := spec.VolumeClaimTemplates[i].Name
			if claimed[name] {
				continue
			}
			claimed[name] = true
			volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
		for _, v := range t.Spec.Volumes {
			if !claimed[v.Name] {
				volumes = append(volumes, v)
			}
		}
		t.Spec.Volumes = volumes
	}
	var errs field.ErrorList
	if !selector.Empty() {
		errs = picks(selector, t, at)
	}
	// One that had faults before may keep them.
	if old == nil || len(validSet(old, nil, nil)) == 0 {
		errs = append(errs, validTemplate(t, nil, at)...)
	}
	errs = append(errs, metavalidation.ValidateLabels(t.Labels, at.Child("labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
	return append(errs, (&podCheck{spec: &t.Spec}).validAnnotations(t.Annotations, at.Child("annotations"))...)
}

// ValidateControllerRevision names the faults of a ControllerRevision.
func ValidateControllerRevision(r, old *appsv1.ControllerRevision) field.ErrorList {
	at := field.NewPath("data")
	errs := nonNegative(r.Revision, field.NewPath("revision"))
	if old != nil {
		return append(errs, unchanged(r.Data, old.Data, at)...)
	}
	var data any
	if r.Data.Raw != nil {
		if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
			return append(errs, field.Invalid(at, "<value omitted>", "error parsing data: "+err.Error()))
		}
	}
	_, isObject := data.(map[string]any)
	errs = append(errs, need(data == nil, at, "data is mandatory")...)
	return append(errs, need(data != nil && !isObject, at, "data must be a valid JSON object")...)
}

// ValidatePodDisruptionBudget names the faults of a budget.
func ValidatePodDisruptionBudget(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	at, spec := specPath(), &b.Spec
	errs := refuse(spec.MinAvailable != nil && spec.MaxUnavailable != nil, at, *spec, "minAvailable and maxUnavailable cannot be both set")
	for _, f := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", spec.MinAvailable}, {"maxUnavailable", spec.MaxUnavailable}} {
		if f.value != nil {
			errs = append(errs, intOrPercent(*f.value, at.Child(f.name))...)
			errs = append(errs, notMoreThan100Percent(*f.value, at.Child(f.name))...)
		}
	}
	lenient := old != nil && metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lenient}, at.Child("selector"))...)
	return append(errs, amongIfSet(spec.UnhealthyPodEvictionPolicy, at.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
}
