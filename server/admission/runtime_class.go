package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// runtimeClass puts what a pod's runtime class costs, and where it runs, into
// the pod.
func runtimeClass(reader Reader) Plugin {
	return Plugin{
		Name: "RuntimeClass",
		On:   on("", "pods", Create),
		Mutate: func(ctx context.Context, r *Request) error {
			pod, class, err := podRuntimeClass(ctx, reader, r)
			if err != nil || class == nil {
				return err
			}
			if class.Overhead != nil {
				if pod.Spec.Overhead != nil && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
					return r.forbid("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
				}
				pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
			}
			return mergeScheduling(r, pod, class.Scheduling)
		},
		Validate: func(ctx context.Context, r *Request) error {
			pod, class, err := podRuntimeClass(ctx, reader, r)
			if err != nil || pod == nil || len(pod.Spec.Overhead) == 0 {
				return err
			}
			if class == nil || class.Overhead == nil {
				return r.forbid("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
			}
			if !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
				return r.forbid("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
			}
			return nil
		},
	}
}

func podRuntimeClass(ctx context.Context, reader Reader, r *Request) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	name := *pod.Spec.RuntimeClassName
	class, err := get[*nodev1.RuntimeClass](ctx, reader, schema.GroupResource{Group: nodev1.GroupName, Resource: "runtimeclasses"}, "", name)
	if apierrors.IsNotFound(err) {
		return pod, nil, r.forbid("pod rejected: RuntimeClass %q not found", name)
	}
	return pod, class, err
}

func mergeScheduling(r *Request, pod *corev1.Pod, s *nodev1.Scheduling) error {
	if s == nil {
		return nil
	}
	for k, v := range s.NodeSelector {
		if have, ok := pod.Spec.NodeSelector[k]; ok && have != v {
			return r.forbid("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", k, v, k, have)
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[k] = v
	}
	for _, t := range s.Tolerations {
		if !hasToleration(pod.Spec.Tolerations, t) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}

func hasToleration(all []corev1.Toleration, t corev1.Toleration) bool {
	for _, have := range all {
		if equality.Semantic.DeepEqual(have, t) {
			return true
		}
	}
	return false
}
