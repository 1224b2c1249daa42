package nodeagent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"orrery.dev/nodeagent/simulate"
)

// lab is an agent on a simulated runtime, with an API in memory.
type lab struct {
	testing.TB
	api     *fake.Clientset
	runtime *simulate.Runtime
	config  Config
	stop    func()
}

func newLab(t testing.TB) *lab {
	t.Helper()
	machine, err := simulate.New("10.128.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{TB: t, api: fake.NewClientset(), runtime: machine}
	l.api.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := l.api.Tracker().Watch(action.GetResource(), action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
		if err != nil {
			return true, nil, err
		}
		// What the agent keeps is its own, as it is that of a real server.
		return true, watch.Filter(w, func(e watch.Event) (watch.Event, bool) { e.Object = e.Object.DeepCopyObject(); return e, true }), nil
	})
	next := 0
	l.react("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		p := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		if next++; p.UID == "" {
			p.UID = types.UID(fmt.Sprint("made-", next))
		}
		return false, nil, nil
	})
	l.config = Config{
		NodeName: "node-1", NodeIP: "172.16.0.1", Clients: l.api, Runtime: machine, Images: machine.Images(), Simulated: true,
		Log: slog.New(slog.DiscardHandler),
	}
	l.start()
	t.Cleanup(func() { l.stop() })
	return l
}

// react has the API react, which agents of before may still be using.
func (l *lab) react(verb, resource string, by clienttesting.ReactionFunc) {
	l.api.Lock()
	defer l.api.Unlock()
	l.api.PrependReactor(verb, resource, by)
}

// start runs an agent; stop ends it and leaves the runtime as it is.
func (l *lab) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, l.config) }()
	l.stop = func() {
		cancel()
		if err := <-done; err != nil {
			l.Errorf("run: %v", err)
		}
		l.stop = func() {}
	}
}

