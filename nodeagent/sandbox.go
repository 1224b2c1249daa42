package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"orrery.dev/nodeagent/volume"
	"orrery.dev/trace"
)

// makeSandbox prepares directories, cgroup and volumes, and has the runtime
// make the pod's sandbox.
func (w *worker) makeSandbox(ctx context.Context, pod *corev1.Pod, attempt uint32) error {
	if w.startedAt.IsZero() {
		w.startedAt = time.Now()
	}
	if down := w.a.networkErr.Load(); down != nil && !pod.Spec.HostNetwork {
		w.event(pod, corev1.EventTypeWarning, "NetworkNotReady", "network is not ready: container runtime network not ready: "+*down)
		return &startError{reason: "ContainerCreating", until: time.Now().Add(time.Second)}
	}
	prepare := w.prepare
	if w.a.cfg.Simulated {
		prepare = w.pretendVolumes
	}
	if err := prepare(ctx, pod); err != nil {
		return err
	}
	handler, err := w.a.runtimeHandler(ctx, pod)
	if err != nil {
		return err
	}
	if err := w.a.mayOwnUsers(pod, handler); err != nil {
		w.event(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return err
	}
	config, err := w.a.sandboxConfig(pod, attempt)
	if err != nil {
		return err
	}
	_, step := trace.Step(ctx, "create sandbox")
	_, err = w.a.cfg.Runtime.RunPodSandbox(ctx, config, handler)
	step.End(err)
	if err != nil {
		if ctx.Err() == nil {
			w.event(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		}
		return &startError{reason: "ContainerCreating", message: ""}
	}
	return nil
}

// prepare makes what the sandbox stands on.
func (w *worker) prepare(ctx context.Context, pod *corev1.Pod) error {
	for _, dir := range []string{w.a.podDir(pod), filepath.Join(w.a.podDir(pod), "volumes"), filepath.Join(w.a.podDir(pod), "plugins")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(w.a.podLogDir(pod), 0o755); err != nil {
		return err
	}
	if pod.Spec.Resources != nil {
		w.allotted.applied(wholePod, *pod.Spec.Resources, w.last)
	}
	if err := w.a.cgroups.ensure(pod); err != nil {
		w.event(pod, corev1.EventTypeWarning, "FailedToCreateContainer", "unable to ensure pod container exists: "+err.Error())
		return err
	}
	return w.mountVolumes(ctx, pod)
}

// pretendVolumes mounts nothing, but no pod gets past a Secret or ConfigMap that
// is not there.
func (w *worker) pretendVolumes(ctx context.Context, pod *corev1.Pod) error {
	get := &objects{a: w.a}
	for _, v := range pod.Spec.Volumes {
		var err error
		switch {
		case v.Secret != nil && !isTrue(v.Secret.Optional):
			_, err = get.Secret(ctx, pod.Namespace, v.Secret.SecretName)
		case v.ConfigMap != nil && !isTrue(v.ConfigMap.Optional):
			_, err = get.ConfigMap(ctx, pod.Namespace, v.ConfigMap.Name)
		}
		if err != nil {
			w.mountFailed(ctx, pod, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err))
			return &startError{reason: "ContainerCreating", message: ""}
		}
	}
	return nil
}

// mountVolumes sets up the pod's volumes.
func (w *worker) mountVolumes(ctx context.Context, pod *corev1.Pod) error {
	_, step := trace.Step(ctx, "mount volumes", attribute.Int("volumes", len(pod.Spec.Volumes)))
	mounted, err := w.a.volumes.SetUp(ctx, pod)
	step.End(err)
	w.follow(pod)
	if err != nil {
		w.mountFailed(ctx, pod, err)
		return &startError{reason: "ContainerCreating", message: ""}
	}
	w.volumes, w.refreshed, w.filled, w.outdated = mounted, time.Now(), pod, false
	return nil
}

// refreshVolumes brings the volumes of a running pod up to date. An agent that
// has just started finds them as they are.
func (w *worker) refreshVolumes(ctx context.Context, pod *corev1.Pod) error {
	if w.volumes == nil {
		return w.mountVolumes(ctx, pod)
	}
	w.filled = pod
	err := w.a.volumes.Refresh(ctx, pod)
	w.follow(pod)
	if err != nil {
		w.mountFailed(ctx, pod, err)
	}
	return err
}

func (w *worker) mountFailed(ctx context.Context, pod *corev1.Pod, err error) {
	if ctx.Err() == nil {
		w.event(pod, corev1.EventTypeWarning, "FailedMount", err.Error())
	}
}

// follow watches what fills the pod's volumes.
func (w *worker) follow(pod *corev1.Pod) {
	if w.a.clients == nil {
		return
	}
	var sources []source
	configMaps, secrets := volume.Sources(pod)
	for _, name := range configMaps {
		sources = append(sources, source{resourceConfigMaps, pod.Namespace, name})
	}
	for _, name := range secrets {
		sources = append(sources, source{resourceSecrets, pod.Namespace, name})
	}
	w.a.follower.set(w.uid, sources)
}

// runtimeHandler is the handler that the pod's RuntimeClass names.
func (a *Agent) runtimeHandler(ctx context.Context, pod *corev1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" || a.clients == nil {
		return "", nil
	}
	class, err := a.clients.NodeV1().RuntimeClasses().Get(ctx, *name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("runtime class %s: %w", *name, err)
	}
	return class.Handler, nil
}

func (a *Agent) sandboxConfig(pod *corev1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	c := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		LogDirectory: a.podLogDir(pod),
		Labels:       maps.Clone(pod.Labels),
		Annotations:  pod.Annotations,
		DnsConfig:    a.dns(pod),
	}
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[kubelettypes.KubernetesPodNameLabel] = pod.Name
	c.Labels[kubelettypes.KubernetesPodNamespaceLabel] = pod.Namespace
	c.Labels[kubelettypes.KubernetesPodUIDLabel] = string(pod.UID)
	if !pod.Spec.HostNetwork {
		c.Hostname, _ = a.hostnameOf(pod)
		c.PortMappings = portMappings(pod)
	}
	sc, err := a.sandboxSecurity(pod)
	if err != nil {
		return nil, err
	}
	c.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: sc, Sysctls: map[string]string{}}
	if a.cgroups != nil {
		c.Linux.CgroupParent = a.cgroups.parent(pod)
		c.Linux.Resources = a.podResources(pod)
		c.Linux.Overhead = linuxResources(pod.Spec.Overhead, pod.Spec.Overhead, true)
	}
	if s := pod.Spec.SecurityContext; s != nil {
		for _, ctl := range s.Sysctls {
			c.Linux.Sysctls[strings.ReplaceAll(ctl.Name, "/", ".")] = ctl.Value
		}
	}
	return c, nil
}

