package tui

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// showUsedBy lists the pods that use an object.
func (a *app) showUsedBy(t target) {
	a.push(newText(a, "used by ‹"+t.String()+"›", func(ctx context.Context) ([]string, error) {
		pods, err := a.cluster.kube.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var out []string
		for _, p := range pods.Items {
			if uses(&p.Spec, t.kind.plural, t.name) {
				out = append(out, "pods "+p.Namespace+"/"+p.Name)
			}
		}
		if len(out) == 0 {
			out = []string{a.words.say("there are none")}
		}
		return out, nil
	}))
}

// uses says whether pods of a spec use an object of their namespace.
func uses(spec *corev1.PodSpec, plural, name string) bool {
	switch plural {
	case "serviceaccounts":
		return spec.ServiceAccountName == name
	case "priorityclasses":
		return spec.PriorityClassName == name
	}
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return volumeUses(v, plural, name) }) ||
		slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool { return containerUses(c, plural, name) }) ||
		plural == "secrets" && slices.Contains(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
}

func volumeUses(v corev1.Volume, plural, name string) bool {
	secret := func(s string) bool { return plural == "secrets" && s == name }
	config := func(s string) bool { return plural == "configmaps" && s == name }
	switch {
	case v.Secret != nil:
		return secret(v.Secret.SecretName)
	case v.ConfigMap != nil:
		return config(v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		return plural == "persistentvolumeclaims" && v.PersistentVolumeClaim.ClaimName == name
	case v.Projected != nil:
		return slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.Secret != nil && secret(p.Secret.Name) || p.ConfigMap != nil && config(p.ConfigMap.Name)
		})
	}
	return false
}

func containerUses(c corev1.Container, plural, name string) bool {
	for _, e := range c.EnvFrom {
		if e.SecretRef != nil && plural == "secrets" && e.SecretRef.Name == name || e.ConfigMapRef != nil && plural == "configmaps" && e.ConfigMapRef.Name == name {
			return true
		}
	}
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		from := e.ValueFrom
		return from != nil && (from.SecretKeyRef != nil && plural == "secrets" && from.SecretKeyRef.Name == name ||
			from.ConfigMapKeyRef != nil && plural == "configmaps" && from.ConfigMapKeyRef.Name == name)
	})
}
