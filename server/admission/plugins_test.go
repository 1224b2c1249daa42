package admission

import (
	"context"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
)

func TestNamespaceLifecycle(t *testing.T) {
	store := newFakeStore().with(core("namespaces"),
		&corev1.Namespace{ObjectMeta: named("", "ns")},
		&corev1.Namespace{ObjectMeta: named("", "ending"), Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
	)
	p := namespaceLifecycle(store)
	inNamespace := func(ns string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: named(ns, "c")} }
	for _, c := range []struct {
		name string
		r    *Request
		want string
	}{
		{"there", request(Create, "configmaps", inNamespace("ns"), nil), ""},
		{"missing", request(Create, "configmaps", inNamespace("x"), nil), `namespaces "x" not found`},
		{"ending", request(Create, "configmaps", inNamespace("ending"), nil), `configmaps "c" is forbidden: unable to create new content in namespace ending because it is being terminated`},
		{"update in an ending one", request(Update, "configmaps", inNamespace("ending"), inNamespace("ending")), ""},
		{"delete default", request(Delete, "namespaces", nil, &corev1.Namespace{ObjectMeta: named("", "default")}), `namespaces "default" is forbidden: this namespace may not be deleted`},
		{"delete another", request(Delete, "namespaces", nil, &corev1.Namespace{ObjectMeta: named("", "ns")}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := run(t, p, c.r)
			wantError(t, err, c.want)
			if c.name == "ending" && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				t.Error("no cause NamespaceTerminating")
			}
		})
	}
}

func TestServiceAccount(t *testing.T) {
	store := newFakeStore().with(core("serviceaccounts"),
		&corev1.ServiceAccount{ObjectMeta: named("ns", "default"), ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}},
		&corev1.ServiceAccount{ObjectMeta: named("ns", "quiet"), AutomountServiceAccountToken: ptr.To(false)},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "strict", Annotations: map[string]string{enforceMountable: "true"}}},
	)
	p := serviceAccount(store)

	pod := newPod("p")
	wantError(t, run(t, p, request(Create, "pods", pod, nil)), "")
	if pod.Spec.ServiceAccountName != "default" || pod.Spec.ImagePullSecrets[0].Name != "pull" {
		t.Errorf("account %+v", pod.Spec)
	}
	v := pod.Spec.Volumes[0]
	if !strings.HasPrefix(v.Name, "kube-api-access-") || len(v.Projected.Sources) != 3 || *v.Projected.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 || *v.Projected.DefaultMode != 420 {
		t.Errorf("volume %+v", v)
	}
	if m := pod.Spec.Containers[0].VolumeMounts; len(m) != 1 || m[0].MountPath != tokenMountPath || m[0].Name != v.Name {
		t.Errorf("mounts %+v", m)
	}

	quiet := newPod("p", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "quiet" })
	wantError(t, run(t, p, request(Create, "pods", quiet, nil)), "")
	if len(quiet.Spec.Volumes) != 0 {
		t.Error("token mounted in spite of automountServiceAccountToken=false")
	}
	secret := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	}
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"missing", newPod("p", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "x" }), `pods "p" is forbidden: error looking up service account ns/x: serviceaccount "x" not found`},
		{"mirror pod", newPod("p", mirror), ""},
		{"mirror pod with an account", newPod("p", mirror, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }), `pods "p" is forbidden: a mirror pod may not reference service accounts`},
		{"mirror pod with a secret", newPod("p", mirror, secret), `pods "p" is forbidden: a mirror pod may not reference secrets`},
		{"secret of a strict account", newPod("p", secret, func(p *corev1.Pod) { p.Spec.ServiceAccountName = "strict" }), `pods "p" is forbidden: volume with secret.secretName="s" is not allowed because service account strict does not reference that secret`},
	} {
		t.Run(c.name, func(t *testing.T) { wantError(t, run(t, p, request(Create, "pods", c.pod, nil)), c.want) })
	}
}

