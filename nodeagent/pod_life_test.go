package nodeagent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// pod makes a pod of containers: "name" is an ordinary one, "init:name" an init
// container, "side:name" a sidecar.
func pod(policy corev1.RestartPolicy, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
	p.Spec.RestartPolicy = policy
	p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	for _, text := range containers {
		kind, name, ok := strings.Cut(text, ":")
		if !ok {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: text, Image: "i"})
			continue
		}
		c := corev1.Container{Name: name, Image: "i"}
		if kind == "side" {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

// sandboxed is a pod with a ready sandbox and these containers, the newest
// attempt of each first.
func sandboxed(containers ...containerStatus) have {
	h := have{sandboxes: []sandbox{{id: "s", ready: true, ips: []string{"10.0.0.1"}}}, containers: map[string][]containerStatus{}}
	for _, c := range containers {
		h.containers[c.name] = append(h.containers[c.name], c)
	}
	return h
}

func running(name string) containerStatus {
	return containerStatus{id: name + "-id", name: name, sandbox: "s", state: stateRunning, started: ago(time.Minute), hash: containerHash(&corev1.Container{Name: name, Image: "i"})}
}

func exited(name string, code int32, since time.Duration) containerStatus {
	return containerStatus{id: name + "-id", name: name, sandbox: "s", state: stateExited, exit: code, started: ago(since + time.Second), finished: ago(since)}
}

func with(c containerStatus, change func(*containerStatus)) containerStatus {
	change(&c)
	return c
}

// String is how a test names a step.
func describe(s step) string {
	switch s.do {
	case doStart:
		return fmt.Sprintf("start %s #%d", s.container.Name, s.attempt)
	case doKill:
		var names []string
		for _, v := range s.kill {
			names = append(names, v.name)
		}
		return "kill " + strings.Join(names, " ")
	case doRemove:
		return "remove " + strings.Join(s.remove, " ")
	case doSandbox:
		return fmt.Sprintf("sandbox #%d", s.attempt)
	case doNothing:
		if !s.at.IsZero() {
			return "wait " + s.at.Sub(now).String()
		}
		return "wait"
	}
	return s.do.String()
}

func TestNext(t *testing.T) {
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	stopped := func(h have) have { h.sandboxes[0].ready = false; return h }
	stalledAt := func(h have, name string, d time.Duration) have {
		h.stalled = map[string]stall{name: {reason: "x", until: now.Add(d)}}
		return h
	}
	failing := func(h have, name string, started bool) have {
		h.probed = map[string]probed{name: {id: name + "-id", started: started, failed: "no"}}
		return h
	}
	withStartup := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.InitContainers[0].StartupProbe = &corev1.Probe{}
		return p
	}
	debugged := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		return p
	}
	// sized is a pod that asks for 2 CPUs while its container a has 1.
	sized := func(p *corev1.Pod, policy corev1.ResourceResizeRestartPolicy) *corev1.Pod {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: quantity("2")}
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: policy}}
		return p
	}
	applied := func(h have, cpu string) have {
		h.applied = map[string]corev1.ResourceRequirements{"a-id": {Requests: corev1.ResourceList{corev1.ResourceCPU: quantity(cpu)}}}
		return h
	}
	// anew is a pod that begins anew when its container a ends with 42.
	anew := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		return p
	}
	stop := &stop{grace: 5}
	tests := []struct {
		name string
		pod  *corev1.Pod
		stop bool
		have have
		want string
	}{
		{"nothing yet", pod(always, "a"), false, have{}, "sandbox #0"},
		{"sandbox failed lately", pod(always, "a"), false, stalledAt(have{}, "", time.Second), "wait 1s"},
		{"sandboxed", pod(always, "a", "b"), false, sandboxed(), "start a #0"},
		{"one started", pod(always, "a", "b"), false, sandboxed(running("a")), "start b #0"},
		{"all run", pod(always, "a", "b"), false, sandboxed(running("a"), running("b")), "wait"},
		{"image trouble does not hold up others", pod(always, "a", "b"), false, stalledAt(sandboxed(), "a", time.Second), "start b #0"},
		{"image trouble, image changed", pod(always, "a"), false, have{sandboxes: sandboxed().sandboxes, stalled: map[string]stall{"a": {until: now.Add(time.Second), hash: "old"}}}, "start a #0"},
		{"only image trouble left", pod(always, "a", "b"), false, stalledAt(sandboxed(running("b")), "a", time.Second), "wait 1s"},

		{"first init", pod(always, "init:i", "init:j", "a"), false, sandboxed(), "start i #0"},
		{"init runs", pod(always, "init:i", "init:j", "a"), false, sandboxed(running("i")), "wait"},
		{"init done", pod(always, "init:i", "init:j", "a"), false, sandboxed(exited("i", 0, 0)), "start j #0"},
		{"inits done", pod(always, "init:i", "a"), false, sandboxed(exited("i", 0, 0)), "start a #0"},
		{"init failed", pod(always, "init:i", "a"), false, sandboxed(exited("i", 1, 0)), "start i #1"},
		{"init failed for good", pod(never, "init:i", "a"), false, sandboxed(exited("i", 1, 0)), "drop"},
		{"init collected, containers run", pod(always, "init:i", "a"), false, sandboxed(running("a")), "wait"},

		{"sidecar first", pod(always, "side:s", "a"), false, sandboxed(), "start s #0"},
		{"sidecar runs", pod(always, "side:s", "a"), false, sandboxed(running("s")), "start a #0"},
		{"sidecar not started up", withStartup(pod(always, "side:s", "a")), false, sandboxed(running("s")), "wait"},
		{"sidecar ended", pod(never, "side:s", "a"), false, sandboxed(exited("s", 0, 0), running("a")), "start s #1"},
		{"sidecar waits, container restarts", pod(always, "side:s", "a"), false,
			sandboxed(with(exited("s", 1, 0), func(c *containerStatus) { c.backoff = 10 * time.Second }), exited("a", 1, 0)), "start a #1"},
		{"sidecar is stopped at the end", pod(never, "side:s", "a"), false, sandboxed(running("s"), exited("a", 0, 0)), "kill s"},

		{"restart", pod(always, "a"), false, sandboxed(exited("a", 0, 0)), "start a #1"},
		{"crash loop", pod(always, "a"), false, sandboxed(with(exited("a", 1, 3*time.Second), func(c *containerStatus) { c.backoff = 10 * time.Second })), "wait 7s"},
		{"crash loop over", pod(always, "a"), false, sandboxed(with(exited("a", 1, 10*time.Second), func(c *containerStatus) { c.backoff, c.attempt = 10*time.Second, 4 })), "start a #5"},
		{"calm clears the record", pod(always, "a"), false, sandboxed(with(exited("a", 1, 0), func(c *containerStatus) { c.backoff, c.started = time.Minute, ago(time.Hour) })), "start a #1"},
		{"new image after a crash", pod(always, "a"), false, sandboxed(with(exited("a", 1, 0), func(c *containerStatus) { c.backoff, c.hash = time.Minute, "old" })), "start a #1"},
		{"on failure, failed", pod(onFailure, "a", "b"), false, sandboxed(exited("a", 1, 0), running("b")), "start a #1"},
		{"on failure, done", pod(onFailure, "a", "b"), false, sandboxed(exited("a", 0, 0), running("b")), "wait"},
		{"never", pod(never, "a", "b"), false, sandboxed(exited("a", 1, 0), running("b")), "wait"},
		{"succeeded", pod(onFailure, "a"), false, sandboxed(exited("a", 0, 0)), "drop"},
		{"succeeded and dropped", pod(onFailure, "a"), false, stopped(sandboxed(exited("a", 0, 0))), "finish"},

		{"liveness failed", pod(always, "a", "b"), false, failing(sandboxed(running("a"), running("b")), "a", true), "kill a"},
		{"old verdict", pod(always, "a"), false, failing(sandboxed(with(running("a"), func(c *containerStatus) { c.id = "new" })), "a", true), "wait"},
		{"image changed", pod(always, "a"), false, sandboxed(with(running("a"), func(c *containerStatus) { c.hash = "old" })), "kill a"},

		{"resized", sized(pod(always, "a"), corev1.NotRequired), false, applied(sandboxed(running("a")), "1"), "resize"},
		{"size fits", sized(pod(always, "a"), corev1.NotRequired), false, applied(sandboxed(running("a")), "2000m"), "wait"},
		{"resize needs a restart", sized(pod(always, "a"), corev1.RestartContainer), false, applied(sandboxed(running("a")), "1"), "kill a"},
		{"resize after all have started", sized(pod(always, "a", "b"), corev1.NotRequired), false, applied(sandboxed(running("a")), "1"), "start b #0"},
		{"resize failed lately", sized(pod(always, "a"), corev1.NotRequired), false, stalledAt(applied(sandboxed(running("a")), "1"), stalledResize, time.Second), "wait 1s"},

		{"all anew", anew(pod(never, "init:i", "a", "b")), false, sandboxed(exited("i", 0, 0), exited("a", 42, 0), running("b")), "kill b"},
		{"all ended, anew", anew(pod(never, "init:i", "a", "b")), false, sandboxed(exited("i", 0, 0), exited("a", 42, 0), exited("b", 137, 0)), "remove i-id b-id a-id"},
		{"cleared away, anew", anew(pod(never, "init:i", "a", "b")), false, sandboxed(), "start i #0"},
		{"another exit", anew(pod(never, "a", "b")), false, sandboxed(exited("a", 1, 0), running("b")), "wait"},

		{"ephemeral", debugged(pod(always, "a")), false, sandboxed(running("a")), "start debug #0"},
		{"ephemeral only once", debugged(pod(always, "a")), false, sandboxed(running("a"), exited("debug", 1, 0)), "wait"},

		{"sandbox lost, containers left", pod(always, "a"), false, stopped(sandboxed(running("a"))), "kill a"},
		{"sandbox lost", pod(always, "a"), false, stopped(sandboxed(exited("a", 137, 0))), "sandbox #1"},
		{"sandbox lost, all done", pod(never, "a"), false, stopped(sandboxed(exited("a", 1, 0))), "finish"},
		{"new sandbox, inits again", pod(always, "init:i", "a"), false,
			sandboxed(with(exited("i", 0, 0), func(c *containerStatus) { c.sandbox = "old" }), with(exited("a", 137, 0), func(c *containerStatus) { c.sandbox = "old" })), "start i #1"},

		{"stop", pod(always, "side:s", "a", "b"), true, sandboxed(running("s"), running("a"), running("b")), "kill a b"},
		{"stop sidecars in reverse", pod(always, "side:s", "side:t", "a"), true, sandboxed(running("s"), running("t"), exited("a", 0, 0)), "kill t"},
		{"stop, one only created", pod(always, "a"), true, sandboxed(with(running("a"), func(c *containerStatus) { c.state = stateCreated })), "drop"},
		{"stop sandbox", pod(always, "a"), true, sandboxed(exited("a", 0, 0)), "drop"},
		{"stopped", pod(always, "a"), true, stopped(sandboxed(exited("a", 0, 0))), "finish"},
		{"stop before it began", pod(always, "a"), true, have{}, "finish"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := want{pod: tt.pod}
			if tt.stop {
				w.stop = stop
			}
			if got := describe(next(w, tt.have, now)); got != tt.want {
				t.Errorf("next: %s, want %s", got, tt.want)
			}
		})
	}
}

