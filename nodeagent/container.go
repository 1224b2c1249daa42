package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"orrery.dev/api"
	"orrery.dev/nodeagent/volume"
	"orrery.dev/trace"
)

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// startContainer pulls the image, makes the container, starts it and runs its
// postStart hook.
func (w *worker) startContainer(ctx context.Context, pod *corev1.Pod, h have, s step) error {
	sb, _ := h.sandbox()
	c := s.container
	sandboxConfig, err := w.a.sandboxConfig(pod, sb.attempt)
	if err != nil {
		return err
	}
	var failed *startError
	pulling, step := trace.Step(ctx, "pull image", attribute.String("image", c.Image))
	imageRef, err := w.pullImages(pulling, pod, c, sandboxConfig, sb.handler)
	step.End(err)
	if errors.As(err, &failed) {
		w.containerEvent(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+failed.reason)
	}
	if err != nil {
		return err
	}
	config, err := w.containerConfig(ctx, pod, h, s, imageRef)
	if errors.As(err, &failed) {
		return err
	}
	if err != nil {
		w.containerEvent(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return &startError{reason: "CreateContainerConfigError", message: err.Error()}
	}
	_, step = trace.Step(ctx, "create container")
	id, err := w.a.cfg.Runtime.CreateContainer(ctx, sb.id, config, sandboxConfig)
	step.End(err)
	if err != nil {
		w.containerEvent(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+grpcText(err))
		return &startError{reason: "CreateContainerError", message: grpcText(err)}
	}
	w.allotted.applied(id, sizeOf(pod, c), h)
	if err := w.a.writeAllotment(pod, w.allotted); err != nil {
		w.a.log.Warn("what a container was given can't be written", "pod", w.name, "err", err)
	}
	w.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Created", "Container created")
	_, step = trace.Step(ctx, "start container")
	err = w.a.cfg.Runtime.StartContainer(ctx, id)
	step.End(err)
	if err != nil {
		w.containerEvent(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+grpcText(err))
		// The container now counts as one that ended: its restart follows the
		// crash back-off.
		if isExited(w.a.cfg.Runtime.ContainerStatus(ctx, id, false)) {
			return nil
		}
		return &startError{reason: "RunContainerError", message: grpcText(err)}
	}
	w.containerEvent(pod, c.Name, corev1.EventTypeNormal, "Started", "Container started")
	w.linkLegacyLog(pod, c.Name, id, config.LogPath)
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || w.a.cfg.Simulated {
		return nil
	}
	if err := w.runHook(ctx, pod, c, id, c.Lifecycle.PostStart); err != nil {
		w.containerEvent(pod, c.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		v := victim{containerStatus: containerStatus{id: id, name: c.Name, state: stateRunning}, spec: c, grace: graceOf(pod), why: "FailedPostStartHook"}
		if err := w.killOne(ctx, pod, v); err != nil {
			return err
		}
	}
	return nil
}

func isExited(resp *runtimeapi.ContainerStatusResponse, err error) bool {
	return err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// grpcText is what the other side said, without the frame.
func grpcText(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// linkLegacyLog keeps /var/log/containers, where log shippers look.
func (w *worker) linkLegacyLog(pod *corev1.Pod, name, id, logPath string) {
	if w.a.cfg.Simulated {
		return
	}
	dir := filepath.Join(filepath.Dir(w.a.cfg.PodLogsDir), "containers")
	if os.MkdirAll(dir, 0o755) != nil {
		return
	}
	link := filepath.Join(dir, fmt.Sprintf("%s_%s_%s-%s.log", pod.Name, pod.Namespace, name, id))
	os.Symlink(filepath.Join(w.a.podLogDir(pod), logPath), link)
}

// containerConfig is what the runtime is asked to run.
func (w *worker) containerConfig(ctx context.Context, pod *corev1.Pod, h have, s step, imageRef string) (*runtimeapi.ContainerConfig, error) {
	a, c := w.a, s.container
	sb, _ := h.sandbox()
	config := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: s.attempt},
		Image:      &runtimeapi.ImageSpec{Image: imageRef, UserSpecifiedImage: c.Image, RuntimeHandler: sb.handler},
		WorkingDir: c.WorkingDir,
		LogPath:    filepath.Join(c.Name, fmt.Sprintf("%d.log", s.attempt)),
		Stdin:      c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Labels: map[string]string{
			kubelettypes.KubernetesPodNameLabel:       pod.Name,
			kubelettypes.KubernetesPodNamespaceLabel:  pod.Namespace,
			kubelettypes.KubernetesPodUIDLabel:        string(pod.UID),
			kubelettypes.KubernetesContainerNameLabel: c.Name,
		},
		Annotations: map[string]string{
			annotationHash:         containerHash(c),
			annotationRestarts:     strconv.FormatUint(uint64(s.attempt), 10),
			annotationTermPath:     c.TerminationMessagePath,
			annotationTermPolicy:   string(c.TerminationMessagePolicy),
			annotationPodGrace:     strconv.FormatInt(graceOf(pod), 10),
			annotationCrashBackoff: s.backoff.String(),
		},
	}
	if initIndex(pod, c.Name) >= 0 && !api.IsSidecar(c) {
		config.Annotations[annotationKind] = "init"
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		config.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value[signalPrefix+string(*c.Lifecycle.StopSignal)])
	}
	env, err := w.environment(ctx, pod, c, sb.ips)
	if err != nil {
		return nil, err
	}
	for _, e := range env {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	if a.cfg.Simulated {
		return config, nil
	}
	values := envLookup(env)
	for _, word := range c.Command {
		config.Command = append(config.Command, expand(word, values))
	}
	for _, word := range c.Args {
		config.Args = append(config.Args, expand(word, values))
	}
	if err := os.MkdirAll(filepath.Join(a.podLogDir(pod), c.Name), 0o755); err != nil {
		return nil, err
	}
	if config.Mounts, err = w.mounts(ctx, pod, s, sb.ips, values, config.Annotations); err != nil {
		return nil, err
	}
	config.Devices = blockDevices(c, w.volumes)
	security, err := w.security(ctx, pod, h, c, imageRef)
	if err != nil {
		return nil, err
	}
	users, err := a.userNamespace(pod)
	if err != nil {
		return nil, err
	}
	if security.NamespaceOptions.UsernsOptions = users; users != nil {
		for _, m := range config.Mounts {
			m.UidMappings, m.GidMappings = users.Uids, users.Gids
		}
	}
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: security, Resources: a.containerResources(pod, c)}
	return config, nil
}

// mounts are a container's volume mounts, its /etc/hosts and its termination
// message file.
func (w *worker) mounts(ctx context.Context, pod *corev1.Pod, s step, ips []string, env func(string) (string, bool), notes map[string]string) ([]*runtimeapi.Mount, error) {
	c := s.container
	if w.volumes == nil {
		if err := w.mountVolumes(ctx, pod); err != nil {
			return nil, err
		}
	}
	var out []*runtimeapi.Mount
	ownHosts := false
	for i, m := range c.VolumeMounts {
		v, ok := w.volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		ownHosts = ownHosts || filepath.Clean(m.MountPath) == "/etc/hosts"
		mount, err := w.mount(pod, c, i, m, v, env)
		if err != nil {
			return nil, err
		}
		out = append(out, mount)
	}
	if !ownHosts && (len(ips) > 0 || pod.Spec.HostNetwork) {
		path := filepath.Join(w.a.podDir(pod), "etc-hosts")
		if err := writeInPlace(path, w.a.hostsFile(pod, ips)); err != nil {
			return nil, fmt.Errorf("hosts file: %w", err)
		}
		out = append(out, &runtimeapi.Mount{HostPath: path, ContainerPath: "/etc/hosts"})
	}
	if c.TerminationMessagePath != "" {
		dir := filepath.Join(w.a.podDir(pod), "containers", c.Name)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, strconv.FormatUint(uint64(s.attempt), 10)+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return nil, err
		}
		// The umask must not keep the container's user from writing.
		if err := os.Chmod(path, 0o666); err != nil {
			return nil, err
		}
		notes[annotationTermHostPath] = path
		out = append(out, &runtimeapi.Mount{HostPath: path, ContainerPath: c.TerminationMessagePath})
	}
	return out, nil
}

