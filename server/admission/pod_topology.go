package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podTopologyLabels copies where a node is to the pods that are bound to it, so
// that containers can read it. The binding hands its labels on to the pod.
func podTopologyLabels(reader Reader) Plugin {
	return Plugin{
		Name: "PodTopologyLabels",
		On:   either(on("", "pods/binding", Create), on("", "bindings", Create), on("", "pods", Create)),
		Mutate: func(ctx context.Context, r *Request) error {
			m, name := metav1.Object(nil), ""
			switch o := r.Object.(type) {
			case *corev1.Binding:
				if o.Target.Kind == "" || o.Target.Kind == "Node" {
					m, name = o, o.Target.Name
				}
			case *corev1.Pod:
				m, name = o, o.Spec.NodeName
			}
			if name == "" {
				return nil
			}
			node, err := get[*corev1.Node](ctx, reader, core("nodes"), "", name)
			if apierrors.IsNotFound(err) {
				return nil // binding to a node that is not there fails elsewhere
			}
			if err != nil {
				return err
			}
			labels := m.GetLabels()
			for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
				if value, ok := node.Labels[key]; ok {
					if labels == nil {
						labels = map[string]string{}
					}
					labels[key] = value
				}
			}
			m.SetLabels(labels)
			return nil
		},
	}
}
