package tui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/api"
)

// kin is a row with an owner.
func kin(kind, ns, name, owner string, state api.State, cells ...any) api.Row {
	return api.Row{UID: kind + "/" + ns + "/" + name, Namespace: ns, Name: name, Owner: owner, State: state, Created: testNow.Add(-time.Hour),
		Labels: map[string]string{"app": strings.Split(name, "-")[0]}, Cells: append([]any{name}, cells...)}
}

// plant is a tree that was told tables.
func plant(root string, tables map[string][]api.Tell) *tree {
	known := map[string]kind{}
	for _, k := range append(workKinds(), kind{version: "v1", plural: "services", name: "Service", namespaced: true}, kind{version: "v1", plural: "nodes", name: "Node"}) {
		known[k.plural] = k
	}
	for scope, k := range usedKinds() {
		known[scope] = k
	}
	k := known[root]
	t := newTree(newWords("en"), k, ownedBy(k), func(scope string) kind { return known[scope] }, func() {})
	t.show(func(v *view) { v.namespaces = k.namespaced })
	for _, k := range t.kinds {
		for _, m := range tables[k.plural] {
			t.tables[k.scope()].tell(m)
		}
		if tables[k.plural] == nil {
			t.tables[k.scope()].tell(api.Tell{Type: "rows", Reset: true, Revision: "1", Live: true})
		}
	}
	return t
}

// garden has a Deployment with a new and two old ReplicaSets, two pods, and a pod of
// its own.
func garden() map[string][]api.Tell {
	return map[string][]api.Tell{
		"deployments": table("Name Ready", kin("deploy", "shop", "web", "", api.StateProgressing, "1/2"), kin("deploy", "data", "api", "", api.StateOK, "0/0")),
		"replicasets": table("Name Desired:integer Current:integer Ready:integer", kin("rs", "shop", "web-3", "Deployment/web", api.StateProgressing, 2.0, 2.0, 1.0),
			kin("rs", "shop", "web-2", "Deployment/web", api.StateOK, 0.0, 0.0, 0.0), kin("rs", "shop", "web-1", "Deployment/web", api.StateOK, 0.0, 0.0, 0.0)),
		"pods": table("Name Ready Status Node/1", kin("pod", "shop", "web-3-a", "ReplicaSet/web-3", api.StateOK, "1/1", "Running", "one"),
			kin("pod", "shop", "web-3-b", "ReplicaSet/web-3", api.StateError, "0/1", "CrashLoopBackOff", "two"), kin("pod", "data", "alone", "", api.StateOK, "1/1", "Running", "one")),
		"services": table("Name Type Selector/1", kin("svc", "shop", "web", "", api.StateOK, "ClusterIP", "app=web"), kin("svc", "shop", "none", "", api.StateOK, "ExternalName", "<none>")),
		"nodes":    table("Name Status", kin("node", "", "one", "", api.StateOK, "Ready"), kin("node", "", "two", "", api.StateOK, "Ready")),
	}
}

// text is what the tree shows: glyphs, and cells.
func (t *tree) text() string {
	var b strings.Builder
	for _, r := range t.snapshot(testNow).rows {
		b.WriteString(strings.TrimRight(glyphOf(r.state)+" "+strings.Join(r.cells[:4], "  "), " ") + "\n")
	}
	return b.String()
}

