package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is what a probe is for.
type Kind string

const (
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
	Startup   Kind = "Startup"
)

// Config connects probes to their node agent.
type Config struct {
	// Exec runs a command in a container and says whether it ended well, and in
	// time. An error means that this is not known.
	Exec func(ctx context.Context, containerID string, command []string, timeout time.Duration) (ok bool, output string, err error)
	// Ask, if set, makes the probes instead: what does one say, and is it well?
	Ask func(Target) (ok bool, output string)
	// Changed is called when a verdict on one of a pod's containers changed.
	Changed func(pod types.UID)
	// Tell is called for each probe that fails or has something to say.
	Tell func(pod *corev1.Pod, container string, reason, text string)
}

// Target is a running container that is to be probed.
type Target struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	ID        string // of the running container
	IP        string // of the pod
	Started   time.Time
}

// Verdict is what the probes of one container found so far.
type Verdict struct {
	ID      string
	Started bool   // the startup probe passed, or there is none
	Ready   bool   // the readiness probe passed, or there is none
	Failed  string // the last output of the liveness or startup probe that gave up on the container
}

// Set holds the probe workers of a node.
type Set struct {
	cfg Config
	wg  sync.WaitGroup

	mu         sync.Mutex // protects the fields below
	closed     bool
	containers map[key]*container
}

type key struct {
	pod  types.UID
	name string
}

// container is a container under probes. Its set's mutex protects it.
type container struct {
	id      string
	cancel  context.CancelFunc
	verdict Verdict
}

// NewSet returns a set without probes.
func NewSet(cfg Config) *Set { return &Set{cfg: cfg, containers: map[key]*container{}} }

// Close stops all probes and waits for them.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.containers {
		c.cancel()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Watch sees to it that a container's probes run. A restarted container is
// another one: what was found of the former counts no more.
func (s *Set) Watch(t Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{t.Pod.UID, t.Container.Name}
	if c := s.containers[k]; c != nil {
		if c.id == t.ID {
			return
		}
		c.cancel()
	}
	if s.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &container{id: t.ID, cancel: cancel, verdict: Verdict{
		ID: t.ID, Started: t.Container.StartupProbe == nil, Ready: t.Container.ReadinessProbe == nil,
	}}
	s.containers[k] = c
	for kind, p := range map[Kind]*corev1.Probe{Liveness: t.Container.LivenessProbe, Readiness: t.Container.ReadinessProbe, Startup: t.Container.StartupProbe} {
		if p != nil {
			s.wg.Go(func() { s.work(ctx, c, t, kind, p) })
		}
	}
}

// Stop ends the probes of one container that is about to be stopped, except
// that its readiness goes on being told as it was.
func (s *Set) Stop(pod types.UID, name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[key{pod, name}]; c != nil && c.id == id {
		c.cancel()
	}
}

// Forget ends all probes of a pod.
func (s *Set) Forget(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, c := range s.containers {
		if k.pod == pod {
			c.cancel()
			delete(s.containers, k)
		}
	}
}

// Result is the verdict on a container so far.
func (s *Set) Result(pod types.UID, name string) (Verdict, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[key{pod, name}]; c != nil {
		return c.verdict, true
	}
	return Verdict{}, false
}

// work probes until the container goes or the verdict is final: a startup probe
// that passed, and a liveness or startup probe that gave up, are done.
func (s *Set) work(ctx context.Context, c *container, t Target, kind Kind, p *corev1.Probe) {
	period := time.Duration(max(p.PeriodSeconds, 1)) * time.Second
	// Probes of pods that came up together should not stay in step.
	wait := time.Until(t.Started.Add(time.Duration(p.InitialDelaySeconds) * time.Second))
	if time.Since(t.Started) > period {
		wait = time.Duration(rand.Int64N(int64(period)))
	}
	var run tally
	for {
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = period
		if kind != Startup && !s.started(c) {
			wait = min(period, time.Second)
			continue
		}
		f := s.once(ctx, t, p)
		if ctx.Err() != nil {
			return
		}
		s.tell(t, kind, f)
		// A probe that could not be made says nothing about the container.
		if f.err != nil || !run.decided(f.ok, p) {
			continue
		}
		if s.judge(c, kind, f.ok, f.output) {
			s.cfg.Changed(t.Pod.UID)
		}
		if kind == Startup || kind == Liveness && !f.ok {
			return
		}
	}
}

// tell tells of a probe that did not simply pass.
func (s *Set) tell(t Target, kind Kind, f finding) {
	reason, text := "Unhealthy", ""
	switch {
	case f.err != nil:
		text = fmt.Sprintf("%s probe errored and resulted in unknown state: %v", kind, f.err)
	case !f.ok:
		text = fmt.Sprintf("%s probe failed: %s", kind, f.output)
	case f.warning:
		reason, text = "ProbeWarning", fmt.Sprintf("%s probe warning: %s", kind, f.output)
	default:
		return
	}
	s.cfg.Tell(t.Pod, t.Container.Name, reason, text)
}

// finding is what one probe found.
type finding struct {
	ok      bool
	warning bool // passed, but
	output  string
	err     error // it could not be made
}

// tally counts equal results in a row.
type tally struct {
	ok    bool
	count int32
}

// decided says whether the latest result has been seen often enough to count.
func (r *tally) decided(ok bool, p *corev1.Probe) bool {
	if ok != r.ok {
		r.ok, r.count = ok, 0
	}
	r.count++
	if ok {
		return r.count >= max(p.SuccessThreshold, 1)
	}
	return r.count >= max(p.FailureThreshold, 1)
}

func (s *Set) started(c *container) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.verdict.Started
}

// judge enters a decided result, and says whether that changed the verdict.
func (s *Set) judge(c *container, kind Kind, ok bool, output string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := c.verdict
	switch kind {
	case Startup:
		c.verdict.Started = ok
	case Readiness:
		c.verdict.Ready = ok
	}
	if kind != Readiness && !ok {
		c.verdict.Failed = string(kind) + " probe failed: " + output
	}
	return c.verdict != before
}

// once probes one time.
func (s *Set) once(ctx context.Context, t Target, p *corev1.Probe) finding {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	switch {
	case s.cfg.Ask != nil:
		ok, output := s.cfg.Ask(t)
		return finding{ok: ok, output: output}
	case p.Exec != nil:
		return s.exec(ctx, t, p.Exec.Command, timeout)
	case p.HTTPGet != nil:
		return probeHTTP(ctx, t, p.HTTPGet, timeout)
	case p.TCPSocket != nil:
		return probeTCP(ctx, t, p.TCPSocket, timeout)
	case p.GRPC != nil:
		return probeGRPC(ctx, t, p.GRPC, timeout)
	}
	return finding{err: fmt.Errorf("missing probe handler for %s_%s:%s", t.Pod.Name, t.Pod.Namespace, t.Container.Name)}
}
