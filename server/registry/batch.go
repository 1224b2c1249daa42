package registry

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
)

func batchKinds() []*Kind {
	gv := batchv1.SchemeGroupVersion
	return []*Kind{jobKind(gv), cronJobKind(gv)}
}

func jobKind(gv schema.GroupVersion) *Kind {
	parts := halves[batchv1.Job]{counted: true}
	return kind[batchv1.Job, batchv1.JobList]{
		Plural: "jobs", In: []string{"all"}, OrphanByDefault: true,
		DeleteWarning: "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
		UnknownField:  "field label %q not supported for Job",
		Validate:      validateJob, Warn: api.WarnJob,
		Columns: jobColumns(), Row: jobRow,
		Default: api.DefaultJob,
		Prepare: parts.prepare,
		Fields: func(j *batchv1.Job) fields.Set {
			return fields.Set{"metadata.name": j.Name, "status.successful": itoa(j.Status.Succeeded)}
		},
		Sub: Sub{"status": parts.sub(api.ValidateJobStatus)},
	}.erase(gv)
}

// validateJob completes a job first: its name may be generated, and what it is
// completed with is nobody's in managedFields.
func validateJob(j, old *batchv1.Job) field.ErrorList {
	if old == nil {
		selectOwnPods(j)
	}
	return api.ValidateJob(j, old)
}

// selectOwnPods gives a job without a hand-made selector one that no other job
// can share: its own UID, as a label on its pods.
func selectOwnPods(j *batchv1.Job) {
	if j.Spec.ManualSelector != nil && *j.Spec.ManualSelector {
		return
	}
	labels := j.Spec.Template.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	uid := string(j.UID)
	// What the client wrote stands, and is then refused by validation if wrong.
	for name, value := range map[string]string{
		"controller-uid": uid, batchv1.ControllerUidLabel: uid,
		"job-name": j.Name, batchv1.JobNameLabel: j.Name,
	} {
		if _, ok := labels[name]; !ok {
			labels[name] = value
		}
	}
	j.Spec.Template.Labels = labels
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = uid
	}
	if len(j.Labels) == 0 {
		j.Labels = make(map[string]string, len(labels))
		for name, value := range labels {
			j.Labels[name] = value
		}
	}
}

func cronJobKind(gv schema.GroupVersion) *Kind {
	parts := halves[batchv1.CronJob]{counted: true}
	return kind[batchv1.CronJob, batchv1.CronJobList]{
		Plural: "cronjobs", Short: []string{"cj"}, In: []string{"all"},
		Validate: api.ValidateCronJob, Warn: api.WarnCronJob,
		Columns: cronJobColumns(), Row: cronJobRow,
		Default: api.DefaultCronJob,
		Prepare: parts.prepare,
		Sub:     Sub{"status": parts.sub(nil)},
	}.erase(gv)
}
