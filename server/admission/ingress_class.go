package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

// defaultIngressClass gives ingresses that name no class the cluster's default.
func defaultIngressClass(reader Reader) Plugin {
	return Plugin{
		Name: "DefaultIngressClass",
		On:   on(networkingv1.GroupName, "ingresses", Create),
		Mutate: func(ctx context.Context, r *Request) error {
			ingress, ok := r.Object.(*networkingv1.Ingress)
			if !ok || ingress.Spec.IngressClassName != nil {
				return nil
			}
			if _, old := ingress.Annotations[api.IngressClassAnnotation]; old {
				return nil
			}
			all, err := list[*networkingv1.IngressClass](ctx, reader, schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}, "")
			if err != nil {
				return err
			}
			class, ok := newestDefault(all, func(c *networkingv1.IngressClass) bool {
				return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
			})
			if ok {
				ingress.Spec.IngressClassName = &class.Name
			}
			return nil
		},
	}
}
