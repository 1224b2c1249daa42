package interchange

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// stories must end the same way in every mix. They play side by side, each in a
// namespace of its own, save those that disturb the others.
var stories = []struct {
	name  string
	play  func(*stage)
	alone bool
}{
	{name: "deployment", play: deployment},
	{name: "stateful-set", play: statefulSet},
	{name: "daemon-set", play: daemonSet},
	{name: "job", play: jobs},
	{name: "namespace", play: namespaces},
	{name: "garbage", play: garbage},
	{name: "volume", play: volumes},
	{name: "waiting-pod", play: waitingPod},
	{name: "quota", play: quotas},
	{name: "disruption", play: disruption},
	{name: "cluster-role", play: clusterRoles},
	{name: "certificate", play: certificates},
	{name: "token", play: tokens},
	{name: "preemption", play: preemption, alone: true},
	{name: "taint", play: taints, alone: true},
}

// A Deployment comes up behind its Service, is scaled, rolled out and deleted.
func deployment(g *stage) {
	deployments := g.c.AppsV1().Deployments(g.ns)
	must(g.c.CoreV1().Services(g.ns).Create(g.ctx, &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}}, metav1.CreateOptions{}))(g.t)
	must(deployments.Create(g.ctx, &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(3)), Selector: selector("web"), Template: template("web"),
	}}, metav1.CreateOptions{}))(g.t)
	available := func(replicas int32, image, revision string) {
		g.t.Helper()
		g.until(fmt.Sprintf("deployment with %d of %s", replicas, image), func(ctx context.Context) (string, error) {
			d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			st := d.Status
			ok := st.ObservedGeneration == d.Generation && st.Replicas == replicas && st.UpdatedReplicas == replicas && st.ReadyReplicas == replicas &&
				st.AvailableReplicas == replicas && d.Annotations["deployment.kubernetes.io/revision"] == revision
			for _, c := range st.Conditions {
				ok = ok && c.Status == corev1.ConditionTrue
			}
			return unless(ok && len(st.Conditions) == 2, fmt.Sprintf("%v %+v", d.Annotations, st)), nil
		})
		for _, pod := range g.untilPods("web", int(replicas)) {
			if pod.Spec.Containers[0].Image != image {
				g.t.Errorf("pod %s has image %s", pod.Name, pod.Spec.Containers[0].Image)
			}
		}
		g.untilEndpoints("web", int(replicas))
	}
	available(3, "example.org/app:1", "1")

	log, err := g.c.CoreV1().Pods(g.ns).GetLogs(g.untilPods("web", 3)[0].Name, &corev1.PodLogOptions{}).DoRaw(g.ctx)
	if err != nil || !strings.Contains(string(log), "simulated") {
		g.t.Errorf("log of a pod: %q, %v", log, err)
	}

	scale := must(deployments.GetScale(g.ctx, "web", metav1.GetOptions{}))(g.t)
	scale.Spec.Replicas = 5
	must(deployments.UpdateScale(g.ctx, "web", scale, metav1.UpdateOptions{}))(g.t)
	available(5, "example.org/app:1", "1")

	patch := `{"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"main","image":"example.org/app:2"}]}}}}`
	must(deployments.Patch(g.ctx, "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}))(g.t)
	available(2, "example.org/app:2", "2")

	if err := deployments.Delete(g.ctx, "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		g.t.Fatal(err)
	}
	g.untilGone("deployment", func(ctx context.Context) error {
		_, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	// It goes last.
	left := must(g.c.AppsV1().ReplicaSets(g.ns).List(g.ctx, metav1.ListOptions{}))(g.t)
	if len(left.Items) > 0 {
		g.t.Errorf("%d replica sets are left of it", len(left.Items))
	}
	g.untilPods("web", 0)
	g.untilEndpoints("web", 0)
}

// untilEndpoints waits until a Service has so many ready endpoints, in
// EndpointSlices and in Endpoints.
func (g *stage) untilEndpoints(service string, n int) {
	g.t.Helper()
	g.until(fmt.Sprintf("%d endpoints of %s", n, service), func(ctx context.Context) (string, error) {
		slices, err := g.c.DiscoveryV1().EndpointSlices(g.ns).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return "", err
		}
		ready := 0
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if *e.Conditions.Ready && *e.Conditions.Serving && !*e.Conditions.Terminating {
					ready++
				}
			}
		}
		old, err := g.c.CoreV1().Endpoints(g.ns).Get(ctx, service, metav1.GetOptions{}) //nolint:staticcheck // clients still read it
		if err != nil {
			return "", err
		}
		readyOld := 0
		for _, s := range old.Subsets {
			readyOld += len(s.Addresses)
		}
		return unless(ready == n && readyOld == n, fmt.Sprintf("%d in slices, %d in Endpoints", ready, readyOld)), nil
	})
}

