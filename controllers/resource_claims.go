package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"orrery.dev/api"
)

// resourceClaimKey begins the queue keys of claims; other keys are pods'.
const resourceClaimKey = "claim:"

// resourceClaims makes the ResourceClaims that pods describe by a template, and
// takes claims back from pods that need them no more.
type resourceClaims struct {
	*env
	claims, templates cache.SharedIndexInformer
	events            record.EventRecorder
	own               *writes
}

func newResourceClaims(e *env) Controller {
	v1 := e.factory.Resource().V1()
	c := &resourceClaims{
		env: e, claims: v1.ResourceClaims().Informer(), templates: v1.ResourceClaimTemplates().Informer(),
		events: e.recorders("resource_claim"), own: &writes{},
	}
	return Controller{
		Name: "resourceclaim-controller",
		Reads: []Source{
			wakes(e.pods(), c.keysOfPod),
			wakes(c.claims, c.keysOfClaim),
			wakes(c.templates, func(t *resourcev1.ResourceClaimTemplate) []string { return c.podsBy(byClaimTemplate, keyOf(t)) }),
		},
		Writes:  []string{"resource.k8s.io/resourceclaims", "pods"},
		Workers: 50,
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			if name, ok := strings.CutPrefix(key, resourceClaimKey); ok {
				return 0, c.syncClaim(ctx, name)
			}
			return c.syncPod(ctx, key)
		},
	}
}

// keysOfPod are the pod's own and, for it may be gone or done, those of its
// claims.
func (c *resourceClaims) keysOfPod(pod *corev1.Pod) []string {
	var keys []string
	for _, name := range claimsNamedBy(pod) {
		keys = append(keys, resourceClaimKey+name)
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		keys = append(keys, keyOf(pod))
	}
	return keys
}

func (c *resourceClaims) keysOfClaim(claim *resourcev1.ResourceClaim) []string {
	return append(c.podsBy(byResourceClaim, keyOf(claim)), resourceClaimKey+keyOf(claim))
}

func (c *resourceClaims) podsBy(index, key string) []string {
	var keys []string
	for _, pod := range indexed[*corev1.Pod](c.pods(), index, key) {
		keys = append(keys, keyOf(pod))
	}
	return keys
}

// claimsNamedBy are the keys of the claims that a pod has.
func claimsNamedBy(pod *corev1.Pod) []string {
	var keys []string
	for name := range resourceclaim.PodClaims(pod) {
		keys = append(keys, pod.Namespace+"/"+name)
	}
	return keys
}

// templatesNamedBy are the keys of the templates of a pod's claims.
func templatesNamedBy(pod *corev1.Pod) []string {
	var keys []string
	for _, claim := range pod.Spec.ResourceClaims {
		if claim.ResourceClaimTemplateName != nil {
			keys = append(keys, pod.Namespace+"/"+*claim.ResourceClaimTemplateName)
		}
	}
	return keys
}