// until waits for a condition and says what was last seen when it never comes.
func until[T any](t testing.TB, what string, look func() (T, bool)) T {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for {
		got, ok := look()
		if ok {
			return got
		}
		if time.Now().After(end) {
			if p, ok := any(got).(*corev1.Pod); ok && p != nil {
				t.Fatalf("%s: last seen %+v", what, p.Status)
			}
			t.Fatalf("%s: last seen %+v", what, got)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (l *lab) create(p *corev1.Pod) {
	l.Helper()
	p.Spec.NodeName = "node-1"
	if _, err := l.api.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) pod(name string) *corev1.Pod {
	p, err := l.api.CoreV1().Pods("ns").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func isReady(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (l *lab) untilReady(name string) *corev1.Pod {
	l.Helper()
	return until(l.TB, name+" ready", func() (*corev1.Pod, bool) { p := l.pod(name); return p, isReady(p) })
}

func TestNodeBecomesReady(t *testing.T) {
	l := newLab(t)
	node := until(t, "node ready", func() (*corev1.Node, bool) {
		n, err := l.api.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{})
		if err != nil {
			return n, false
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return n, true
			}
		}
		return n, false
	})
	if got := node.Labels[corev1.LabelHostname]; got != "node-1" {
		t.Errorf("hostname label %q", got)
	}
	if got := node.Status.Allocatable.Pods().Value(); got != 110 {
		t.Errorf("allocatable pods %d, want 110", got)
	}
	until(t, "lease", func() (bool, bool) {
		_, err := l.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(context.Background(), "node-1", metav1.GetOptions{})
		return false, err == nil
	})
}

func TestPodRunsAndIsDeleted(t *testing.T) {
	l := newLab(t)
	l.create(pod(corev1.RestartPolicyAlways, "init:i", "a", "b"))
	p := l.untilReady("p")
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" || p.Status.HostIP != "172.16.0.1" || p.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("status %+v", p.Status)
	}
	if n := len(p.Status.ContainerStatuses); n != 2 {
		t.Errorf("%d container statuses, want 2", n)
	}
	deleted := p.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	deleted.DeletionGracePeriodSeconds = ptr.To(int64(1))
	if _, err := l.api.CoreV1().Pods("ns").Update(context.Background(), deleted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "pod gone", func() (*corev1.Pod, bool) { p := l.pod("p"); return p, p == nil })
	l.untilEmpty()
}

func (l *lab) untilEmpty() {
	l.Helper()
	until(l.TB, "runtime empty", func() (string, bool) {
		sandboxes, _ := l.runtime.ListPodSandbox(context.Background(), nil)
		containers, _ := l.runtime.ListContainers(context.Background(), nil)
		return fmt.Sprint(len(sandboxes), " sandboxes, ", len(containers), " containers"), len(sandboxes)+len(containers) == 0
	})
}

func TestAnotherAgentCarriesOn(t *testing.T) {
	l := newLab(t)
	l.create(pod(corev1.RestartPolicyAlways, "a"))
	before := l.untilReady("p").Status.ContainerStatuses[0].ContainerID
	l.stop()
	l.start()
	if after := l.untilReady("p").Status.ContainerStatuses[0]; after.ContainerID != before || after.RestartCount != 0 {
		t.Errorf("container %s restarted %d times, want %s untouched", after.ContainerID, after.RestartCount, before)
	}
	l.stop()
	if err := l.api.CoreV1().Pods("ns").Delete(context.Background(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.start() // finds a pod in the runtime that the API no longer has
	l.untilEmpty()
}

// A scheduler may know of a label before the node's own agent does.
func TestAdmissionGoesByTheNodeAsItIs(t *testing.T) {
	l := newLab(t)
	node := until(t, "node", func() (*corev1.Node, bool) {
		n, err := l.api.CoreV1().Nodes().Get(context.Background(), "node-1", metav1.GetOptions{})
		return n, err == nil
	})
	wanting := func(name string) *corev1.Pod {
		p := pod(corev1.RestartPolicyAlways, "a")
		p.Name, p.UID = name, types.UID(name)
		p.Spec.NodeSelector = map[string]string{"example.org/disk": "fast"}
		return p
	}
	l.create(wanting("early"))
	until(t, "refused", func() (*corev1.Pod, bool) {
		p := l.pod("early")
		return p, p != nil && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "NodeAffinity"
	})
	node = node.DeepCopy()
	node.Labels["example.org/disk"] = "fast"
	if _, err := l.api.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.create(wanting("late"))
	l.untilReady("late")
}

func TestJobPodSucceeds(t *testing.T) {
	l := newLab(t)
	p := pod(corev1.RestartPolicyNever, "a")
	p.Annotations = map[string]string{simulate.RunFor: "10ms"}
	l.create(p)
	until(t, "succeeded", func() (*corev1.Pod, bool) {
		p := l.pod("p")
		return p, p != nil && p.Status.Phase == corev1.PodSucceeded
	})
}

func TestRefusedPods(t *testing.T) {
	l := newLab(t)
	tests := map[string]struct {
		change func(*corev1.Pod)
		reason string
	}{
		"selector": {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }, "NodeAffinity"},
		"cpu": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: quantity("1000")}
		}, "OutOfcpu"},
	}
	for name, tt := range tests {
		p := pod(corev1.RestartPolicyAlways, "a")
		p.Name, p.UID = name, types.UID(name)
		tt.change(p)
		l.create(p)
		got := until(t, name, func() (*corev1.Pod, bool) {
			p := l.pod(name)
			return p, p != nil && p.Status.Phase == corev1.PodFailed
		})
		if got.Status.Reason != tt.reason {
			t.Errorf("%s: reason %q, want %q (%s)", name, got.Status.Reason, tt.reason, got.Status.Message)
		}
	}
}

// A pod takes the place of another that has ended, however little of that the
// other's worker has yet seen.
func TestPlaceOfAnEndedPod(t *testing.T) {
	a := &Agent{}
	a.cfg.Kubelet.MaxPods, a.cfg.Simulated = 1, true
	a.pods = newPodSet(a)
	running := pod(corev1.RestartPolicyNever, "a")
	running.Name, running.UID = "old", "old"
	running.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: time.Now()}}
	old := newWorker(a, running)
	old.promised = running
	a.pods.workers["old"] = old
	next := newWorker(a, pod(corev1.RestartPolicyNever, "a"))
	if reason, _ := next.room(next.pod); reason != "OutOfpods" {
		t.Errorf("beside a running pod: %q", reason)
	}
	ended := running.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	old.pod = ended
	if reason, message := next.room(next.pod); reason != "" {
		t.Errorf("after it: %s: %s", reason, message)
	}
}

