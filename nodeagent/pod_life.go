package nodeagent

import (
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// want is what should be true of a pod: its specification, and, once it must
// end, why and how soon.
type want struct {
	pod  *corev1.Pod
	stop *stop
}

// stop says that a pod has to end. An empty phase leaves it to the containers'
// exit codes.
type stop struct {
	phase           corev1.PodPhase
	reason, message string
	grace           int64 // seconds
	disrupts        bool  // nothing is wrong with the pod: it makes room for others
}

// have is what the runtime says of a pod, together with what the probes found
// and which starts failed lately.
type have struct {
	sandboxes  []sandbox                              // newest first
	containers map[string][]containerStatus           // newest first, by name
	stalled    map[string]stall                       // by container name; "" is the sandbox
	probed     map[string]probed                      // by container name
	applied    map[string]corev1.ResourceRequirements // what running containers have, by id
	// crashing is the longest wait between two starts of a failing container.
	crashing time.Duration
}

// sandbox is one attempt at a pod's sandbox.
type sandbox struct {
	id      string
	ready   bool
	attempt uint32
	created time.Time
	ips     []string
	host    bool // in the host's network
	handler string
}

// containerStatus is one attempt at a container.
type containerStatus struct {
	id, sandbox, name string
	state             runState
	attempt           uint32
	started, finished time.Time
	exit              int32
	reason, message   string
	image, imageRef   string
	hash              string
	backoff           time.Duration // to wait after its end before the next start
	logPath           string
	user              *corev1.ContainerUser
	signal            string
}

// runState is a container's state as the runtime sees it.
type runState int

const (
	stateUnknown runState = iota
	stateCreated
	stateRunning
	stateExited
)

// stall is a start that failed and is not to be tried again before until.
type stall struct {
	reason, message string
	until           time.Time
	hash            string // of the container as it was then
}

// probed is what the probes of a container found.
type probed struct {
	id      string // of the container that was probed
	started bool   // the startup probe passed, or there is none
	ready   bool
	failed  string // why it has to be restarted: what liveness or startup probe said
}

// action is what a worker can do to a pod.
type action int

const (
	doNothing action = iota
	doSandbox        // make a sandbox
	doStart          // start a container
	doKill           // stop containers, all at the same time
	doResize         // change the resources of running containers
	doRemove         // take containers out of the runtime
	doDrop           // stop the sandbox
	doFinish         // nothing runs any more: give back what the pod holds
)

// step is the next thing to do to a pod. With doNothing, at is when to look
// again even if nothing happens (zero: never).
type step struct {
	do        action
	container *corev1.Container
	attempt   uint32
	backoff   time.Duration // to note on the container that is started
	kill      []victim
	hooks     []victim // are next to be killed: their preStop hooks run already
	replace   bool     // they are started again at once
	resize    []*corev1.Container
	remove    []string // ids
	why       string
	at        time.Time
}

// victim is a container to be stopped.
type victim struct {
	containerStatus
	spec  *corev1.Container // nil when the pod no longer has it
	why   string            // the message of the Killing event
	grace int64
}

// next decides the next step in a pod's life.
//
//	          sandbox           init            containers
//	(nothing) -------> sandboxed ----> initialised -----> running
//	    ^                  |  ^ restart |   ^ restart      |   |
//	    |     sandbox lost |  +---------+   +--------------+   | all done, stop asked,
//	    +------- drop -----+---------------------------------- | deadline passed
//	                                                           v
//	                    finished <---- dropped <---- killing (main, then sidecars)
//
// It is pure: what it needs to know is in w and h, and what it wants done is in
// the step. The worker does it, looks again, and asks again.
func next(w want, h have, now time.Time) step {
	if w.stop != nil {
		return nextStopping(w, h, w.stop.grace, w.stop.message, now)
	}
	if p := h.phase(w.pod); p == corev1.PodFailed || p == corev1.PodSucceeded {
		return nextStopping(w, h, graceOf(w.pod), "", now)
	}
	sb, ok := h.sandbox()
	if !ok || !sb.ready || sb.host != w.pod.Spec.HostNetwork || len(sb.ips) == 0 && !sb.host {
		return nextSandbox(w, h, now)
	}
	if s, ok := nextReset(w.pod, h); ok {
		return s
	}
	if kill := h.misfits(w.pod); len(kill) > 0 {
		return step{do: doKill, kill: kill, replace: true}
	}
	var wake time.Time
	if s, ok := nextEphemeral(w.pod, h, now, &wake); ok {
		return s
	}
	s, initialised := nextInit(w.pod, h, now, &wake)
	if s.do != doNothing {
		return s
	}
	if initialised {
		for i := range w.pod.Spec.Containers {
			if s := h.start(w.pod, &w.pod.Spec.Containers[i], now, &wake); s.do != doNothing {
				return s
			}
		}
	}
	if h.isUnsized(w.pod) && !h.waiting(stalledResize, "", now, &wake) {
		return step{do: doResize, resize: h.unsized(w.pod)}
	}
	return step{at: wake}
}

// nextStopping ends a pod: ordinary containers first, then sidecars in the
// reverse of their order, then the sandbox. All preStop hooks run at the
// beginning.
func nextStopping(w want, h have, grace int64, why string, now time.Time) step {
	var mains, sidecars []victim
	for name, all := range h.containers {
		for _, c := range all {
			if c.state != stateRunning && c.state != stateUnknown {
				continue // one that was only created goes with its sandbox
			}
			v := victim{containerStatus: c, spec: containerNamed(w.pod, name), grace: grace, why: "Stopping container " + name}
			if why != "" && w.stop != nil && w.stop.phase != "" {
				v.why = why
			}
			if isSidecar(w.pod, name) {
				sidecars = append(sidecars, v)
				continue
			}
			mains = append(mains, v)
		}
	}
	if len(mains) > 0 {
		slices.SortFunc(mains, byName)
		return step{do: doKill, kill: mains, hooks: sidecars}
	}
	if len(sidecars) > 0 {
		last := slices.MaxFunc(sidecars, func(a, b victim) int {
			return initIndex(w.pod, a.name) - initIndex(w.pod, b.name)
		})
		last.grace = graceLeft(w.pod, grace, now)
		rest := slices.DeleteFunc(sidecars, func(v victim) bool { return v.id == last.id })
		return step{do: doKill, kill: []victim{last}, hooks: rest}
	}
	for _, sb := range h.sandboxes {
		if sb.ready {
			return step{do: doDrop}
		}
	}
	return step{do: doFinish}
}

// nextSandbox makes a sandbox, after clearing away what is left of a lost one.
func nextSandbox(w want, h have, now time.Time) step {
	sb, had := h.sandbox()
	if had {
		var left []victim
		for name, all := range h.containers {
			for _, c := range all {
				if c.state == stateRunning || c.state == stateUnknown {
					left = append(left, victim{containerStatus: c, spec: containerNamed(w.pod, name), grace: graceOf(w.pod), why: "Pod sandbox changed, it will be killed and re-created."})
				}
			}
		}
		if len(left) > 0 {
			slices.SortFunc(left, byName)
			return step{do: doKill, kill: left}
		}
		if sb.ready {
			return step{do: doDrop, why: "Pod sandbox changed, it will be killed and re-created."}
		}
	}
	if st, ok := h.stalled[""]; ok && now.Before(st.until) {
		return step{at: st.until}
	}
	s := step{do: doSandbox}
	if had {
		s.attempt = sb.attempt + 1
		s.why = "Pod sandbox changed, it will be killed and re-created."
	}
	return s
}

// nextEphemeral starts ephemeral containers, once each.
func nextEphemeral(pod *corev1.Pod, h have, now time.Time, wake *time.Time) (step, bool) {
	for i := range pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if len(h.containers[c.Name]) > 0 || h.waiting(c.Name, containerHash(c), now, wake) {
			continue
		}
		return step{do: doStart, container: c}, true
	}
	return step{}, false
}