// syncPod makes what claims a pod lacks, notes their names in its status, and
// reserves for a running pod what is allocated: one that was bound past the
// scheduler.
func (c *resourceClaims) syncPod(ctx context.Context, key string) (time.Duration, error) {
	pod := cached[corev1.Pod](c.pods(), key)
	if pod == nil {
		c.own.forget(key)
		return 0, nil
	}
	if pod.DeletionTimestamp != nil || api.IsPodTerminal(pod) {
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	made := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		wanted := &pod.Spec.ResourceClaims[i]
		claim, err := c.provide(ctx, key, pod, wanted)
		if err != nil {
			c.events.Eventf(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", wanted.Name, err)
			return 0, fmt.Errorf("claim %s of pod %s: %w", wanted.Name, key, err)
		}
		if claim != "" {
			made[wanted.Name] = claim
		}
	}
	if len(made) > 0 {
		if err := c.note(ctx, key, pod, made); err != nil {
			return 0, err
		}
		return 0, nil // the change of the pod brings us back
	}
	return 0, c.reserve(ctx, pod)
}

// provide sees to it that a pod's claim exists. It returns its name if the pod
// does not name it yet.
func (c *resourceClaims) provide(ctx context.Context, key string, pod *corev1.Pod, wanted *corev1.PodResourceClaim) (string, error) {
	name, own, err := resourceclaim.Name(pod, wanted)
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
	case err != nil:
		return "", fmt.Errorf("checking for claim before creating it: %w", err)
	case name == nil || wanted.ResourceClaimTemplateName == nil:
		return "", nil // not needed, or up to the user
	default:
		claim, err := c.live(ctx, pod.Namespace, *name)
		if err != nil || claim != nil && (!own || resourceclaim.IsForPod(pod, claim, false) == nil) {
			return "", err
		} // otherwise it was deleted, or is another's by now
	}
	for _, claim := range indexed[*resourcev1.ResourceClaim](c.claims, byController, string(pod.UID)) {
		if claim.Annotations[resourcev1.PodResourceClaimAnnotation] == wanted.Name {
			return claim.Name, nil // made, and not noted
		}
	}
	template := cached[resourcev1.ResourceClaimTemplate](c.templates, pod.Namespace+"/"+*wanted.ResourceClaimTemplateName)
	if template == nil {
		return "", fmt.Errorf("resource claim template %q: %w", *wanted.ResourceClaimTemplateName, apierrors.NewNotFound(resourcev1.Resource("resourceclaimtemplate"), *wanted.ResourceClaimTemplateName))
	}
	claim, err := c.clients.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, claimFrom(template, pod, wanted.Name), metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create ResourceClaim: %w", err)
	}
	c.own.made(key, c.claims.GetIndexer(), claim)
	return claim.Name, nil
}

// live is a claim as the cache or, failing that, the server has it; nil if there
// is none.
func (c *resourceClaims) live(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	if claim := cached[resourcev1.ResourceClaim](c.claims, namespace+"/"+name); claim != nil {
		return claim, nil
	}
	claim, err := c.clients.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

// claimFrom makes a template's claim, which belongs to the pod.
func claimFrom(template *resourcev1.ResourceClaimTemplate, pod *corev1.Pod, name string) *resourcev1.ResourceClaim {
	yes := true
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    claimNamePrefix(pod.Name, name),
			Labels:          template.Spec.Labels,
			Annotations:     withLabel(template.Spec.Annotations, resourcev1.PodResourceClaimAnnotation, name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes}},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
}

// claimNamePrefix leaves room for the random end of the name. When it has to cut,
// it leaves something of both names.
func claimNamePrefix(pod, claim string) string {
	const most = 57
	prefix := pod + "-" + claim + "-"
	if total := len(prefix); total > most {
		return pod[:len(pod)*most/total] + "-" + claim[:len(claim)*most/total]
	}
	return prefix
}

// note writes the names of claims into the pod's status.
func (c *resourceClaims) note(ctx context.Context, key string, pod *corev1.Pod, made map[string]string) error {
	names := map[string]string{}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			names[s.Name] = *s.ResourceClaimName
		}
	}
	maps.Copy(names, made)
	status := applycore.PodStatus()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		status.WithResourceClaimStatuses(applycore.PodResourceClaimStatus().WithName(name).WithResourceClaimName(names[name]))
	}
	changed, err := c.clients.CoreV1().Pods(pod.Namespace).ApplyStatus(ctx, applycore.Pod(pod.Name, pod.Namespace).WithStatus(status),
		metav1.ApplyOptions{FieldManager: "ResourceClaimController", Force: true})
	if err != nil {
		return fmt.Errorf("note claims in pod %s: %w", key, err)
	}
	c.own.made(key, c.pods().GetIndexer(), changed)
	return nil
}

