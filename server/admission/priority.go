package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

// priority puts the number of a pod's priority class into the pod, and sees to
// it that only one class is the default.
func priority(reader Reader) Plugin {
	p := prioritizer{reader}
	return Plugin{
		Name: "Priority",
		On:   either(on("", "pods", Create, Update), on("scheduling.k8s.io", "priorityclasses", Create, Update)),
		Mutate: func(ctx context.Context, r *Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			if !ok {
				return nil
			}
			if r.Operation == Update {
				old, ok := r.Old.(*corev1.Pod)
				if ok && pod.Spec.Priority == nil {
					pod.Spec.Priority = old.Spec.Priority
				}
				if ok && pod.Spec.PreemptionPolicy == nil {
					pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
				}
				return nil
			}
			return p.prioritize(ctx, r, pod)
		},
		Validate: func(ctx context.Context, r *Request) error {
			class, ok := r.Object.(*schedulingv1.PriorityClass)
			if !ok || !class.GlobalDefault {
				return nil
			}
			present, err := p.defaultClass(ctx)
			if err != nil {
				return err
			}
			if present != nil && present.Name != class.Name {
				return r.forbid("PriorityClass %v is already marked as default. Only one default can exist", present.Name)
			}
			return nil
		},
	}
}

type prioritizer struct{ reader Reader }

func classResource() schema.GroupResource {
	return schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}
}

// defaultClass is the class of pods that name none; of several (two API servers
// may have accepted one each) the lowest.
func (p prioritizer) defaultClass(ctx context.Context) (*schedulingv1.PriorityClass, error) {
	all, err := list[*schedulingv1.PriorityClass](ctx, p.reader, classResource(), "")
	if err != nil {
		return nil, err
	}
	var lowest *schedulingv1.PriorityClass
	for _, c := range all {
		if c.GlobalDefault && (lowest == nil || c.Value < lowest.Value) {
			lowest = c
		}
	}
	return lowest, nil
}

func (p prioritizer) prioritize(ctx context.Context, r *Request, pod *corev1.Pod) error {
	var class *schedulingv1.PriorityClass
	var err error
	if pod.Spec.PriorityClassName == "" {
		// A mirror pod's priority is what its node decided by.
		if api.IsMirror(pod) && pod.Spec.Priority != nil {
			return nil
		}
		class, err = p.defaultClass(ctx)
	} else {
		class, err = get[*schedulingv1.PriorityClass](ctx, p.reader, classResource(), "", pod.Spec.PriorityClassName)
		if apierrors.IsNotFound(err) {
			return r.forbid("no PriorityClass with name %v was found", pod.Spec.PriorityClassName)
		}
	}
	if err != nil {
		return err
	}
	value, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName, value = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if have := pod.Spec.Priority; have != nil && *have != value {
		return r.forbid("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *have, value)
	}
	if have := pod.Spec.PreemptionPolicy; have != nil && *have != policy {
		return r.forbid("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *have, policy)
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &value, &policy
	return nil
}
