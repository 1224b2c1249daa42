package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

func row(t *testing.T, group, version, plural string) *Kind {
	t.Helper()
	k := NewBuiltinTable().Find(schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	if k == nil {
		t.Fatalf("no row of %s/%s %s", group, version, plural)
	}
	return k
}

// write runs an object through what its row does before admission.
func write[T any](t *testing.T, k *Kind, obj, old *T) *T {
	t.Helper()
	o := any(obj).(runtime.Object).DeepCopyObject()
	if k.Default != nil {
		k.Default(o)
	}
	var before runtime.Object
	if old != nil {
		before = any(old).(runtime.Object)
	}
	k.Prepare(t.Context(), o, before)
	return any(o).(*T)
}

// What the whole pod has follows from its containers when they are final, and stays if
// a client drops it.
func TestPodLevelResources(t *testing.T) {
	k := row(t, "", "v1", "pods")
	cpu, huge := resource.MustParse("1"), resource.MustParse("4Mi")
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": cpu}},
		Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"hugepages-2Mi": huge}, Requests: corev1.ResourceList{"hugepages-2Mi": huge},
		}}},
	}}
	defaulted := pod.DeepCopy()
	k.Default(defaulted)
	if len(defaulted.Spec.Resources.Limits) > 0 {
		t.Errorf("by default: %v", defaulted.Spec.Resources)
	}
	made := write(t, k, pod, nil)
	if limits := made.Spec.Resources.Limits; !limits["hugepages-2Mi"].Equal(huge) {
		t.Errorf("made: %v", made.Spec.Resources)
	}
	dropped := made.DeepCopy()
	dropped.Spec.Resources = nil
	if got := write(t, k, dropped, made); got.Spec.Resources == nil || got.Generation != made.Generation {
		t.Errorf("dropped: %v, generation %d", got.Spec.Resources, got.Generation)
	}
}

func TestGenerationFollowsSpec(t *testing.T) {
	k := row(t, "apps", "v1", "deployments")
	one := write(t, k, &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 9}}, nil)
	if one.Generation != 1 || one.Status.Replicas != 0 {
		t.Fatalf("created: generation %d, %d replicas", one.Generation, one.Status.Replicas)
	}
	labelled := one.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	labelled.Status.Replicas = 9
	two := write(t, k, labelled, one)
	if two.Generation != 1 || two.Status.Replicas != 0 {
		t.Errorf("labelled: generation %d, %d replicas", two.Generation, two.Status.Replicas)
	}
	annotated := two.DeepCopy()
	annotated.Annotations = map[string]string{"a": "b"}
	if three := write(t, k, annotated, two); three.Generation != 2 {
		t.Errorf("annotated: generation %d", three.Generation)
	}
	scaled := two.DeepCopy()
	scaled.Spec.Paused = true
	if three := write(t, k, scaled, two); three.Generation != 2 {
		t.Errorf("changed: generation %d", three.Generation)
	}
	status := two.DeepCopy()
	status.Spec.Paused, status.Status.Replicas = true, 3
	k.Sub["status"].Prepare(t.Context(), status, two)
	if status.Spec.Paused || status.Status.Replicas != 3 || status.Generation != 1 {
		t.Errorf("status: %+v", status)
	}
}

func TestScale(t *testing.T) {
	k := row(t, "apps", "v1", "deployments")
	d := write(t, k, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d", ResourceVersion: "7"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
	}, nil)
	got, err := k.Sub["scale"].Get(d)
	if err != nil {
		t.Fatal(err)
	}
	s := got.(*autoscalingv1.Scale)
	if s.Spec.Replicas != 1 || s.Status.Selector != "a=b" || s.ResourceVersion != "7" {
		t.Errorf("read: %+v", s)
	}
	s.Spec.Replicas = 5
	if err := k.Sub["scale"].Put(d, s); err != nil || *d.Spec.Replicas != 5 || d.Generation != 2 {
		t.Errorf("written: %v, %+v", err, d)
	}
}

func TestNewPodIsPending(t *testing.T) {
	k := row(t, "", "v1", "pods")
	p := write(t, k, &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}, SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "1.2.3.4"},
	}, nil)
	if p.Status.Phase != corev1.PodPending || p.Status.QOSClass != corev1.PodQOSBestEffort || p.Status.PodIP != "" {
		t.Errorf("status: %+v", p.Status)
	}
	if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Reason != "SchedulingGated" {
		t.Errorf("conditions: %+v", p.Status.Conditions)
	}
}