func TestNodeRestriction(t *testing.T) {
	bound := newPod("p", func(p *corev1.Pod) { p.UID, p.Spec.NodeName = "u", "n1" })
	store := newFakeStore().with(core("pods"), bound).with(core("nodes"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}})
	nobody := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})
	store.with(core("serviceaccounts"), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "sa-uid"}})
	withVolume := newPod("c", func(p *corev1.Pod) {
		p.UID, p.Spec.NodeName, p.Spec.ServiceAccountName = "c-uid", "n1", "app"
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/s"}},
		}}}}}
	})
	store.with(core("pods"), withVolume)
	certificate := func(change func(*certificatesv1.PodCertificateRequestSpec)) *certificatesv1.PodCertificateRequest {
		r := &certificatesv1.PodCertificateRequest{ObjectMeta: named("ns", "r"), Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/s", PodName: "c", PodUID: "c-uid", ServiceAccountName: "app", ServiceAccountUID: "sa-uid", NodeName: "n1", NodeUID: "node-uid",
		}}
		change(&r.Spec)
		return r
	}
	p := nodeRestriction(store, nobody)
	mirror := newPod("m", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.Spec.NodeName = "n1"
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid", Controller: ptr.To(true)}}
	})
	node := func(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	for _, c := range []struct {
		name string
		r    *Request
		want string
	}{
		{"mirror pod", request(Create, "pods", mirror, nil), ""},
		{"pod", request(Create, "pods", newPod("p"), nil), `pods "p" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		{"delete its pod", request(Delete, "pods", nil, bound), ""},
		{"delete another's pod", request(Delete, "pods", nil, newPod("q")), `pods "q" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself`},
		{"status of another's pod", request(Update, "pods", newPod("q"), newPod("q")).sub("status"), `pods "q" is forbidden: node "n1" can only update pod status for pods with spec.nodeName set to itself`},
		{"own labels", request(Update, "nodes", node(map[string]string{"kubernetes.io/hostname": "x", "mine": "y"}), node(nil)), ""},
		{"Kubernetes' labels", request(Update, "nodes", node(map[string]string{"node-role.kubernetes.io/master": ""}), node(nil)), `nodes "n1" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/master`},
		{"taints", request(Update, "nodes", node(nil), node(nil, corev1.Taint{Key: "k"})), `nodes "n1" is forbidden: node "n1" is not allowed to modify taints`},
		{"certificate for its pod", request(Create, "podcertificaterequests", certificate(func(*certificatesv1.PodCertificateRequestSpec) {}), nil), ""},
		{"certificate for another's pod", request(Create, "podcertificaterequests", certificate(func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeName = "n2" }), nil),
			`podcertificaterequests.certificates.k8s.io "r" is forbidden: PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"`},
		{"certificate for an earlier pod", request(Create, "podcertificaterequests", certificate(func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "x" }), nil),
			`PodCertificateRequest for pod "ns/c" contains pod UID ("x") which differs from running pod "c-uid"`},
		{"certificate as another account", request(Create, "podcertificaterequests", certificate(func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "admin" }), nil),
			`podcertificaterequests.certificates.k8s.io "r" is forbidden: PodCertificateRequest for pod "ns/c" contains serviceAccountName ("admin") that differs from running pod ("app")`},
		{"certificate of another signer", request(Create, "podcertificaterequests", certificate(func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/t" }), nil),
			`podcertificaterequests.certificates.k8s.io "r" is forbidden: pod "ns/c" does not mount a podCertificate projected volume for signer "example.com/t"`},
		{"another node", request(Update, "nodes", &corev1.Node{ObjectMeta: named("", "n2")}, &corev1.Node{ObjectMeta: named("", "n2")}), `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`},
	} {
		t.Run(c.name, func(t *testing.T) { wantError(t, run(t, p, c.r.by("system:node:n1", "system:nodes")), c.want) })
	}
	wantError(t, run(t, p, request(Create, "pods", newPod("p"), nil)), "") // of other users
}

func TestPodDefaults(t *testing.T) {
	node := &corev1.Node{ObjectMeta: named("", "n")}
	wantError(t, run(t, taintNodesByCondition(), request(Create, "nodes", node, nil)), "")
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "node.kubernetes.io/not-ready" {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	pod := newPod("p", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	})
	wantError(t, run(t, defaultTolerationSeconds(nil), request(Create, "pods", pod, nil)), "")
	if len(pod.Spec.Tolerations) != 2 || pod.Spec.Tolerations[1].Key != corev1.TaintNodeUnreachable || *pod.Spec.Tolerations[1].TolerationSeconds != 300 {
		t.Errorf("tolerations %+v", pod.Spec.Tolerations)
	}
	pod = newPod("p")
	wantError(t, run(t, defaultTolerationSeconds(map[string]int64{corev1.TaintNodeNotReady: 0}), request(Create, "pods", pod, nil)), "")
	if got := pod.Spec.Tolerations; len(got) != 2 || *got[0].TolerationSeconds != 0 || *got[1].TolerationSeconds != 300 {
		t.Errorf("tolerations %+v", got)
	}
}

func TestPriority(t *testing.T) {
	store := newFakeStore().with(classResource(),
		&schedulingv1.PriorityClass{ObjectMeta: named("", "high"), Value: 1000, PreemptionPolicy: ptr.To(corev1.PreemptNever)},
		&schedulingv1.PriorityClass{ObjectMeta: named("", "usual"), Value: 7, GlobalDefault: true},
	)
	p := priority(store)
	of := func(class string, value *int32) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Spec.Priority = class, value })
	}
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		want   string
		value  int32
		policy corev1.PreemptionPolicy
	}{
		{"class", of("high", nil), "", 1000, corev1.PreemptNever},
		{"default", of("", nil), "", 7, corev1.PreemptLowerPriority},
		{"same number", of("high", ptr.To[int32](1000)), "", 1000, corev1.PreemptNever},
		{"another number", of("high", ptr.To[int32](1)), `pods "p" is forbidden: the integer value of priority (1) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name`, 0, ""},
		{"missing", of("x", nil), `pods "p" is forbidden: no PriorityClass with name x was found`, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, run(t, p, request(Create, "pods", c.pod, nil)), c.want)
			if c.want == "" && (*c.pod.Spec.Priority != c.value || *c.pod.Spec.PreemptionPolicy != c.policy) {
				t.Errorf("priority %d, policy %s", *c.pod.Spec.Priority, *c.pod.Spec.PreemptionPolicy)
			}
		})
	}
	second := &schedulingv1.PriorityClass{ObjectMeta: named("", "second"), GlobalDefault: true}
	wantError(t, run(t, p, request(Create, "priorityclasses", second, nil)), `priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass usual is already marked as default. Only one default can exist`)
}

