package tui

import (
	"errors"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/remotecommand"
)

// jobbing has an API server whose Jobs get a pod in some state.
func jobbing(t *testing.T, made chan *batchv1.Job, status corev1.PodStatus) func(*app) {
	return func(a *app) {
		allowing(t, nil)(a)
		a.feed.(*fakeFeed).tables = shopTables()
		kube := a.cluster.kube.(*fake.Clientset)
		kube.PrependReactor("create", "jobs", func(act kubetesting.Action) (bool, runtime.Object, error) {
			job := act.(kubetesting.CreateAction).GetObject().(*batchv1.Job)
			job.Name, job.Namespace = job.GenerateName+"x7", act.GetNamespace()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-p", Labels: map[string]string{batchv1.JobNameLabel: job.Name}}, Spec: job.Spec.Template.Spec, Status: status}
			made <- job
			return true, job, errors.Join(kube.Tracker().Add(job), kube.Tracker().Add(pod))
		})
		kube.PrependReactor("create", "pods", func(kubetesting.Action) (bool, runtime.Object, error) { return true, &corev1.Pod{}, nil }) // it is a trial
	}
}

func (s *show) jobs() int {
	list, err := s.app.cluster.kube.BatchV1().Jobs("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list.Items)
}

func TestNodeShellAsksAndLeavesNothingBehind(t *testing.T) {
	made, opened, held := make(chan *batchv1.Job, 1), make(chan target, 1), make(chan string, 1)
	s := newShow(t, Config{Command: "nodes", Namespace: "ops", NodeShellImage: "registry.example/tools:2"}, 120, 30, jobbing(t, made, corev1.PodStatus{Phase: corev1.PodRunning}), func(a *app) {
		a.cluster.exec = func(of target, _ string, options any) (remotecommand.Executor, error) {
			if o := options.(*corev1.PodExecOptions); !o.TTY {
				held <- o.Command[2]
				return here{[]string{"cat"}}, nil
			}
			opened <- of
			return nil, errors.New("no terminal here")
		}
	})
	s.await("nodes[4]", "shell")
	s.keys("s")
	s.await("shell on node-1", "privileged", "namespace ops", "/host", "removes both", "registry.example/tools:2", "Cancel")
	if len(made) > 0 {
		t.Error("starts unasked")
	}
	s.keys(tcell.KeyEnter)
	if of := <-opened; of.String() != "ops/node-shell-node-1-x7-p" {
		t.Errorf("opens a shell in %s", of)
	}
	s.await("the pod of the shell is removed", "nodes[4]")
	if n := s.jobs(); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
	if command := <-held; !strings.Contains(command, "9>/tmp/shell") {
		t.Errorf("the console does not hold the pod: %s", command)
	}
	job := <-made
	spec := job.Spec.Template.Spec
	if c := spec.Containers[0]; spec.NodeName != "node-1" || !spec.HostPID || !spec.HostNetwork || !spec.HostIPC || !*c.SecurityContext.Privileged || c.VolumeMounts[0].MountPath != "/host" || c.Image != "registry.example/tools:2" {
		t.Errorf("the pod is %+v", spec)
	}
	if *job.Spec.TTLSecondsAfterFinished != 0 || *job.Spec.BackoffLimit != 0 || *job.Spec.ActiveDeadlineSeconds != 8*3600 {
		t.Errorf("nobody else would remove it: %+v", job.Spec)
	}
}

func TestNodeShellThatIsLeftIsRemoved(t *testing.T) {
	made := make(chan *batchv1.Job, 1)
	waiting := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}}
	s := newShow(t, Config{Command: "nodes"}, 120, 30, jobbing(t, made, waiting))
	s.await("nodes[4]")
	s.keys("s")
	s.await("Cancel")
	s.keys(tcell.KeyEnter)
	s.await("ErrImagePull: no such image")
	s.keys(tcell.KeyEscape)
	s.await("the pod of the shell is removed", "nodes[4]")
	if n := s.jobs(); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

func TestNodeShellSaysWhyNot(t *testing.T) {
	s := newShow(t, Config{Command: "nodes"}, 140, 30)
	s.await("nodes[4]")
	s.keys("s") // the fake authoriser allows nothing
	s.await(`node-shell: needs the verb "create" on jobs in default`)

	made := make(chan *batchv1.Job, 1)
	s = newShow(t, Config{Command: "nodes", Namespace: "strict"}, 140, 30, jobbing(t, made, corev1.PodStatus{}), func(a *app) {
		a.cluster.kube.(*fake.Clientset).PrependReactor("create", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New(`violates PodSecurity "restricted:latest"`))
		})
	})
	s.await("nodes[4]")
	s.keys("s")
	s.await("Cancel")
	s.keys(tcell.KeyEnter)
	s.await(`violates PodSecurity "restricted:latest"`)
	if len(made) > 0 {
		t.Error("makes a job for a pod that is refused")
	}

	s = newShow(t, Config{Command: "nodes", ReadOnly: true}, 140, 30)
	s.await("nodes[4]")
	s.keys("s")
	s.await("node-shell: this console is read only")
}