func (t *tree) holds(test *testing.T, what, want string) {
	test.Helper()
	if got := t.text(); got != strings.TrimLeft(want, "\n") {
		test.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

// id is that of the line that holds a text.
func (t *tree) id(text string) string {
	for _, r := range t.snapshot(testNow).rows {
		if strings.Contains(strings.Join(r.cells, "  "), text) {
			return r.uid
		}
	}
	return ""
}

func TestTreeOfADeployment(t *testing.T) {
	tree := plant("deployments", garden())
	tree.holds(t, "at first", `
●   data/api  Deployment  0/0  healthy
◐ ▾ shop/web  Deployment  1/2  progressing
◐ ├─▾ web-3  ReplicaSet  1/2  progressing
● │ ├─▾ web-3-a  Pod  1/1  Running
✗ │ └─▾ web-3-b  Pod  0/1  CrashLoopBackOff
● └─▸ web-… × 2  replicasets    scaled to 0
`)
	tree.fold(tree.id("web-3  ReplicaSet"))
	tree.holds(t, "the worst of what is folded shows", `
●   data/api  Deployment  0/0  healthy
◐ ▾ shop/web  Deployment  1/2  progressing
✗ ├─▸ web-3  ReplicaSet  1/2  progressing
● └─▸ web-… × 2  replicasets    scaled to 0
`)
	tree.foldAll()
	tree.holds(t, "all folded", `
●   data/api  Deployment  0/0  healthy
✗ ▸ shop/web  Deployment  1/2  progressing
`)
	tree.foldAll()
	tree.tables["pods"].tell(api.Tell{Type: "rows", Revision: "2", Live: true, Gone: []string{"pod/shop/web-3-b"},
		Rows: []api.Row{kin("pod", "shop", "web-3-c", "ReplicaSet/web-3", api.StateProgressing, "0/1", "Pending", "")}})
	tree.holds(t, "live", `
●   data/api  Deployment  0/0  healthy
◐ ▾ shop/web  Deployment  1/2  progressing
◐ ├─▾ web-3  ReplicaSet  1/2  progressing
● │ ├─▾ web-3-a  Pod  1/1  Running
◐ │ └─▾ web-3-c  Pod  0/1  Pending
● └─▸ web-… × 2  replicasets    scaled to 0
`)
}

func TestTreeOfServicesAndNodes(t *testing.T) {
	plant("services", garden()).holds(t, "services", `
●   shop/none  Service    ExternalName
● ▾ shop/web  Service    ClusterIP
● ├─▾ web-3-a  Pod  1/1  Running
✗ └─▾ web-3-b  Pod  0/1  CrashLoopBackOff
`)
	plant("nodes", garden()).holds(t, "nodes", `
● ▾ one  Node    Ready
● ├─▾ data/alone  Pod  1/1  Running
● └─▾ shop/web-3-a  Pod  1/1  Running
● ▾ two  Node    Ready
✗ └─▾ shop/web-3-b  Pod  0/1  CrashLoopBackOff
`)
}

// A filter leaves what it matches, with the way there and what is below; so does the
// wish for faults, but for what is well.
func TestTreeIsFiltered(t *testing.T) {
	tree := plant("deployments", garden())
	tree.text()
	tree.foldAll()
	tree.show(func(v *view) { v.filter = "crash" })
	tree.holds(t, "filtered", `
◐ ▾ shop/web  Deployment  1/2  progressing
◐ └─▾ web-3  ReplicaSet  1/2  progressing
✗   └─▾ web-3-b  Pod  0/1  CrashLoopBackOff
`)
	tree.show(func(v *view) { v.filter = "kind:^deploy" })
	tree.holds(t, "by a column", `
●   data/api  Deployment  0/0  healthy
✗ ▸ shop/web  Deployment  1/2  progressing
`)
	tree.show(func(v *view) { v.filter, v.faultsOnly = "", true })
	tree.holds(t, "faults", `
◐ ▾ shop/web  Deployment  1/2  progressing
◐ └─▾ web-3  ReplicaSet  1/2  progressing
✗   └─▾ web-3-b  Pod  0/1  CrashLoopBackOff
`)
}

// An unfolded pod shows its containers and what it uses: what is not there is an error.
func TestTreeOfAPod(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "alone", Namespace: "data"}, Spec: corev1.PodSpec{
		ServiceAccountName: "reader", Containers: []corev1.Container{{Name: "main", EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "more"}, Optional: new(true)}}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}},
			{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}}}}},
	}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}}}}}}
	tables := garden()
	tables["pods"] = table("Name Ready Status Node/1", kin("pod", "data", "alone", "", api.StateError, "0/1", "CreateContainerConfigError", "one"))
	tree := plant("pods", tables)
	tree.snapshot(testNow)
	if open := tree.open(); len(open) != 1 || open[0].String() != "data/alone" {
		t.Fatalf("asks about %v", open)
	}
	object, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	tree.table("data/serviceaccounts").tell(api.Tell{Type: "error", Error: &api.Error{Code: 403, Message: "forbidden"}})
	for scope, rows := range map[string][]api.Row{"configmaps": nil, "secrets": nil, "persistentvolumeclaims": {kin("pvc", "data", "disk", "", api.StateOK, "Bound")}} {
		for _, m := range table("Name Status", rows...) {
			tree.table("data/" + scope).tell(m)
		}
	}
	of := target{kind: workKinds()[7], namespace: "data", name: "alone", uid: "pod/data/alone"}
	tree.tell(of, &pod.Spec, containerTell(api.Tell{Type: "object", Object: object}).Rows)
	tree.holds(t, "a pod", `
✗ ▾ data/alone  Pod  0/1  CreateContainerConfigError
✗ ├─main  container  0/1  CreateContainerConfigError
? ├─reader  ServiceAccount    may not be listed
● ├─disk  PersistentVolumeClaim    Bound
✗ ├─keys  Secret    not there
○ └─more  ConfigMap    not there, and optional
`)
	if c := tree.branch(tree.id("main")); c.of.scope() != "containers" || c.of.container != "main" || c.of.name != "alone" {
		t.Errorf("a container stands for %+v", c.of)
	}
	tree.tell(of, nil, nil)
	tree.holds(t, "gone", `
✗ ▾ data/alone  Pod  0/1  CreateContainerConfigError
`)
}