func TestStoragePlugins(t *testing.T) {
	class := func(name string, age time.Duration, isDefault, expands bool) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: named("", name), AllowVolumeExpansion: &expands}
		c.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0).Add(-age))
		if isDefault {
			c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	store := newFakeStore().with(storageClasses(), class("old", time.Hour, true, false), class("b", 0, true, true), class("a", 0, true, false), class("plain", 0, false, true))
	claim := func(name *string, size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: named("ns", "c"), Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: name, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}}
	}
	c := claim(nil, "1Gi")
	wantError(t, run(t, defaultStorageClass(store), request(Create, "persistentvolumeclaims", c, nil)), "")
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != "a" {
		t.Errorf("class %v, want a: the newest, first by name", c.Spec.StorageClassName)
	}
	none := claim(ptr.To(""), "1Gi")
	wantError(t, run(t, defaultStorageClass(store), request(Create, "persistentvolumeclaims", none, nil)), "")
	if *none.Spec.StorageClassName != "" {
		t.Error("the empty class was replaced")
	}
	wantError(t, run(t, storageObjectInUseProtection(), request(Create, "persistentvolumeclaims", c, nil)), "")
	if len(c.Finalizers) != 1 || c.Finalizers[0] != "kubernetes.io/pvc-protection" {
		t.Errorf("finalizers %v", c.Finalizers)
	}
	resize := persistentVolumeClaimResize(store)
	wantError(t, run(t, resize, request(Update, "persistentvolumeclaims", claim(ptr.To("b"), "2Gi"), claim(ptr.To("b"), "1Gi"))), "")
	wantError(t, run(t, resize, request(Update, "persistentvolumeclaims", claim(ptr.To("a"), "2Gi"), claim(ptr.To("a"), "1Gi"))),
		`persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`)
}