func TestGracePeriod(t *testing.T) {
	k := row(t, "", "v1", "pods")
	sec := func(n int64) *int64 { return &n }
	pod := func(node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: sec(30)}, Status: corev1.PodStatus{Phase: phase}}
	}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		asked *int64
		want  int64
	}{
		"running":    {pod("n", corev1.PodRunning), nil, 30},
		"asked":      {pod("n", corev1.PodRunning), sec(5), 5},
		"at once":    {pod("n", corev1.PodRunning), sec(0), 0},
		"unassigned": {pod("", corev1.PodPending), nil, 0},
		"done":       {pod("n", corev1.PodSucceeded), nil, 0},
		"negative":   {pod("n", corev1.PodRunning), sec(-3), 1},
	} {
		if got := k.GracePeriod(c.pod, c.asked); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestJobSelectsItsOwnPods(t *testing.T) {
	k := row(t, "batch", "v1", "jobs")
	j := write(t, k, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u"}}, nil)
	k.Validate(j, nil)
	want := map[string]string{
		"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "j", "batch.kubernetes.io/job-name": "j",
	}
	if diff := cmp.Diff(want, j.Spec.Template.Labels); diff != "" {
		t.Errorf("labels:\n%s", diff)
	}
	if got := j.Spec.Selector.MatchLabels; len(got) != 1 || got[batchv1.ControllerUidLabel] != "u" {
		t.Errorf("selector: %v", got)
	}
	// With a generated name the labels wait for it.
	j = write(t, k, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{GenerateName: "j-", UID: "u"}}, nil)
	j.Name = "j-abc"
	k.Validate(j, nil)
	if got := j.Spec.Template.Labels[batchv1.JobNameLabel]; got != "j-abc" {
		t.Errorf("label of a generated name: %q", got)
	}
}

func TestServiceKeepsItsAddress(t *testing.T) {
	k := row(t, "", "v1", "services")
	old := write(t, k, &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
	}}, nil)
	replaced := write(t, k, &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}, {Port: 81, Name: "b"}},
	}}, old)
	if replaced.Spec.ClusterIP != "10.96.0.7" || len(replaced.Spec.ClusterIPs) != 1 || replaced.Spec.Ports[0].NodePort != 30080 {
		t.Errorf("replaced: %+v", replaced.Spec)
	}
	inside := replaced.DeepCopy()
	inside.Spec.Type = corev1.ServiceTypeClusterIP
	if got := write(t, k, inside, replaced); got.Spec.Ports[0].NodePort != 0 || got.Spec.ExternalTrafficPolicy != "" {
		t.Errorf("without node ports: %+v", got.Spec)
	}
}

func TestSigningRequestRecordsItsAuthor(t *testing.T) {
	k := row(t, "certificates.k8s.io", "v1", "certificatesigningrequests")
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Username: "somebody else"}}
	k.Prepare(WithUser(t.Context(), &user.DefaultInfo{Name: "me", Groups: []string{"g"}}), r, nil)
	if r.Spec.Username != "me" || len(r.Spec.Groups) != 1 {
		t.Errorf("spec: %+v", r.Spec)
	}
}

func TestNamespaceFinalizer(t *testing.T) {
	k := row(t, "", "v1", "namespaces")
	ns := write(t, k, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, nil)
	if ns.Status.Phase != corev1.NamespaceActive || len(ns.Spec.Finalizers) != 1 || ns.Labels["kubernetes.io/metadata.name"] != "n" {
		t.Errorf("created: %+v", ns)
	}
	done := ns.DeepCopy()
	done.Spec.Finalizers, done.Labels = nil, nil
	k.Sub["finalize"].Prepare(t.Context(), done, ns)
	if len(done.Spec.Finalizers) != 0 || len(done.Labels) != 1 {
		t.Errorf("finalized: %+v", done)
	}
}

// A DaemonSet's annotation counts its templates, whatever the client says.
func TestTemplatesAreCounted(t *testing.T) {
	k := row(t, "apps", "v1", "daemonsets")
	count := func(d *appsv1.DaemonSet) string { return d.Annotations[appsv1.DeprecatedTemplateGeneration] }
	one := write(t, k, &appsv1.DaemonSet{}, nil)
	same := one.DeepCopy()
	same.Annotations[appsv1.DeprecatedTemplateGeneration] = "9"
	same = write(t, k, same, one)
	other := same.DeepCopy()
	other.Spec.Template.Labels = map[string]string{"a": "b"}
	other = write(t, k, other, same)
	if got := count(one) + count(same) + count(other); got != "112" {
		t.Errorf("counted %s, want 1, 1 and 2", got)
	}
}

// What is deprecated is said so.
func TestWarnings(t *testing.T) {
	prefer := corev1.ServiceTrafficDistributionPreferClose
	service := &corev1.Service{Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, TrafficDistribution: &prefer}}
	driver := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{}}}}
	if got := row(t, "", "v1", "services").Warn(service, nil); len(got) != 2 {
		t.Errorf("service: %q", got)
	}
	if got := row(t, "storage.k8s.io", "v1", "csidrivers").Warn(driver, nil); len(got) != 1 {
		t.Errorf("driver: %q", got)
	}
	if got := row(t, "", "v1", "endpoints").Deprecated; got == "" {
		t.Error("endpoints: nothing")
	}
}

// A stored StatefulSet comes back whole: protobuf has no room for the kind of
// its templates of claims.
func TestClaimTemplatesKeepTheirKind(t *testing.T) {
	k := row(t, "apps", "v1", "statefulsets")
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}}}}
	k.Decoded(set)
	if got := set.Spec.VolumeClaimTemplates[0]; got.Kind != "PersistentVolumeClaim" || got.APIVersion != "v1" {
		t.Errorf("got %s of %s", got.Kind, got.APIVersion)
	}
}
