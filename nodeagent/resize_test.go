package nodeagent

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func cpuPod(name, cpu string) *corev1.Pod {
	p := pod(corev1.RestartPolicyAlways, "a")
	p.Name, p.UID, p.Generation = name, types.UID(name), 1
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: quantity(cpu)}
	return p
}

// resize asks for other CPUs, as the API server would pass it on.
func (l *lab) resize(name, cpu string) {
	l.Helper()
	p := l.pod(name).DeepCopy()
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: quantity(cpu)}
	p.Generation++
	if _, err := l.api.CoreV1().Pods("ns").Update(context.Background(), p, metav1.UpdateOptions{}); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) untilResized(name, cpu string) *corev1.Pod {
	l.Helper()
	return until(l.TB, name+" resized", func() (*corev1.Pod, bool) {
		p := l.pod(name)
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return p, false
		}
		s := p.Status.ContainerStatuses[0]
		want := corev1.ResourceList{corev1.ResourceCPU: quantity(cpu)}
		return p, p.Status.ObservedGeneration == p.Generation && equality.Semantic.DeepEqual(s.AllocatedResources, want) &&
			s.Resources != nil && equality.Semantic.DeepEqual(s.Resources.Requests, want) && resizeState(p) == ""
	})
}

// resizeState is what a pod's conditions tell of a resize.
func resizeState(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if isResize(c.Type) {
			return string(c.Type) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

func TestResize(t *testing.T) {
	l := newLab(t) // 32 CPUs
	l.create(cpuPod("small", "1"))
	l.create(cpuPod("big", "30"))
	l.untilReady("small")
	l.untilReady("big")

	l.resize("small", "2")
	p := l.untilResized("small", "2")
	if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("restarted %d times", n)
	}

	// There is no room: what it has stays promised, until there is.
	l.resize("small", "3")
	until(t, "deferred", func() (string, bool) {
		got := resizeState(l.pod("small"))
		return got, got == "PodResizePending Deferred: Node didn't have enough resource: cpu, requested: 3000, used: 30000, capacity: 32000"
	})
	if s := l.pod("small").Status.ContainerStatuses[0]; s.AllocatedResources.Cpu().String() != "2" {
		t.Errorf("allocated %v", s.AllocatedResources)
	}
	l.resize("big", "20")
	l.untilResized("small", "3")
}

func TestNoMemoryInUseIsTakenAway(t *testing.T) {
	l := newLab(t) // its containers use 20Mi
	limited := func(p *corev1.Pod, memory string) {
		p.Spec.Containers[0].Resources.Requests = nil
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: quantity(memory)}
	}
	p := cpuPod("p", "1")
	limited(p, "64Mi")
	l.create(p)
	l.untilReady("p")
	resize := func(memory string) {
		t.Helper()
		p := l.pod("p").DeepCopy()
		limited(p, memory)
		p.Generation++
		if _, err := l.api.CoreV1().Pods("ns").Update(context.Background(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	resize("10Mi")
	until(t, "refused", func() (string, bool) {
		got := resizeState(l.pod("p"))
		return got, got == "PodResizeInProgress Error: cannot decrease memory limits: "+
			"[attempting to set pod memory limit (10485760) below current usage (20971520), "+
			`attempting to set container "a" memory limit (10485760) below current usage (20971520)]`
	})
	if s := l.pod("p").Status.ContainerStatuses[0]; s.Resources.Limits.Memory().String() != "64Mi" || s.RestartCount > 0 {
		t.Errorf("status %+v", s)
	}
	resize("32Mi")
	until(t, "resized", func() (string, bool) {
		p := l.pod("p")
		return resizeState(p), p.Status.ContainerStatuses[0].Resources.Limits.Memory().String() == "32Mi" && resizeState(p) == ""
	})
}

func TestPodLevelResize(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, "init:i", "a", "b")
	limit := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: quantity(cpu)}}
	}
	whole := limit("4")
	p.Spec.Resources = &whole
	p.Spec.Containers[1].Resources = limit("1")
	h := sandboxed(running("a"), running("b"))
	h.applied = map[string]corev1.ResourceRequirements{wholePod: limit("4"), "a-id": sizeOf(p, &p.Spec.Containers[0]), "b-id": limit("1")}
	if h.isUnsized(p) {
		t.Error("nothing was changed")
	}
	whole = limit("5")
	if got := h.unsized(p); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("containers to resize: %v, want the one without a limit of its own", got)
	}
	p.Spec.Containers[0].Resources = limit("4")
	if !h.isUnsized(p) || len(h.unsized(p)) > 0 {
		t.Error("only the pod as a whole has to be resized")
	}
	h = sandboxed(running("i"))
	h.applied = map[string]corev1.ResourceRequirements{"i-id": limit("1")}
	p.Spec.InitContainers[0].Resources = limit("2")
	if len(h.unsized(p)) != 1 {
		t.Error("an init container is resized while it runs")
	}
}

func TestAllotmentOutlivesTheAgent(t *testing.T) {
	a := &Agent{cfg: Config{RootDir: t.TempDir()}}
	p := cpuPod("p", "1")
	al := allot(p)
	al.applied("a-id", p.Spec.Containers[0].Resources, have{})
	if err := a.writeAllotment(p, al); err != nil {
		t.Fatal(err)
	}
	asked := cpuPod("p", "4")
	got, err := a.readAllotment(asked)
	if err != nil || got.fits(asked) || !got.fits(p) {
		t.Fatalf("read %+v (%v)", got, err)
	}
	if cpu := got.podOf(asked).Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
		t.Errorf("promised %s", cpu)
	}
	if asked.Spec.Containers[0].Resources.Requests.Cpu().String() != "4" {
		t.Error("the pod itself was changed")
	}
	applied := got.Applied["a-id"]
	if applied.Requests.Cpu().String() != "1" {
		t.Errorf("applied %v", got.Applied)
	}
	if err := os.WriteFile(a.allotmentPath(p), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.readAllotment(p); err == nil {
		t.Error("a torn file was read")
	}
}
