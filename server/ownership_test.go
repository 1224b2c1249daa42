package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"orrery.dev/server/registry"
)

// owned is an object of a kind with two managers: "a", who made it, and "b", who has
// written what change changes.
func owned(t *testing.T, f *fieldManagers, kind schema.GroupVersionKind, obj runtime.Object, change func()) (*registry.Kind, runtime.Object) {
	t.Helper()
	k := f.kinds.FindKind(kind)
	obj.GetObjectKind().SetGroupVersionKind(kind)
	m, _ := meta.Accessor(obj)
	m.SetUID("u")
	empty := k.New()
	empty.GetObjectKind().SetGroupVersionKind(kind)
	manager, err := f.of(k, "")
	if err != nil {
		t.Fatal(err)
	}
	manager.UpdateNoErrors(empty, obj, "a")
	live := obj.DeepCopyObject()
	change()
	manager.UpdateNoErrors(live, obj, "b")
	owners := m.GetManagedFields()
	for i := range owners {
		owners[i].Time = &metav1.Time{Time: time.Unix(int64(1000+i), 0)}
	}
	return k, obj
}

func ownedObjects(t *testing.T, f *fieldManagers) map[*registry.Kind]runtime.Object {
	all := map[*registry.Kind]runtime.Object{}
	add := func(k *registry.Kind, obj runtime.Object) { all[k] = obj }
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "default"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("n"), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: time.Unix(5, 0)}},
	}
	add(owned(t, f, coordinationv1.SchemeGroupVersion.WithKind("Lease"), lease, func() { lease.Labels = map[string]string{"l": "1", "m": "2"} }))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"x": "y"}, Finalizers: []string{"example.org/f"}}}
	add(owned(t, f, corev1.SchemeGroupVersion.WithKind("Node"), node, func() {
		node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		node.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	}))
	p := pod("p")
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: "TCP"}, {Name: "other", ContainerPort: 81, Protocol: "TCP"}}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	p.Spec.Tolerations = []corev1.Toleration{{Key: "k", TolerationSeconds: ptr.To[int64](3)}}
	add(owned(t, f, corev1.SchemeGroupVersion.WithKind("Pod"), p, func() { p.Spec.Containers[0].Image = "example.org/app:2" }))
	d := deployment("d", 3)
	add(owned(t, f, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, d, func() { d.Spec.Replicas = ptr.To[int32](4) }))
	return all
}

// What is found without the schema is what the schema would have found, whatever of an
// object is changed.
func TestKeptOwnership(t *testing.T) {
	kinds := registry.NewBuiltinTable()
	f := newFieldManagers(kinds, NewFieldTypes(kinds))
	random := rand.New(rand.NewPCG(1, 2))
	for k, live := range ownedObjects(t, f) {
		manager, _ := f.of(k, "")
		kept := 0
		for range 2000 {
			obj := altered(random, k, live)
			who := []string{"a", "b"}[random.IntN(2)]
			quick := obj.DeepCopyObject()
			if !f.keep(k, "", live, quick, who) {
				if !equality.Semantic.DeepEqual(quick, obj) {
					t.Fatal("what was not kept was changed")
				}
				continue
			}
			kept++
			checkOwners(t, quick, manager.UpdateNoErrors(live, obj.DeepCopyObject(), who))
		}
		if kept < 20 {
			t.Errorf("of %s, %d were kept", k.Kind, kept)
		}
	}
}

// What is known of another object of the same outline is what the schema would find.
func TestOwnershipOfNewObjects(t *testing.T) {
	kinds := registry.NewBuiltinTable()
	f := newFieldManagers(kinds, NewFieldTypes(kinds))
	random := rand.New(rand.NewPCG(3, 4))
	for k, live := range ownedObjects(t, f) {
		manager, _ := f.of(k, "")
		empty := k.New()
		empty.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		known := 0
		for range 2000 {
			obj := altered(random, k, live)
			m, _ := meta.Accessor(obj)
			m.SetManagedFields(nil)
			quick := obj.DeepCopyObject()
			outline, done := f.first(k, "", empty, quick, "a")
			want := manager.UpdateNoErrors(empty, obj.DeepCopyObject(), "a")
			if outline != nil {
				f.firsts.learn(outline, want)
			}
			if !done {
				continue
			}
			known++
			checkOwners(t, quick, want)
		}
		if known < 200 {
			t.Errorf("of %s, %d were known", k.Kind, known)
		}
	}
}

func checkOwners(t *testing.T, obj, as runtime.Object) {
	t.Helper()
	if got, want := owners(obj), owners(as); !slices.Equal(got, want) {
		text, _ := json.Marshal(obj)
		t.Fatalf("%s has\n%s\nand not\n%s", text, got, want)
	}
}

