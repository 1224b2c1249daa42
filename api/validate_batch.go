package api

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateJob names the faults of a Job.
func ValidateJob(j, old *batchv1.Job) field.ErrorList {
	var errs field.ErrorList
	var before *batchv1.JobSpec
	lenient := false
	if old == nil {
		errs = validGeneratedLabels(j)
	} else {
		before = &old.Spec
		lenient = metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	}
	at := specPath()
	errs = append(errs, validJobSpec(&j.Spec, before, at)...)
	errs = append(errs, need(j.Spec.Selector == nil, at.Child("selector"), "")...)
	errs = append(errs, metavalidation.ValidateLabelSelector(j.Spec.Selector, metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lenient}, at.Child("selector"))...)
	if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil {
		errs = append(errs, picks(s, &j.Spec.Template, at.Child("template"))...)
	}
	if old != nil {
		errs = append(errs, validJobUpdate(j, old)...)
	}
	return append(errs, validIndexedName(j)...)
}

// validIndexedName leaves room for the number of a pod in its host name.
func validIndexedName(j *batchv1.Job) field.ErrorList {
	n := j.Spec.Completions
	if !isIndexed(&j.Spec) || n == nil || *n <= 0 {
		return nil
	}
	last := fmt.Sprintf("%s-%d", j.Name, *n-1)
	return refuse(len(label(last)) > 0, field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+last)
}

func isIndexed(spec *batchv1.JobSpec) bool {
	return spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
}

// The labels that tie pods to their Job, by the names that they had at first.
const (
	oldControllerUID = "controller-uid"
	oldJobName       = "job-name"
)

// validGeneratedLabels wants the labels that tie pods to this job, and no other.
func validGeneratedLabels(j *batchv1.Job) field.ErrorList {
	if j.Spec.ManualSelector != nil && *j.Spec.ManualSelector || j.Spec.Selector == nil {
		return nil
	}
	uid, at := string(j.UID), specPath().Child("template", "metadata", "labels")
	errs := need(uid == "", field.NewPath("metadata", "uid"), "")
	expected := labels.Set{}
	for _, l := range []struct{ key, value string }{{oldControllerUID, uid}, {oldJobName, j.Name}, {batchv1.ControllerUidLabel, uid}, {batchv1.JobNameLabel, j.Name}} {
		expected[l.key] = l.value
		got, ok := j.Spec.Template.Labels[l.key]
		why := fmt.Sprintf("must be '%s'", l.value)
		errs = append(errs, need(!ok, at.Key(l.key), why)...)
		errs = append(errs, refuse(ok && got != l.value, at.Key(l.key), j.Spec.Template.Labels, why)...)
	}
	s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	return append(errs, refuse(err == nil && !s.Matches(expected), specPath().Child("selector"), j.Spec.Selector, "`selector` not auto-generated")...)
}

// How large an indexed job may be, as its status must be small enough.
const (
	mostIndexes       = 100_000
	mostOfManyIndexes = 10_000 // at a time, or failed, when there are more than mostIndexes
)

