package nodeagent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resize brings running containers to the resources that the pod asks for now.
// What runs is compared with what is wanted, so nothing has to be remembered.
func (w *worker) resize(ctx context.Context, pod *corev1.Pod, h have) error {
	if w.a.cgroups == nil {
		return nil
	}
	changed := false
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		cur, ok := h.current(c.Name)
		if !ok || cur.state != stateRunning || cur.resources == nil {
			continue
		}
		want := w.a.containerResources(pod, c)
		have := resourcesFromRuntime(want)
		if sameResources(have, cur.resources) {
			continue
		}
		if !changed {
			changed = true
			if err := w.a.cgroups.ensure(pod); err != nil {
				return err
			}
		}
		if err := w.a.cfg.Runtime.UpdateContainerResources(ctx, cur.id, &runtimeapi.ContainerResources{Linux: want}); err != nil {
			return fmt.Errorf("resize container %s: %w", c.Name, err)
		}
		w.a.log.Info("container resized", "pod", w.name, "container", c.Name)
	}
	if changed {
		w.touch()
	}
	return nil
}

func sameResources(a, b *corev1.ResourceRequirements) bool {
	return a.Limits.Cpu().Cmp(*b.Limits.Cpu()) == 0 && a.Limits.Memory().Cmp(*b.Limits.Memory()) == 0 &&
		a.Requests.Cpu().Cmp(*b.Requests.Cpu()) == 0
}

// reportResources tells what a container was promised and what it has.
func (w *worker) reportResources(pod *corev1.Pod, c *corev1.Container, cur containerStatus, st *corev1.ContainerStatus) {
	if isEphemeral(pod, c.Name) || initIndex(pod, c.Name) >= 0 && !sidecar(c) {
		return
	}
	st.AllocatedResources = c.Resources.Requests.DeepCopy()
	st.Resources = c.Resources.DeepCopy()
	st.Resources.Claims = nil
	for _, m := range c.VolumeMounts {
		vm := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			vm.RecursiveReadOnly = &mode
		}
		st.VolumeMounts = append(st.VolumeMounts, vm)
	}
	if cur.state != stateRunning || cur.resources == nil || sameResources(cur.resources, resourcesFromRuntime(w.a.containerResources(pod, c))) {
		return
	}
	// A resize is under way: limits are what the runtime has now.
	for name, q := range cur.resources.Limits {
		if _, ok := st.Resources.Limits[name]; ok {
			st.Resources.Limits[name] = q
		}
	}
}
