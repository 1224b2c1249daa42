package tui

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	appsv1 "k8s.io/api/apps/v1"
	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"

	"orrery.dev/api"
)

// allowing lets a console do everything with these objects, and tells its
// patches.
func allowing(t *testing.T, patches chan kubetesting.PatchAction, objects ...runtime.Object) func(*app) {
	return func(a *app) {
		kube := a.cluster.kube.(*fake.Clientset)
		kube.PrependReactor("create", "selfsubjectaccessreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, &authzv1.SelfSubjectAccessReview{Status: authzv1.SubjectAccessReviewStatus{Allowed: true}}, nil
		})
		for _, o := range objects {
			if err := kube.Tracker().Add(o); err != nil {
				t.Error(err)
			}
		}
		any := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objects...)
		any.PrependReactor("patch", "*", func(act kubetesting.Action) (bool, runtime.Object, error) {
			patches <- act.(kubetesting.PatchAction)
			return true, nil, nil
		})
		a.cluster.any = any
		a.kinds = append(a.kinds, kind{group: "apps", version: "v1", plural: "replicasets", singular: "replicaset", name: "ReplicaSet", short: []string{"rs"}, namespaced: true},
			kind{group: "apps", version: "v1", plural: "statefulsets", singular: "statefulset", name: "StatefulSet", short: []string{"sts"}, namespaced: true})
	}
}

func templateOf(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}}}
}

func controlledBy(kind, name string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{Namespace: "shop", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "u1", Controller: &yes}}}
}

func replicaSet(name, revision, image string) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: controlledBy("Deployment", "web"), Spec: appsv1.ReplicaSetSpec{Template: templateOf(image)}}
	rs.Name, rs.Annotations = name, map[string]string{revisionAnnotation: revision, "kubernetes.io/change-cause": "for " + image}
	rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = name
	return rs
}

func TestUndoShowsWhatChangesAndRollsBack(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Annotations: map[string]string{revisionAnnotation: "10", "gone": "yes"}},
		Spec: appsv1.DeploymentSpec{Template: templateOf("web:10")}}
	db := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "u1"}, Spec: appsv1.StatefulSetSpec{Template: templateOf("db:2")}}
	objects := []runtime.Object{web, db, replicaSet("web-a", "8", "web:8"), replicaSet("web-b", "9", "web:9"), replicaSet("web-c", "10", "web:10")}
	for i, image := range []string{"db:1", "db:2"} {
		r := &appsv1.ControllerRevision{ObjectMeta: controlledBy("StatefulSet", "db"), Revision: int64(i + 1)}
		data, err := json.Marshal(fields{"spec": fields{"template": fields{"$patch": "replace", "metadata": fields{"labels": fields{"app": "web"}}, "spec": fields{"containers": []fields{{"name": "web", "image": image}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		r.Name, r.Data.Raw = image[:2]+"-"+image[3:], data
		objects = append(objects, r)
	}
	ofWeb := podRow("shop", "web-a", "", api.StateOK)
	ofWeb.Owner = "Deployment/web"
	for _, c := range []struct {
		view, does  string
		row         api.Row
		shows, want []string
	}{
		{"deploy", ":undo", podRow("shop", "web", "", api.StateOK), []string{"roll shop/web back to revision 9", "web:10", "web:9"},
			[]string{`"image":"web:9"`, `{"deployment.kubernetes.io/revision":"10","kubernetes.io/change-cause":"for web:9"}`}},
		{"rs", "ctrl-l", ofWeb, []string{"roll shop/web back to revision 8", "web:10", "web:8"}, []string{`"image":"web:8"`}},
		{"sts", ":undo", podRow("shop", "db", "", api.StateOK), []string{"roll shop/db back to revision 1", "db:2", "db:1"}, []string{`"image":"db:1"`, `"$patch":"replace"`}},
	} {
		t.Run(c.view, func(t *testing.T) {
			patches := make(chan kubetesting.PatchAction, 1)
			s := makeShow(t, Config{Command: c.view}, allowing(t, patches, objects...))
			tells := []api.Tell{{Type: "columns", Columns: podColumns()}, {Type: "rows", Reset: true, Revision: "5", Live: true, Rows: []api.Row{c.row}}}
			s.feed.tables = map[string][]api.Tell{"deployments": tells, "replicasets": tells, "statefulsets": tells}
			s.run(100, 40)
			s.await(c.row.Name, "[1]")
			if c.does == "ctrl-l" {
				s.screen.InjectKey(tcell.KeyCtrlL, 0, tcell.ModCtrl)
			} else {
				s.keys(c.does, tcell.KeyEnter)
			}
			s.await(append(c.shows, "- ", "+ ", "Cancel")...)
			if len(patches) > 0 {
				t.Error("rolls back unasked")
			}
			s.keys(tcell.KeyTab, tcell.KeyEnter)
			s.await("rolled back")
			patch := string((<-patches).GetPatch())
			for _, want := range c.want {
				if !strings.Contains(patch, want) {
					t.Errorf("patches %s, wants %s", patch, want)
				}
			}
			if strings.Contains(patch, appsv1.DefaultDeploymentUniqueLabelKey) {
				t.Errorf("patches the label of a ReplicaSet: %s", patch)
			}
		})
	}
}

func TestPurgeDeletesTheFinishedPodsThatAreShown(t *testing.T) {
	var objects []runtime.Object
	for name, phase := range map[string]corev1.PodPhase{"web-9": corev1.PodSucceeded, "節點-測試": corev1.PodRunning, "db-0": corev1.PodFailed, "app[red]x": corev1.PodRunning} {
		namespace := "shop"
		if phase == corev1.PodFailed || name == "app[red]x" {
			namespace = "data"
		}
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}, Status: corev1.PodStatus{Phase: phase}})
	}
	deleted := make(chan string, 4)
	s := newShow(t, Config{}, 100, 30, allowing(t, nil, objects...), func(a *app) {
		a.cluster.any.(*dynamicfake.FakeDynamicClient).PrependReactor("delete", "pods", func(act kubetesting.Action) (bool, runtime.Object, error) {
			deleted <- act.(kubetesting.DeleteAction).GetName()
			return true, nil, nil
		})
	})
	s.await("db-0")
	s.keys("z")
	s.await("Delete 2 pods", "shop/web-9", "data/db-0", "Cancel")
	s.keys(tcell.KeyEscape, "/", "shop", tcell.KeyEnter)
	s.await("pods(all)[2/4] /shop")
	s.keys(":purge", tcell.KeyEnter)
	s.await("Delete pod", "shop/web-9", "Cancel")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("deleted")
	if got := <-deleted; got != "web-9" || len(deleted) > 0 {
		t.Errorf("deletes %s and %d more", got, len(deleted))
	}
	s.keys(tcell.KeyEscape, "/", "red", tcell.KeyEnter)
	s.await("[1/4] /red")
	s.keys("z")
	s.await("no pod shown has finished")
}