// mount is one volume mount, with its subpath made and pinned.
func (w *worker) mount(pod *corev1.Pod, c *corev1.Container, i int, m corev1.VolumeMount, v volume.Mounted, env func(string) (string, bool)) (*runtimeapi.Mount, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var missing []string
		sub = expand(m.SubPathExpr, func(name string) (string, bool) {
			value, ok := env(name)
			if !ok {
				missing = append(missing, name)
			}
			return value, ok
		})
		if len(missing) > 0 {
			return nil, fmt.Errorf("failed to expand subPathExpr of volume mount %q: missing value for %q", m.Name, strings.Join(missing, ","))
		}
	}
	path := m.MountPath
	if !filepath.IsAbs(path) {
		path = filepath.Join("/", path)
	}
	out := &runtimeapi.Mount{ContainerPath: path, HostPath: v.Path, Readonly: m.ReadOnly || v.ReadOnly, SelinuxRelabel: v.Relabel}
	if v.Image != "" {
		out.HostPath, out.Readonly = "", true
		out.Image = &runtimeapi.ImageSpec{Image: w.volumeImages[m.Name], UserSpecifiedImage: v.Image}
		out.ImageSubPath = sub
		return out, nil
	}
	if sub != "" {
		if filepath.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..") {
			return nil, fmt.Errorf("subPath %q of volume mount %q must be a relative path without '..'", sub, m.Name)
		}
		host, err := w.a.volumes.SubPath(volume.Sub{Pod: pod.UID, Volume: v, Name: m.Name, Container: c.Name, Index: i, Path: sub, Mode: 0o750})
		if err != nil {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", m.Name, c.Name, err)
		}
		out.HostPath = host
	}
	if p := m.MountPropagation; p != nil {
		switch *p {
		case corev1.MountPropagationHostToContainer:
			out.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			out.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	if r := m.RecursiveReadOnly; r != nil && *r == corev1.RecursiveReadOnlyEnabled && m.ReadOnly {
		out.RecursiveReadOnly = true
	}
	return out, nil
}

// writeInPlace rewrites a file without changing its inode, which may be
// mounted into containers.
func writeInPlace(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	return os.WriteFile(path, data, 0o644)
}

// blockDevices are the raw volumes of a container.
func blockDevices(c *corev1.Container, volumes map[string]volume.Mounted) []*runtimeapi.Device {
	var out []*runtimeapi.Device
	for _, d := range c.VolumeDevices {
		v, ok := volumes[d.Name]
		if !ok {
			continue
		}
		permissions := "mrw"
		if v.ReadOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{HostPath: v.Path, ContainerPath: d.DevicePath, Permissions: permissions})
	}
	return out
}

// readTerminationMessage takes over what a container left as its last words.
func (a *Agent) readTerminationMessage(s *runtimeapi.ContainerStatus, c *containerStatus) {
	const maxBytes, maxLines, maxLog = 4096, 80, 2048
	path := s.Annotations[annotationTermHostPath]
	if path != "" {
		if text, err := readTail(path, maxBytes); err == nil && text != "" {
			c.message = text
			return
		}
	}
	if s.Annotations[annotationTermPolicy] == string(corev1.TerminationMessageFallbackToLogsOnError) && s.ExitCode != 0 {
		if text, err := lastLogLines(s.LogPath, maxLines, maxLog); err == nil {
			c.message = text
		}
	}
}

var errBadUser = errors.New("container has runAsNonRoot and image will run as root")
