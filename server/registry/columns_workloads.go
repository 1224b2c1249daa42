package registry

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/api"
)

func deploymentColumns() []Column {
	return append([]Column{
		nameColumn,
		text("Ready", "Pods that are ready, of those wanted."),
		text("Up-to-date", "Pods made from the present template."),
		text("Available", "Pods that have been ready for long enough."),
		ageColumn,
	}, templateColumns(true)...)
}

func deploymentRow(d *appsv1.Deployment) []any {
	names, images := templateCells(&d.Spec.Template.Spec)
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, wanted(d.Spec.Replicas)),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), d.CreationTimestamp,
		names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}

func replicaSetRow(r *appsv1.ReplicaSet) []any {
	names, images := templateCells(&r.Spec.Template.Spec)
	return []any{
		r.Name, wanted(r.Spec.Replicas), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), r.CreationTimestamp,
		names, images, metav1.FormatLabelSelector(r.Spec.Selector),
	}
}

func statefulSetColumns() []Column {
	return append([]Column{nameColumn, text("Ready", "Pods that are ready, of those wanted."), ageColumn}, templateColumns(false)...)
}

func statefulSetRow(s *appsv1.StatefulSet) []any {
	names, images := templateCells(&s.Spec.Template.Spec)
	return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, wanted(s.Spec.Replicas)), s.CreationTimestamp, names, images}
}

func daemonSetColumns() []Column {
	return append([]Column{
		nameColumn,
		number("Desired", "Nodes that should run the pod."),
		number("Current", "Nodes that run it and should."),
		number("Ready", "Nodes on which it is ready."),
		number("Up-to-date", "Nodes that run the present template."),
		number("Available", "Nodes on which it has been ready for long enough."),
		text("Node Selector", "Labels that a node must have."),
		ageColumn,
	}, templateColumns(true)...)
}

func daemonSetRow(d *appsv1.DaemonSet) []any {
	names, images := templateCells(&d.Spec.Template.Spec)
	s := &d.Status
	return []any{
		d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady),
		int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), d.CreationTimestamp,
		names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}

func controllerRevisionColumns() []Column {
	return []Column{nameColumn, text("Controller", "What the revision is of."), text("Revision", "Its number."), ageColumn}
}

func controllerRevisionRow(r *appsv1.ControllerRevision) []any {
	of := none
	if owner := metav1.GetControllerOf(r); owner != nil {
		of = strings.ToLower(owner.Kind)
		if group, _, ok := strings.Cut(owner.APIVersion, "/"); ok {
			of += "." + group
		}
		of += "/" + owner.Name
	}
	return []any{r.Name, of, r.Revision, r.CreationTimestamp}
}

func jobColumns() []Column {
	return append([]Column{
		nameColumn,
		text("Status", "The state of the job in one word."),
		text("Completions", "Pods that succeeded, of those needed."),
		text("Duration", "How long it ran, or has been running."),
		ageColumn,
	}, templateColumns(true)...)
}

func jobRow(j *batchv1.Job) []any {
	var completions string
	switch {
	case j.Spec.Completions != nil:
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case wanted(j.Spec.Parallelism) > 1:
		completions = fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	default:
		completions = fmt.Sprintf("%d/1", j.Status.Succeeded)
	}
	var took any = ""
	switch {
	case j.Status.StartTime == nil:
	case j.Status.CompletionTime == nil:
		took = Words(func(now time.Time) string { return api.Age(j.Status.StartTime.Time, now) })
	default:
		took = api.Age(j.Status.StartTime.Time, j.Status.CompletionTime.Time)
	}
	names, images := templateCells(&j.Spec.Template.Spec)
	return []any{
		j.Name, api.JobWord(j), completions, took, j.CreationTimestamp,
		names, images, metav1.FormatLabelSelector(j.Spec.Selector),
	}
}

func cronJobColumns() []Column {
	return append([]Column{
		nameColumn,
		text("Schedule", "When it runs, in cron's form."),
		text("Timezone", "The time zone of the schedule."),
		boolean("Suspend", "Whether it is paused."),
		number("Active", "Jobs that run now."),
		text("Last Schedule", "When it last ran."),
		ageColumn,
	}, templateColumns(true)...)
}