// A StatefulSet comes up in order, with a claim per pod, and is rolled out.
func statefulSet(g *stage) {
	sets := g.c.AppsV1().StatefulSets(g.ns)
	must(sets.Create(g.ctx, &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(2)), Selector: selector("db"), Template: template("db"), ServiceName: "db",
	}}, metav1.CreateOptions{}))(g.t)
	settled := func(replicas int32) {
		g.t.Helper()
		g.until("stateful set", func(ctx context.Context) (string, error) {
			set, err := sets.Get(ctx, "db", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			st := set.Status
			return unless(st.ObservedGeneration == set.Generation && st.Replicas == replicas && st.ReadyReplicas == replicas && st.AvailableReplicas == replicas &&
				st.CurrentRevision == st.UpdateRevision && st.CurrentRevision != "", fmt.Sprintf("%+v", st)), nil
		})
		var names []string
		for _, p := range g.untilPods("db", int(replicas)) {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		for i, name := range names {
			if name != fmt.Sprintf("db-%d", i) {
				g.t.Errorf("pods %v", names)
			}
		}
	}
	settled(2)
	patch := `{"spec":{"replicas":3,"template":{"metadata":{"annotations":{"again":"1"}}}}}`
	must(sets.Patch(g.ctx, "db", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(g.t)
	settled(3)
	revisions := must(g.c.AppsV1().ControllerRevisions(g.ns).List(g.ctx, metav1.ListOptions{}))(g.t)
	if len(revisions.Items) != 2 {
		g.t.Errorf("%d revisions, want 2", len(revisions.Items))
	}
}

// A DaemonSet has a pod on every node, and replaces them.
func daemonSet(g *stage) {
	sets := g.c.AppsV1().DaemonSets(g.ns)
	must(sets.Create(g.ctx, &appsv1.DaemonSet{ObjectMeta: named("agent"), Spec: appsv1.DaemonSetSpec{
		Selector: selector("agent"), Template: template("agent"),
	}}, metav1.CreateOptions{}))(g.t)
	settled := func() {
		g.t.Helper()
		g.until("daemon set", func(ctx context.Context) (string, error) {
			set, err := sets.Get(ctx, "agent", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			st := set.Status
			return unless(st.ObservedGeneration == set.Generation && st.DesiredNumberScheduled == nodes && st.NumberAvailable == nodes && st.UpdatedNumberScheduled == nodes, fmt.Sprintf("%+v", st)), nil
		})
		on := map[string]bool{}
		for _, p := range g.untilPods("agent", nodes) {
			on[p.Spec.NodeName] = true
		}
		if len(on) != nodes {
			g.t.Errorf("on nodes %v", on)
		}
	}
	settled()
	patch := `{"spec":{"template":{"metadata":{"annotations":{"again":"1"}}}}}`
	must(sets.Patch(g.ctx, "agent", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(g.t)
	settled()
}

// Jobs complete, fail, and go away after their time.
func jobs(g *stage) {
	all := g.c.BatchV1().Jobs(g.ns)
	job := func(name, exit string, spec batchv1.JobSpec) {
		spec.Template = template(name)
		spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		spec.Template.Annotations = map[string]string{"simulate.orrery.dev/run-for": "500ms", "simulate.orrery.dev/exit-code": exit}
		must(all.Create(g.ctx, &batchv1.Job{ObjectMeta: named(name), Spec: spec}, metav1.CreateOptions{}))(g.t)
	}
	job("good", "0", batchv1.JobSpec{Completions: new(int32(3)), Parallelism: new(int32(2)), CompletionMode: new(batchv1.IndexedCompletion)})
	job("bad", "1", batchv1.JobSpec{BackoffLimit: new(int32(0))})
	job("brief", "0", batchv1.JobSpec{TTLSecondsAfterFinished: new(int32(1))})
	ends := func(name string, kind batchv1.JobConditionType, succeeded, failed int32, indexes string) {
		g.t.Helper()
		g.until("job "+name, func(ctx context.Context) (string, error) {
			j, err := all.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			ok := j.Status.Succeeded == succeeded && j.Status.Failed == failed && j.Status.CompletedIndexes == indexes && (j.Status.CompletionTime != nil) == (kind == batchv1.JobComplete)
			is := slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
			return unless(ok && is, fmt.Sprintf("%+v", j.Status)), nil
		})
	}
	ends("good", batchv1.JobComplete, 3, 0, "0-2")
	ends("bad", batchv1.JobFailed, 0, 1, "")
	g.untilGone("job", func(ctx context.Context) error {
		_, err := all.Get(ctx, "brief", metav1.GetOptions{})
		return err
	})
	g.until("pods to be let go of", func(ctx context.Context) (string, error) {
		list, err := g.c.CoreV1().Pods(g.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for _, p := range list.Items {
			if len(p.Finalizers) > 0 {
				return p.Name + " has a finalizer", nil
			}
		}
		return "", nil
	})
}

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// widget makes sure that there is a kind that the programs do not know, and
// returns an object of it.
func (g *stage) widget(name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	g.t.Helper()
	definitions := g.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{
					"size": map[string]any{"type": "integer", "default": int64(3)}}}}}}}},
		},
	}}
	if _, err := definitions.Create(g.ctx, definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		g.t.Fatal(err)
	}
	g.until("widgets to be served", func(ctx context.Context) (string, error) {
		_, err := g.dynamic.Resource(widgets).Namespace(g.ns).List(ctx, metav1.ListOptions{})
		return "", err
	})
	w := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{}}}
	w.SetName(name)
	w.SetOwnerReferences(owners)
	return w
}

