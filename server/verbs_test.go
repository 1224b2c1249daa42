package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func configMap(name string, data ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{}}
	for i := 0; i+1 < len(data); i += 2 {
		cm.Data[data[i]] = data[i+1]
	}
	return cm
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.org/app:1"}}},
	}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("x").Spec},
		},
	}
}

// clients runs a test with a JSON and a protobuf client, over memory and etcd.
func clients(t *testing.T, test func(t *testing.T, c *cluster)) {
	run := func(name, contentType string, start func(t testing.TB) *cluster) {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			config := rest.CopyConfig(c.config)
			config.ContentType = contentType
			config.AcceptContentTypes = contentType + ",application/json"
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			c.client = client
			test(t, c)
		})
	}
	memory := func(t testing.TB) *cluster { return start(t) }
	run("memory, json", "application/json", memory)
	run("memory, protobuf", runtime.ContentTypeProtobuf, memory)
	run("etcd, protobuf", runtime.ContentTypeProtobuf, func(t testing.TB) *cluster {
		if testing.Short() {
			t.Skip("starts an etcd")
		}
		return startOver(t, overEtcd(t))
	})
}

func TestLifeOfAnObject(t *testing.T) {
	clients(t, func(t *testing.T, c *cluster) {
		ctx := context.Background()
		maps := c.client.CoreV1().ConfigMaps("default")
		watcher, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=one"})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		made, err := maps.Create(ctx, configMap("one", "a", "1"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || len(made.ManagedFields) != 1 {
			t.Errorf("metadata is incomplete: %+v", made.ObjectMeta)
		}
		made.Data["b"] = "2"
		changed, err := maps.Update(ctx, made, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update of an old state: %v", err)
		}
		same, err := maps.Update(ctx, changed, metav1.UpdateOptions{})
		if err != nil || same.ResourceVersion != changed.ResourceVersion {
			t.Errorf("an update without a change was written: %v", err)
		}
		got, err := maps.Get(ctx, "one", metav1.GetOptions{})
		if err != nil || got.Data["b"] != "2" {
			t.Errorf("get: %v %v", got.Data, err)
		}
		list, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Data["a"] != "1" || list.ResourceVersion == "" {
			t.Errorf("list: %+v %v", list, err)
		}
		if err := maps.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get after delete: %v", err)
		}
		for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
			event := next(t, watcher)
			if event.Type != want || event.Object.(*corev1.ConfigMap).Name != "one" {
				t.Errorf("event %v, want %v", event, want)
			}
		}
	})
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event within 5 s")
	}
	return watch.Event{}
}

func TestPatches(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	deployments := c.client.AppsV1().Deployments("default")
	made, err := deployments.Create(ctx, deployment("web", 1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Generation != 1 {
		t.Errorf("generation %d after create", made.Generation)
	}
	for _, step := range []struct {
		name  string
		kind  types.PatchType
		patch string
		check func(*appsv1.Deployment) bool
	}{
		{"merge", types.MergePatchType, `{"spec":{"replicas":2}}`, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 && d.Generation == 2 }},
		{"json", types.JSONPatchType, `[{"op":"replace","path":"/spec/replicas","value":3}]`, func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 3 }},
		{"strategic", types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example.org/side:1"}]}}}}`,
			func(d *appsv1.Deployment) bool { return len(d.Spec.Template.Spec.Containers) == 2 }},
		{"metadata", types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`, func(d *appsv1.Deployment) bool { return d.Annotations["a"] == "b" && d.Generation == 5 }},
		{"status is ignored", types.MergePatchType, `{"status":{"replicas":9}}`, func(d *appsv1.Deployment) bool { return d.Status.Replicas == 0 }},
	} {
		got, err := deployments.Patch(ctx, "web", step.kind, []byte(step.patch), metav1.PatchOptions{})
		if err != nil {
			t.Errorf("%s: %v", step.name, err)
			continue
		}
		if !step.check(got) {
			t.Errorf("%s: got %+v", step.name, got.Spec)
		}
	}
	got, err := deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"status":{"replicas":9},"spec":{"replicas":7}}`), metav1.PatchOptions{}, "status")
	if err != nil || got.Status.Replicas != 9 || *got.Spec.Replicas != 3 {
		t.Errorf("status patch: %+v %v", got.Status, err)
	}
}

