package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// evictAfterSeconds is how long a pod stays on a node that fell silent, unless
// Config.TolerationSeconds has something else.
const evictAfterSeconds = 300

// defaultTolerationSeconds gives pods that say nothing about broken nodes five
// minutes on one, or what after has for the node's taint.
func defaultTolerationSeconds(after map[string]int64) Plugin {
	return Plugin{
		Name: "DefaultTolerationSeconds",
		On:   on("", "pods", Create, Update),
		Mutate: func(_ context.Context, r *Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			if !ok {
				return nil
			}
			for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
				if toleratesEviction(pod, key) {
					continue
				}
				seconds, said := after[key]
				if !said {
					seconds = evictAfterSeconds
				}
				pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
					Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
				})
			}
			return nil
		},
	}
}

func toleratesEviction(pod *corev1.Pod, key string) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