// owners are an object's managed fields, in order, and whether they have a new time.
func owners(obj runtime.Object) []string {
	var all []string
	m, _ := meta.Accessor(obj)
	for _, o := range m.GetManagedFields() {
		all = append(all, fmt.Sprint(o.Manager, o.Operation, o.APIVersion, o.Subresource, o.FieldsV1.GetRawString(), o.Time.Unix() > 10000))
	}
	return all
}

// altered is an object in which one or two fields are other ones, or gone, or new.
func altered(random *rand.Rand, k *registry.Kind, live runtime.Object) runtime.Object {
	for {
		text, _ := json.Marshal(live)
		var content map[string]any
		json.Unmarshal(text, &content)
		for range 1 + random.IntN(2) {
			alter(random, content)
		}
		text, _ = json.Marshal(content)
		obj := k.New()
		if json.Unmarshal(text, obj) != nil {
			continue
		}
		obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		m, _ := meta.Accessor(obj)
		before, _ := meta.Accessor(live)
		m.SetManagedFields(before.GetManagedFields())
		if random.IntN(2) == 0 {
			m.SetManagedFields(nil)
		}
		return obj
	}
}

func alter(random *rand.Rand, in map[string]any) {
	keys := make([]string, 0, len(in))
	for key := range in {
		if key != "managedFields" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		in["new"] = "x"
		return
	}
	slices.Sort(keys)
	key := keys[random.IntN(len(keys))]
	switch random.IntN(12) {
	case 0:
		delete(in, key)
		return
	case 1:
		in["new"] = "x"
		return
	}
	switch v := in[key].(type) {
	case map[string]any:
		alter(random, v)
	case []any:
		in[key] = alteredList(random, v)
	case string:
		in[key] = v + "x"
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			in[key] = at.Add(time.Second).Format(metav1.RFC3339Micro)
		}
	case float64:
		in[key] = v + 1
	}
}

func alteredList(random *rand.Rand, list []any) []any {
	if len(list) == 0 {
		return append(list, "x")
	}
	switch i := random.IntN(len(list)); random.IntN(6) {
	case 0:
		return append(list, list[i])
	case 1:
		return slices.Delete(list, i, i+1)
	case 2:
		slices.Reverse(list)
	default:
		if item, ok := list[i].(map[string]any); ok {
			alter(random, item)
		}
	}
	return list
}

// A renewal, a heartbeat, another value of one's label cost no comparison by schema; what
// is somebody else's, or comes and goes, does.
func TestWhatIsKept(t *testing.T) {
	kinds := registry.NewBuiltinTable()
	f := newFieldManagers(kinds, NewFieldTypes(kinds))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"x": "y"}}}
	now := metav1.Unix(100, 0)
	k, _ := owned(t, f, corev1.SchemeGroupVersion.WithKind("Node"), node, func() { node.Labels = map[string]string{"l": "1"} })
	live := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: now}, {Type: "Full", Status: "False", LastHeartbeatTime: now}}
	node.Status.NodeInfo.KubeletVersion = "v1"
	status, _ := f.of(k, "status")
	status.UpdateNoErrors(live, node, "agent")
	for name, c := range map[string]struct {
		manager, subresource string
		change               func(*corev1.Node)
		kept                 bool
	}{
		"nothing":         {"agent", "status", func(*corev1.Node) {}, true},
		"a heartbeat":     {"agent", "status", func(n *corev1.Node) { n.Status.Conditions[1].LastHeartbeatTime = metav1.Unix(200, 0) }, true},
		"another's":       {"other", "status", func(n *corev1.Node) { n.Status.Conditions[1].LastHeartbeatTime = metav1.Unix(200, 0) }, false},
		"another door":    {"agent", "", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v2" }, false},
		"an item":         {"agent", "status", func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] }, false},
		"order":           {"agent", "status", func(n *corev1.Node) { slices.Reverse(n.Status.Conditions) }, false},
		"its label":       {"b", "", func(n *corev1.Node) { n.Labels["l"] = "2" }, true},
		"another label":   {"b", "", func(n *corev1.Node) { n.Labels["m"] = "2" }, false},
		"another's label": {"a", "", func(n *corev1.Node) { n.Labels["l"] = "2" }, false},
	} {
		obj := node.DeepCopy()
		c.change(obj)
		if kept := f.keep(k, c.subresource, node, obj, c.manager); kept != c.kept {
			t.Errorf("%s: kept %t, want %t", name, kept, c.kept)
		}
	}
}