func validJobSpec(spec, old *batchv1.JobSpec, at *field.Path) field.ErrorList {
	errs := nonNegativePtr(spec.Parallelism, at.Child("parallelism"))
	errs = append(errs, nonNegativePtr(spec.Completions, at.Child("completions"))...)
	errs = append(errs, nonNegativePtr(spec.ActiveDeadlineSeconds, at.Child("activeDeadlineSeconds"))...)
	errs = append(errs, nonNegativePtr(spec.BackoffLimit, at.Child("backoffLimit"))...)
	errs = append(errs, nonNegativePtr(spec.TTLSecondsAfterFinished, at.Child("ttlSecondsAfterFinished"))...)
	errs = append(errs, nonNegativePtr(spec.BackoffLimitPerIndex, at.Child("backoffLimitPerIndex"))...)
	errs = append(errs, nonNegativePtr(spec.MaxFailedIndexes, at.Child("maxFailedIndexes"))...)
	errs = append(errs, need(spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil, at.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")...)
	if by := spec.ManagedBy; by != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(at.Child("managedBy"), *by)...)
		if len(*by) > validation.DNS1123LabelMaxLength {
			errs = append(errs, field.TooLong(at.Child("managedBy"), "", validation.DNS1123LabelMaxLength))
		}
	}
	errs = append(errs, amongIfSet(spec.CompletionMode, at.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)...)
	errs = append(errs, validIndexes(spec, at)...)
	errs = append(errs, validFailurePolicy(spec, at.Child("podFailurePolicy"))...)
	errs = append(errs, validSuccessPolicy(spec, at.Child("successPolicy"))...)
	replacements := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
	if spec.PodFailurePolicy != nil {
		replacements = replacements[:1]
	}
	errs = append(errs, amongIfSet(spec.PodReplacementPolicy, at.Child("podReplacementPolicy"), replacements...)...)
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Template
	}
	errs = append(errs, validTemplate(&spec.Template, before, at.Child("template"))...)
	restart, here := spec.Template.Spec.RestartPolicy, at.Child("template", "spec", "restartPolicy")
	if restart == "" || restart == corev1.RestartPolicyAlways {
		return append(errs, field.Required(here, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)))
	}
	errs = append(errs, among(restart, here, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	return append(errs, refuse(spec.PodFailurePolicy != nil && restart == corev1.RestartPolicyOnFailure, here, restart, "only \"Never\" is supported when podFailurePolicy is specified")...)
}

// validIndexes checks the numbers of a job whose pods are numbered, or that it has
// none of these.
func validIndexes(spec *batchv1.JobSpec, at *field.Path) field.ErrorList {
	perIndex, failed := spec.BackoffLimitPerIndex, spec.MaxFailedIndexes
	if spec.CompletionMode == nil || *spec.CompletionMode == batchv1.NonIndexedCompletion {
		errs := refuse(perIndex != nil, at.Child("backoffLimitPerIndex"), perIndex, "requires indexed completion mode")
		return append(errs, refuse(failed != nil, at.Child("maxFailedIndexes"), failed, "requires indexed completion mode")...)
	}
	if !isIndexed(spec) {
		return nil
	}
	n, parallel := spec.Completions, spec.Parallelism
	errs := need(n == nil, at.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion))
	over := func(value *int32, most int32, name, when string) {
		errs = append(errs, refuse(value != nil && *value > most, at.Child(name), value, fmt.Sprintf("must be less than or equal to %d%s", most, when))...)
	}
	over(parallel, mostIndexes, "parallelism", fmt.Sprintf(" when completion mode is %s", batchv1.IndexedCompletion))
	errs = append(errs, refuse(n != nil && failed != nil && *failed > *n, at.Child("maxFailedIndexes"), failed, "must be less than or equal to completions")...)
	over(failed, mostIndexes, "maxFailedIndexes", "")
	if n != nil && *n > mostIndexes && perIndex != nil {
		when := fmt.Sprintf(" when completions are above %d and used with backoff limit per index", mostIndexes)
		errs = append(errs, need(failed == nil, at.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", mostIndexes))...)
		over(parallel, mostOfManyIndexes, "parallelism", when)
		over(failed, mostOfManyIndexes, "maxFailedIndexes", when)
	}
	return errs
}

// How long the lists of policies may be.
const (
	mostPolicyRules     = 20
	mostPolicyPatterns  = 20
	mostPolicyExitCodes = 255
	longestIndexes      = 64 << 10
)

// requiredWord wants one of the words, and names them if there is none.
func requiredWord[T ~string](value T, at *field.Path, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, fmt.Sprintf("valid values: %q", allowed))}
	}
	return among(value, at, allowed...)
}

func tooMany(n, most int, at *field.Path) field.ErrorList {
	if n <= most {
		return nil
	}
	return field.ErrorList{field.TooMany(at, n, most)}
}

