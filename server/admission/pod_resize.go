package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresource "k8s.io/component-helpers/resource"
)

// podResize refuses a resize that the pod's node could never carry out. Whether
// it can now is for the node to say.
func podResize(reader Reader) Plugin {
	return Plugin{
		Name: "PodResizeValidator",
		On:   on("", "pods/resize", Update),
		Validate: func(ctx context.Context, r *Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			old, hadOld := r.Old.(*corev1.Pod)
			if !ok || !hadOld || pod.Spec.NodeName == "" || pod.Generation == old.Generation {
				return nil
			}
			node, err := get[*corev1.Node](ctx, reader, core("nodes"), "", pod.Spec.NodeName)
			if apierrors.IsNotFound(err) {
				return r.forbid("node %q not found", pod.Spec.NodeName)
			}
			if err != nil {
				return r.forbid("failed to get node %q: %w", pod.Spec.NodeName, err)
			}
			if os := node.Labels[corev1.LabelOSStable]; os != "" && os != "linux" {
				return refuseResize(r, "UnsupportedPlatform", fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, os))
			}
			if err := exceedsNode(pod, node.Status.Allocatable); err != nil {
				return refuseResize(r, "NodeCapacity", err)
			}
			return nil
		},
	}
}

// exceedsNode says in what a pod asks for more than there is on an empty node.
func exceedsNode(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	var over []string
	if asked, has := requests.Cpu(), allocatable.Cpu(); asked.Cmp(*has) > 0 {
		over = append(over, fmt.Sprintf("cpu, requested: %d, allocatable: %d", asked.MilliValue(), has.MilliValue()))
	}
	if asked, has := requests.Memory(), allocatable.Memory(); asked.Cmp(*has) > 0 {
		over = append(over, fmt.Sprintf("memory, requested: %d, allocatable: %d", asked.Value(), has.Value()))
	}
	if len(over) == 0 {
		return nil
	}
	return errors.New("node didn't have enough allocatable resources: " + strings.Join(over, "; "))
}

// refuseResize adds to a refusal what clients can tell the reason by.
func refuseResize(r *Request, cause metav1.CauseType, err error) error {
	refusal := r.forbid("%w", err)
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	return refusal
}