// A namespace goes with all that is in it, custom objects too.
func namespaces(g *stage) {
	w := must(g.dynamic.Resource(widgets).Namespace(g.ns).Create(g.ctx, g.widget("w"), metav1.CreateOptions{}))(g.t)
	if size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size"); size != 3 {
		g.t.Errorf("the default is not in %v", w.Object)
	}
	must(g.c.AppsV1().Deployments(g.ns).Create(g.ctx, &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: selector("web"), Template: template("web"),
	}}, metav1.CreateOptions{}))(g.t)
	must(g.c.CoreV1().ConfigMaps(g.ns).Create(g.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.org/hold"}}}, metav1.CreateOptions{}))(g.t)
	g.untilPods("web", 2)
	if err := g.c.CoreV1().Namespaces().Delete(g.ctx, g.ns, metav1.DeleteOptions{}); err != nil {
		g.t.Fatal(err)
	}
	g.until("namespace to say what holds it", func(ctx context.Context) (string, error) {
		ns, err := g.c.CoreV1().Namespaces().Get(ctx, g.ns, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		told := map[corev1.NamespaceConditionType]string{}
		for _, c := range ns.Status.Conditions {
			told[c.Type] = string(c.Status) + " " + c.Message
		}
		ok := ns.Status.Phase == corev1.NamespaceTerminating && told[corev1.NamespaceFinalizersRemaining] == "True Some content in the namespace has finalizers remaining: example.org/hold in 1 resource instances" &&
			told[corev1.NamespaceContentRemaining] == "True Some resources are remaining: configmaps. has 1 resource instances"
		return unless(ok, fmt.Sprintf("%s %q", ns.Status.Phase, told)), nil
	})
	must(g.c.CoreV1().ConfigMaps(g.ns).Patch(g.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(g.t)
	g.untilGone("namespace", func(ctx context.Context) error {
		_, err := g.c.CoreV1().Namespaces().Get(ctx, g.ns, metav1.GetOptions{})
		return err
	})
	left := must(g.dynamic.Resource(widgets).Namespace(g.ns).List(g.ctx, metav1.ListOptions{}))(g.t)
	if len(left.Items) > 0 {
		g.t.Errorf("%d widgets outlived their namespace", len(left.Items))
	}
}

// Dependents go with their owner, or stay if they are to be orphans.
func garbage(g *stage) {
	maps := g.c.CoreV1().ConfigMaps(g.ns)
	owner := must(maps.Create(g.ctx, &corev1.ConfigMap{ObjectMeta: named("owner")}, metav1.CreateOptions{}))(g.t)
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
	must(g.dynamic.Resource(widgets).Namespace(g.ns).Create(g.ctx, g.widget("owned", reference), metav1.CreateOptions{}))(g.t)
	must(maps.Create(g.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{reference}}}, metav1.CreateOptions{}))(g.t)
	if err := maps.Delete(g.ctx, "owner", metav1.DeleteOptions{}); err != nil {
		g.t.Fatal(err)
	}
	g.untilGone("owned widget", func(ctx context.Context) error {
		_, err := g.dynamic.Resource(widgets).Namespace(g.ns).Get(ctx, "owned", metav1.GetOptions{})
		return err
	})
	g.untilGone("owned config map", func(ctx context.Context) error {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		return err
	})

	sets := g.c.AppsV1().ReplicaSets(g.ns)
	must(sets.Create(g.ctx, &appsv1.ReplicaSet{ObjectMeta: named("rs"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2)), Selector: selector("rs"), Template: template("rs")}}, metav1.CreateOptions{}))(g.t)
	g.untilPods("rs", 2)
	if err := sets.Delete(g.ctx, "rs", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}); err != nil {
		g.t.Fatal(err)
	}
	g.untilGone("replica set", func(ctx context.Context) error {
		_, err := sets.Get(ctx, "rs", metav1.GetOptions{})
		return err
	})
	for _, p := range g.untilPods("rs", 2) {
		if len(p.OwnerReferences) > 0 {
			g.t.Errorf("%s still has an owner", p.Name)
		}
	}
}

