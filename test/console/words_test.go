package console

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What a container of a fixture does.
func waits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func ended(reason string, code, signal int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

// fixture is a pod in a state, and kubectl's word for that.
type fixture struct {
	want    string
	phase   corev1.PodPhase
	reason  string // of the pod
	first   []corev1.ContainerState
	main    []corev1.ContainerState
	unready bool // are those that run
	is      corev1.PodConditionType
	sidecar int // 1: the first of first is one; 2: and has started
	gated   bool
	deleted bool
}

func fixtures() []fixture {
	type states = []corev1.ContainerState
	const pending, running, succeeded, failed = corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed
	done, broken := ended("Completed", 0, 0), ended("Error", 1, 0)
	return []fixture{
		{want: "Pending", phase: pending},
		{want: "Pending", phase: pending, main: states{waits("")}},
		{want: "ContainerCreating", phase: pending, main: states{waits("ContainerCreating")}},
		{want: "ErrImagePull", phase: pending, main: states{waits("ErrImagePull")}},
		{want: "ImagePullBackOff", phase: pending, main: states{waits("ImagePullBackOff")}},
		{want: "InvalidImageName", phase: pending, main: states{waits("InvalidImageName")}},
		{want: "CreateContainerConfigError", phase: pending, main: states{waits("CreateContainerConfigError")}},
		{want: "RunContainerError", phase: pending, main: states{waits("RunContainerError")}},
		{want: "CrashLoopBackOff", phase: running, main: states{waits("CrashLoopBackOff")}},
		{want: "CrashLoopBackOff", phase: running, main: states{waits("CrashLoopBackOff"), runs()}},
		{want: "CrashLoopBackOff", phase: running, main: states{runs(), waits("CrashLoopBackOff")}},
		{want: "ImagePullBackOff", phase: running, main: states{waits("ImagePullBackOff"), waits("CrashLoopBackOff")}},
		{want: "Running", phase: running, main: states{runs()}},
		{want: "Running", phase: running, main: states{runs()}, unready: true},
		{want: "Running", phase: running},
		{want: "Running", phase: running, main: states{done, runs()}, is: corev1.PodReady},
		{want: "NotReady", phase: running, main: states{done, runs()}},
		{want: "Completed", phase: running, main: states{done, runs()}, unready: true},
		{want: "Error", phase: running, main: states{broken, runs()}},
		{want: "Completed", phase: succeeded, main: states{done}},
		{want: "Succeeded", phase: succeeded},
		{want: "Error", phase: failed, main: states{broken}},
		{want: "Error", phase: failed, main: states{broken, done}},
		{want: "Completed", phase: failed, main: states{done, broken}}, // the console says more of it
		{want: "OOMKilled", phase: failed, main: states{ended("OOMKilled", 137, 0)}},
		{want: "StartError", phase: failed, main: states{ended("StartError", 128, 0)}},
		{want: "ExitCode:3", phase: failed, main: states{ended("", 3, 0)}},
		{want: "Signal:9", phase: failed, main: states{ended("", 137, 9)}},
		{want: "Failed", phase: failed},
		{want: "DeadlineExceeded", phase: failed, reason: "DeadlineExceeded"},
		{want: "Evicted", phase: failed, reason: "Evicted"},
		{want: "OutOfcpu", phase: failed, reason: "OutOfcpu"},
		{want: "Unknown", phase: corev1.PodUnknown},
		{want: "SchedulingGated", phase: pending, gated: true},
		{want: "Init:0/2", phase: pending, first: states{waits("PodInitializing"), waits("PodInitializing")}},
		{want: "Init:0/1", phase: pending, first: states{runs()}, main: states{waits("PodInitializing")}},
		{want: "Init:1/2", phase: pending, first: states{done, runs()}, main: states{waits("PodInitializing")}},
		{want: "Init:Error", phase: pending, first: states{broken}, main: states{waits("PodInitializing")}},
		{want: "Init:CrashLoopBackOff", phase: pending, first: states{waits("CrashLoopBackOff")}, main: states{waits("PodInitializing")}},
		{want: "Init:ErrImagePull", phase: pending, first: states{done, waits("ErrImagePull")}, main: states{waits("PodInitializing")}},
		{want: "Init:ExitCode:2", phase: pending, first: states{ended("", 2, 0)}},
		{want: "Init:Signal:15", phase: pending, first: states{ended("", 143, 15)}},
		{want: "PodInitializing", phase: pending, first: states{done}, main: states{waits("PodInitializing")}},
		{want: "CrashLoopBackOff", phase: running, first: states{runs()}, main: states{waits("CrashLoopBackOff")}, is: corev1.PodInitialized},
		{want: "Init:0/1", phase: pending, first: states{runs()}, main: states{waits("PodInitializing")}, sidecar: 1},
		{want: "Running", phase: running, first: states{runs()}, main: states{runs()}, sidecar: 2},
		{want: "Terminating", phase: running, main: states{runs()}, deleted: true},
		{want: "Terminating", phase: pending, deleted: true},
		{want: "Terminating", phase: running, main: states{waits("CrashLoopBackOff")}, deleted: true},
		{want: "Unknown", phase: running, reason: "NodeLost", main: states{runs()}, deleted: true},
		{want: "Completed", phase: succeeded, main: states{done}, deleted: true},
		{want: "Error", phase: failed, main: states{broken}, deleted: true},
	}
}

// make creates the pod, which no part of the cluster touches.
func (f fixture) make(t *testing.T, kube kubernetes.Interface, namespace, name string) {
	pods := kube.CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{SchedulerName: "nobody"}}
	if f.deleted {
		pod.Finalizers = []string{"test.example/stays"}
	}
	if f.gated {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test.example/gate"}}
	}
	container := func(list *[]corev1.Container, of string, i int) string {
		name := fmt.Sprint(of, i)
		*list = append(*list, corev1.Container{Name: name, Image: "registry.example/" + name + ":1"})
		return name
	}
	status := func(name string, state corev1.ContainerState) corev1.ContainerStatus {
		started := state.Running != nil && f.sidecar != 1
		return corev1.ContainerStatus{Name: name, Image: "registry.example/" + name + ":1", ImageID: name, State: state, Started: &started, Ready: state.Running != nil && started && !f.unready}
	}
	is := corev1.PodStatus{Phase: f.phase, Reason: f.reason}
	for i, state := range f.first {
		is.InitContainerStatuses = append(is.InitContainerStatuses, status(container(&pod.Spec.InitContainers, "first", i), state))
	}
	if f.sidecar > 0 {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers[0].RestartPolicy = &always
	}
	for i := range max(len(f.main), 1) {
		name := container(&pod.Spec.Containers, "main", i)
		if i < len(f.main) {
			is.ContainerStatuses = append(is.ContainerStatuses, status(name, f.main[i]))
		}
	}
	if f.is != "" {
		is.Conditions = []corev1.PodCondition{{Type: f.is, Status: corev1.ConditionTrue}}
	}
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !f.gated {
		pod.Status = is
		if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("%s: %v", f.want, err)
		}
	}
	if f.deleted {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// podLine is one of a list of pods, kubectl's or the console's.
var podLine = regexp.MustCompile(`(?m)(fixture-\d+) +(\d+/\d+) +(\S+)`)

func podLines(text string) (out []string) {
	for _, m := range podLine.FindAllStringSubmatch(text, -1) {
		out = append(out, strings.Join(m[1:], " "))
	}
	return out
}

// wordsAreKubectls holds the console's rows against kubectl's, and those against
// what kubectl is known to say.
func wordsAreKubectls(t *testing.T, kubeconfig string, kube kubernetes.Interface) {
	must(t)(kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "words"}}, metav1.CreateOptions{}))
	all := fixtures()
	for i, f := range all {
		f.make(t, kube, "words", fmt.Sprintf("fixture-%02d", i))
	}
	said, err := exec.Command(*binary, "kubectl", "--kubeconfig", kubeconfig, "get", "pods", "-n", "words").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	kubectls := podLines(string(said))
	if len(kubectls) != len(all) {
		t.Fatalf("kubectl lists %d of %d\n%s", len(kubectls), len(all), said)
	}
	for i, f := range all {
		if word := kubectls[i][strings.LastIndex(kubectls[i], " ")+1:]; word != f.want {
			t.Errorf("kubectl says %q of fixture-%02d, want %s", word, i, f.want)
		}
	}
	w := newWindow(t, "xterm-256color", consoleOf(kubeconfig, "pods words"))
	w.tmux(t, "resize-window", "-x", "140", "-y", fmt.Sprint(len(all)+20))
	screen := w.await(t, fmt.Sprintf("pods(words)[%d]", len(all)), fmt.Sprintf("fixture-%02d", len(all)-1), "1 of 2 containers failed")
	if ours := podLines(screen); strings.Join(ours, "\n") != strings.Join(kubectls, "\n") {
		t.Errorf("the console shows\n%s\nkubectl says\n%s", strings.Join(ours, "\n"), strings.Join(kubectls, "\n"))
	}
}
