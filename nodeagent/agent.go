package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"orrery.dev/client"
	"orrery.dev/nodeagent/probe"
	"orrery.dev/nodeagent/volume"
	"orrery.dev/trace"
)

// Config is what an agent needs to know. Only NodeName, Runtime, Images and the
// two directories have no default.
type Config struct {
	NodeName string
	NodeIP   string
	Version  string // of the kubelet, as the node's status tells it
	Kubelet  kubeletconfig.KubeletConfiguration
	Labels   map[string]string
	Taints   []corev1.Taint

	// REST reaches the API server, which need not be up yet. Without it (and
	// without Clients) the agent runs static pods only.
	REST    *rest.Config
	Clients kubernetes.Interface // in place of REST

	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService

	RootDir    string // pods' directories and volumes
	PodLogsDir string
	// Pages are further ones of the HTTP API, by path; callers need access to the
	// node subresource of that name.
	Pages map[string]http.Handler

	// PodCIDR is told the node's share of the pods' addresses, as soon as it is
	// known and whenever it changes: the network can then be configured.
	PodCIDR func(ctx context.Context, podCIDR string) error

	// Simulated leaves the machine alone: no volumes, cgroups or host files, no
	// probes that leave it, and a server of its own only where it has a
	// certificate. The node's size is then Capacity.
	Simulated bool
	Capacity  corev1.ResourceList
	// Pods and Events are shared by the agents of one process; without them
	// an agent has its own watch and its own recorder.
	Pods   *SharedPods
	Events record.EventRecorder
	Server *SharedServer // serves the HTTP API of simulated agents; nil: nobody does

	// Trace tells of each step on a pod; nil: nobody is told.
	Trace *trace.Tracer

	Log *slog.Logger
}

// Agent runs the pods of one node.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	clients kubernetes.Interface // nil: standalone
	events  record.EventRecorder
	host    hostFacts
	started time.Time
	rooms   sync.Mutex // held while it is decided whether there is room for a pod

	pods     *podSet
	statuses *statusWriter
	images   *imagePuller
	volumes  *volume.Host
	probes   *probe.Set
	follower *follower
	cgroups  *cgroups
	pressure *pressure

	background   *background
	trust        *trustBundles
	certificates *podCertificates
	users        *userRanges
	services     corelisters.ServiceLister // nil when standalone or simulated
	synced       func() bool               // the services were read once

	serviceInformer cache.SharedIndexInformer

	node            atomic.Pointer[corev1.Node] // as last seen in the API
	nodeChanged     chan struct{}               // one slot: the node's status has to be looked at
	runtimeName     atomic.Value                // string, "containerd"
	networkErr      atomic.Pointer[string]      // why the pod network is not usable
	runtimeErr      atomic.Pointer[string]      // why the runtime is not usable
	apiPodsSeen     atomic.Bool
	staticSeen      atomic.Bool
	runtimeFeatures atomic.Pointer[runtimeapi.StatusResponse]
	podCIDR         atomic.Pointer[string] // as PodCIDR was told
	cpuRate         rate
	handler         func() http.Handler // of the HTTP API, made when it is needed
	wg              sync.WaitGroup      // workers that are at work
}

// Run runs an agent until ctx ends, and leaves its pods running.
func Run(ctx context.Context, cfg Config) error {
	a, err := newAgent(ctx, cfg)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

func newAgent(ctx context.Context, cfg Config) (*Agent, error) {
	if cfg.NodeName == "" || cfg.Runtime == nil || cfg.Images == nil {
		return nil, errors.New("node agent: a node name, a runtime and an image service are needed")
	}
	setDefaults(&cfg)
	if err := checkPullPolicy(&cfg.Kubelet); err != nil {
		return nil, fmt.Errorf("node agent's configuration: %w", err)
	}
	a := &Agent{cfg: cfg, log: cfg.Log.With("node", cfg.NodeName), started: time.Now(), nodeChanged: make(chan struct{}, 1), synced: func() bool { return true }}
	a.runtimeName.Store("containerd")
	a.clients = cfg.Clients
	if a.clients == nil && cfg.REST != nil {
		var err error
		if a.clients, err = kubernetes.NewForConfig(client.ForComponent(cfg.REST, "kubelet")); err != nil {
			return nil, fmt.Errorf("API client of node %s: %w", cfg.NodeName, err)
		}
	}
	a.handler = sync.OnceValue(a.newHandler)
	a.host = readHost(cfg)
	a.pods = newPodSet(a)
	a.statuses = newStatusWriter(a)
	a.images = newImagePuller(a)
	a.pressure = newPressure(a)
	a.events = cfg.Events
	if a.events == nil && a.clients != nil {
		a.events = client.Events(ctx, a.clients, "kubelet", cfg.NodeName)
	}
	if a.events == nil {
		a.events = &record.FakeRecorder{}
	}
	if cfg.Simulated {
		a.probes = probe.NewSet(probe.Config{Ask: pretendProbe, Changed: a.pods.wake, Tell: a.probeTold})
		return a, nil
	}
	if a.clients != nil {
		a.newServices()
	}
	for _, dir := range []string{filepath.Join(cfg.RootDir, "pods"), filepath.Join(cfg.RootDir, "plugins"), cfg.PodLogsDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, fmt.Errorf("node agent's directories: %w", err)
		}
	}
	a.background = newBackground()
	a.follower, a.trust, a.certificates = newFollower(a), newTrustBundles(a), newPodCertificates(a)
	a.users = &userRanges{dir: filepath.Join(cfg.RootDir, "pods")}
	a.volumes = &volume.Host{RootDir: cfg.RootDir, Objects: &volumeObjects{objects{a: a}}, NodeAllocatable: a.allocatable}
	a.probes = probe.NewSet(probe.Config{Exec: a.probeExec, Changed: a.pods.wake, Tell: a.probeTold})
	a.cgroups = newCgroups(a)
	return a, nil
}

