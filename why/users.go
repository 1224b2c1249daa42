package why

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"orrery.dev/api"
)

// users tells what names or mounts the objects, and stays without them.
func (b *blast) users() {
	for _, o := range b.of.Objects {
		if slices.ContainsFunc([]kind{secretKind, configMapKind, claimKind, accountKind, priorityKind}, func(k kind) bool { return k.is(o) }) {
			b.usersOf(o)
		}
	}
	var all []api.Finding
	for _, u := range b.answer.Users {
		all = append(all, waiting("usedBy", params("name", u.Kind+"/"+u.Name)))
	}
	b.tell(all)
}

func (b *blast) usersOf(o api.ObjectRef) {
	add := func(u api.ObjectRef) {
		if !slices.Contains(b.answer.Users, u) && !b.named[api.ObjectRef{Kind: u.Kind, Namespace: u.Namespace, Name: u.Name}] {
			b.answer.Users = append(b.answer.Users, u)
		}
	}
	for _, pod := range list[*corev1.Pod](b.facts, podKind, o.Namespace) {
		if uses(&pod.Spec, o.Resource, o.Name) && !api.IsPodTerminal(pod) {
			add(b.rootOf(pod))
		}
	}
	if !secretKind.is(o) {
		return
	}
	for _, ingress := range list[*networkingv1.Ingress](b.facts, ingressKind, o.Namespace) {
		if slices.ContainsFunc(ingress.Spec.TLS, func(t networkingv1.IngressTLS) bool { return t.SecretName == o.Name }) {
			add(ingressKind.ref(ingress))
		}
	}
	for _, account := range list[*corev1.ServiceAccount](b.facts, accountKind, o.Namespace) {
		if slices.Contains(account.ImagePullSecrets, corev1.LocalObjectReference{Name: o.Name}) ||
			slices.ContainsFunc(account.Secrets, func(s corev1.ObjectReference) bool { return s.Name == o.Name }) {
			add(accountKind.ref(account))
		}
	}
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
