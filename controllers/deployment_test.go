package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

func deployment(replicas int32, surge, unavailable string) *appsv1.Deployment {
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "d", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels, "v1"),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u},
			},
			RevisionHistoryLimit: ptr(int32(1)), ProgressDeadlineSeconds: ptr(int32(600)),
		},
	}
}

func setOf(name string, replicas, available int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas},
		Status:     appsv1.ReplicaSetStatus{Replicas: replicas, ReadyReplicas: available, AvailableReplicas: available},
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		replicas            int32
		surge, unavailable  string
		wantSurge, wantUnav int32
	}{
		{10, "25%", "25%", 3, 2}, {3, "25%", "25%", 1, 0}, {1, "0%", "1%", 0, 1}, {4, "1", "0", 1, 0}, {2, "0", "5", 0, 2}, {0, "25%", "25%", 0, 0},
	} {
		d := deployment(c.replicas, c.surge, c.unavailable)
		if s, u := maxSurge(d), maxUnavailable(d); s != c.wantSurge || u != c.wantUnav {
			t.Errorf("%d replicas, %s and %s: got %d and %d", c.replicas, c.surge, c.unavailable, s, u)
		}
	}
}

func TestRollingSteps(t *testing.T) {
	for _, c := range []struct {
		name               string
		replicas           int32
		surge, unavailable string
		newest, old        *appsv1.ReplicaSet
		up                 int32
		down               int32 // size of old afterwards
	}{
		{"first step grows by the surge", 10, "3", "2", setOf("new", 0, 0), setOf("old", 10, 10), 3, 8},
		{"full: waits for availability", 10, "3", "2", setOf("new", 3, 0), setOf("old", 10, 10), 3, 8},
		{"new ones available: old shrinks", 10, "3", "2", setOf("new", 5, 5), setOf("old", 8, 8), 5, 3},
		{"no unavailability allowed", 3, "1", "0", setOf("new", 1, 0), setOf("old", 3, 3), 1, 3},
		{"sick old pods go first", 10, "0", "2", setOf("new", 0, 0), setOf("old", 10, 7), 0, 8},
		{"done", 3, "1", "0", setOf("new", 3, 3), setOf("old", 0, 0), 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rollout{d: deployment(c.replicas, c.surge, c.unavailable), newest: c.newest, old: []*appsv1.ReplicaSet{c.old}}
			if got := rollUp(r); got != c.up {
				t.Errorf("up: got %d, want %d", got, c.up)
			}
			down := *c.old.Spec.Replicas
			for _, s := range rollDown(r) {
				down = s.replicas
			}
			if down != c.down {
				t.Errorf("down: got %d, want %d", down, c.down)
			}
		})
	}
}

func TestProportionalScaling(t *testing.T) {
	d := deployment(30, "3", "2")
	a, b := setOf("old", 8, 8), setOf("new", 5, 0)
	for _, rs := range []*appsv1.ReplicaSet{a, b} {
		setSizes(rs, 10, 13)
	}
	got := map[string]int32{}
	for _, s := range scaleSets(&rollout{d: d, newest: b, old: []*appsv1.ReplicaSet{a}}) {
		got[s.set.Name] = s.replicas
	}
	if got["old"] != 20 || got["new"] != 13 {
		t.Errorf("10 to 30 with 8 and 5: got %v, want 20 and 13", got)
	}
}

func TestProgressVerdicts(t *testing.T) {
	now := time.Now()
	d := deployment(2, "1", "0")
	d.Status.Conditions = []appsv1.DeploymentCondition{newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated", "", now.Add(-time.Hour))}
	for _, c := range []struct {
		newest *appsv1.ReplicaSet
		reason string
	}{
		{setOf("new", 2, 2), "NewReplicaSetAvailable"},
		{setOf("new", 1, 0), "ReplicaSetUpdated"},
		{setOf("new", 0, 0), "ProgressDeadlineExceeded"},
	} {
		s := rolloutStatus(&rollout{d: d, newest: c.newest}, now)
		if got := conditionOf(s.Conditions, appsv1.DeploymentProgressing).Reason; got != c.reason {
			t.Errorf("got %s, want %s", got, c.reason)
		}
	}
}

// A Deployment is made, comes up, is updated and rolls over, keeping its pods'
// number; the story that kubectl rollout status watches.
func TestDeploymentRollsOver(t *testing.T) {
	set := fakeClients()
	ctx := context.Background()
	if _, err := set.AppsV1().Deployments("default").Create(ctx, deployment(3, "1", "1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running(t, set, "deployment-controller", "replicaset-controller")
	eventually(t, func() error { return rolledOut(t, set, 3, "1") })

	d, _ := set.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	d.Spec.Template.Spec.Containers[0].Image = "v2"
	d.Generation++
	if _, err := set.AppsV1().Deployments("default").Update(ctx, d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return rolledOut(t, set, 3, "2") })
	pods, _ := set.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	for _, pod := range pods.Items {
		if pod.Spec.Containers[0].Image != "v2" {
			t.Errorf("pod %s still runs %s", pod.Name, pod.Spec.Containers[0].Image)
		}
	}
}

func rolledOut(t *testing.T, set *fake.Clientset, replicas int32, revision string) error {
	t.Helper()
	playNode(t, set, "default")
	d, err := set.AppsV1().Deployments("default").Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	progressing := conditionOf(d.Status.Conditions, appsv1.DeploymentProgressing)
	if d.Annotations[annotationRevision] != revision || !complete(d, &d.Status) || d.Status.AvailableReplicas != replicas || progressing == nil || progressing.Reason != "NewReplicaSetAvailable" {
		return fmt.Errorf("revision %s, status %+v", d.Annotations[annotationRevision], d.Status)
	}
	return nil
}
