// Package simulate is a container runtime that only pretends. It implements the
// CRI interfaces in memory, so that the node agent above it is the real one:
// sandboxes and containers have their states, times and addresses, images are
// "pulled", and containers of Jobs end by themselves. It is for exploring, for
// tests of everything but the runtime, and for clusters of thousands of nodes on
// a laptop.
//
// What a pod's containers do can be set with annotations on the pod:
//
//	simulate.orrery.dev/run-for: 30s     they end after that time (pods of Jobs: 2s)
//	simulate.orrery.dev/exit-code: "1"   with that code
//	simulate.orrery.dev/pull-error: "…"  their images cannot be pulled
//	simulate.orrery.dev/probe-error: "…" their probes fail, saying this
//	simulate.orrery.dev/log-rate: "100"  they log that many lines a second (0: none)
package simulate

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The annotations that steer containers.
const (
	RunFor     = "simulate.orrery.dev/run-for"
	ExitCode   = "simulate.orrery.dev/exit-code"
	PullError  = "simulate.orrery.dev/pull-error"
	ProbeError = "simulate.orrery.dev/probe-error"
	LogRate    = "simulate.orrery.dev/log-rate"
)

// kindAnnotation is what the node agent writes on a container to tell what sort
// it is; "init" ones end by themselves, or no pod would get past them.
const kindAnnotation = "orrery.dev/container-kind"

// jobLabel is on the pods of Jobs.
const jobLabel = "batch.kubernetes.io/job-name"

// jobTime is how long a Job's containers run.
const jobTime = 2 * time.Second

// Runtime pretends to be the container runtime of one node.
type Runtime struct {
	mu         sync.Mutex // protects the fields below
	next       int
	addresses  netip.Prefix
	free       []netip.Addr // given back
	last       netip.Addr
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*runtimeapi.Image
	watchers   map[chan *runtimeapi.ContainerEventResponse]context.Context
	streams    *Streams // nil: no exec and no attach
}

var (
	_ internalapi.RuntimeService      = (*Runtime)(nil)
	_ internalapi.ImageManagerService = (*Images)(nil)
)

type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	handler string
	address netip.Addr
	state   runtimeapi.PodSandboxState
	created time.Time
}

type container struct {
	id       string
	sandbox  *sandbox
	config   *runtimeapi.ContainerConfig
	state    runtimeapi.ContainerState
	created  time.Time
	started  time.Time
	finished time.Time
	exit     int32
	reason   string
	ends     *time.Timer   // nil: runs until it is stopped
	done     chan struct{} // closed when it ends
	every    time.Duration // between lines of its log
	files    files
}

// New makes a runtime whose pods get addresses out of a range.
func New(podCIDR string) (*Runtime, error) {
	prefix, err := netip.ParsePrefix(podCIDR)
	if err != nil {
		return nil, fmt.Errorf("pod addresses of a simulated node: %w", err)
	}
	return &Runtime{
		addresses: prefix, last: prefix.Masked().Addr().Next(), // the first address is the gateway's
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, images: map[string]*runtimeapi.Image{},
		watchers: map[chan *runtimeapi.ContainerEventResponse]context.Context{},
	}, nil
}

// Version tells that nothing of this is real.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "simulated", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status is always well.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true}}}}, nil
}

// RuntimeConfig names the cgroup driver, which nothing uses.
func (r *Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig has nothing to do: addresses are fixed at the start.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// Close has nothing to close.
func (r *Runtime) Close(context.Context) error { return nil }

// RunPodSandbox gives the pod an address, unless it wants the node's network.
func (r *Runtime) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{id: r.id("sandbox"), config: config, handler: handler, created: time.Now(), state: runtimeapi.PodSandboxState_SANDBOX_READY}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		address, err := r.address()
		if err != nil {
			return "", err
		}
		s.address = address
	}
	r.sandboxes[s.id] = s
	return s.id, nil
}

// address takes one out of the range. Callers hold mu.
func (r *Runtime) address() (netip.Addr, error) {
	if n := len(r.free); n > 0 {
		a := r.free[0]
		r.free = r.free[1:]
		return a, nil
	}
	next := r.last.Next()
	if !r.addresses.Contains(next) {
		return netip.Addr{}, fmt.Errorf("no address left in %s", r.addresses)
	}
	r.last = next
	return next, nil
}

// id makes identifiers as long as real ones. Callers hold mu.
func (r *Runtime) id(kind string) string {
	r.next++
	return fmt.Sprintf("%064x", []byte(fmt.Sprintf("%.4s%s%08d", kind, r.addresses.Addr(), r.next)))[:64]
}

// StopPodSandbox stops the containers and gives the address back.
func (r *Runtime) StopPodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil || s.state == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		return nil
	}
	for _, c := range r.containers {
		if c.sandbox == s {
			r.end(c, 137, "Error")
		}
	}
	s.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if s.address.IsValid() {
		r.free = append(r.free, s.address)
	}
	return nil
}

// RemovePodSandbox forgets the sandbox and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for cid, c := range r.containers {
		if c.sandbox.id == id {
			delete(r.containers, cid)
		}
	}
	delete(r.sandboxes, id)
	return nil
}

// PodSandboxStatus is what the agent reads the pod's address from.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %q: not found", id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, nil
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	out := &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state, CreatedAt: s.created.UnixNano(), RuntimeHandler: s.handler,
		Labels: s.config.Labels, Annotations: s.config.Annotations, Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}
	if s.address.IsValid() {
		out.Network.Ip = s.address.String()
	}
	return out
}

// ListPodSandbox lists those that the filter lets through.
func (r *Runtime) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtimeapi.PodSandbox
	for _, s := range r.sandboxes {
		if filter.GetId() != "" && filter.Id != s.id || filter.GetState() != nil && filter.State.State != s.state || !selects(filter.GetLabelSelector(), s.config.Labels) {
			continue
		}
		list = append(list, &runtimeapi.PodSandbox{Id: s.id, Metadata: s.config.Metadata, State: s.state, CreatedAt: s.created.UnixNano(),
			Labels: s.config.Labels, Annotations: s.config.Annotations, RuntimeHandler: s.handler})
	}
	return list, nil
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// CreateContainer puts a container into a sandbox.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[sandboxID]
	if s == nil {
		return "", status.Errorf(codes.NotFound, "sandbox %q: not found", sandboxID)
	}
	c := &container{id: r.id("container"), sandbox: s, config: config, created: time.Now(), state: runtimeapi.ContainerState_CONTAINER_CREATED, done: make(chan struct{})}
	r.containers[c.id] = c
	r.tell(c, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return c.id, nil
}

// StartContainer lets it run, for as long as its pod says.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(id)
	if err != nil {
		return err
	}
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now()
	r.tell(c, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	span, code, err := c.fate()
	if err == nil {
		c.every, err = c.logEvery()
	}
	if err != nil {
		r.end(c, 128, "StartError")
		return nil
	}
	if span >= 0 {
		reason := "Completed"
		if code != 0 {
			reason = "Error"
		}
		c.ends = time.AfterFunc(span, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.end(c, code, reason)
		})
	}
	return nil
}

// fate is how long the container runs (negative: until it is stopped) and what
// it ends with.
func (c *container) fate() (time.Duration, int32, error) {
	span := time.Duration(-1)
	pod := c.sandbox.config
	if pod.Labels[jobLabel] != "" || pod.Labels["job-name"] != "" {
		span = jobTime
	}
	if c.config.Annotations[kindAnnotation] == "init" {
		return 0, 0, nil
	}
	if text := pod.Annotations[RunFor]; text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			return 0, 0, fmt.Errorf("annotation %s: %w", RunFor, err)
		}
	}
	code := 0
	if text := pod.Annotations[ExitCode]; text != "" {
		var err error
		if code, err = strconv.Atoi(text); err != nil {
			return 0, 0, fmt.Errorf("annotation %s: %w", ExitCode, err)
		}
		if span < 0 {
			span = 0
		}
	}
	return span, int32(code), nil
}

// end stops a running container. Callers hold mu.
func (r *Runtime) end(c *container, code int32, reason string) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING && c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return
	}
	if c.ends != nil {
		c.ends.Stop()
	}
	c.state, c.finished, c.exit, c.reason = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now(), code, reason
	close(c.done)
	r.tell(c, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// StopContainer ends a container at once and cleanly: it pretends to handle the
// signal.
func (r *Runtime) StopContainer(_ context.Context, id string, _ int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.end(c, 0, "Completed")
	}
	return nil
}

// RemoveContainer forgets a container.
func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.end(c, 137, "Error")
		delete(r.containers, id)
		r.tell(c, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return nil
}

func (r *Runtime) find(id string) (*container, error) {
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %q: not found", id)
}

// ListContainers lists those that the filter lets through.
func (r *Runtime) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtimeapi.Container
	for _, c := range r.containers {
		if filter.GetId() != "" && filter.Id != c.id || filter.GetPodSandboxId() != "" && filter.PodSandboxId != c.sandbox.id ||
			filter.GetState() != nil && filter.State.State != c.state || !selects(filter.GetLabelSelector(), c.config.Labels) {
			continue
		}
		list = append(list, &runtimeapi.Container{Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image,
			ImageRef: imageID(c.config.Image.GetImage()), ImageId: imageID(c.config.Image.GetImage()), State: c.state,
			CreatedAt: c.created.UnixNano(), Labels: c.config.Labels, Annotations: c.config.Annotations})
	}
	return list, nil
}

// ContainerStatus tells all about one container.
func (r *Runtime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(id)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	name := c.config.Image.GetUserSpecifiedImage()
	if name == "" {
		name = c.config.Image.GetImage()
	}
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state, Image: &runtimeapi.ImageSpec{Image: name}, ImageRef: imageID(name), ImageId: imageID(name),
		CreatedAt: c.created.UnixNano(), StartedAt: nanos(c.started), FinishedAt: nanos(c.finished), ExitCode: c.exit, Reason: c.reason,
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.config.LogPath,
		Resources: &runtimeapi.ContainerResources{Linux: c.config.GetLinux().GetResources()},
	}
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// UpdateContainerResources remembers the new resources.
func (r *Runtime) UpdateContainerResources(_ context.Context, id string, resources *runtimeapi.ContainerResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(id)
	if err != nil {
		return err
	}
	if c.config.Linux == nil {
		c.config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	c.config.Linux.Resources = resources.GetLinux()
	return nil
}

// ExecSync pretends that every command succeeds in silence.
func (r *Runtime) ExecSync(_ context.Context, id string, _ []string, _ time.Duration) (stdout, stderr []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.find(id)
	return nil, nil, err
}

// ReopenContainerLog has no log to open.
func (r *Runtime) ReopenContainerLog(context.Context, string) error { return nil }

// CheckpointContainer fails.
func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error {
	return errNoProcess
}

// CheckpointPod fails.
func (r *Runtime) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) error {
	return errNoProcess
}

// RestorePod fails.
func (r *Runtime) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, errNoProcess
}

// UpdatePodSandboxResources has no cgroups to change.
func (r *Runtime) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// GetContainerEvents sends what happens to containers until ctx ends. A reader
// that falls behind loses events, as with a real runtime: the agent looks at the
// whole state from time to time.
func (r *Runtime) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	r.mu.Lock()
	r.watchers[events] = ctx
	r.mu.Unlock()
	if connected != nil {
		connected(nil)
	}
	<-ctx.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, events)
	return ctx.Err()
}

// tell sends an event to all who watch. Callers hold mu.
func (r *Runtime) tell(c *container, what runtimeapi.ContainerEventType) {
	if len(r.watchers) == 0 {
		return
	}
	event := &runtimeapi.ContainerEventResponse{ContainerId: c.id, ContainerEventType: what, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: c.sandbox.status()}
	for events := range r.watchers {
		select {
		case events <- event:
		default:
		}
	}
}