// nextInit brings the init containers along, and says whether the ordinary
// containers may start. Sidecars are kept running for as long as the pod lives.
func nextInit(pod *corev1.Pod, h have, now time.Time, wake *time.Time) (step, bool) {
	begun := h.begun(pod)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cur, exists := h.current(c.Name)
		if api.IsSidecar(c) {
			if s := h.start(pod, c, now, wake); s.do != doNothing {
				return s, false
			}
			if !begun && (!exists || cur.state != stateRunning || !h.startedUp(c, cur)) {
				return step{}, false
			}
			continue
		}
		if begun || exists && cur.state == stateExited && cur.exit == 0 {
			continue
		}
		if exists && cur.state == stateRunning {
			return step{}, false
		}
		return h.start(pod, c, now, wake), false
	}
	return step{}, true
}

// start is the step that starts c if it is to be started now. When it has to
// wait, wake is moved up to the time of the start.
func (h have) start(pod *corev1.Pod, c *corev1.Container, now time.Time, wake *time.Time) step {
	cur, exists := h.current(c.Name)
	if exists && cur.state == stateRunning || h.waiting(c.Name, containerHash(c), now, wake) {
		return step{}
	}
	s := step{do: doStart, container: c, attempt: h.attempts(pod, c.Name)}
	if !exists {
		if h.doneBefore(pod, c) {
			return step{}
		}
		return s
	}
	if cur.state == stateExited && !mayRestart(pod, c, cur.exit) {
		return step{}
	}
	wait, following := h.crashWait(c, cur)
	if at := cur.finished.Add(wait); cur.state == stateExited && now.Before(at) {
		sooner(wake, at)
		return step{}
	}
	s.backoff = following
	return s
}