func validFailurePolicy(spec *batchv1.JobSpec, at *field.Path) field.ErrorList {
	if spec.PodFailurePolicy == nil {
		return nil
	}
	rules, at := spec.PodFailurePolicy.Rules, at.Child("rules")
	errs := tooMany(len(rules), mostPolicyRules, at)
	for i := range rules {
		rule, here := &rules[i], at.Index(i)
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex {
			errs = append(errs, refuse(spec.BackoffLimitPerIndex == nil, here.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set")...)
		} else {
			errs = append(errs, requiredWord(rule.Action, here.Child("action"), batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)...)
		}
		codes, conditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0
		if codes {
			errs = append(errs, validExitCodes(rule.OnExitCodes, &spec.Template.Spec, here.Child("onExitCodes"))...)
		}
		errs = append(errs, tooMany(len(rule.OnPodConditions), mostPolicyPatterns, here.Child("onPodConditions"))...)
		for j, p := range rule.OnPodConditions {
			pattern := here.Child("onPodConditions").Index(j)
			errs = append(errs, invalid(pattern.Child("type"), p.Type, validation.IsQualifiedName(string(p.Type)))...)
			errs = append(errs, requiredWord(p.Status, pattern.Child("status"), corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
		}
		errs = append(errs, refuse(codes && conditions, here, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")...)
		errs = append(errs, refuse(!codes && !conditions, here, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")...)
	}
	return errs
}

func validExitCodes(codes *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.PodSpec, at *field.Path) field.ErrorList {
	errs := requiredWord(codes.Operator, at.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if name := codes.ContainerName; name != nil {
		known := (&podCheck{spec: pod}).names(true)[*name]
		errs = append(errs, refuse(!known, at.Child("containerName"), *name, "must be one of the container or initContainer names in the pod template")...)
	}
	values := at.Child("values")
	errs = append(errs, refuse(len(codes.Values) == 0, values, codes.Values, "at least one value is required")...)
	errs = append(errs, tooMany(len(codes.Values), mostPolicyExitCodes, values)...)
	for i, code := range codes.Values {
		errs = append(errs, refuse(codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && code == 0, values.Index(i), code, "must not be 0 for the In operator")...)
		if slices.Contains(codes.Values[:i], code) {
			errs = append(errs, field.Duplicate(values.Index(i), code))
		}
	}
	return append(errs, refuse(!slices.IsSorted(codes.Values), values, codes.Values, "must be ordered")...)
}

func validSuccessPolicy(spec *batchv1.JobSpec, at *field.Path) field.ErrorList {
	if spec.SuccessPolicy == nil {
		return nil
	}
	if !isIndexed(spec) {
		return refuse(true, at, *spec.SuccessPolicy, "requires indexed completion mode")
	}
	rules, at := spec.SuccessPolicy.Rules, at.Child("rules")
	errs := need(len(rules) == 0, at, "at least one rules must be specified when the successPolicy is specified")
	errs = append(errs, tooMany(len(rules), mostPolicyRules, at)...)
	for i := range rules {
		errs = append(errs, validSuccessRule(&rules[i], spec.Completions, at.Index(i))...)
	}
	return errs
}

// validSuccessRule checks a rule. A job that does not say how many pods it has, which
// was complained of, has none.
func validSuccessRule(rule *batchv1.SuccessPolicyRule, completions *int32, at *field.Path) field.ErrorList {
	all, named := int32(0), int32(0)
	if completions != nil {
		all = *completions
	}
	indexes, count := rule.SucceededIndexes, rule.SucceededCount
	errs := need(indexes == nil && count == nil, at, "at least one of succeededCount or succeededIndexes must be specified")
	if indexes != nil {
		here := at.Child("succeededIndexes")
		if len(*indexes) > longestIndexes {
			errs = append(errs, field.TooLong(here, "", longestIndexes))
		}
		var err error
		if named, err = countIndexes(*indexes, all); err != nil {
			errs = append(errs, field.Invalid(here, *indexes, "error parsing succeededIndexes: "+err.Error()))
		}
	}
	if count == nil {
		return errs
	}
	at = at.Child("succeededCount")
	errs = append(errs, nonNegative(*count, at)...)
	errs = append(errs, refuse(*count > all, at, *count, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", all))...)
	return append(errs, refuse(indexes != nil && *count > named, at, *count, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", named))...)
}

// countIndexes reads a list like "1,3-5" of numbers below all.
func countIndexes(text string, all int32) (int32, error) {
	if text == "" {
		return 0, nil
	}
	total, last := int32(0), int32(-1)
	for i, part := range strings.Split(text, ",") {
		low, high, err := indexRange(part, all)
		if err != nil {
			return 0, err
		}
		if i > 0 && last >= low {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, low)
		}
		total, last = total+high-low+1, high
	}
	return total, nil
}

// indexRange reads a part of such a list: a number, or the first and the last of
// several.
func indexRange(part string, all int32) (low, high int32, err error) {
	number := func(s string) (int32, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("cannot convert string to integer for index: %q", s)
		}
		if n >= int(all) {
			return 0, fmt.Errorf("too large index: %q", s)
		}
		return int32(n), nil
	}
	ends := strings.Split(part, "-")
	if len(ends) > 2 {
		return 0, 0, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", part)
	}
	if low, err = number(ends[0]); err != nil || len(ends) == 1 {
		return low, low, err
	}
	if high, err = number(ends[1]); err == nil && low >= high {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", low, high)
	}
	return low, high, err
}

// validJobUpdate keeps what a running job is.
func validJobUpdate(j, old *batchv1.Job) field.ErrorList {
	at, now, before := specPath(), &j.Spec, &old.Spec
	errs := validCompletionsUpdate(now, before, at.Child("completions"))
	errs = append(errs, unchanged(now.Selector, before.Selector, at.Child("selector"))...)
	errs = append(errs, validJobTemplateUpdate(now, old, at)...)
	errs = append(errs, unchanged(now.CompletionMode, before.CompletionMode, at.Child("completionMode"))...)
	errs = append(errs, unchanged(now.PodFailurePolicy, before.PodFailurePolicy, at.Child("podFailurePolicy"))...)
	errs = append(errs, unchanged(now.BackoffLimitPerIndex, before.BackoffLimitPerIndex, at.Child("backoffLimitPerIndex"))...)
	errs = append(errs, unchanged(now.ManagedBy, before.ManagedBy, at.Child("managedBy"))...)
	return append(errs, unchanged(now.SuccessPolicy, before.SuccessPolicy, at.Child("successPolicy"))...)
}

// validCompletionsUpdate lets an indexed job grow and shrink, if all its pods run at
// once.
func validCompletionsUpdate(now, before *batchv1.JobSpec, at *field.Path) field.ErrorList {
	if !isIndexed(now) {
		return unchanged(now.Completions, before.Completions, at)
	}
	if now.Completions == nil || equality.Semantic.DeepEqual(now.Completions, before.Completions) || *now.Completions == *now.Parallelism {
		return nil
	}
	return field.ErrorList{field.Invalid(at, now.Completions, "can only be modified in tandem with "+at.Root().Child("parallelism").String())}
}

// validJobTemplateUpdate lets a suspended job, of which no pod runs, be given other
// places to run, and other resources.
func validJobTemplateUpdate(now *batchv1.JobSpec, old *batchv1.Job, at *field.Path) field.ErrorList {
	template, before := &now.Template, old.Spec.Template.DeepCopy()
	suspended := old.Spec.Suspend != nil && *old.Spec.Suspend
	idle := old.Status.Active == 0 && (old.Status.StartTime == nil || JobWord(old) == "Suspended")
	if !suspended || !idle {
		return unchanged(template, before, at.Child("template"))
	}
	spec := &before.Spec
	switch is, was := template.Spec.Affinity, spec.Affinity; {
	case is == nil && was != nil:
		was.NodeAffinity = nil
		if *was == (corev1.Affinity{}) {
			spec.Affinity = nil
		}
	case is != nil && was == nil:
		spec.Affinity = &corev1.Affinity{NodeAffinity: is.NodeAffinity}
	case is != nil:
		was.NodeAffinity = is.NodeAffinity
	}
	spec.NodeSelector, spec.Tolerations, spec.SchedulingGates = template.Spec.NodeSelector, template.Spec.Tolerations, template.Spec.SchedulingGates
	takeResources(spec.Containers, template.Spec.Containers)
	takeResources(spec.InitContainers, template.Spec.InitContainers)
	return unchanged(template.Spec, *spec, at.Child("template.spec"))
}

func takeResources(to, from []corev1.Container) {
	if len(to) != len(from) {
		return
	}
	for i := range to {
		if to[i].Name == from[i].Name {
			to[i].Resources = from[i].Resources
		}
	}
}

// mostCronJobName leaves room for the time that names its jobs.
const mostCronJobName = 52

// ValidateCronJob names the faults of a CronJob.
func ValidateCronJob(c, old *batchv1.CronJob) field.ErrorList {
	at, spec := specPath(), &c.Spec
	var before *batchv1.JobSpec
	zoned := false // in its schedule, from when there was no field
	var errs field.ErrorList
	if old != nil {
		before, zoned = &old.Spec.JobTemplate.Spec, strings.Contains(old.Spec.Schedule, "TZ")
	}
	if spec.Schedule != "" {
		errs = append(errs, validSchedule(spec, zoned, at.Child("schedule"))...)
	}
	errs = append(errs, nonNegativePtr(spec.StartingDeadlineSeconds, at.Child("startingDeadlineSeconds"))...)
	if old == nil || !equality.Semantic.DeepEqual(old.Spec.TimeZone, spec.TimeZone) {
		errs = append(errs, validTimeZone(spec.TimeZone, at.Child("timeZone"))...)
	}
	errs = append(errs, requiredAmong(spec.ConcurrencyPolicy, at.Child("concurrencyPolicy"), batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	job, here := &spec.JobTemplate.Spec, at.Child("jobTemplate", "spec")
	errs = append(errs, validJobSpec(job, before, here)...)
	errs = append(errs, refuse(job.Selector != nil, here.Child("selector"), job.Selector, "`selector` will be auto-generated")...)
	if job.ManualSelector != nil && *job.ManualSelector {
		errs = append(errs, field.NotSupported(here.Child("manualSelector"), job.ManualSelector, []string{"nil", "false"}))
	}
	errs = append(errs, nonNegativePtr(spec.SuccessfulJobsHistoryLimit, at.Child("successfulJobsHistoryLimit"))...)
	errs = append(errs, nonNegativePtr(spec.FailedJobsHistoryLimit, at.Child("failedJobsHistoryLimit"))...)
	errs = append(errs, refuse(old == nil && len(c.Name) > mostCronJobName, field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters")...)
	return append(errs, required(spec.Schedule, at.Child("schedule"))...)
}

func validSchedule(spec *batchv1.CronJobSpec, zoned bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, err := ParseSchedule(spec.Schedule); err != nil {
		errs = append(errs, field.Invalid(at, spec.Schedule, err.Error()))
	}
	zone := strings.Contains(spec.Schedule, "TZ")
	errs = append(errs, refuse(zone && zoned && spec.TimeZone != nil, at, spec.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")...)
	return append(errs, refuse(zone && !zoned, at, spec.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")...)
}

// ParseSchedule reads a schedule. The library falls over some.
func ParseSchedule(text string) (schedule cron.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	return cron.ParseStandard(text)
}

var timeZonePart = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

func validTimeZone(zone *string, at *field.Path) field.ErrorList {
	switch {
	case zone == nil:
		return nil
	case *zone == "":
		return field.ErrorList{field.Invalid(at, zone, "timeZone must be nil or non-empty string")}
	}
	for _, part := range strings.Split(*zone, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !timeZonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(at, zone, "unknown time zone "+*zone)}
		}
	}
	errs := refuse(strings.EqualFold(*zone, "Local"), at, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	if _, err := time.LoadLocation(*zone); err != nil {
		errs = append(errs, field.Invalid(at, zone, err.Error()))
	}
	return errs
}