// run starts the parts in their order and waits for all of them.
func (a *Agent) run(ctx context.Context) error {
	parts := []struct {
		name string
		on   bool
		run  func(context.Context) error
	}{
		{"runtime events", true, a.watchRuntime},
		{"status", a.clients != nil, a.statuses.run},
		{"api pods", a.clients != nil, a.watchPods},
		{"objects that pods refer to", a.clients != nil && !a.cfg.Simulated, func(ctx context.Context) error { return a.background.run(ctx) }},
		{"api services", a.clients != nil && !a.cfg.Simulated, a.watchServices},
		{"static pods", a.cfg.Kubelet.StaticPodPath != "", a.watchManifests},
		{"node", a.clients != nil && *a.cfg.Kubelet.RegisterNode, a.keepNode},
		{"watch of the node", a.clients != nil && !a.cfg.Simulated, a.watchNode},
		{"lease", a.clients != nil, a.keepLease},
		{"housekeeping", true, a.keepHouse},
		{"image collection", !a.cfg.Simulated, a.collectImages},
		{"eviction", !a.cfg.Simulated, a.pressure.run},
		{"log rotation", !a.cfg.Simulated, a.rotateLogs},
		{"server", *a.cfg.Kubelet.EnableServer && a.cfg.Server == nil && (!a.cfg.Simulated || a.cfg.Kubelet.TLSCertFile != ""), a.serve},
		{"shared server", a.cfg.Server != nil, a.serveShared},
		{"healthz", !a.cfg.Simulated && *a.cfg.Kubelet.HealthzPort > 0, a.serveHealthz},
	}
	if cidr := a.cfg.Kubelet.PodCIDR; cidr != "" {
		a.setPodCIDR(ctx, cidr)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, p := range parts {
		if !p.on {
			continue
		}
		wg.Go(func() {
			if err := p.run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("node agent's %s: %w", p.name, err))
			}
		})
	}
	<-ctx.Done()
	wg.Wait()
	a.pods.close()
	a.wg.Wait()
	a.probes.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// newServices keeps the services at hand whose addresses go into containers'
// environments.
func (a *Agent) newServices() {
	a.serviceInformer = coreinformers.NewServiceInformer(a.clients, corev1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	a.services = corelisters.NewServiceLister(a.serviceInformer.GetIndexer())
	a.synced = a.serviceInformer.HasSynced
}

func (a *Agent) watchServices(ctx context.Context) error {
	a.serviceInformer.RunWithContext(ctx)
	return nil
}

// How often the runtime is listed, with and without its events.
const (
	relistFollowing = 10 * time.Second
	relistBlind     = time.Second
)

// watchRuntime wakes the worker of each pod that something happens to: from
// the runtime's events, and from a listing now and then in case one was missed.
func (a *Agent) watchRuntime(ctx context.Context) error {
	events := make(chan *runtimeapi.ContainerEventResponse, 64)
	var wg sync.WaitGroup
	defer wg.Wait()
	var following atomic.Bool
	wg.Go(func() {
		for ctx.Err() == nil {
			err := a.cfg.Runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { following.Store(true) })
			following.Store(false)
			if err != nil && ctx.Err() == nil {
				a.log.Debug("runtime events ended", "err", err)
			}
			sleep(ctx, 5*time.Second)
		}
	})
	seen := map[string]runState{}
	tick := time.NewTimer(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			a.pods.wake(podUID(e.GetPodSandboxStatus().GetLabels(), e.GetPodSandboxStatus().GetMetadata().GetUid()))
			continue
		case <-tick.C:
		}
		seen = a.relist(ctx, seen)
		tick.Reset(relistBlind)
		if following.Load() {
			tick.Reset(relistFollowing)
		}
	}
}

// relist compares the runtime's containers and sandboxes with those seen last,
// and wakes the pods that changed.
func (a *Agent) relist(ctx context.Context, seen map[string]runState) map[string]runState {
	now := map[string]runState{}
	sandboxes, err := a.cfg.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		a.runtimeFailed(err)
		return seen
	}
	containers, err := a.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		a.runtimeFailed(err)
		return seen
	}
	note := func(id string, state runState, labels map[string]string) {
		now[id] = state
		if old, ok := seen[id]; !ok || old != state {
			a.pods.wake(podUID(labels, ""))
		}
	}
	for _, s := range sandboxes {
		note(s.Id, runState(s.State), s.Labels)
	}
	for _, c := range containers {
		note(c.Id, runState(c.State), c.Labels)
	}
	return now
}

func (a *Agent) runtimeFailed(err error) {
	text := err.Error()
	if a.runtimeErr.Swap(&text) == nil {
		a.log.Warn("container runtime does not answer", "err", err)
	}
	a.touchNode()
}

// touchNode asks for a look at the node's status.
func (a *Agent) touchNode() {
	select {
	case a.nodeChanged <- struct{}{}:
	default:
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
