package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
	"orrery.dev/server/storage"
)

var evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")

// mostDisrupted is how many evictions a budget may have that its controller has
// not seen yet; more would make the object too large.
const mostDisrupted = 2000

// evict serves POST on pods/{name}/eviction: a delete that the pod's disruption
// budget must allow. A refusal is 429, for the client to try again.
func (c *call) evict() error {
	ctx := c.r.Context()
	eviction := &policyv1.Eviction{}
	req, err := c.posted(eviction, evictionKind, policyv1beta1.SchemeGroupVersion.WithKind("Eviction"))
	if err != nil {
		return err
	}
	defer req.Finish(ctx, nil)
	if eviction.Name != c.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	deletion, err := evictionDeletion(eviction, req.Options.(*metav1.CreateOptions))
	if err != nil {
		return err
	}
	if err := c.s.Admission.Validate(ctx, req); err != nil {
		return err
	}
	if err := c.evictPod(ctx, deletion); err != nil {
		return err
	}
	return c.reply(http.StatusCreated, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, statusKind)
}

// evictionDeletion is how the pod is to be deleted: as the eviction says, and
// dry if it or the request says so.
func evictionDeletion(eviction *policyv1.Eviction, options *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	deletion := eviction.DeleteOptions.DeepCopy()
	if deletion == nil {
		deletion = &metav1.DeleteOptions{}
	}
	deletion.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("DeleteOptions"))
	switch {
	case ignoresReadErrors(deletion):
		path := field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential")
		return nil, apierrors.NewInvalid(evictionKind.GroupKind(), eviction.Name, field.ErrorList{
			field.Invalid(path, true, "can not be set for pod eviction, try after removing the option"),
		})
	case len(deletion.DryRun) == 0:
		deletion.DryRun = options.DryRun
	case len(options.DryRun) > 0 && !slices.Equal(options.DryRun, deletion.DryRun):
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", options.DryRun, deletion.DryRun) //nolint:staticcheck,revive // upstream's words
	}
	return deletion, nil
}

// evictPod deletes the pod as soon as its budget allows it. A pod that works for
// no budget, or not well, is deleted as it was when that was found: if it has
// changed, the question is asked again, or handed back to the client.
func (c *call) evictPod(ctx context.Context, deletion *metav1.DeleteOptions) error {
	pods := c.s.Store.Collection(schema.GroupResource{Resource: "pods"})
	for attempt := 1; ; attempt++ {
		item, err := pods.Get(ctx, c.Namespace, c.Name, "")
		if err != nil {
			return err
		}
		leave, err := c.allowEviction(ctx, item.Object().(*corev1.Pod), deletion)
		if err != nil {
			return err
		}
		err = c.disrupt(ctx, pods, leave.options)
		switch {
		case !apierrors.IsConflict(err) || !leave.pinned:
			return err
		case leave.budget != "":
			return stillProcessed(leave.budget)
		case attempt == evictionAttempts:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(evictionRetry):
		}
	}
}

const (
	evictionAttempts = 20
	evictionRetry    = 500 * time.Millisecond
)

// disrupt marks a pod as the target of a disruption, for Jobs that treat those
// unlike failures, and deletes it.
func (c *call) disrupt(ctx context.Context, pods *storage.Collection, deletion *metav1.DeleteOptions) error {
	if len(deletion.DryRun) == 0 {
		k := c.kind.Hub()
		item, err := pods.Update(ctx, c.Namespace, c.Name, storage.WriteOptions{}, func(obj runtime.Object) (runtime.Object, error) {
			pod := obj.(*corev1.Pod)
			if err := checkPreconditions(k, pod, deletion.Preconditions); err != nil {
				return nil, err
			}
			markEvicted(pod, time.Now())
			return pod, nil
		})
		if err != nil {
			return err
		}
		if pre := deletion.Preconditions; pre != nil && pre.ResourceVersion != nil {
			deletion = deletion.DeepCopy()
			deletion.Preconditions.ResourceVersion = &item.Object().(*corev1.Pod).ResourceVersion
		}
	}
	_, _, err := c.remove(ctx, pods, c.Namespace, c.Name, deletion)
	return err
}