func TestScale(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	deployments := c.client.AppsV1().Deployments("default")
	if _, err := deployments.Create(ctx, deployment("web", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	as := map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
	if code, body := c.do("GET", "/apis/apps/v1/namespaces/default/deployments/web/scale", "", as); code != 200 || !strings.Contains(body, `"Desired"`) || !strings.Contains(body, `"cells":["web",1,0,`) {
		t.Errorf("scale as a table: %d %s", code, body)
	}
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 1 || scale.Status.Selector != "app=web" {
		t.Fatalf("scale: %+v %v", scale, err)
	}
	scale.Spec.Replicas = 4
	if scale, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}); err != nil || scale.Spec.Replicas != 4 {
		t.Fatalf("scale: %+v %v", scale, err)
	}
	got, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil || *got.Spec.Replicas != 4 || got.Generation != 2 {
		t.Errorf("replicas %d, generation %d, %v", *got.Spec.Replicas, got.Generation, err)
	}
	code, body := c.do("PATCH", "/apis/apps/v1/namespaces/default/deployments/web/scale", `{"spec":{"replicas":2}}`, map[string]string{"Content-Type": string(types.MergePatchType)})
	if code != 200 || !strings.Contains(body, `"kind":"Scale","apiVersion":"autoscaling/v1"`) || !strings.Contains(body, `"replicas":2`) {
		t.Errorf("scale patch: %d %s", code, body)
	}
	bad := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: -1}}
	if _, err := deployments.UpdateScale(ctx, "web", bad, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("negative replicas: %v", err)
	}
}

// The owner of the replicas is the same, seen through the object and through its
// scale.
func TestScaleOwners(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	const path = "/apis/apps/v1/namespaces/default/deployments/web"
	apply := map[string]string{"Content-Type": string(types.ApplyPatchType)}
	const intent = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	if code, body := c.do("PATCH", path+"?fieldManager=author", intent, apply); code != 201 {
		t.Fatalf("apply: %d %s", code, body)
	}
	const scale = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web"},"spec":{"replicas":3}}`
	if code, body := c.do("PATCH", path+"/scale?fieldManager=scaler", scale, apply); code != 409 || !strings.Contains(body, `conflict with \"author\": .spec.replicas`) {
		t.Errorf("scale without force: %d %s", code, body)
	}
	if code, body := c.do("PATCH", path+"/scale?fieldManager=scaler&force=true", scale, apply); code != 200 || !strings.Contains(body, `"replicas":3`) {
		t.Errorf("scale with force: %d %s", code, body)
	}
	owns := func(manager string) (subresource string, replicas bool) {
		t.Helper()
		d, err := c.client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range d.ManagedFields {
			if e.Manager == manager {
				return e.Subresource, strings.Contains(string(e.FieldsV1.Raw), "f:replicas")
			}
		}
		return "", false
	}
	if sub, replicas := owns("scaler"); sub != "scale" || !replicas {
		t.Errorf("scaler owns through %q, replicas: %v", sub, replicas)
	}
	if _, replicas := owns("author"); replicas {
		t.Error("the author still owns the replicas")
	}
	if code, body := c.do("PATCH", path+"/scale?fieldManager=hand", `{"spec":{"replicas":5}}`, map[string]string{"Content-Type": string(types.MergePatchType)}); code != 200 {
		t.Fatalf("patch: %d %s", code, body)
	}
	if sub, replicas := owns("hand"); sub != "scale" || !replicas {
		t.Errorf("hand owns through %q, replicas: %v", sub, replicas)
	}
	if code, body := c.do("PATCH", path+"?fieldManager=author", intent, apply); code != 409 || !strings.Contains(body, `conflict with \"hand\"`) {
		t.Errorf("apply again: %d %s", code, body)
	}
}