// Many pods become groups of one owner each, in which those that are not well come
// first.
func TestTreeOfManyPods(t *testing.T) {
	var pods []api.Row
	for i := range 240 {
		state, status := api.StateOK, "Running"
		if i%100 == 50 {
			state, status = api.StateError, "Error"
		}
		pods = append(pods, kin("pod", "shop", fmt.Sprintf("web-3-%d", i), "ReplicaSet/web-3", state, "1/1", status, "one"))
	}
	tables := garden()
	tables["pods"] = table("Name Ready Status Node/1", append(pods, kin("pod", "shop", "other", "ReplicaSet/web-3", api.StateOK, "1/1", "Running", "one"))...)
	tables["pods"][1].Rows[240].Owner = "Job/other"
	tree := plant("deployments", tables)
	tree.holds(t, "grouped", `
●   data/api  Deployment  0/0  healthy
◐ ▾ shop/web  Deployment  1/2  progressing
◐ ├─▾ web-3  ReplicaSet  1/2  progressing
✗ │ └─▸ web-3-… × 240  pods  238/240  2 unhealthy
● └─▸ web-… × 2  replicasets    scaled to 0
`)
	tree.fold(tree.id("× 240"))
	lines := strings.Split(tree.text(), "\n")
	if len(lines) != 240+6 || !strings.Contains(lines[4], "web-3-50  Pod") || !strings.Contains(lines[5], "web-3-150  Pod") || !strings.Contains(lines[6], "web-3-0  Pod") {
		t.Errorf("unfolded it is\n%s", strings.Join(lines[:8], "\n"))
	}
	if nodes := plant("nodes", tables).text(); !strings.Contains(nodes, "shop/web-3-… × 240  pods  238/240  2 unhealthy") || !strings.Contains(nodes, "shop/other") {
		t.Errorf("by node\n%s", nodes)
	}
}

// No more pods are unfolded than can be asked about.
func TestTreeFoldsThePodsUnfoldedFirst(t *testing.T) {
	var pods []api.Row
	for i := range openPods + 5 {
		pods = append(pods, kin("pod", "shop", fmt.Sprint("pod-", i), "", api.StateOK, "1/1", "Running", "one"))
	}
	tree := plant("pods", map[string][]api.Tell{"pods": table("Name Ready Status Node/1", pods...)})
	tree.snapshot(testNow)
	for i := range pods {
		tree.fold(pods[i].UID)
	}
	tree.snapshot(testNow)
	if n := len(tree.open()); n != openPods {
		t.Errorf("%d pods are unfolded", n)
	}
}

// Ten thousand pods are a tree in no time.
func BenchmarkTree(b *testing.B) {
	var pods []api.Row
	var sets []api.Row
	for i := range 10_000 {
		if i%100 == 0 {
			sets = append(sets, kin("rs", "shop", fmt.Sprintf("set-%d", i/100), "", api.StateOK, 100.0, 100.0, 100.0))
		}
		pods = append(pods, kin("pod", "shop", fmt.Sprintf("set-%d-%d", i/100, i), fmt.Sprintf("ReplicaSet/set-%d", i/100), api.StateOK, "1/1", "Running", "one"))
	}
	tree := plant("replicasets", map[string][]api.Tell{"replicasets": table("Name Desired Current Ready", sets...), "pods": table("Name Ready Status Node/1", pods...)})
	for b.Loop() {
		tree.tables["pods"].tell(api.Tell{Type: "rows", Revision: "2", Live: true, Rows: pods[:1]})
		if n := len(tree.snapshot(testNow).rows); n != 200 {
			b.Fatal(n)
		}
	}
}
