package nodeagent

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// phase derives a pod's phase from what its containers did. One that begins anew
// goes on running.
func (h have) phase(pod *corev1.Pod) corev1.PodPhase {
	p := h.phaseNow(pod)
	if p == corev1.PodPending && pod.Status.Phase == corev1.PodRunning && mayRestartAll(pod) {
		return corev1.PodRunning
	}
	return p
}

func (h have) phaseNow(pod *corev1.Pod) corev1.PodPhase {
	begun := h.begun(pod)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if api.IsSidecar(c) || begun {
			continue
		}
		cur, ok := h.current(c.Name)
		if !ok || cur.state != stateExited {
			return corev1.PodPending
		}
		if cur.exit != 0 {
			if mayRestart(pod, c, cur.exit) {
				return corev1.PodPending
			}
			return corev1.PodFailed
		}
	}
	return h.mainPhase(pod)
}

func (h have) mainPhase(pod *corev1.Pod) corev1.PodPhase {
	var waiting, running, restarting, succeeded, failed, unknown int
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		cur, ok := h.current(c.Name)
		switch {
		case !ok && len(h.containers[c.Name]) > 0: // of an earlier sandbox
			last := h.containers[c.Name][0]
			switch {
			case last.state != stateExited:
				unknown++
			case mayRestart(pod, c, last.exit):
				restarting++
			case last.exit == 0:
				succeeded++
			default:
				failed++
			}
		case !ok:
			waiting++
		case cur.state == stateRunning:
			running++
		case cur.state != stateExited:
			waiting++
		case mayRestart(pod, c, cur.exit):
			restarting++
		case cur.exit == 0:
			succeeded++
		default:
			failed++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case running > 0 || restarting > 0 || unknown > 0:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	case succeeded > 0:
		return corev1.PodSucceeded
	}
	return corev1.PodPending
}

// finalPhase is the phase of a pod that was told to end and has ended.
func (h have) finalPhase(pod *corev1.Pod) corev1.PodPhase {
	for i := range pod.Spec.Containers {
		all := h.containers[pod.Spec.Containers[i].Name]
		if len(all) == 0 || all[0].state != stateExited || all[0].exit != 0 {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

// deadline says whether the pod has outlived its activeDeadlineSeconds; if not,
// when it will (zero: never).
func deadline(pod *corev1.Pod, started, now time.Time) (*stop, time.Time) {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil || started.IsZero() {
		return nil, time.Time{}
	}
	at := started.Add(time.Duration(*limit) * time.Second)
	if now.Before(at) {
		return nil, at
	}
	return &stop{
		phase:   corev1.PodFailed,
		reason:  "DeadlineExceeded",
		message: "Pod was active on the node longer than the specified deadline",
		grace:   graceOf(pod),
	}, time.Time{}
}