// Clients own what they wrote, and not what the server added; in whatever group
// they wrote it.
func TestOwnersOnCreate(t *testing.T) {
	c := start(t)
	for _, write := range []struct{ path, body, owned string }{
		{"/apis/batch/v1/namespaces/default/jobs", `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, "f:backoffLimit"},
		{"/api/v1/namespaces/default/persistentvolumeclaims", `{"metadata":{"name":"c"},"status":{"phase":"Bound"},"spec":{"accessModes":["ReadWriteOnce"],"dataSource":{"kind":"PersistentVolumeClaim","name":"d"},"resources":{"requests":{"storage":"1Gi"}}}}`, "f:dataSource"},
		{"/apis/events.k8s.io/v1/namespaces/default/events", `{"metadata":{"name":"e"},"eventTime":"2026-01-02T03:04:05.000000Z","reportingController":"a.b/c","reportingInstance":"i","action":"a","reason":"r","type":"Normal","regarding":{"namespace":"default"}}`, "f:regarding"},
	} {
		code, body := c.do("POST", write.path, write.body, nil)
		var made metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(body), &made); code != 201 || err != nil || len(made.ManagedFields) != 1 {
			t.Errorf("%s: %d %v %s", write.path, code, err, body)
			continue
		}
		fields := string(made.ManagedFields[0].FieldsV1.Raw)
		if !strings.Contains(fields, write.owned) {
			t.Errorf("%s: %s is not owned: %s", write.path, write.owned, fields)
		}
		for _, added := range []string{"f:selector", "f:labels", "f:dataSourceRef", "f:status"} {
			if strings.Contains(fields, added) {
				t.Errorf("%s: %s is owned", write.path, added)
			}
		}
	}
}

func TestApply(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	maps := c.client.CoreV1().ConfigMaps("default")
	apply := func(manager string, force bool, data map[string]string) (*corev1.ConfigMap, error) {
		return maps.Apply(ctx, corev1apply.ConfigMap("one", "default").WithData(data), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if _, err := apply("alice", false, map[string]string{"a": "1", "b": "1"}); err != nil {
		t.Fatal(err)
	}
	_, err := apply("bob", false, map[string]string{"a": "2"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "alice": .data.a`) {
		t.Errorf("conflict: %v", err)
	}
	if got, err := apply("bob", true, map[string]string{"a": "2"}); err != nil || got.Data["a"] != "2" || got.Data["b"] != "1" {
		t.Errorf("forced: %v %v", got, err)
	}
	got, err := apply("alice", false, map[string]string{})
	if err != nil || got.Data["b"] != "" || got.Data["a"] != "2" {
		t.Errorf("what alice does not want any more: %v %v", got.Data, err)
	}
	again, err := apply("alice", false, map[string]string{})
	if err != nil || again.ResourceVersion != got.ResourceVersion {
		t.Errorf("applying the same wrote again: %v", err)
	}
	if _, err := c.client.CoreV1().Pods("default").Patch(ctx, "p", types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"b"}]}}`),
		metav1.PatchOptions{FieldManager: "m"}); err != nil {
		t.Errorf("apply a pod: %v", err)
	}
}

func TestGenerateName(t *testing.T) {
	c := start(t)
	cm := configMap("")
	cm.GenerateName = "some-"
	made, err := c.client.CoreV1().ConfigMaps("default").Create(context.Background(), cm, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(made.Name, "some-") || len(made.Name) != 10 {
		t.Errorf("name %q, %v", made.Name, err)
	}
}

func TestDryRun(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	maps := c.client.CoreV1().ConfigMaps("default")
	dry := []string{metav1.DryRunAll}
	if _, err := maps.Create(ctx, configMap("one"), metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run left something: %v", err)
	}
	if _, err := maps.Create(ctx, configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "one", metav1.DeleteOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "one", metav1.GetOptions{}); err != nil {
		t.Errorf("a dry delete deleted: %v", err)
	}
}

func TestDeletion(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	pods := c.client.CoreV1().Pods("default")
	create := func(p *corev1.Pod) *corev1.Pod {
		made, err := pods.Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	bindTo := func(name string) {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
		if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	create(pod("unbound"))
	if err := pods.Delete(ctx, "unbound", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "unbound", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod without a node must go at once: %v", err)
	}

	create(pod("graceful"))
	bindTo("graceful")
	if err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "graceful"}, Target: corev1.ObjectReference{Name: "n2"}}, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("second binding: %v", err)
	}
	if err := pods.Delete(ctx, "graceful", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := pods.Get(ctx, "graceful", metav1.GetOptions{})
	if err != nil || got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("graceful: %+v %v", got.ObjectMeta, err)
	}
	now := int64(0)
	if err := pods.Delete(ctx, "graceful", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "graceful", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("forced: %v", err)
	}

	held := configMap("held")
	held.Finalizers = []string{"example.org/hold"}
	maps := c.client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kept, err := maps.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || kept.DeletionTimestamp == nil {
		t.Fatalf("finalizer: %+v %v", kept, err)
	}
	kept.Finalizers = nil
	if _, err := maps.Update(ctx, kept, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the last finalizer went, the object stayed: %v", err)
	}

	uid := types.UID("other")
	create(pod("precious"))
	if err := pods.Delete(ctx, "precious", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); !apierrors.IsConflict(err) {
		t.Errorf("precondition: %v", err)
	}
	foreground := metav1.DeletePropagationForeground
	if err := pods.Delete(ctx, "precious", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	if got, err := pods.Get(ctx, "precious", metav1.GetOptions{}); err != nil || len(got.Finalizers) != 1 || got.Finalizers[0] != metav1.FinalizerDeleteDependents {
		t.Errorf("foreground: %+v %v", got.Finalizers, err)
	}
}

func TestDeleteCollection(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	maps := c.client.CoreV1().ConfigMaps("default")
	for _, name := range []string{"a", "b", "c"} {
		cm := configMap(name)
		cm.Labels = map[string]string{"odd": map[string]string{"a": "yes", "b": "no", "c": "yes"}[name]}
		if _, err := maps.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=yes"}); err != nil {
		t.Fatal(err)
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("left: %v %v", list.Items, err)
	}
}

func TestNamespaceDeletion(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	namespaces := c.client.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Delete(ctx, "short", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ns, err := namespaces.Get(ctx, "short", metav1.GetOptions{})
	if err != nil || ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil {
		t.Fatalf("namespace: %+v %v", ns, err)
	}
	ns.Spec.Finalizers = nil
	if ns, err = namespaces.Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range ns.ManagedFields {
		if strings.Contains(string(m.FieldsV1.Raw), "f:status") {
			t.Errorf("finalize came to own the status: %s", m.FieldsV1.Raw)
		}
	}
	if _, err := namespaces.Get(ctx, "short", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after finalize: %v", err)
	}
}

func TestPaging(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	maps := c.client.CoreV1().ConfigMaps("default")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for o := (metav1.ListOptions{Limit: 2}); ; {
		page, err := maps.List(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, cm := range page.Items {
			names = append(names, cm.Name)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			break
		}
	}
	if got := strings.Join(names, ""); got != "abcde" {
		t.Errorf("pages: %s", got)
	}
}

// TestFieldsOfAnotherVersion selects events by the names that the newer group
// has for what the older one stores.
// TestApplyOlderVersion: who applies an older version of an object takes away nothing
// that this version only implies.
func TestApplyOlderVersion(t *testing.T) {
	c := start(t)
	const path = "/apis/autoscaling/v%s/namespaces/default/horizontalpodautoscalers/h?fieldManager=%s&force=true"
	as := map[string]string{"Content-Type": "application/apply-patch+yaml"}
	body := ""
	for _, apply := range [][3]string{
		{"1", "one", "maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}, targetCPUUtilizationPercentage: 50"},
		{"2", "two", "maxReplicas: 4, minReplicas: 2"},
		{"1", "one", "scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}"},
	} {
		manifest := "{apiVersion: autoscaling/v" + apply[0] + ", kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {" + apply[2] + "}}"
		_, body = c.do("PATCH", fmt.Sprintf(path, apply[0], apply[1]), manifest, as)
	}
	if !strings.Contains(body, `"targetCPUUtilizationPercentage":50`) {
		t.Errorf("applied: %s", body)
	}
}

func TestFieldsOfAnotherVersion(t *testing.T) {
	c := start(t)
	ctx := context.Background()
	for _, name := range []string{"a", "b"} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod-" + name}, Source: corev1.EventSource{Component: "c"}, Reason: "r"}
		if _, err := c.client.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := c.client.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=pod-a"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("%v %v", list, err)
	}
	if list, err := c.client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=pod-b"}); err != nil || len(list.Items) != 1 {
		t.Errorf("%v %v", list, err)
	}
}
