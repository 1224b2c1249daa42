package cmd

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"orrery.dev/api"
	"orrery.dev/client"
	"orrery.dev/cluster"
)

// simulated brings a simulated cluster up, and returns a client of its administrator.
func simulated(t *testing.T, changes ...func(*upOptions)) kubernetes.Interface {
	t.Helper()
	o := upOptions{dataDir: t.TempDir(), nodes: 2, address: freeAddress(t), serviceCIDR: "10.96.0.0/12", nodeCIDR: anyRange, simulate: true, timeout: time.Minute}
	for _, change := range changes {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := runSimulated(ctx, out, o)
		out.CloseWithError(io.EOF)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var text strings.Builder
	piece := make([]byte, 4096)
	for !strings.Contains(text.String(), "cluster is up") {
		n, err := said.Read(piece)
		if text.Write(piece[:n]); err != nil {
			t.Fatalf("the simulated cluster did not come up:\n%s", text.String())
		}
	}
	go io.Copy(io.Discard, said)
	clients, _, err := client.New(cluster.Layout{Dir: o.dataDir}.Kubeconfig("admin"), "test")
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A node that has just become ready has its taint still, and no pod is put there.
func TestNodesAreWaitedForUntilPodsMayRun(t *testing.T) {
	ready := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	tainted := ready.DeepCopy()
	tainted.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	once, cancel := context.WithCancel(context.Background())
	cancel()
	for want, one := range map[bool]*corev1.Node{true: ready, false: tainted} {
		n := &node{upOptions: upOptions{dataDir: t.TempDir(), nodes: 1, nodeCIDR: anyRange, simulate: true}, client: fake.NewClientset(one)}
		if err := n.waitAllNodes(once); (err == nil) != want {
			t.Errorf("taints %v: %v", one.Spec.Taints, err)
		}
	}
}

func TestJourneyOfADeployment(t *testing.T) {
	clients := simulated(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	label := map[string]string{"app": "web"}
	if _, err := clients.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: label, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	replicas := int32(2)
	made, err := clients.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: label}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Who did what, in this order, if not right after one another.
	stages := []string{
		"kube-apiserver: create deployments", "kube-apiserver: authentication", "kube-apiserver: authorization", "kube-apiserver: admission: mutating",
		"kube-apiserver: admission: validating", "kube-apiserver: etcd commit", "kube-controller-manager: sync",
		"kube-apiserver: create replicasets", "kube-controller-manager: sync", "kube-apiserver: create pods", "kube-scheduler: schedule", "kube-scheduler: filter",
		"kube-scheduler: score", "kube-scheduler: bind", "kube-apiserver: create pods/binding", "kubelet: admit", "kubelet: prepare pod", "kubelet: create sandbox",
		"kubelet: run container", "kubelet: pull image", "kubelet: create container", "kubelet: start container", "kube-apiserver: patch pods/status",
	}
	var j api.Journey
	var at string
	for complete, missing := false, stages; !complete || len(missing) > 0; {
		raw, err := clients.Discovery().RESTClient().Get().AbsPath(api.JourneyPath).Param("uid", string(made.UID)).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			t.Fatalf("%v; missing %v of\n%s", err, missing, at)
		}
		if err := json.Unmarshal(raw, &j); err != nil {
			t.Fatal(err)
		}
		missing, at = stages, ""
		deliveries, endpoints, done := false, false, false // in any order: nobody waits for the slice
		for _, s := range j.Spans {
			at += s.Component + ": " + s.Name + "\n"
			if len(missing) > 0 && s.Component+": "+s.Name == missing[0] {
				missing = missing[1:]
			}
			deliveries = deliveries || s.Name == "watch delivery"
			endpoints = endpoints || strings.HasSuffix(s.Name, " endpointslices")
			for _, d := range s.Details {
				done = done || d.Key == "orrery.milestone" && d.Value == "complete"
			}
		}
		complete = done && deliveries && endpoints
		time.Sleep(50 * time.Millisecond)
	}
	kinds := map[string]int{}
	for _, o := range j.Objects {
		kinds[o.Resource]++
	}
	if kinds["deployments"] != 1 || kinds["replicasets"] != 1 || kinds["pods"] != 2 || kinds["endpointslices"] != 1 {
		t.Errorf("objects %+v", j.Objects)
	}
	for _, s := range j.Spans {
		if s.Component == "kubelet" && s.Parent == "" && !strings.HasPrefix(s.Node, "node-") {
			t.Errorf("no node did %+v", s)
		}
	}
}