// TestHooksOfSidecarsRunAtOnce sees to it that sidecars learn of the end of their
// pod when the others do, though they are stopped after them.
func TestHooksOfSidecarsRunAtOnce(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, "side:s", "side:t", "a")
	names := func(list []victim) string {
		var out []string
		for _, v := range list {
			out = append(out, v.name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	w := want{pod: p, stop: &stop{grace: 5}}
	if s := next(w, sandboxed(running("s"), running("t"), running("a")), now); names(s.kill) != "a" || names(s.hooks) != "s t" {
		t.Errorf("first: kill %s, hooks of %s", names(s.kill), names(s.hooks))
	}
	if s := next(w, sandboxed(running("s"), running("t"), exited("a", 0, 0)), now); names(s.kill) != "t" || names(s.hooks) != "s" {
		t.Errorf("then: kill %s, hooks of %s", names(s.kill), names(s.hooks))
	}
}

func TestCrashWaitDoublesToItsLimit(t *testing.T) {
	c := exited("a", 1, 0)
	var waits []string
	for range 8 {
		wait, following := have{}.crashWait(&corev1.Container{Name: "a", Image: "i"}, c)
		waits = append(waits, wait.String())
		c.backoff = following
	}
	if got, want := strings.Join(waits, " "), "0s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s"; got != want {
		t.Errorf("waits: %s, want %s", got, want)
	}
}

func TestRestartRules(t *testing.T) {
	p := pod(corev1.RestartPolicyNever, "a")
	p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	for code, want := range map[int32]bool{0: false, 1: false, 42: true} {
		if got := mayRestart(p, &p.Spec.Containers[0], code); got != want {
			t.Errorf("exit %d: restart %v, want %v", code, got, want)
		}
	}
}

func TestPhase(t *testing.T) {
	always, never := corev1.RestartPolicyAlways, corev1.RestartPolicyNever
	tests := []struct {
		name string
		pod  *corev1.Pod
		have have
		want corev1.PodPhase
	}{
		{"nothing", pod(always, "a"), have{}, corev1.PodPending},
		{"init", pod(always, "init:i", "a"), sandboxed(running("i")), corev1.PodPending},
		{"init failed", pod(never, "init:i", "a"), sandboxed(exited("i", 1, 0)), corev1.PodFailed},
		{"running", pod(always, "a"), sandboxed(running("a")), corev1.PodRunning},
		{"one not started", pod(always, "a", "b"), sandboxed(running("a")), corev1.PodPending},
		{"crashing", pod(always, "a"), sandboxed(exited("a", 1, 0)), corev1.PodRunning},
		{"succeeded", pod(never, "a", "b"), sandboxed(exited("a", 0, 0), exited("b", 0, 0)), corev1.PodSucceeded},
		{"failed", pod(never, "a", "b"), sandboxed(exited("a", 0, 0), exited("b", 2, 0)), corev1.PodFailed},
	}
	for _, tt := range tests {
		if got := tt.have.phase(tt.pod); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }
