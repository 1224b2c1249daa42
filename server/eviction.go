package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/server/admission"
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
	options, err := c.createOptions()
	if err != nil {
		return err
	}
	eviction := &policyv1.Eviction{}
	if err := c.body(eviction, evictionKind, options.FieldValidation); err != nil {
		return err
	}
	if err := checkNamespace(eviction, c.Namespace); err != nil {
		return err
	}
	if eviction.Name != c.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	deletion := eviction.DeleteOptions.DeepCopy()
	if deletion == nil {
		deletion = &metav1.DeleteOptions{}
	}
	if len(options.DryRun) > 0 {
		deletion.DryRun = options.DryRun
	}
	typeOptions(deletion, "DeleteOptions")
	if err := c.admitEviction(ctx, eviction, options); err != nil {
		return err
	}
	pods := c.s.Store.Collection(schema.GroupResource{Resource: "pods"})
	item, err := pods.Get(ctx, c.Namespace, c.Name, "")
	if err != nil {
		return err
	}
	pod := item.Object.(*corev1.Pod)
	if err := c.allowEviction(ctx, pod, deletion); err != nil {
		return err
	}
	if _, _, err := c.remove(ctx, pods, c.Namespace, c.Name, deletion); err != nil {
		return err
	}
	return c.reply(http.StatusCreated, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, statusKind)
}

func (c *call) admitEviction(ctx context.Context, eviction *policyv1.Eviction, options *metav1.CreateOptions) error {
	req := &admission.Request{
		Operation: admission.Create, Resource: c.GVR, Subresource: c.Subresource, Kind: evictionKind, Namespace: c.Namespace, Name: c.Name,
		Object: eviction, Options: options, DryRun: len(options.DryRun) > 0, User: c.user, Warn: c.warn, Annotate: c.annotate,
	}
	defer req.Finish(ctx, nil)
	if err := c.s.Admission.Mutate(ctx, req); err != nil {
		return err
	}
	return c.s.Admission.Validate(ctx, req)
}

// allowEviction asks the pod's budget, and takes one disruption from it. Pods
// that do no work (pending, finished, leaving) need no budget.
func (c *call) allowEviction(ctx context.Context, pod *corev1.Pod, deletion *metav1.DeleteOptions) error {
	if needsNoBudget(pod) {
		pinVersion(deletion, pod)
		return nil
	}
	budgets, err := c.budgetsOf(ctx, pod)
	if err != nil || len(budgets) == 0 {
		return err
	}
	if len(budgets) > 1 {
		return apierrors.NewInternalError(fmt.Errorf("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")) //nolint:staticcheck,revive // upstream's words
	}
	budget := budgets[0]
	ready := isReady(pod)
	always := budget.Spec.UnhealthyPodEvictionPolicy != nil && *budget.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
	healthyEnough := budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
	if !ready && (always || healthyEnough) {
		pinVersion(deletion, pod) // it must still be unready when it is deleted
		return nil
	}
	opts := storage.WriteOptions{DryRun: len(deletion.DryRun) > 0}
	col := c.s.Store.Collection(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"})
	_, err = col.Update(ctx, budget.Namespace, budget.Name, opts, func(obj runtime.Object) (runtime.Object, error) {
		pdb := obj.(*policyv1.PodDisruptionBudget)
		return pdb, takeDisruption(pdb, pod.Name)
	})
	return err
}

func needsNoBudget(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

// pinVersion makes the delete fail if the pod changes before it.
func pinVersion(deletion *metav1.DeleteOptions, pod *corev1.Pod) {
	if deletion.Preconditions == nil {
		deletion.Preconditions = &metav1.Preconditions{}
	}
	if deletion.Preconditions.ResourceVersion == nil {
		deletion.Preconditions.ResourceVersion = &pod.ResourceVersion
	}
	if deletion.Preconditions.UID == nil {
		deletion.Preconditions.UID = (*types.UID)(&pod.UID)
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
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
		budget := item.Object.(*policyv1.PodDisruptionBudget)
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
		err := tooManyDisruptions("DisruptionBudget", fmt.Sprintf("The disruption budget %s is still being processed by the server.", pdb.Name))
		err.ErrStatus.Details.RetryAfterSeconds = 10
		return err
	case pdb.Status.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, pdb.Name, fmt.Errorf("pdb disruptions allowed is negative"))
	case len(pdb.Status.DisruptedPods) > mostDisrupted:
		return apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, pdb.Name, fmt.Errorf("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case pdb.Status.DisruptionsAllowed == 0:
		return tooManyDisruptions("DisruptionBudget", fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", pdb.Name, pdb.Status.DesiredHealthy, pdb.Status.CurrentHealthy))
	}
	pdb.Status.DisruptionsAllowed--
	if pdb.Status.DisruptedPods == nil {
		pdb.Status.DisruptedPods = map[string]metav1.Time{}
	}
	// The controller takes the pod out of the map when it sees it deleted.
	pdb.Status.DisruptedPods[pod] = metav1.NewTime(time.Now()).Rfc3339Copy()
	return nil
}

func tooManyDisruptions(cause metav1.CauseType, text string) *apierrors.StatusError {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause, Message: text}}
	return err
}