const (
	crashFirst = 10 * time.Second
	crashCalm  = 10 * time.Minute // running for as long clears the record
)

// crashWait is how long to wait after the end of an attempt at a container, and
// what its successor should note as its own wait. The first restart is
// immediate, and so is that of a container whose image was changed.
func (h have) crashWait(spec *corev1.Container, c containerStatus) (wait, following time.Duration) {
	longest := h.crashing
	if longest == 0 {
		longest = 5 * time.Minute
	}
	first := min(crashFirst, longest)
	if c.backoff == 0 || c.hash != "" && c.hash != containerHash(spec) || !c.started.IsZero() && c.finished.Sub(c.started) > crashCalm {
		return 0, first
	}
	return c.backoff, min(2*c.backoff, longest)
}

// misfits are running containers that have to be stopped although the pod goes
// on: their image changed, or a probe failed, or they get other resources and
// can't take them over.
func (h have) misfits(pod *corev1.Pod) []victim {
	var kill []victim
	check := func(c *corev1.Container) {
		cur, ok := h.current(c.Name)
		if !ok || cur.state != stateRunning {
			return
		}
		if cur.hash != "" && cur.hash != containerHash(c) {
			kill = append(kill, victim{containerStatus: cur, spec: c, grace: graceOf(pod),
				why: fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)})
			return
		}
		if h.resizeRestarts(pod, c, cur) {
			kill = append(kill, victim{containerStatus: cur, spec: c, grace: graceOf(pod),
				why: fmt.Sprintf("Container %s resize requires restart", c.Name)})
			return
		}
		p := h.probed[c.Name]
		if p.id != cur.id || p.failed == "" {
			return
		}
		grace := graceOf(pod)
		probe, kind := c.LivenessProbe, "liveness"
		if !p.started {
			probe, kind = c.StartupProbe, "startup"
		}
		if probe != nil && probe.TerminationGracePeriodSeconds != nil {
			grace = *probe.TerminationGracePeriodSeconds
		}
		why := fmt.Sprintf("Container %s failed %s probe, will be restarted", c.Name, kind)
		if !api.IsSidecar(c) && !mayRestart(pod, c, 137) {
			why = "Container " + c.Name + " failed " + kind + " probe"
		}
		kill = append(kill, victim{containerStatus: cur, spec: c, grace: grace, why: why})
	}
	for i := range pod.Spec.InitContainers {
		check(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		check(&pod.Spec.Containers[i])
	}
	return kill
}

// sandbox is the newest one.
func (h have) sandbox() (sandbox, bool) {
	if len(h.sandboxes) == 0 {
		return sandbox{}, false
	}
	return h.sandboxes[0], true
}