func TestDefaultIngressClass(t *testing.T) {
	store := newFakeStore().with(schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"},
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}}})
	ingress := &networkingv1.Ingress{ObjectMeta: named("ns", "i")}
	wantError(t, run(t, defaultIngressClass(store), request(Create, "ingresses", ingress, nil)), "")
	if ingress.Spec.IngressClassName == nil || *ingress.Spec.IngressClassName != "web" {
		t.Errorf("class %v", ingress.Spec.IngressClassName)
	}
}

func TestRuntimeClass(t *testing.T) {
	overhead := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	store := newFakeStore().with(schema.GroupResource{Group: nodev1.GroupName, Resource: "runtimeclasses"}, &nodev1.RuntimeClass{
		ObjectMeta: named("", "vm"), Overhead: &nodev1.Overhead{PodFixed: overhead}, Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"kvm": "yes"}},
	})
	p := runtimeClass(store)
	pod := newPod("p", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("vm") })
	wantError(t, run(t, p, request(Create, "pods", pod, nil)), "")
	if pod.Spec.Overhead.Cpu().String() != "100m" || pod.Spec.NodeSelector["kvm"] != "yes" {
		t.Errorf("spec %+v", pod.Spec)
	}
	wantError(t, run(t, p, request(Create, "pods", newPod("p", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("x") }), nil)), `pods "p" is forbidden: pod rejected: RuntimeClass "x" not found`)
	wantError(t, run(t, p, request(Create, "pods", newPod("p", func(p *corev1.Pod) { p.Spec.Overhead = overhead }), nil)), `pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`)
}

func TestCertificates(t *testing.T) {
	authz := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "approver" && a.GetName() == "example.com/*" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: named("", "r"), Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/s"}}
	p := certificateApproval(authz)
	wantError(t, run(t, p, request(Update, "certificatesigningrequests", csr, csr).sub("approval").by("approver")), "")
	wantError(t, run(t, p, request(Update, "certificatesigningrequests", csr, csr).sub("approval")), `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to approve requests with signerName "example.com/s"`)
	signed := csr.DeepCopy()
	signed.Status.Certificate = []byte("x")
	wantError(t, run(t, certificateSigning(authz), request(Update, "certificatesigningrequests", signed, csr).sub("status")), `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to sign requests with signerName "example.com/s"`)
	wantError(t, run(t, certificateSigning(authz), request(Update, "certificatesigningrequests", csr, csr).sub("status")), "")
}

func TestPodResize(t *testing.T) {
	node := &corev1.Node{ObjectMeta: named("", "n"), Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}}}
	p := podResize(newFakeStore().with(core("nodes"), node))
	asking := func(cpu string, generation int64) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) {
			p.Generation, p.Spec.NodeName = generation, "n"
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		})
	}
	wantError(t, run(t, p, request(Update, "pods", asking("2", 2), asking("1", 1)).sub("resize")), "")
	wantError(t, run(t, p, request(Update, "pods", asking("3", 2), asking("1", 1)).sub("resize")),
		`pods "p" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000`)
	wantError(t, run(t, p, request(Update, "pods", asking("3", 2), asking("1", 1))), "") // no resize
}

