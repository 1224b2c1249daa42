package nodeagent

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// security is a container's security context: the container's own settings
// before the pod's, and the image's user where neither says.
func (w *worker) security(ctx context.Context, pod *corev1.Pod, h have, c *corev1.Container, imageRef string) (*runtimeapi.LinuxContainerSecurityContext, error) {
	ps, cs := pod.Spec.SecurityContext, c.SecurityContext
	if ps == nil {
		ps = &corev1.PodSecurityContext{}
	}
	if cs == nil {
		cs = &corev1.SecurityContext{}
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions:   namespaces(pod, w.targetOf(pod, h, c)),
		Privileged:         isTrue(cs.Privileged),
		ReadonlyRootfs:     isTrue(cs.ReadOnlyRootFilesystem),
		SupplementalGroups: groupsOf(ps),
		SelinuxOptions:     selinux(cmp.Or(cs.SELinuxOptions, ps.SELinuxOptions)),
		Seccomp:            w.a.seccomp(cmp.Or(cs.SeccompProfile, ps.SeccompProfile), isTrue(cs.Privileged)),
		Apparmor:           apparmor(cmp.Or(cs.AppArmorProfile, ps.AppArmorProfile)),
		NoNewPrivs:         cs.AllowPrivilegeEscalation != nil && !*cs.AllowPrivilegeEscalation,
	}
	if ps.SupplementalGroupsPolicy != nil && *ps.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		out.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
	}
	if cs.ProcMount == nil || *cs.ProcMount == corev1.DefaultProcMount {
		out.MaskedPaths = maskedPaths()
		out.ReadonlyPaths = readonlyPaths()
	}
	if cs.Capabilities != nil {
		out.Capabilities = &runtimeapi.Capability{}
		for _, cap := range cs.Capabilities.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(cap))
		}
		for _, cap := range cs.Capabilities.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(cap))
		}
	}
	user := cmp.Or(cs.RunAsUser, ps.RunAsUser)
	if group := cmp.Or(cs.RunAsGroup, ps.RunAsGroup); group != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *group}
	}
	nonRoot := cmp.Or(cs.RunAsNonRoot, ps.RunAsNonRoot)
	if user != nil {
		out.RunAsUser = &runtimeapi.Int64Value{Value: *user}
		if isTrue(nonRoot) && *user == 0 {
			return nil, fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", pod.Name+"_"+pod.Namespace+"("+string(pod.UID)+")", c.Name)
		}
		return out, nil
	}
	return out, w.imageUser(ctx, pod, c, imageRef, isTrue(nonRoot), out)
}

// imageUser takes the user from the image.
func (w *worker) imageUser(ctx context.Context, pod *corev1.Pod, c *corev1.Container, imageRef string, nonRoot bool, out *runtimeapi.LinuxContainerSecurityContext) error {
	resp, err := w.a.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: imageRef}, false)
	if err != nil {
		return fmt.Errorf("image of container %s: %w", c.Name, err)
	}
	image := resp.GetImage()
	where := fmt.Sprintf("(pod: %q, container: %s)", pod.Name+"_"+pod.Namespace+"("+string(pod.UID)+")", c.Name)
	switch {
	case image.GetUid() != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: image.GetUid().GetValue()}
		if nonRoot && image.GetUid().GetValue() == 0 {
			return fmt.Errorf("%w %s", errBadUser, where)
		}
	case image.GetUsername() != "":
		out.RunAsUsername = image.GetUsername()
		if uid, err := strconv.ParseInt(image.GetUsername(), 10, 64); nonRoot && err != nil {
			return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", image.GetUsername(), where)
		} else if nonRoot && uid == 0 {
			return fmt.Errorf("%w %s", errBadUser, where)
		}
	default:
		out.RunAsUser = &runtimeapi.Int64Value{}
		if nonRoot {
			return fmt.Errorf("%w %s", errBadUser, where)
		}
	}
	return nil
}

// targetOf is the id of the container whose processes an ephemeral container
// wants to see.
func (w *worker) targetOf(pod *corev1.Pod, h have, c *corev1.Container) *string {
	for _, e := range pod.Spec.EphemeralContainers {
		if e.Name != c.Name || e.TargetContainerName == "" {
			continue
		}
		if target, ok := h.current(e.TargetContainerName); ok {
			return &target.id
		}
	}
	return nil
}

func (a *Agent) seccomp(p *corev1.SeccompProfile, privileged bool) *runtimeapi.SecurityProfile {
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	byDefault := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	switch {
	case privileged:
		return unconfined
	case p == nil && isTrue(a.cfg.Kubelet.SeccompDefault):
		return byDefault
	case p == nil || p.Type == corev1.SeccompProfileTypeUnconfined:
		return unconfined
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(a.cfg.RootDir, "seccomp", filepath.Clean("/"+*p.LocalhostProfile)),
		}
	}
	return byDefault
}

func apparmor(p *corev1.AppArmorProfile) *runtimeapi.SecurityProfile {
	switch {
	case p == nil:
		return nil
	case p.Type == corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case p.Type == corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

// maskedPaths and readonlyPaths are those of the default ProcMount.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func isTrue(b *bool) bool { return b != nil && *b }
