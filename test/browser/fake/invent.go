package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"orrery.dev/server/storage"
)

// inventor fills a store.
type inventor struct {
	ctx   context.Context
	store *storage.Store
	nodes []string
}

func group(group, plural string) schema.GroupResource {
	return schema.GroupResource{Group: group, Resource: plural}
}

func meta(ns, name string, age time.Duration, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, UID: uuid.NewUUID(), Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))}
}

func (v *inventor) put(gr schema.GroupResource, obj runtime.Object) {
	for v.store.Collection(gr) == nil && v.ctx.Err() == nil { // the server is adding its kinds
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := v.store.Create(v.ctx, gr, obj); err != nil && v.ctx.Err() == nil {
		log.Printf("invent %s: %v", gr, err)
	}
}

func invent(ctx context.Context, store *storage.Store, pods int) {
	v := &inventor{ctx: ctx, store: store}
	for _, ns := range []string{"default", "kube-system", "kube-public", "shop", "payments", "monitoring", "batch"} {
		v.put(group("", "namespaces"), &corev1.Namespace{ObjectMeta: meta("", ns, 40*24*time.Hour, nil), Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}})
	}
	for i, name := range []string{"control-1", "worker-1", "worker-2", "worker-3", "worker-4"} {
		v.node(name, i == 0, i == 4)
	}
	v.system()
	v.workloads(pods)
	v.churn()
}

func (v *inventor) node(name string, control, cordoned bool) {
	labels := map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
	n := &corev1.Node{ObjectMeta: meta("", name, 39*24*time.Hour, labels), Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24", Unschedulable: cordoned},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.10.%d", 11+len(v.nodes))}, {Type: corev1.NodeHostName, Address: name}},
			Capacity:   corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110")},
			Conditions: []corev1.NodeCondition{{Type: "MemoryPressure", Status: "False", Reason: "KubeletHasSufficientMemory", LastTransitionTime: metav1.Now()}, {Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status", LastTransitionTime: metav1.Now()}},
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.37.2", OSImage: "Debian GNU/Linux 12 (bookworm)", KernelVersion: "6.1.0-31-amd64", ContainerRuntimeVersion: "containerd://2.3.1", OperatingSystem: "linux", Architecture: "amd64"},
		}}
	if control {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}}
	}
	v.nodes = append(v.nodes, name)
	v.put(group("", "nodes"), n)
}

func (v *inventor) pod(ns, name, node, image string, age time.Duration, labels map[string]string, change ...func(*corev1.Pod)) {
	yes := true
	p := &corev1.Pod{ObjectMeta: meta(ns, name, age, labels),
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: "default", Containers: []corev1.Container{{Name: "main", Image: image, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}, Limits: corev1.ResourceList{"memory": resource.MustParse("256Mi")}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.244.%d.%d", rand.IntN(5), 2+rand.IntN(250)), QOSClass: "Burstable",
			Conditions:        []corev1.PodCondition{{Type: "PodScheduled", Status: "True"}, {Type: "Initialized", Status: "True"}, {Type: "ContainersReady", Status: "True"}, {Type: "Ready", Status: "True"}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: image, Ready: true, Started: &yes, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-age))}}}},
		}}
	for _, f := range change {
		f(p)
	}
	v.put(group("", "pods"), p)
}