// markEvicted puts the condition into the pod that tells why it ends.
func markEvicted(pod *corev1.Pod, now time.Time) {
	mark := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(have corev1.PodCondition) bool { return have.Type == mark.Type })
	if i < 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, mark)
		return
	}
	if have := pod.Status.Conditions[i]; have.Status == mark.Status {
		mark.LastTransitionTime = have.LastTransitionTime
	}
	pod.Status.Conditions[i] = mark
}

// evictionLeave says how a pod may be deleted.
type evictionLeave struct {
	options *metav1.DeleteOptions
	pinned  bool   // to the version of the pod that the leave is for
	budget  string // that the pod, not being ready, is no loss to
}

// allowEviction asks the pod's budget, and takes one disruption from it. Pods
// that do no work (pending, finished, leaving) need no budget.
func (c *call) allowEviction(ctx context.Context, pod *corev1.Pod, deletion *metav1.DeleteOptions) (evictionLeave, error) {
	plain := evictionLeave{options: deletion}
	if needsNoBudget(pod) {
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending {
			return plain, nil
		}
		return pinned(deletion, pod), nil // it must not have begun to work
	}
	budgets, err := c.budgetsOf(ctx, pod)
	if err != nil || len(budgets) == 0 {
		return plain, err
	}
	if len(budgets) > 1 {
		return plain, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	budget := budgets[0]
	always := budget.Spec.UnhealthyPodEvictionPolicy != nil && *budget.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
	healthyEnough := budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
	if !api.IsPodReady(pod) && (always || healthyEnough) {
		leave := pinned(deletion, pod) // it must still be unready when it is deleted
		leave.budget = budget.Name
		return leave, nil
	}
	opts := storage.WriteOptions{DryRun: len(deletion.DryRun) > 0}
	col := c.s.Store.Collection(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"})
	_, err = col.Update(ctx, budget.Namespace, budget.Name, opts, func(obj runtime.Object) (runtime.Object, error) {
		pdb := obj.(*policyv1.PodDisruptionBudget)
		return pdb, takeDisruption(pdb, pod.Name)
	})
	return plain, err
}

func needsNoBudget(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

// pinned makes the delete fail if the pod changes before it. What the client
// asks for in this respect stands, and is not tried again.
func pinned(deletion *metav1.DeleteOptions, pod *corev1.Pod) evictionLeave {
	if deletion.Preconditions != nil && deletion.Preconditions.ResourceVersion != nil {
		return evictionLeave{options: deletion}
	}
	options := deletion.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.ResourceVersion = &pod.ResourceVersion
	return evictionLeave{options: options, pinned: true}
}

func (c *call) budgetsOf(ctx context.Context, pod *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	col := c.s.Store.Collection(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"})
	if col == nil {
		return nil, nil
	}
	page, err := col.List(ctx, storage.ListOptions{Selection: storage.Selection{Namespace: pod.Namespace}})
	if err != nil {
		return nil, err
	}
	var found []*policyv1.PodDisruptionBudget
	for _, item := range page.Items {
		budget := item.Object().(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, budget)
		}
	}
	return found, nil
}

// takeDisruption books one eviction on a budget, or refuses it.
func takeDisruption(pdb *policyv1.PodDisruptionBudget, pod string) error {
	switch {
	case pdb.Status.ObservedGeneration < pdb.Generation:
		return stillProcessed(pdb.Name)
	case pdb.Status.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, pdb.Name, fmt.Errorf("pdb disruptions allowed is negative"))
	case len(pdb.Status.DisruptedPods) > mostDisrupted:
		return apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, pdb.Name, fmt.Errorf("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case pdb.Status.DisruptionsAllowed == 0:
		return tooManyDisruptions(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", pdb.Name, pdb.Status.DesiredHealthy, pdb.Status.CurrentHealthy))
	}
	pdb.Status.DisruptionsAllowed--
	if pdb.Status.DisruptedPods == nil {
		pdb.Status.DisruptedPods = map[string]metav1.Time{}
	}
	// The controller takes the pod out of the map when it sees it deleted.
	pdb.Status.DisruptedPods[pod] = metav1.NewTime(time.Now()).Rfc3339Copy()
	return nil
}

// stillProcessed asks the client to come again when the budget is up to date.
func stillProcessed(budget string) error {
	err := tooManyDisruptions(fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
	err.ErrStatus.Details.RetryAfterSeconds = 10
	return err
}

func tooManyDisruptions(text string) *apierrors.StatusError {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DisruptionBudget", Message: text}}
	return err
}