// Claims are bound to volumes, once there is a consumer, and protected while
// there is one.
func volumes(g *stage) {
	class := must(g.c.StorageV1().StorageClasses().Create(g.ctx, &storagev1.StorageClass{
		ObjectMeta: named("by-hand"), Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{}))(g.t)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume := &corev1.PersistentVolume{ObjectMeta: named("disk"), Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, StorageClassName: class.Name, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/disk"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-2"}}}}}}},
	}}
	must(g.c.CoreV1().PersistentVolumes().Create(g.ctx, volume, metav1.CreateOptions{}))(g.t)
	claims := g.c.CoreV1().PersistentVolumeClaims(g.ns)
	must(claims.Create(g.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: named("data"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &class.Name, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}, metav1.CreateOptions{}))(g.t)
	from := template("user")
	from.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	from.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	from.ObjectMeta.Name = "user"
	must(g.c.CoreV1().Pods(g.ns).Create(g.ctx, &corev1.Pod{ObjectMeta: from.ObjectMeta, Spec: from.Spec}, metav1.CreateOptions{}))(g.t)
	if pod := g.untilPods("user", 1)[0]; pod.Spec.NodeName != "node-2" {
		g.t.Errorf("the pod is on %s, its volume on node-2", pod.Spec.NodeName)
	}
	g.until("claim to be bound", func(ctx context.Context) (string, error) {
		claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return unless(claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName == "disk" && slices.Contains(claim.Finalizers, "kubernetes.io/pvc-protection"), fmt.Sprintf("%v %+v", claim.Finalizers, claim.Status)), nil
	})
	if err := claims.Delete(g.ctx, "data", metav1.DeleteOptions{}); err != nil {
		g.t.Fatal(err)
	}
	if claim := must(claims.Get(g.ctx, "data", metav1.GetOptions{}))(g.t); claim.DeletionTimestamp == nil {
		g.t.Error("the claim is not on its way out")
	}
	if err := g.c.CoreV1().Pods(g.ns).Delete(g.ctx, "user", metav1.DeleteOptions{}); err != nil {
		g.t.Fatal(err)
	}
	g.untilGone("claim", func(ctx context.Context) error {
		_, err := claims.Get(ctx, "data", metav1.GetOptions{})
		return err
	})
	g.until("volume to be released", func(ctx context.Context) (string, error) {
		v, err := g.c.CoreV1().PersistentVolumes().Get(ctx, "disk", metav1.GetOptions{})
		return unless(err == nil && v.Status.Phase == corev1.VolumeReleased, "not yet"), err
	})
}