func TestNodeDeclaredFeatures(t *testing.T) {
	declares := func(name string, all ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: named("", name), Status: corev1.NodeStatus{DeclaredFeatures: all}}
	}
	p := nodeDeclaredFeatures(newFakeStore().with(core("nodes"), declares("old"), declares("new", "InPlacePodLevelResourcesVerticalScaling")))
	resized := func(node, cpu string, generation int64) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) {
			p.Generation, p.Spec.NodeName = generation, node
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
		})
	}
	for _, c := range []struct {
		node, cpu string
		want      string
	}{
		{"new", "2", ""},
		{"old", "1", ""},
		{"", "2", ""},
		{"old", "2", `pods "p" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "old"`},
		{"none", "2", `pods "p" is forbidden: node "none" not found`},
	} {
		wantError(t, run(t, p, request(Update, "pods", resized(c.node, c.cpu, 2), resized(c.node, "1", 1)).sub("resize")), c.want)
	}
}

func TestPodTopologyLabels(t *testing.T) {
	store := newFakeStore().with(core("nodes"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "z", "other": "x"}}})
	b := &corev1.Binding{ObjectMeta: named("ns", "p"), Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	wantError(t, run(t, podTopologyLabels(store), request(Create, "pods", b, nil).sub("binding")), "")
	if len(b.Labels) != 1 || b.Labels[corev1.LabelTopologyZone] != "z" {
		t.Errorf("labels %v", b.Labels)
	}
}

func TestPodSecurity(t *testing.T) {
	ns := func(name string, labels map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	store := newFakeStore().with(core("namespaces"), ns("ns", map[string]string{"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}))
	p, err := podSecurity(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	ask := func(pod *corev1.Pod) error {
		r := request(Create, "pods", pod, nil)
		r.Warn = func(text string) { warnings = append(warnings, text) }
		return run(t, p, r)
	}
	wantError(t, ask(newPod("p")), "")
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], `would violate PodSecurity "restricted:latest"`) {
		t.Errorf("warnings %q", warnings)
	}
	err = ask(newPod("p", func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
	wantError(t, err, `pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
}

func TestLimitRanger(t *testing.T) {
	quantities := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	store := newFakeStore().with(core("limitranges"), &corev1.LimitRange{ObjectMeta: named("ns", "l"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{
			Type: corev1.LimitTypeContainer, Default: quantities("cpu", "500m"), DefaultRequest: quantities("cpu", "100m"),
			Min: quantities("cpu", "50m"), Max: quantities("cpu", "1"), MaxLimitRequestRatio: quantities("cpu", "10"),
		},
		{Type: corev1.LimitTypePersistentVolumeClaim, Max: quantities("storage", "1Gi")},
	}}})
	p := limitRanger(store)
	pod := newPod("p")
	wantError(t, run(t, p, request(Create, "pods", pod, nil)), "")
	if r := pod.Spec.Containers[0].Resources; r.Requests.Cpu().String() != "100m" || r.Limits.Cpu().String() != "500m" {
		t.Errorf("resources %v", r)
	}
	if note := pod.Annotations[limitRangerAnnotation]; note != "LimitRanger plugin set: cpu request for container c; cpu limit for container c" {
		t.Errorf("note %q", note)
	}
	with := func(request, limit string) *corev1.Pod {
		return newPod("p", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("cpu", request), Limits: quantities("cpu", limit)}
		})
	}
	for _, c := range []struct{ request, limit, want string }{
		{"10m", "100m", `pods "p" is forbidden: minimum cpu usage per Container is 50m, but request is 10m`},
		{"1", "2", `pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2`},
		{"50m", "1", `pods "p" is forbidden: cpu max limit to request ratio per Container is 10, but provided ratio is 20.000000`},
		{"10m", "2", `pods "p" is forbidden: [minimum cpu usage per Container is 50m, but request is 10m, maximum cpu usage per Container is 1, but limit is 2, cpu max limit to request ratio per Container is 10, but provided ratio is 200.000000]`},
	} {
		wantError(t, run(t, p, request(Create, "pods", with(c.request, c.limit), nil)), c.want)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: named("ns", "c"), Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", "2Gi")}}}
	wantError(t, run(t, p, request(Create, "persistentvolumeclaims", claim, nil)), `persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi`)
}
