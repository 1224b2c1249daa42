package tui

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// newContainers is the live table of a pod's containers.
func newContainers(a *app, pod target) *tablePane {
	t := newTable(a, kind{plural: "containers", singular: "container", name: "Container", namespaced: true})
	t.parent = &origin{pod.name, pod.namespace}
	t.stands = func(r *gridRow) target { return a.containerOf(pod.namespace, pod.name, r.row.Name) }
	k := pod.kind
	t.source = func(tell func(api.Tell)) func() {
		tell(api.Tell{Type: "columns", Columns: containerColumns()})
		v := api.View{Group: k.group, Version: k.version, Resource: k.plural, Namespaces: []string{pod.namespace}, Name: pod.name}
		return a.feed.Open(v, func(m api.Tell) { tell(containerTell(m)) })
	}
	return t
}

func containerColumns() []api.RowColumn {
	return []api.RowColumn{{Name: "Name", Type: "string"}, {Name: "Kind", Type: "string"}, {Name: "Ready", Type: "string"}, {Name: "State", Type: "string"},
		{Name: "Restarts", Type: "integer"}, {Name: "Image", Type: "string"}, {Name: "Probes", Type: "string"}, {Name: "Ports", Type: "string"}, {Name: "Age", Type: "age"}}
}

// containerTell makes rows of a pod.
func containerTell(m api.Tell) api.Tell {
	if m.Type != "object" {
		return m
	}
	out := api.Tell{Type: "rows", Reset: true, Revision: m.Revision, Live: m.Live}
	var pod corev1.Pod
	if len(m.Object) == 0 || json.Unmarshal(m.Object, &pod) != nil {
		return out
	}
	for i := range pod.Spec.InitContainers {
		out.Rows = append(out.Rows, containerRow(&pod, &pod.Spec.InitContainers[i], "init", pod.Status.InitContainerStatuses))
	}
	for i := range pod.Spec.Containers {
		out.Rows = append(out.Rows, containerRow(&pod, &pod.Spec.Containers[i], "main", pod.Status.ContainerStatuses))
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		out.Rows = append(out.Rows, containerRow(&pod, &c, "debug", pod.Status.EphemeralContainerStatuses))
	}
	return out
}

func containerRow(pod *corev1.Pod, c *corev1.Container, role string, statuses []corev1.ContainerStatus) api.Row {
	r := api.Row{UID: role + "/" + c.Name, Namespace: pod.Namespace, Name: c.Name, State: api.StateUnknown, Created: pod.CreationTimestamp.Time, Owner: "Pod/" + pod.Name}
	ready, state, restarts, began := "false", "Waiting", 0, ""
	for _, s := range statuses {
		if s.Name != c.Name {
			continue
		}
		ready, restarts = fmt.Sprint(s.Ready), int(s.RestartCount)
		switch {
		case s.State.Running != nil:
			state, r.State, began = "Running", api.StateOK, s.State.Running.StartedAt.Format(time.RFC3339)
			if !s.Ready && role == "main" {
				r.State = api.StateProgressing
			}
		case s.State.Terminated != nil:
			state, r.State = s.State.Terminated.Reason, api.StateDone
			if s.State.Terminated.ExitCode != 0 {
				state, r.State = fmt.Sprintf("%s (%d)", s.State.Terminated.Reason, s.State.Terminated.ExitCode), api.StateError
			}
		case s.State.Waiting != nil:
			state, r.State = s.State.Waiting.Reason, api.StateProgressing
			if strings.Contains(state, "BackOff") || strings.Contains(state, "Err") {
				r.State = api.StateError
			}
		}
	}
	r.Cells = []any{c.Name, role, ready, state, float64(restarts), c.Image, probes(c), ports(c), began}
	return r
}

// probes shows which of liveness, readiness and startup are there.
func probes(c *corev1.Container) string {
	mark := func(p *corev1.Probe, letter string) string {
		if p == nil {
			return "-"
		}
		return letter
	}
	return mark(c.LivenessProbe, "L") + mark(c.ReadinessProbe, "R") + mark(c.StartupProbe, "S")
}

func ports(c *corev1.Container) string {
	var out []string
	for _, p := range c.Ports {
		out = append(out, fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol))
	}
	return strings.Join(out, ",")
}

// containerOf is a pod with one of its containers chosen.
func (a *app) containerOf(namespace, pod, container string) target {
	return target{kind: a.kinds.byPlural("pods"), namespace: namespace, name: pod, container: container}
}
