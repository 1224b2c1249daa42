package nodeagent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// What the agent writes on a container and reads back after a restart.
const (
	annotationHash         = "io.kubernetes.container.hash"
	annotationRestarts     = "io.kubernetes.container.restartCount"
	annotationTermPath     = "io.kubernetes.container.terminationMessagePath"
	annotationTermPolicy   = "io.kubernetes.container.terminationMessagePolicy"
	annotationPodGrace     = "io.kubernetes.pod.terminationGracePeriod"
	annotationCrashBackoff = "orrery.dev/crash-backoff"
	annotationKind         = "orrery.dev/container-kind" // "init" or nothing
	annotationTermHostPath = "orrery.dev/termination-message-host-path"
)

// signalPrefix is what CRI puts before the name of a signal.
const signalPrefix = "SIGNAL_"

// historyKept is how many attempts at a container are looked at: the current
// one, and the one before for lastState.
const historyKept = 2

// observe asks the runtime what there is of a pod. Statuses of ended containers
// don't change, so those in known are taken from there.
func (a *Agent) observe(ctx context.Context, uid types.UID, known map[string]containerStatus) (have, error) {
	h := have{containers: map[string][]containerStatus{}, crashing: a.crashMax()}
	byUID := map[string]string{kubelettypes.KubernetesPodUIDLabel: string(uid)}
	sandboxes, err := a.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: byUID})
	if err != nil {
		return h, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, s := range sandboxes {
		h.sandboxes = append(h.sandboxes, sandbox{
			id: s.Id, ready: s.State == runtimeapi.PodSandboxState_SANDBOX_READY,
			attempt: s.GetMetadata().GetAttempt(), created: time.Unix(0, s.CreatedAt), handler: s.RuntimeHandler,
		})
	}
	slices.SortFunc(h.sandboxes, func(x, y sandbox) int { return y.created.Compare(x.created) })
	if len(h.sandboxes) > 0 {
		if err := a.observeNetwork(ctx, &h.sandboxes[0]); err != nil {
			return h, err
		}
	}
	containers, err := a.cfg.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: byUID})
	if err != nil {
		return h, fmt.Errorf("list containers: %w", err)
	}
	slices.SortFunc(containers, func(x, y *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(y.CreatedAt, x.CreatedAt), cmp.Compare(y.GetMetadata().GetAttempt(), x.GetMetadata().GetAttempt()))
	})
	for _, c := range containers {
		name := c.Labels[kubelettypes.KubernetesContainerNameLabel]
		if len(h.containers[name]) >= historyKept && c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		status, ok := known[c.Id]
		if !ok {
			if status, ok, err = a.containerStatus(ctx, c); err != nil {
				return h, err
			}
			if !ok {
				continue
			}
		}
		if status.state == stateExited {
			known[c.Id] = status
		}
		h.containers[name] = append(h.containers[name], status)
	}
	return h, nil
}

// observeNetwork fills in the addresses of a sandbox.
func (a *Agent) observeNetwork(ctx context.Context, sb *sandbox) error {
	resp, err := a.cfg.Runtime.PodSandboxStatus(ctx, sb.id, false)
	if isNotFound(err) {
		sb.ready = false
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of sandbox %s: %w", sb.id, err)
	}
	st := resp.GetStatus()
	sb.ready = st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	sb.host = st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if ip := st.GetNetwork().GetIp(); ip != "" && !sb.host {
		sb.ips = append(sb.ips, ip)
		for _, more := range st.GetNetwork().GetAdditionalIps() {
			sb.ips = append(sb.ips, more.Ip)
		}
	}
	return nil
}

// containerStatus reads one container's status; ok is false if it has gone.
func (a *Agent) containerStatus(ctx context.Context, c *runtimeapi.Container) (containerStatus, bool, error) {
	resp, err := a.cfg.Runtime.ContainerStatus(ctx, c.Id, false)
	if isNotFound(err) {
		return containerStatus{}, false, nil
	}
	if err != nil {
		return containerStatus{}, false, fmt.Errorf("status of container %s: %w", c.Id, err)
	}
	status := fromRuntime(resp.GetStatus())
	status.sandbox = c.PodSandboxId
	if status.state == stateExited {
		a.readTerminationMessage(resp.GetStatus(), &status)
	}
	return status, true, nil
}

// fromRuntime turns a runtime's status into ours.
func fromRuntime(s *runtimeapi.ContainerStatus) containerStatus {
	c := containerStatus{
		id:       s.Id,
		name:     s.Labels[kubelettypes.KubernetesContainerNameLabel],
		attempt:  s.GetMetadata().GetAttempt(),
		started:  unixNano(s.StartedAt),
		finished: unixNano(s.FinishedAt),
		exit:     s.ExitCode,
		reason:   s.Reason,
		message:  s.Message,
		image:    s.GetImage().GetImage(),
		imageRef: s.ImageRef,
		hash:     s.Annotations[annotationHash],
		logPath:  s.LogPath,
	}
	if n, err := strconv.ParseUint(s.Annotations[annotationRestarts], 10, 32); err == nil {
		c.attempt = uint32(n)
	}
	c.backoff, _ = time.ParseDuration(s.Annotations[annotationCrashBackoff])
	if u := s.GetImage().GetUserSpecifiedImage(); u != "" {
		c.image = u
	}
	if u := s.GetUser().GetLinux(); u != nil {
		c.user = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups}}
	}
	if s.StopSignal != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		c.signal = strings.TrimPrefix(s.StopSignal.String(), signalPrefix)
	}
	switch s.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		c.state = stateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		c.state = stateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		c.state = stateExited
	}
	return c
}

// containerHash covers what cannot change under a running container.
func containerHash(c *corev1.Container) string {
	sum := sha256.Sum256([]byte(c.Name + "\x00" + c.Image))
	return hex.EncodeToString(sum[:4])
}

func unixNano(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// runtimePods lists the pods that the runtime knows of, by UID, with the names
// they carry: how the agent finds pods that nobody wants any more.
func (a *Agent) runtimePods(ctx context.Context) (map[types.UID]*corev1.Pod, error) {
	pods := map[types.UID]*corev1.Pod{}
	add := func(labels, annotations map[string]string) {
		uid := types.UID(labels[kubelettypes.KubernetesPodUIDLabel])
		if uid == "" {
			return
		}
		pod := pods[uid]
		if pod == nil {
			pod = &corev1.Pod{}
			pod.UID = uid
			pod.Name = labels[kubelettypes.KubernetesPodNameLabel]
			pod.Namespace = labels[kubelettypes.KubernetesPodNamespaceLabel]
			pods[uid] = pod
		}
		if g, err := strconv.ParseInt(annotations[annotationPodGrace], 10, 64); err == nil {
			pod.Spec.TerminationGracePeriodSeconds = &g
		}
	}
	sandboxes, err := a.cfg.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, s := range sandboxes {
		add(s.Labels, nil)
	}
	containers, err := a.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, c := range containers {
		add(c.Labels, c.Annotations)
	}
	return pods, nil
}
