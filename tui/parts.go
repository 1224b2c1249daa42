package tui

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// use is an object of its namespace that a pod names.
type use struct {
	scope, name string
	optional    bool
}

// usesOf lists what a pod uses, each once: its account, claims, ConfigMaps and Secrets.
// What admission mounts in every pod is left out.
func usesOf(pod string, spec *corev1.PodSpec) []use {
	var out []use
	add := func(scope, name string, optional *bool) {
		may := optional != nil && *optional
		for i := range out {
			if out[i].scope == scope && out[i].name == name {
				out[i].optional = out[i].optional && may
				return
			}
		}
		if name != "" {
			out = append(out, use{scope, name, may})
		}
	}
	add("serviceaccounts", spec.ServiceAccountName, nil)
	for _, s := range spec.ImagePullSecrets {
		add("secrets", s.Name, nil)
	}
	for _, v := range spec.Volumes {
		volumeUse(pod, v, add)
	}
	containers := append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...)
	for _, c := range containers {
		for _, from := range c.EnvFrom {
			if s := from.SecretRef; s != nil {
				add("secrets", s.Name, s.Optional)
			}
			if m := from.ConfigMapRef; m != nil {
				add("configmaps", m.Name, m.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if s := e.ValueFrom.SecretKeyRef; s != nil {
				add("secrets", s.Name, s.Optional)
			}
			if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
				add("configmaps", m.Name, m.Optional)
			}
		}
	}
	return out
}

func volumeUse(pod string, v corev1.Volume, add func(scope, name string, optional *bool)) {
	switch {
	case v.Secret != nil:
		add("secrets", v.Secret.SecretName, v.Secret.Optional)
	case v.ConfigMap != nil:
		add("configmaps", v.ConfigMap.Name, v.ConfigMap.Optional)
	case v.PersistentVolumeClaim != nil:
		add("persistentvolumeclaims", v.PersistentVolumeClaim.ClaimName, nil)
	case v.Ephemeral != nil:
		add("persistentvolumeclaims", pod+"-"+v.Name, nil)
	case v.Projected != nil && !strings.HasPrefix(v.Name, "kube-api-access-"):
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				add("secrets", s.Secret.Name, s.Secret.Optional)
			}
			if s.ConfigMap != nil {
				add("configmaps", s.ConfigMap.Name, s.ConfigMap.Optional)
			}
		}
	}
}

// parts puts the containers of a pod below it, and what it uses, as far as is known.
func (g *growth) parts(b *branch) {
	p := g.pods[b.of.uid]
	if p == nil {
		return
	}
	for i := range p.containers {
		b.below = append(b.below, containerBranch(b, &p.containers[i]))
	}
	for _, u := range usesOf(b.of.name, p.spec) {
		b.below = append(b.below, g.used(b, u))
	}
	b.ripen()
}

func containerBranch(pod *branch, r *api.Row) *branch {
	c := &branch{id: pod.id + ">" + r.UID, of: pod.of, name: r.Name, word: "container", created: pod.created, state: r.State, worst: r.State}
	c.of.container, c.created = r.Name, pod.created
	role, _ := r.Cells[1].(string)
	ready, _ := r.Cells[2].(string)
	c.status, _ = r.Cells[3].(string)
	if role != "main" {
		c.word = role + " container"
	}
	switch {
	case ready == "true":
		c.ready = "1/1"
	case role == "main":
		c.ready = "0/1"
	}
	return c
}

// used is a branch for what a pod uses: whether it is there, and how it does.
func (g *growth) used(pod *branch, u use) *branch {
	k := g.kindOf(u.scope)
	c := &branch{id: pod.id + ">" + u.scope + "/" + u.name, of: target{kind: k, namespace: pod.of.namespace, name: u.name}, name: u.name, word: k.name, state: api.StateUnknown}
	table := g.told[pod.of.namespace+"/"+u.scope]
	found := false
	for _, r := range table.rows {
		if found = r.Name == u.name; found {
			c.of.uid, c.of.owner, c.of.labels, c.row, c.state, c.created = r.UID, r.Owner, r.Labels, r, r.State, r.Created
			c.status = namedCell(table.columns, r, "Status")
			break
		}
	}
	switch {
	case found:
	case table.fault != nil:
		c.status = g.words.say("may not be listed")
	case table.columns == nil || table.loading:
		c.status = g.words.say("loading…")
	case u.optional:
		c.state, c.status = api.StateDone, g.words.say("not there, and optional")
	default:
		c.state, c.status = api.StateError, g.words.say("not there")
	}
	c.worst = c.state
	return c
}