// TestResourceOfAnotherProgram runs a pod that asks for something which only the
// scheduler counts.
func TestResourceOfAnotherProgram(t *testing.T) {
	l := newLab(t)
	p := pod(corev1.RestartPolicyAlways, "a")
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/licence": quantity("2")}
	l.create(p)
	until(t, "running", func() (*corev1.Pod, bool) {
		p := l.pod("p")
		return p, p != nil && p.Status.Phase == corev1.PodRunning
	})
}

func TestImagePullBackOff(t *testing.T) {
	l := newLab(t)
	p := pod(corev1.RestartPolicyAlways, "a")
	p.Annotations = map[string]string{simulate.PullError: "no such image"}
	p.Spec.Containers[0].Image = "missing:1"
	l.create(p)
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
		until(t, reason, func() (any, bool) {
			p := l.pod("p")
			if p == nil || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
				return p, false
			}
			w := p.Status.ContainerStatuses[0].State.Waiting
			return w, w.Reason == reason
		})
	}
}

// A simulated pod fails as a real one does: for a Secret that is not there, and
// where it is told to, by its probes.
func TestSimulatedFaults(t *testing.T) {
	l := newLab(t)
	waits := func(name, reason, message string) {
		until(t, name+" waits", func() (any, bool) {
			p := l.pod(name)
			if p == nil || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
				return p, false
			}
			w := p.Status.ContainerStatuses[0].State.Waiting
			return w, w.Reason == reason && w.Message == message
		})
	}
	variable := pod(corev1.RestartPolicyAlways, "a")
	variable.Name, variable.UID = "variable", "variable"
	variable.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
	l.create(variable)
	waits("variable", "CreateContainerConfigError", `secret "s" not found`)
	mounted := pod(corev1.RestartPolicyAlways, "a")
	mounted.Name, mounted.UID = "mounted", "mounted"
	mounted.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	l.create(mounted)
	waits("mounted", "ContainerCreating", "")
	probed := pod(corev1.RestartPolicyAlways, "a")
	probed.Name, probed.UID = "probed", "probed"
	probed.Annotations = map[string]string{simulate.ProbeError: "connection refused"}
	probed.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1}
	l.create(probed)
	until(t, "probed runs", func() (any, bool) {
		p := l.pod("probed")
		return p, p != nil && p.Status.Phase == corev1.PodRunning
	})
	if _, err := l.api.CoreV1().Secrets("ns").Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"variable", "mounted"} {
		until(t, name+" is ready once the Secret is there", func() (any, bool) { p := l.pod(name); return p, isReady(p) })
	}
	if isReady(l.pod("probed")) {
		t.Error("a pod is ready though its probe fails")
	}
}

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: ns}
spec: {containers: [{name: a, image: "i:%d"}]}
`

func TestStaticPodAndItsMirror(t *testing.T) {
	l := newLab(t)
	l.stop()
	dir := t.TempDir()
	l.config.Kubelet = kubeletconfig.KubeletConfiguration{StaticPodPath: dir}
	l.config.Kubelet.FileCheckFrequency.Duration = 50 * time.Millisecond
	write := func(version int) {
		if err := os.WriteFile(filepath.Join(dir, "web.yaml"), fmt.Appendf(nil, manifest, version), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	l.start()
	mirror := l.untilReady("web-node-1")
	if mirror.Annotations[corev1.MirrorPodAnnotationKey] == "" || len(mirror.OwnerReferences) != 1 || *mirror.Spec.Priority != systemNodeCritical {
		t.Errorf("mirror %+v", mirror)
	}
	// Deleting the mirror does not stop the pod; it comes back.
	if err := l.api.CoreV1().Pods("ns").Delete(context.Background(), "web-node-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := l.untilReady("web-node-1")
	if a, b := again.Status.ContainerStatuses[0].ContainerID, mirror.Status.ContainerStatuses[0].ContainerID; a != b {
		t.Errorf("container %s, want %s", a, b)
	}
	write(2) // another pod of the same name
	until(t, "new manifest", func() (*corev1.Pod, bool) {
		p := l.pod("web-node-1")
		return p, isReady(p) && p.Spec.Containers[0].Image == "i:2"
	})
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	l.untilEmpty()
	until(t, "mirror gone", func() (*corev1.Pod, bool) { p := l.pod("web-node-1"); return p, p == nil })
}

// The node controller marks the pods of a node that it takes for dead as not
// ready; an agent that is alive takes that back.
func TestStatusThatSomebodyElseChangedIsSaidAgain(t *testing.T) {
	l := newLab(t)
	l.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	changed := l.untilReady("web").DeepCopy()
	for i := range changed.Status.Conditions {
		if changed.Status.Conditions[i].Type == corev1.PodReady {
			changed.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	if _, err := l.api.CoreV1().Pods("ns").UpdateStatus(context.Background(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.untilReady("web")
}

// TestNobodySeesAReplacement sees to it that a pod whose image is changed is
// never shown without its container, which comes back in a moment.
func TestNobodySeesAReplacement(t *testing.T) {
	l := newLab(t)
	l.create(pod(corev1.RestartPolicyAlways, "a"))
	before := l.untilReady("p")
	l.react("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch := string(action.(clienttesting.PatchAction).GetPatch()); strings.Contains(patch, `"status":"False"`) {
			t.Errorf("not ready in between: %s", patch)
		}
		return false, nil, nil
	})
	changed := before.DeepCopy()
	changed.Spec.Containers[0].Image = "other"
	if _, err := l.api.CoreV1().Pods("ns").Update(context.Background(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "replaced", func() (*corev1.Pod, bool) {
		p := l.pod("p")
		return p, isReady(p) && p.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID
	})
}

func TestHostPortsClash(t *testing.T) {
	pod := func(ip string, protocol corev1.Protocol) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80, HostIP: ip, Protocol: protocol}}}}}}
	}
	for _, c := range []struct {
		a, b *corev1.Pod
		want bool
	}{
		{pod("", ""), pod("", corev1.ProtocolTCP), true},
		{pod("", ""), pod("", corev1.ProtocolUDP), false},
		{pod("10.0.0.1", ""), pod("10.0.0.2", ""), false},
		{pod("10.0.0.1", ""), pod("", ""), true},
		{pod("0.0.0.0", ""), pod("10.0.0.1", ""), true},
	} {
		if got := hostPorts(c.a)[0].clashes(hostPorts(c.b)[0]); got != c.want {
			t.Errorf("%v and %v: %v, want %v", hostPorts(c.a), hostPorts(c.b), got, c.want)
		}
	}
}

func TestGraceLeft(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, "side:s", "a")
	if got := graceLeft(p, 30, now); got != 30 {
		t.Errorf("not deleted: %d", got)
	}
	p.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(12 * time.Second)))
	for grace, want := range map[int64]int64{30: 12, 5: 5, 0: 0} {
		if got := graceLeft(p, grace, now); got != want {
			t.Errorf("of %d: %d, want %d", grace, got, want)
		}
	}
	if got := graceLeft(p, 30, now.Add(time.Minute)); got != graceLeast {
		t.Errorf("too late: %d, want %d", got, graceLeast)
	}
}

// TestYoungestOfAName sees to it that logs and commands reach the pod that the
// API has, while one of the same name is being cleared away.
func TestYoungestOfAName(t *testing.T) {
	a := &Agent{}
	a.pods = newPodSet(a)
	for _, w := range []*worker{
		{uid: "old", name: "ns/p", born: ago(time.Hour), vanished: true},
		{uid: "new", name: "ns/p", born: ago(time.Minute)},
		{uid: "ghost", name: "ns/p", born: now, vanished: true},
	} {
		a.pods.workers[w.uid] = w
	}
	if got := a.pods.byName("ns", "p"); got.uid != "new" {
		t.Errorf("found %s", got.uid)
	}
}

func TestFirstLineIsAwaited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	awaitFirstLine(t.Context(), path, begin.Add(-time.Second))
	awaitFirstLine(t.Context(), path+".gone", begin.Add(time.Minute))
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("waited %v for an old container, or for no log at all", took)
	}
	written := time.AfterFunc(50*time.Millisecond, func() { _ = os.WriteFile(path, []byte("x"), 0o600) })
	defer written.Stop()
	awaitFirstLine(t.Context(), path, begin.Add(time.Minute))
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("did not wait: %v", err)
	}
}
