package tui

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/remotecommand"
)

// debugging has an API server that adds debug containers, which are in some state at once.
func debugging(t *testing.T, added chan corev1.EphemeralContainer, state corev1.ContainerState) func(*app) {
	return func(a *app) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "db-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db"}}}}
		allowing(t, nil, pod)(a)
		kube := a.cluster.kube.(*fake.Clientset)
		kube.PrependReactor("patch", "pods/ephemeralcontainers", func(act kubetesting.Action) (bool, runtime.Object, error) {
			var change corev1.Pod
			if err := json.Unmarshal(act.(kubetesting.PatchAction).GetPatch(), &change); err != nil {
				return true, nil, err
			}
			now := pod.DeepCopy()
			now.Spec.EphemeralContainers = change.Spec.EphemeralContainers
			now.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: change.Spec.EphemeralContainers[0].Name, State: state}}
			added <- change.Spec.EphemeralContainers[0]
			return true, now, kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), now, "data")
		})
	}
}

func TestDebugContainerIsAddedAndAttachedTo(t *testing.T) {
	added, opened := make(chan corev1.EphemeralContainer, 1), make(chan string, 1)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	s := newShow(t, Config{NodeShellImage: "registry.example/tools:2"}, 130, 30, debugging(t, added, running), func(a *app) {
		a.cluster.exec = func(of target, sub string, options any) (remotecommand.Executor, error) {
			opened <- of.String() + " " + sub + " " + options.(*corev1.PodAttachOptions).Container
			return nil, errors.New("no terminal here")
		}
	})
	s.await("db-0")
	s.keys("/", "name:db-0", tcell.KeyEnter)
	s.await("pods(all)[1/4]")
	s.keys("D")
	s.await("debug data/db-0", "processes of db", "cannot be taken out", "registry.example/tools:2", "Cancel")
	s.keys(tcell.KeyEnter)
	c := <-added
	if c.TargetContainerName != "db" || c.Image != "registry.example/tools:2" || !c.TTY || !c.Stdin {
		t.Errorf("adds %+v", c)
	}
	if got := <-opened; got != "data/db-0 attach "+c.Name || !strings.HasPrefix(c.Name, "debugger-") {
		t.Errorf("opens %s for %s", got, c.Name)
	}
	s.await("pods(all)[1/4]")
}

func TestDeleteAsksWhatBecomesOfWhatIsOwned(t *testing.T) {
	deleted := make(chan metav1.DeletionPropagation, 1)
	s := newShow(t, Config{}, 130, 30, allowing(t, nil), func(a *app) {
		a.feed.(*fakeFeed).tables = shopTables()
		a.cluster.any.(*dynamicfake.FakeDynamicClient).PrependReactor("delete", "deployments", func(act kubetesting.Action) (bool, runtime.Object, error) {
			deleted <- *act.(kubetesting.DeleteAction).GetDeleteOptions().PropagationPolicy
			return true, nil, nil
		})
	})
	s.await("web-7d4b9c")
	s.keys(":deploy", tcell.KeyEnter, "/", "name:web", tcell.KeyEnter)
	s.await("deployments(all)[1/3]")
	s.control(tcell.KeyCtrlD)
	s.await("Delete deployment", "what it owns", "goes after it (Background)", "Cancel")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	if how := <-deleted; how != metav1.DeletePropagationBackground {
		t.Errorf("unasked, it is deleted with %s", how)
	}
	s.await("deleted")
	s.control(tcell.KeyCtrlD)
	s.await("Cancel")
	s.keys(tcell.KeyBacktab, tcell.KeyEnter, tcell.KeyDown, tcell.KeyDown, tcell.KeyEnter)
	s.await("stays (Orphan)")
	s.keys(tcell.KeyTab, tcell.KeyTab, tcell.KeyEnter)
	if how := <-deleted; how != metav1.DeletePropagationOrphan {
		t.Errorf("it is deleted with %s", how)
	}
}

func TestDebugContainerThatEndsSaysWhy(t *testing.T) {
	over := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: "no sh here"}}
	s := newShow(t, Config{}, 130, 30, debugging(t, make(chan corev1.EphemeralContainer, 1), over))
	s.await("db-0")
	s.keys("/", "name:db-0", tcell.KeyEnter)
	s.await("pods(all)[1/4]")
	s.keys("D")
	s.await("Cancel")
	s.keys(tcell.KeyEnter)
	s.await("StartError, exit code 128 no sh here")
}