// current is the newest attempt at a container in the newest sandbox: those of
// earlier sandboxes only count as history.
func (h have) current(name string) (containerStatus, bool) {
	all := h.containers[name]
	if len(all) == 0 {
		return containerStatus{}, false
	}
	if sb, ok := h.sandbox(); ok && all[0].sandbox != "" && all[0].sandbox != sb.id {
		return containerStatus{}, false
	}
	return all[0], true
}

// doneBefore says whether c finished for good in an earlier sandbox. Init
// containers run again in each sandbox.
func (h have) doneBefore(pod *corev1.Pod, c *corev1.Container) bool {
	all := h.containers[c.Name]
	return len(all) > 0 && initIndex(pod, c.Name) < 0 && all[0].state == stateExited && !mayRestart(pod, c, all[0].exit)
}

// begun says whether ordinary containers were started in this sandbox, which
// proves that initialisation was complete.
func (h have) begun(pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		if _, ok := h.current(pod.Spec.Containers[i].Name); ok {
			return true
		}
	}
	return false
}

// attempts is the number of the next attempt. When the runtime has forgotten
// (it was purged), the pod's status in the API still knows.
func (h have) attempts(pod *corev1.Pod, name string) uint32 {
	if all := h.containers[name]; len(all) > 0 {
		return all[0].attempt + 1
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, s := range list {
			if s.Name == name && s.ContainerID != "" {
				return uint32(s.RestartCount) + 1
			}
		}
	}
	return 0
}

// waiting says whether name's start failed lately, and it is not another image
// by now; wake is moved up to the time of the next try.
func (h have) waiting(name, hash string, now time.Time, wake *time.Time) bool {
	st, ok := h.stalled[name]
	if !ok || !now.Before(st.until) || st.hash != "" && st.hash != hash {
		return false
	}
	sooner(wake, st.until)
	return true
}

// startedUp says whether c, as running in cur, passed its startup probe.
func (h have) startedUp(c *corev1.Container, cur containerStatus) bool {
	if c.StartupProbe == nil {
		return true
	}
	p := h.probed[c.Name]
	return p.id == cur.id && p.started
}

func sooner(wake *time.Time, at time.Time) {
	if wake.IsZero() || at.Before(*wake) {
		*wake = at
	}
}

func byName(a, b victim) int {
	switch {
	case a.name < b.name:
		return -1
	case a.name > b.name:
		return 1
	}
	return 0
}

// mayRestart applies the restart policy of a container that ended with exit.
func mayRestart(pod *corev1.Pod, c *corev1.Container, exit int32) bool {
	if isEphemeral(pod, c.Name) {
		return false
	}
	if api.RestartRule(c, exit) != nil {
		return true
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	} else if initIndex(pod, c.Name) >= 0 && policy == corev1.RestartPolicyAlways {
		policy = corev1.RestartPolicyOnFailure
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exit != 0
	}
	return true
}

func isSidecar(pod *corev1.Pod, name string) bool {
	i := initIndex(pod, name)
	return i >= 0 && api.IsSidecar(&pod.Spec.InitContainers[i])
}

func initIndex(pod *corev1.Pod, name string) int {
	return slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

func isEphemeral(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for _, c := range containersOf(pod) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// containersOf lists a pod's containers of all sorts, in order of starting.
func containersOf(pod *corev1.Pod) []*corev1.Container {
	var all []*corev1.Container
	for i := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// graceLeft is what those before left of a deleted pod's grace. A little is
// always left, unless the pod was given none.
func graceLeft(pod *corev1.Pod, grace int64, now time.Time) int64 {
	if pod.DeletionTimestamp == nil || grace <= 0 {
		return grace
	}
	left := int64(math.Ceil(pod.DeletionTimestamp.Sub(now).Seconds()))
	return min(grace, max(left, graceLeast))
}

// graceLeast is the seconds that a container gets at least, however long those
// took that had to end before it.
const graceLeast = 2

// graceOf is how long a pod's containers get to end by themselves, in seconds.
func graceOf(pod *corev1.Pod) int64 {
	if g := pod.DeletionGracePeriodSeconds; g != nil && pod.DeletionTimestamp != nil {
		return *g
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return *g
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}