func cronJobRow(c *batchv1.CronJob) []any {
	var last any = none
	if c.Status.LastScheduleTime != nil {
		last = *c.Status.LastScheduleTime
	}
	zone := none
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	suspended := unset
	if c.Spec.Suspend != nil {
		suspended = titleBool(*c.Spec.Suspend)
	}
	names, images := templateCells(&c.Spec.JobTemplate.Spec.Template.Spec)
	return []any{
		c.Name, c.Spec.Schedule, zone, suspended, int64(len(c.Status.Active)), last, c.CreationTimestamp,
		names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}

func hpaColumns() []Column {
	return []Column{
		nameColumn,
		text("Reference", "What is scaled."),
		text("Targets", "Measured and wanted, for each metric."),
		text("MinPods", "Fewest pods."),
		text("MaxPods", "Most pods."),
		text("Replicas", "Pods there are."),
		ageColumn,
	}
}

func hpaRow(h *hpa) []any {
	smallest := unset
	if h.Spec.MinReplicas != nil {
		smallest = itoa(*h.Spec.MinReplicas)
	}
	ref := h.Spec.ScaleTargetRef
	return []any{
		h.Name, ref.Kind + "/" + ref.Name, hpaTargets(h), smallest,
		int64(h.Spec.MaxReplicas), int64(h.Status.CurrentReplicas), h.CreationTimestamp,
	}
}

func hpaV1Row(h *autoscalingv1.HorizontalPodAutoscaler) []any {
	current, err := api.HPAToV2(h)
	if err != nil {
		return []any{h.Name, "", "", "", "", "", h.CreationTimestamp}
	}
	return hpaRow(current)
}

// hpaTargets is "cpu: 12%/80%, ..." with two metrics at most.
func hpaTargets(h *hpa) string {
	var all []string
	for i, m := range h.Spec.Metrics {
		var now *autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			now = &h.Status.CurrentMetrics[i]
		}
		all = append(all, hpaTarget(m, now))
	}
	if len(all) == 0 {
		return none
	}
	if len(all) > 2 {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:2], ", "), len(all)-2)
	}
	return strings.Join(all, ", ")
}

func hpaTarget(m autoscalingv2.MetricSpec, now *autoscalingv2.MetricStatus) string {
	var prefix string
	var target autoscalingv2.MetricTarget
	var current autoscalingv2.MetricValueStatus
	average := ""
	if now == nil {
		now = &autoscalingv2.MetricStatus{}
	}
	switch {
	case m.External != nil:
		target, average = m.External.Target, " (avg)"
		if now.External != nil {
			current = now.External.Current
		}
	case m.Pods != nil:
		target = m.Pods.Target
		if now.Pods != nil {
			current = now.Pods.Current
		}
	case m.Object != nil:
		target, average = m.Object.Target, " (avg)"
		if now.Object != nil {
			current = now.Object.Current
		}
	case m.Resource != nil:
		prefix, target = string(m.Resource.Name)+": ", m.Resource.Target
		if now.Resource != nil {
			current = now.Resource.Current
		}
	case m.ContainerResource != nil:
		prefix, target = string(m.ContainerResource.Name)+": ", m.ContainerResource.Target
		if now.ContainerResource != nil {
			current = now.ContainerResource.Current
		}
	default:
		return "<unknown type>"
	}
	return prefix + hpaValues(target, current, average)
}

func hpaValues(target autoscalingv2.MetricTarget, now autoscalingv2.MetricValueStatus, average string) string {
	measured := "<unknown>"
	switch {
	case target.AverageUtilization != nil:
		if now.AverageUtilization != nil {
			measured = itoa(*now.AverageUtilization) + "%"
		}
		return fmt.Sprintf("%s/%d%%", measured, *target.AverageUtilization)
	case target.AverageValue != nil:
		if now.AverageValue != nil {
			measured = now.AverageValue.String()
		}
		return fmt.Sprintf("%s/%s%s", measured, target.AverageValue, average)
	case target.Value != nil:
		if now.Value != nil {
			measured = now.Value.String()
		}
		return fmt.Sprintf("%s/%s", measured, target.Value)
	}
	return measured + "/<auto>"
}