func (c *resourceClaims) reserve(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		return nil // the scheduler does it, with the allocation
	}
	for name, own := range resourceclaim.PodClaims(pod) {
		claim := cached[resourcev1.ResourceClaim](c.claims, pod.Namespace+"/"+name)
		if claim == nil || claim.Status.Allocation == nil || resourceclaim.IsReservedForPod(pod, claim, false) {
			continue
		}
		if own {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return err
			}
		}
		reserved := claim.DeepCopy()
		reserved.Status.ReservedFor = append(reserved.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		if _, err := c.clients.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, reserved, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("reserve claim %s: %w", keyOf(claim), err)
		}
	}
	return nil
}

// syncClaim takes a claim back from pods that are gone or done. What nobody has
// any more is deallocated, and deleted if it was made for a pod.
func (c *resourceClaims) syncClaim(ctx context.Context, key string) error {
	claim := cached[resourcev1.ResourceClaim](c.claims, key)
	if claim == nil {
		return nil
	}
	var users []resourcev1.ResourceClaimConsumerReference
	for _, user := range claim.Status.ReservedFor {
		needed, err := c.needs(ctx, claim.Namespace, user)
		if err != nil {
			return err
		}
		if needed {
			users = append(users, user)
		}
	}
	claim, err := c.free(ctx, claim, users)
	if err != nil || len(users) > 0 {
		return ignoreNotFound(err)
	}
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.Kind != "Pod" || claim.DeletionTimestamp != nil {
		return nil
	}
	pod := cached[corev1.Pod](c.pods(), claim.Namespace+"/"+owner.Name)
	if pod == nil || pod.UID == owner.UID && !doneWithClaims(pod) {
		return nil // one that the cache does not know (any more) is left to the garbage collector
	}
	return ignoreGone(c.clients.ResourceV1().ResourceClaims(claim.Namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: sameObject(claim)}))
}

// needs says whether a claim's user may still use it. Users that are no pods are
// others' to judge.
func (c *resourceClaims) needs(ctx context.Context, namespace string, user resourcev1.ResourceClaimConsumerReference) (bool, error) {
	if user.APIGroup != "" || user.Resource != "pods" {
		return true, nil
	}
	pod := cached[corev1.Pod](c.pods(), namespace+"/"+user.Name)
	if pod == nil { // it may be that the cache does not know it yet
		live, err := c.clients.CoreV1().Pods(namespace).Get(ctx, user.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return live.UID == user.UID, nil
	}
	return pod.UID == user.UID && !doneWithClaims(pod), nil
}

// doneWithClaims says whether a pod will not run any more.
func doneWithClaims(pod *corev1.Pod) bool {
	return api.IsPodTerminal(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// free leaves a claim to users. The last to go takes the allocation along, and
// with it the finalizer by which the scheduler keeps what is allocated.
func (c *resourceClaims) free(ctx context.Context, claim *resourcev1.ResourceClaim, users []resourcev1.ResourceClaimConsumerReference) (*resourcev1.ResourceClaim, error) {
	client := c.clients.ResourceV1().ResourceClaims(claim.Namespace)
	left := len(users) < len(claim.Status.ReservedFor)
	leaving := claim.DeletionTimestamp != nil && len(users) == 0
	guarded := slices.Contains(claim.Finalizers, resourcev1.Finalizer)
	if !left && !(leaving && guarded) {
		return claim, nil
	}
	changed := claim.DeepCopy()
	changed.Status.ReservedFor = users
	if len(users) == 0 && guarded {
		changed.Status.Allocation = nil
	}
	var err error
	if left || claim.Status.Allocation != nil {
		if changed, err = client.UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("free claim %s: %w", keyOf(claim), err)
		}
	}
	finalizers, drop := withFinalizer(changed.Finalizers, resourcev1.Finalizer, changed.Status.Allocation != nil)
	if !guarded || !drop {
		return changed, nil
	}
	changed = changed.DeepCopy()
	changed.Finalizers = finalizers
	if changed, err = client.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("let go of claim %s: %w", keyOf(claim), err)
	}
	return changed, nil
}