func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for _, c := range containersOf(pod) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			m := &runtimeapi.PortMapping{ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP}
			switch p.Protocol {
			case corev1.ProtocolUDP:
				m.Protocol = runtimeapi.Protocol_UDP
			case corev1.ProtocolSCTP:
				m.Protocol = runtimeapi.Protocol_SCTP
			}
			out = append(out, m)
		}
	}
	return out
}

func (a *Agent) sandboxSecurity(pod *corev1.Pod) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, nil),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	users, err := a.userNamespace(pod)
	if err != nil {
		return nil, err
	}
	sc.NamespaceOptions.UsernsOptions = users
	for _, c := range containersOf(pod) {
		if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
			sc.Privileged = true
		}
	}
	s := pod.Spec.SecurityContext
	if s == nil {
		return sc, nil
	}
	if s.RunAsUser != nil && !isWindows(pod) {
		sc.RunAsUser = &runtimeapi.Int64Value{Value: *s.RunAsUser}
	}
	if s.RunAsGroup != nil && s.RunAsUser != nil {
		sc.RunAsGroup = &runtimeapi.Int64Value{Value: *s.RunAsGroup}
	}
	sc.SupplementalGroups = groupsOf(s)
	if s.SupplementalGroupsPolicy != nil && *s.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		sc.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
	}
	sc.SelinuxOptions = selinux(s.SELinuxOptions)
	return sc, nil
}

func groupsOf(s *corev1.PodSecurityContext) []int64 {
	var groups []int64
	if s.FSGroup != nil {
		groups = append(groups, *s.FSGroup)
	}
	return append(groups, s.SupplementalGroups...)
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func isWindows(pod *corev1.Pod) bool { return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows }

// namespaces says which of the host's namespaces the pod shares. An ephemeral
// container may enter the process namespace of the container with id target.
func namespaces(pod *corev1.Pod, target *string) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		o.Pid = runtimeapi.NamespaceMode_POD
	case target != nil:
		o.Pid = runtimeapi.NamespaceMode_TARGET
		o.TargetId = *target
	}
	return o
}

// hostnameOf is the name the pod's containers see, and its full form if it has
// a subdomain.
func (a *Agent) hostnameOf(pod *corev1.Pod) (name, full string) {
	if o := pod.Spec.HostnameOverride; o != nil && *o != "" {
		return *o, ""
	}
	name = pod.Spec.Hostname
	if name == "" {
		name = pod.Name
		if len(name) > 63 {
			name = strings.TrimRight(name[:63], "-.")
		}
	}
	if pod.Spec.Subdomain != "" && a.cfg.Kubelet.ClusterDomain != "" {
		full = fmt.Sprintf("%s.%s.%s.svc.%s", name, pod.Spec.Subdomain, pod.Namespace, a.cfg.Kubelet.ClusterDomain)
	}
	if f := pod.Spec.SetHostnameAsFQDN; f != nil && *f && full != "" {
		name = full
	}
	return name, full
}