// A pod that fits nowhere says so, and is scheduled once it does; a gated one
// waits for its gates.
func waitingPod(g *stage) {
	pods := g.c.CoreV1().Pods(g.ns)
	from := template("waiting")
	from.ObjectMeta.Name = "waiting"
	from.Spec.NodeSelector = map[string]string{"example.org/disk": "fast"}
	must(pods.Create(g.ctx, &corev1.Pod{ObjectMeta: from.ObjectMeta, Spec: from.Spec}, metav1.CreateOptions{}))(g.t)
	gated := template("gated")
	gated.ObjectMeta.Name = "gated"
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/gate"}}
	must(pods.Create(g.ctx, &corev1.Pod{ObjectMeta: gated.ObjectMeta, Spec: gated.Spec}, metav1.CreateOptions{}))(g.t)
	says := func(name, reason, message string) {
		g.t.Helper()
		g.until("condition of "+name, func(ctx context.Context) (string, error) {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			is := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == reason && c.Message == message
			})
			return unless(is, fmt.Sprintf("%+v", pod.Status.Conditions)), nil
		})
	}
	says("waiting", corev1.PodReasonUnschedulable, "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.")
	says("gated", corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates")
	g.until("event", func(ctx context.Context) (string, error) {
		events, err := g.c.CoreV1().Events(g.ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=waiting,reason=FailedScheduling"})
		return unless(err == nil && len(events.Items) > 0, "none"), err
	})
	must(g.c.CoreV1().Nodes().Patch(g.ctx, "node-3", types.MergePatchType, []byte(`{"metadata":{"labels":{"example.org/disk":"fast"}}}`), metav1.PatchOptions{}))(g.t)
	if pod := g.untilPods("waiting", 1)[0]; pod.Spec.NodeName != "node-3" {
		g.t.Errorf("on %s", pod.Spec.NodeName)
	}
	must(pods.Patch(g.ctx, "gated", types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}))(g.t)
	g.untilPods("gated", 1)
}

// A quota is counted, kept to, and counted again.
func quotas(g *stage) {
	all := g.c.CoreV1().ResourceQuotas(g.ns)
	must(all.Create(g.ctx, &corev1.ResourceQuota{ObjectMeta: named("small"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("1"), "count/configmaps": resource.MustParse("2"), "count/deployments.apps": resource.MustParse("1"),
	}}}, metav1.CreateOptions{}))(g.t)
	used := func(pods, maps string) {
		g.t.Helper()
		g.until("quota", func(ctx context.Context) (string, error) {
			q, err := all.Get(ctx, "small", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			is := q.Status.Used[corev1.ResourcePods]
			count := q.Status.Used["count/configmaps"]
			return unless(is.String() == pods && count.String() == maps && len(q.Status.Hard) == 3, fmt.Sprintf("%+v", q.Status)), nil
		})
	}
	used("0", "1") // the root certificate
	one, two := template("one"), template("two")
	one.ObjectMeta.Name, two.ObjectMeta.Name = "one", "two"
	pods := g.c.CoreV1().Pods(g.ns)
	must(pods.Create(g.ctx, &corev1.Pod{ObjectMeta: one.ObjectMeta, Spec: one.Spec}, metav1.CreateOptions{}))(g.t)
	_, err := pods.Create(g.ctx, &corev1.Pod{ObjectMeta: two.ObjectMeta, Spec: two.Spec}, metav1.CreateOptions{})
	if want := `pods "two" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1`; err == nil || err.Error() != want {
		g.t.Errorf("got %v, want %s", err, want)
	}
	used("1", "1")
	g.untilPods("one", 1)
	if err := pods.Delete(g.ctx, "one", metav1.DeleteOptions{}); err != nil {
		g.t.Fatal(err)
	}
	used("0", "1")
}

