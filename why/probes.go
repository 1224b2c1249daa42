package why

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"orrery.dev/api"
)

// unhealthy is the newest event of a failed probe of one kind ("Readiness"), or
// nil.
func (f *facts) unhealthy(pod *corev1.Pod, probe, container string) *corev1.Event {
	for _, e := range f.events(podKind, pod) {
		if e.Reason == "Unhealthy" && strings.HasPrefix(e.Message, probe+" probe") && (e.InvolvedObject.FieldPath == "" || strings.Contains(e.InvolvedObject.FieldPath, "{"+container+"}")) {
			return e
		}
	}
	return nil
}

// killedByProbe reports whether the kubelet restarts containers of the pod for
// their probes: then it is the probe that has to be looked at, not the exit code.
func (f *facts) killedByProbe(pod *corev1.Pod) bool {
	return slices.ContainsFunc(f.events(podKind, pod), func(e *corev1.Event) bool {
		return e.Reason == "Killing" && strings.Contains(e.Message, "probe")
	})
}

// probes tells of containers that run but are not ready, and of what else keeps
// a pod from being ready.
func (f *facts) probes(pod *corev1.Pod, t target) []api.Finding {
	if api.IsPodReady(pod) {
		return nil
	}
	var out []api.Finding
	for _, s := range statuses(pod) {
		c := containerOf(pod, s.Name)
		if c == nil || s.State.Running == nil || s.Ready || c.ReadinessProbe == nil && c.StartupProbe == nil && c.LivenessProbe == nil {
			continue
		}
		out = append(out, f.probeOf(pod, s, c, t))
	}
	if len(out) == 0 {
		for _, gate := range pod.Spec.ReadinessGates {
			if c := api.PodCondition(pod, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
				out = append(out, mended(waiting("readinessGate", params("gate", gate.ConditionType)), mend("readinessGate", params("gate", gate.ConditionType))))
			}
		}
	}
	if len(out) == 0 {
		// A node that went away takes its pods' readiness along.
		if finding := f.deadNode(pod.Spec.NodeName); finding != nil {
			return []api.Finding{*finding}
		}
		out = append(out, waiting("notReady", nil, condition(pod, corev1.PodReady)))
	}
	return out
}

// condition is a pod's condition as evidence.
func condition(pod *corev1.Pod, of corev1.PodConditionType) api.Evidence {
	c := api.PodCondition(pod, of)
	if c == nil {
		return evidence(podKind.ref(pod), "condition "+string(of), "", time.Time{})
	}
	return evidence(podKind.ref(pod), fmt.Sprintf("condition %s=%s", of, c.Status), strings.TrimSuffix(c.Reason+": "+c.Message, ": "), c.LastTransitionTime.Time)
}

func (f *facts) probeOf(pod *corev1.Pod, s corev1.ContainerStatus, c *corev1.Container, t target) api.Finding {
	what, probe := "Readiness", c.ReadinessProbe
	started := s.Started == nil || *s.Started
	switch {
	case c.StartupProbe != nil && !started:
		what, probe = "Startup", c.StartupProbe
	case f.unhealthy(pod, "Liveness", c.Name) != nil && s.RestartCount > 0 || probe == nil:
		what, probe = "Liveness", c.LivenessProbe
	}
	if probe == nil {
		return waiting("notReady", nil, condition(pod, corev1.PodReady))
	}
	field := t.field("containers[" + c.Name + "]." + strings.ToLower(what) + "Probe")
	p := params("container", c.Name, "probe", probeWords(probe, c), "kind", strings.ToLower(what), "message", "")
	since := s.State.Running.StartedAt.Time
	patience := time.Duration(probe.InitialDelaySeconds+max(probe.PeriodSeconds, 1)*max(probe.FailureThreshold, 1)+1) * time.Second
	e := f.unhealthy(pod, what, c.Name)
	var proof []api.Evidence
	if e != nil {
		p["message"] = strings.TrimPrefix(e.Message, what+" probe failed: ")
		proof = append(proof, eventEvidence(e))
	}
	proof = append(proof, condition(pod, corev1.ContainersReady))
	if e == nil && f.now.Sub(since) < patience {
		return waiting("probeWaiting", p, proof...)
	}
	code := map[string]string{"Readiness": "readiness", "Startup": "startup", "Liveness": "liveness"}[what]
	finding := broken(code, p, proof...)
	if port, undeclared := strangePort(probe, c); undeclared {
		finding = mended(finding, mend("probePort", params("port", port, "declared", portsOf(c), "field", field)))
	}
	return mended(finding, mend("probe", params("probe", p["probe"], "field", field)),
		mend("logs", params("container", c.Name), fmt.Sprintf("kubectl logs %s -n %s -c %s", pod.Name, pod.Namespace, c.Name)))
}

// probeWords is a probe in the words of kubectl describe.
func probeWords(p *corev1.Probe, c *corev1.Container) string {
	switch {
	case p.HTTPGet != nil:
		scheme := strings.ToLower(string(p.HTTPGet.Scheme))
		if scheme == "" {
			scheme = "http"
		}
		return fmt.Sprintf("GET %s://:%s/%s", scheme, p.HTTPGet.Port.String(), strings.TrimPrefix(p.HTTPGet.Path, "/"))
	case p.TCPSocket != nil:
		return "tcp :" + p.TCPSocket.Port.String()
	case p.GRPC != nil:
		return fmt.Sprintf("grpc :%d", p.GRPC.Port)
	case p.Exec != nil:
		return "exec " + strings.Join(p.Exec.Command, " ")
	}
	return c.Name
}

// strangePort is the port of a probe that the container does not declare, though
// it declares others: the most common slip.
func strangePort(p *corev1.Probe, c *corev1.Container) (string, bool) {
	var port intstr.IntOrString
	switch {
	case p.HTTPGet != nil:
		port = p.HTTPGet.Port
	case p.TCPSocket != nil:
		port = p.TCPSocket.Port
	default:
		return "", false
	}
	return port.String(), len(c.Ports) > 0 && !slices.ContainsFunc(c.Ports, func(declared corev1.ContainerPort) bool {
		return declared.Name == port.String() || strconv.Itoa(int(declared.ContainerPort)) == port.String()
	})
}

func portsOf(c *corev1.Container) string {
	var all []string
	for _, p := range c.Ports {
		text := strconv.Itoa(int(p.ContainerPort))
		if p.Name != "" {
			text = p.Name + " (" + text + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