func (v *inventor) system() {
	args := map[string][]string{
		"etcd":                    {"etcd", "--name=control-1", "--data-dir=/var/lib/orrery/etcd", "--listen-client-urls=https://127.0.0.1:2379,https://192.168.10.11:2379", "--client-cert-auth=true", "--snapshot-count=10000"},
		"kube-apiserver":          {"kube-apiserver", "--advertise-address=192.168.10.11", "--etcd-servers=https://127.0.0.1:2379", "--authorization-mode=Node,RBAC", "--client-ca-file=/var/lib/orrery/pki/ca.crt", "--service-cluster-ip-range=10.96.0.0/12", "--secure-port=6443"},
		"kube-scheduler":          {"kube-scheduler", "--kubeconfig=/var/lib/orrery/kubeconfig/scheduler.conf", "--leader-elect=true", "--bind-address=127.0.0.1"},
		"kube-controller-manager": {"kube-controller-manager", "--kubeconfig=/var/lib/orrery/kubeconfig/controller-manager.conf", "--leader-elect=true", "--cluster-cidr=10.244.0.0/16"},
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"} {
		v.pod("kube-system", name+"-control-1", "control-1", "orrery:v1.37.2", 39*24*time.Hour, map[string]string{"component": name, "tier": "control-plane"}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Name, p.Spec.Containers[0].Command = name, args[name]
			p.Status.ContainerStatuses[0].Name = name
		})
	}
	for _, n := range v.nodes {
		v.pod("kube-system", "kube-proxy-"+suffix(5), n, "orrery:v1.37.2", 39*24*time.Hour, map[string]string{"k8s-app": "kube-proxy"})
	}
	for range 2 {
		v.pod("kube-system", "dns-6d4b75cb6d-"+suffix(5), "control-1", "orrery:v1.37.2", 39*24*time.Hour, map[string]string{"k8s-app": "kube-dns"})
	}
	for _, name := range []string{"kube-scheduler", "kube-controller-manager"} {
		holder, now, long := "control-1_"+string(uuid.NewUUID()), metav1.NowMicro(), int32(15)
		v.put(group("coordination.k8s.io", "leases"), &coordinationv1.Lease{ObjectMeta: meta("kube-system", name, 39*24*time.Hour, nil), Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &long}})
	}
}

func suffix(n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	s := make([]byte, n)
	for i := range s {
		s[i] = letters[rand.IntN(len(letters))]
	}
	return string(s)
}

var apps = []struct{ ns, name, image string }{
	{"shop", "storefront", "registry.example/shop/storefront:4.12.0"}, {"shop", "cart", "registry.example/shop/cart:2.3.1"}, {"shop", "search", "registry.example/shop/search:1.9.4"},
	{"payments", "ledger", "registry.example/pay/ledger:7.0.2"}, {"payments", "gateway", "registry.example/pay/gateway:3.1.0"},
	{"monitoring", "collector", "registry.example/obs/collector:0.44"}, {"default", "todo-frontend", "registry.example/todo/web:1.2"}, {"default", "todo-backend", "registry.example/todo/api:1.2"},
	{"batch", "report", "registry.example/batch/report:5"},
}

func (v *inventor) workloads(pods int) {
	each := int32(max(1, pods/len(apps)))
	for i, a := range apps {
		labels := map[string]string{"app": a.name}
		ready := each
		if i == 1 || i == 4 {
			ready--
		}
		selector := &metav1.LabelSelector{MatchLabels: labels}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: a.image}}}}
		d := &appsv1.Deployment{ObjectMeta: meta(a.ns, a.name, time.Duration(i+1)*31*time.Hour, labels), Spec: appsv1.DeploymentSpec{Replicas: &each, Selector: selector, Template: template},
			Status: appsv1.DeploymentStatus{Replicas: each, UpdatedReplicas: each, ReadyReplicas: ready, AvailableReplicas: ready, Conditions: []appsv1.DeploymentCondition{{Type: "Available", Status: "True", Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability."}}}}
		v.put(group("apps", "deployments"), d)
		hash := suffix(10)
		controller := true
		rs := &appsv1.ReplicaSet{ObjectMeta: meta(a.ns, a.name+"-"+hash, 30*time.Hour, labels), Spec: appsv1.ReplicaSetSpec{Replicas: &each, Selector: selector, Template: template}, Status: appsv1.ReplicaSetStatus{Replicas: each, ReadyReplicas: ready}}
		rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: a.name, UID: d.UID, Controller: &controller}}
		rsUID := rs.UID
		v.put(group("apps", "replicasets"), rs)
		v.put(group("", "services"), &corev1.Service{ObjectMeta: meta(a.ns, a.name, 30*time.Hour, labels), Spec: corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: fmt.Sprintf("10.96.%d.%d", i, 10+i), Selector: labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}}})
		for k := range int(each) {
			own := func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: a.name + "-" + hash, UID: rsUID, Controller: &controller}}
			}
			v.pod(a.ns, a.name+"-"+hash+"-"+suffix(5), v.nodes[1+rand.IntN(len(v.nodes)-1)], a.image, time.Duration(rand.IntN(200))*time.Hour+time.Minute, labels, own, v.trouble(i, k, a.ns))
		}
	}
	v.put(group("", "configmaps"), &corev1.ConfigMap{ObjectMeta: meta("shop", "storefront", 50*time.Hour, nil), Data: map[string]string{"application.yaml": "server:\n  port: 8080\nfeatures:\n  - search\n  - wishlist\n", "LOG_LEVEL": "info"}})
	v.put(group("", "secrets"), &corev1.Secret{ObjectMeta: meta("payments", "ledger-db", 50*time.Hour, nil), Type: "Opaque", Data: map[string][]byte{"password": []byte("x")}})
}

