package admission

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	release "k8s.io/component-base/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
)

// nodeDeclaredFeatures refuses changes of pods that their node's agent does not
// know how to carry out, by what it says of itself.
func nodeDeclaredFeatures(reader Reader) Plugin {
	return Plugin{
		Name: "NodeDeclaredFeatureValidator",
		On:   either(on("", "pods", Update), on("", "pods/resize", Update)),
		Validate: func(ctx context.Context, r *Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			old, hadOld := r.Old.(*corev1.Pod)
			if !ok || !hadOld || pod.Spec.NodeName == "" || pod.Generation == old.Generation {
				return nil
			}
			needed, err := neededFeatures(old, pod)
			if err != nil {
				return r.forbid("failed to infer pod capability requirements: %w", err)
			}
			if needed.IsEmpty() {
				return nil
			}
			node, err := get[*corev1.Node](ctx, reader, core("nodes"), "", pod.Spec.NodeName)
			if apierrors.IsNotFound(err) {
				return r.forbid("node %q not found", pod.Spec.NodeName)
			}
			if err != nil {
				return r.forbid("failed to get node %q: %w", pod.Spec.NodeName, err)
			}
			found, err := features.DefaultFramework.MatchNode(needed, node)
			if err != nil {
				return r.forbid("failed to match pod requirements against node %q: %w", node.Name, err)
			}
			if !found.IsMatch {
				return r.forbid("pod update requires features %s which are not available on node %q", strings.Join(found.UnsatisfiedRequirements, ", "), node.Name)
			}
			return nil
		},
	}
}

// neededFeatures are those that a change of a pod takes.
func neededFeatures(old, pod *corev1.Pod) (features.FeatureSet, error) {
	ours, err := version.Parse(release.Get().String())
	if err != nil {
		return features.FeatureSet{}, err
	}
	return features.DefaultFramework.InferForPodUpdate(
		&features.PodInfo{Spec: &old.Spec, Status: &old.Status}, &features.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, ours)
}
