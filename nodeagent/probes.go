package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/nodeagent/probe"
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
		if !ok || cur.state != stateRunning || isEphemeral(pod, c.Name) || initIndex(pod, c.Name) >= 0 && !sidecar(c) {
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

// probeExec runs a probe's command in its container.
func (a *Agent) probeExec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+5*time.Second)
	defer cancel()
	stdout, stderr, err := a.cfg.Runtime.ExecSync(ctx, id, command, timeout)
	if err != nil && len(stdout)+len(stderr) == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("command timed out: %q timed out after %s", command, timeout)
	}
	return append(stdout, stderr...), err
}

func (a *Agent) probeUnhealthy(pod *corev1.Pod, container string, kind probe.Kind, output string) {
	if w := a.pods.get(pod.UID); w != nil {
		w.containerEvent(pod, container, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %s", kind, output))
	}
}