// trouble breaks a pod of some applications, each in its own way.
func (v *inventor) trouble(app, n int, ns string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s := &p.Status.ContainerStatuses[0]
		switch {
		case app == 1 && n == 0:
			s.Ready, s.RestartCount = false, 14
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container=main"}}
			s.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: metav1.NewTime(time.Now().Add(-2 * time.Minute))}}
			v.event(p, "BackOff", "Back-off restarting failed container main in pod "+p.Name, 14)
		case app == 4 && n == 0:
			p.Status.Phase = corev1.PodPending
			s.Ready, s.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
			v.event(p, "Failed", `Failed to pull image "registry.example/pay/gateway:3.1.0": not found`, 6)
		case app == 2 && n == 0:
			p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/5 nodes are available: 1 node had untolerated taint, 4 Insufficient memory."}}}
			v.event(p, "FailedScheduling", "0/5 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 4 Insufficient memory.", 31)
		case app == 3 && n == 1:
			s.Ready = false
			v.event(p, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", 9)
		case app == 8 && n > 1:
			p.Status.Phase = corev1.PodSucceeded
			s.Ready, s.State = false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
		}
	}
}

func (v *inventor) event(p *corev1.Pod, reason, message string, count int32) {
	last := metav1.NewTime(time.Now().Add(-time.Duration(rand.IntN(600)) * time.Second))
	v.put(group("", "events"), &corev1.Event{ObjectMeta: meta(p.Namespace, p.Name+"."+suffix(8), time.Hour, nil), Type: "Warning", Reason: reason, Message: message, Count: count, FirstTimestamp: last, LastTimestamp: last,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Source: corev1.EventSource{Component: "kubelet"}})
}

// churn makes pods come, get ready, restart and go.
func (v *inventor) churn() {
	pods := v.store.Collection(group("", "pods"))
	for n := 0; v.ctx.Err() == nil; n++ {
		select {
		case <-time.After(1200 * time.Millisecond):
		case <-v.ctx.Done():
			return
		}
		name := "report-" + fmt.Sprint(29385600+n) + "-" + suffix(5)
		starting := func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].Started = false, nil
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		}
		v.pod("batch", name, v.nodes[1+rand.IntN(4)], "registry.example/batch/report:5", 0, map[string]string{"app": "report"}, starting)
		time.AfterFunc(2*time.Second, func() {
			_, _ = pods.Update(v.ctx, "batch", name, storage.WriteOptions{}, func(o runtime.Object) (runtime.Object, error) {
				p, yes := o.(*corev1.Pod), true
				p.Status.Phase = corev1.PodRunning
				p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", Ready: true, Started: &yes, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
				return p, nil
			})
		})
		time.AfterFunc(8*time.Second, func() { _, _ = pods.Delete(v.ctx, "batch", name, storage.WriteOptions{}, nil) })
	}
}

// threeMembers is an etcd cluster in which the first member leads.
type threeMembers struct{}

func (threeMembers) MemberList(context.Context, ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	r := &clientv3.MemberListResponse{}
	for i := range uint64(3) {
		r.Members = append(r.Members, &pb.Member{ID: 0x8e9e05c52164694d + i, Name: fmt.Sprintf("control-%d", i+1), ClientURLs: []string{fmt.Sprintf("https://192.168.10.%d:2379", 11+i)}})
	}
	return r, nil
}

func (threeMembers) Status(_ context.Context, _ string) (*clientv3.StatusResponse, error) {
	at := uint64(time.Now().Unix() % 1e7)
	return &clientv3.StatusResponse{Header: &pb.ResponseHeader{Revision: int64(at)}, Version: "3.7.3", Leader: 0x8e9e05c52164694d, RaftTerm: 4, RaftIndex: at + 1203, RaftAppliedIndex: at + 1203, DbSize: 18 << 20, DbSizeInUse: 11 << 20, DbSizeQuota: 2 << 30}, nil
}
