package server

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/server/admission"
	"orrery.dev/server/storage"
)

var bindingKind = corev1.SchemeGroupVersion.WithKind("Binding")

// bind serves POST on pods/{name}/binding and on bindings: the scheduler's
// decision, which is the only way in which a pod comes to a node.
func (c *call) bind() error {
	ctx := c.r.Context()
	binding := &corev1.Binding{}
	req, err := c.posted(binding, bindingKind)
	if err != nil {
		return err
	}
	if err := c.assign(req, binding); err != nil {
		req.Finish(ctx, nil)
		return err
	}
	req.Finish(ctx, binding)
	return c.reply(http.StatusCreated, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, statusKind)
}

func (c *call) checkBinding(b *corev1.Binding) error {
	if b.Name != c.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("name in URL does not match name in Binding object: %q", b.Name))
	}
	var errs field.ErrorList
	target := field.NewPath("target")
	if kind := b.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	}
	if len(errs) > 0 {
		return errs.ToAggregate() // which is all that upstream says
	}
	return nil
}

// assign puts the node into the pod.
func (c *call) assign(req *admission.Request, b *corev1.Binding) error {
	ctx := c.r.Context()
	if err := c.checkBinding(b); err != nil {
		return err
	}
	if err := c.s.Admission.Validate(ctx, req); err != nil {
		return err
	}
	pods := schema.GroupResource{Resource: "pods"}
	opts := storage.WriteOptions{DryRun: req.DryRun}
	if b.UID != "" || b.ResourceVersion != "" {
		opts.Preconditions = &metav1.Preconditions{}
		if b.UID != "" {
			opts.Preconditions.UID = &b.UID
		}
		if b.ResourceVersion != "" {
			opts.Preconditions.ResourceVersion = &b.ResourceVersion
		}
	}
	var before, after runtime.Object
	item, err := c.s.Store.Collection(pods).Update(ctx, c.Namespace, c.Name, opts, func(obj runtime.Object) (runtime.Object, error) {
		pod := obj.(*corev1.Pod)
		if err := assignable(pod); err != nil {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, c.Name, err)
		}
		before, after = pod.DeepCopy(), pod
		pod.Spec.NodeName, pod.Status.NominatedNodeName = b.Target.Name, ""
		if pod.Annotations == nil && len(b.Annotations) > 0 {
			pod.Annotations = map[string]string{}
		}
		for key, value := range b.Annotations {
			pod.Annotations[key] = value
		}
		if pod.Labels == nil && len(b.Labels) > 0 {
			pod.Labels = map[string]string{}
		}
		for key, value := range b.Labels {
			pod.Labels[key] = value
		}
		setScheduled(pod) // none of this becomes the scheduler's
		return pod, nil
	})
	if err == nil && !req.DryRun {
		c.wrote(ctx, before, after, item.Revision)
	}
	return err
}

func assignable(pod *corev1.Pod) error {
	switch {
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Errorf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	return nil
}

func setScheduled(pod *corev1.Pod) {
	condition := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	for i, have := range pod.Status.Conditions {
		if have.Type != corev1.PodScheduled {
			continue
		}
		if have.Status == condition.Status {
			condition.LastTransitionTime = have.LastTransitionTime
		}
		condition.ObservedGeneration = have.ObservedGeneration
		pod.Status.Conditions[i] = condition
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}