// A disruption budget is counted, and holds evictions back.
func disruption(g *stage) {
	must(g.c.PolicyV1().PodDisruptionBudgets(g.ns).Create(g.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: named("web"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(2)), Selector: selector("web"),
	}}, metav1.CreateOptions{}))(g.t)
	must(g.c.AppsV1().ReplicaSets(g.ns).Create(g.ctx, &appsv1.ReplicaSet{ObjectMeta: named("web"), Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(2)), Selector: selector("web"), Template: template("web"),
	}}, metav1.CreateOptions{}))(g.t)
	allowed := func(n int32) {
		g.t.Helper()
		g.until("budget", func(ctx context.Context) (string, error) {
			b, err := g.c.PolicyV1().PodDisruptionBudgets(g.ns).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return unless(b.Status.DisruptionsAllowed == n && b.Status.ExpectedPods == 2+n && b.Status.CurrentHealthy == 2+n && b.Status.ObservedGeneration == b.Generation, fmt.Sprintf("%+v", b.Status)), nil
		})
	}
	victim := g.untilPods("web", 2)[0].Name
	allowed(0)
	evict := func() error {
		return g.c.PolicyV1().Evictions(g.ns).Evict(g.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: victim, Namespace: g.ns}})
	}
	if err := evict(); !apierrors.IsTooManyRequests(err) || !strings.HasPrefix(err.Error(), "Cannot evict pod as it would violate the pod's disruption budget.") {
		g.t.Errorf("evicted against the budget: %v", err)
	}
	must(g.c.AppsV1().ReplicaSets(g.ns).Patch(g.ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}))(g.t)
	g.untilPods("web", 3)
	allowed(1)
	if err := evict(); err != nil {
		g.t.Error(err)
	}
	g.until("victim to be replaced", func(ctx context.Context) (string, error) {
		found, err := g.pods(ctx, "web")
		is := slices.ContainsFunc(found, func(p corev1.Pod) bool { return p.Name == victim })
		return unless(len(found) == 3 && !is, fmt.Sprint(len(found), " pods")), err
	})
	g.untilPods("web", 3)
	allowed(1)
}

// A role is the sum of those that it selects.
func clusterRoles(g *stage) {
	roles := g.c.RbacV1().ClusterRoles()
	rule := rbacv1.PolicyRule{APIGroups: []string{"example.org"}, Resources: []string{"widgets"}, Verbs: []string{"get"}}
	must(roles.Create(g.ctx, &rbacv1.ClusterRole{ObjectMeta: named("sum"), AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"sum": "yes"}}}}}, metav1.CreateOptions{}))(g.t)
	must(roles.Create(g.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: map[string]string{"sum": "yes", "rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{}))(g.t)
	g.until("sum of roles", func(ctx context.Context) (string, error) {
		sum, err := roles.Get(ctx, "sum", metav1.GetOptions{})
		return unless(err == nil && len(sum.Rules) == 1 && sum.Rules[0].String() == rule.String(), "not yet"), err
	})
	g.until("view to have it", func(ctx context.Context) (string, error) {
		view, err := roles.Get(ctx, "view", metav1.GetOptions{})
		return unless(err == nil && slices.ContainsFunc(view.Rules, func(r rbacv1.PolicyRule) bool { return r.String() == rule.String() }), "not yet"), err
	})
}

// An approved request is signed.
func certificates(g *stage) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		g.t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "somebody"}}, key)
	if err != nil {
		g.t.Fatal(err)
	}
	requests := g.c.CertificatesV1().CertificateSigningRequests()
	csr := must(requests.Create(g.ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: named("somebody"), Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}, metav1.CreateOptions{}))(g.t)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Tested"}}
	must(requests.UpdateApproval(g.ctx, csr.Name, csr, metav1.UpdateOptions{}))(g.t)
	g.until("certificate", func(ctx context.Context) (string, error) {
		csr, err := requests.Get(ctx, "somebody", metav1.GetOptions{})
		if err != nil || len(csr.Status.Certificate) == 0 {
			return "none yet", err
		}
		block, _ := pem.Decode(csr.Status.Certificate)
		cert, err := x509.ParseCertificate(block.Bytes)
		return unless(err == nil && cert.Subject.CommonName == "somebody", "of somebody else"), err
	})
}

