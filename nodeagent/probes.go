package nodeagent

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"orrery.dev/api"
	"orrery.dev/nodeagent/probe"
	"orrery.dev/nodeagent/simulate"
)

// syncProbes has the probes of running containers run.
func (w *worker) syncProbes(pod *corev1.Pod, h have) {
	ips := w.a.addresses(pod, h)
	ip := ""
	if len(ips) > 0 {
		ip = ips[0]
	}
	for _, c := range containersOf(pod) {
		cur, ok := h.current(c.Name)
		if !ok || cur.state != stateRunning || isEphemeral(pod, c.Name) || initIndex(pod, c.Name) >= 0 && !api.IsSidecar(c) {
			continue
		}
		w.a.probes.Watch(probe.Target{Pod: pod, Container: c, ID: cur.id, IP: ip, Started: cur.started})
	}
}

// probeResults are the probes' verdicts on the containers that run.
func (w *worker) probeResults(h have) map[string]probed {
	out := map[string]probed{}
	for name, all := range h.containers {
		v, ok := w.a.probes.Result(w.uid, name)
		if !ok || len(all) == 0 || v.ID != all[0].id {
			continue
		}
		out[name] = probed{id: v.ID, started: v.Started, ready: v.Ready, failed: v.Failed}
	}
	return out
}

// probeExec runs a probe's command in its container. The runtime keeps the time:
// what passes until the command runs does not count.
func (a *Agent) probeExec(ctx context.Context, id string, command []string, timeout time.Duration) (ok bool, output string, err error) {
	stdout, stderr, err := a.cfg.Runtime.ExecSync(ctx, id, command, timeout)
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return true, string(append(stdout, stderr...)), nil
	case errors.As(err, &exit):
		return exit.ExitStatus() == 0, string(append(stdout, stderr...)), nil
	case errors.Is(err, cri.ErrCommandTimedOut):
		return false, err.Error(), nil
	}
	return false, "", err
}

// failsProbes reports whether the probes of a simulated pod are to fail. Those of
// others would pass, so they are not made at all.
func failsProbes(pod *corev1.Pod) bool { return pod.Annotations[simulate.ProbeError] != "" }

func pretendProbe(t probe.Target) (ok bool, output string) {
	output = t.Pod.Annotations[simulate.ProbeError]
	return output == "", output
}

func (a *Agent) probeTold(pod *corev1.Pod, container, reason, text string) {
	if w := a.pods.get(pod.UID); w != nil {
		w.containerEvent(pod, container, corev1.EventTypeWarning, reason, text)
	}
}