// A Secret of an account gets its token, which lets its owner in.
func tokens(g *stage) {
	must(g.c.CoreV1().Secrets(g.ns).Create(g.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{}))(g.t)
	g.until("token", func(ctx context.Context) (string, error) {
		secret, err := g.c.CoreV1().Secrets(g.ns).Get(ctx, "token", metav1.GetOptions{})
		return unless(err == nil && len(secret.Data["token"]) > 0 && len(secret.Data["ca.crt"]) > 0 && string(secret.Data["namespace"]) == g.ns, "not yet"), err
	})
}

// A pod that matters more takes the place of one that matters less.
func preemption(g *stage) {
	class := must(g.c.SchedulingV1().PriorityClasses().Create(g.ctx, &schedulingv1.PriorityClass{ObjectMeta: named("first"), Value: 1000}, metav1.CreateOptions{}))(g.t)
	large := template("small")
	large.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7")}
	must(g.c.AppsV1().ReplicaSets(g.ns).Create(g.ctx, &appsv1.ReplicaSet{ObjectMeta: named("small"), Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(nodes)), Selector: selector("small"), Template: large,
	}}, metav1.CreateOptions{}))(g.t)
	g.untilPods("small", nodes)
	important := template("great")
	important.ObjectMeta.Name = "great"
	important.Spec.Containers[0].Resources.Requests = large.Spec.Containers[0].Resources.Requests
	important.Spec.PriorityClassName = class.Name
	must(g.c.CoreV1().Pods(g.ns).Create(g.ctx, &corev1.Pod{ObjectMeta: important.ObjectMeta, Spec: important.Spec}, metav1.CreateOptions{}))(g.t)
	g.untilPods("great", 1)
	g.until("one of the small to wait", func(ctx context.Context) (string, error) {
		found, err := g.pods(ctx, "small")
		waiting := 0
		for _, p := range found {
			if p.Spec.NodeName == "" {
				waiting++
			}
		}
		return unless(len(found) == nodes && waiting == 1, fmt.Sprintf("%d pods, %d wait", len(found), waiting)), err
	})
	if err := g.c.CoreV1().Pods(g.ns).Delete(g.ctx, "great", metav1.DeleteOptions{}); err != nil {
		g.t.Fatal(err)
	}
	g.untilPods("small", nodes)
}

// Pods leave a node that is tainted.
func taints(g *stage) {
	must(g.c.AppsV1().ReplicaSets(g.ns).Create(g.ctx, &appsv1.ReplicaSet{ObjectMeta: named("web"), Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(nodes)), Selector: selector("web"), Template: template("web"),
	}}, metav1.CreateOptions{}))(g.t)
	g.untilPods("web", nodes)
	must(g.c.CoreV1().Nodes().Patch(g.ctx, "node-1", types.StrategicMergePatchType, []byte(`{"spec":{"taints":[{"key":"example.org/away","effect":"NoExecute"}]}}`), metav1.PatchOptions{}))(g.t)
	g.until("pods to leave node-1", func(ctx context.Context) (string, error) {
		found, err := g.pods(ctx, "web")
		on := slices.ContainsFunc(found, func(p corev1.Pod) bool { return p.Spec.NodeName == "node-1" || p.Spec.NodeName == "" })
		return unless(len(found) == nodes && !on, "not yet"), err
	})
	g.untilPods("web", nodes)
	must(g.c.CoreV1().Nodes().Patch(g.ctx, "node-1", types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}))(g.t)
}
