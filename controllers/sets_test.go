package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func aNode(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "node"}, Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

func TestDaemonFits(t *testing.T) {
	ds := &appsv1.DaemonSet{}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	template := newDaemonTemplate(ds)
	labelled := func(n *corev1.Node) *corev1.Node { n.Labels = map[string]string{"disk": "ssd"}; return n }
	for _, c := range []struct {
		name      string
		node      *corev1.Node
		run, stay bool
	}{
		{"selected", labelled(aNode("a")), true, true},
		{"not selected", aNode("a"), false, false},
		{"no new pods", labelled(aNode("a", corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule})), false, true},
		{"driven off", labelled(aNode("a", corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoExecute})), false, false},
		{"unreachable nodes keep theirs", labelled(aNode("a", corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})), true, true},
	} {
		if run, stay := template.fits(c.node); run != c.run || stay != c.stay {
			t.Errorf("%s: run %v, stay %v", c.name, run, stay)
		}
	}
}

func TestDaemonSetCoversNodes(t *testing.T) {
	labels := map[string]string{"app": "d"}
	set := fakeClients(aNode("a"), aNode("b"), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "default", UID: "d"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels, "v1"), RevisionHistoryLimit: ptr(int32(10)),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{}}},
	})
	ctx := context.Background()
	running(t, set, "daemonset-controller")
	check := func(image string) func() error {
		return func() error {
			playNode(t, set, "default")
			pods, _ := set.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			on := map[string]string{}
			for _, pod := range pods.Items {
				on[targetNode(&pod)] += pod.Spec.Containers[0].Image
			}
			ds, _ := set.AppsV1().DaemonSets("default").Get(ctx, "d", metav1.GetOptions{})
			if len(on) != 2 || on["a"] != image || on["b"] != image || ds.Status.NumberReady != 2 || ds.Status.UpdatedNumberScheduled != 2 {
				return fmt.Errorf("pods %v, status %+v", on, ds.Status)
			}
			return nil
		}
	}
	eventually(t, check("v1"))
	ds, _ := set.AppsV1().DaemonSets("default").Get(ctx, "d", metav1.GetOptions{})
	ds.Spec.Template.Spec.Containers[0].Image = "v2"
	if _, err := set.AppsV1().DaemonSets("default").Update(ctx, ds, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, check("v2"))
}

func statefulSet(replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": "s"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", UID: "s"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "s", Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels, "v1"),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr(int32(0))},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
	}
}

func TestStatefulSteps(t *testing.T) {
	ready := func(n int, revision string) *corev1.Pod {
		pod := statefulPod(statefulSet(3), statefulVersion{revision, &corev1.PodTemplateSpec{}}, n)
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return pod
	}
	pending := func(n int, revision string) *corev1.Pod {
		pod := ready(n, revision)
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
		return pod
	}
	for _, c := range []struct {
		name     string
		replicas int32
		parallel bool
		pods     []*corev1.Pod
		want     string
	}{
		{"the first", 3, false, nil, "create s-0"},
		{"waits for the first", 3, false, []*corev1.Pod{pending(0, "new")}, ""},
		{"the second", 3, false, []*corev1.Pod{ready(0, "new")}, "create s-1"},
		{"all at once", 3, true, nil, "create s-0 create s-1 create s-2"},
		{"rolls from above", 3, false, []*corev1.Pod{ready(0, "old"), ready(1, "old"), ready(2, "old")}, "delete s-2"},
		{"rolls on", 3, false, []*corev1.Pod{ready(0, "old"), ready(1, "old"), ready(2, "new")}, "delete s-1"},
		{"shrinks from above", 1, false, []*corev1.Pod{ready(0, "new"), ready(1, "new"), ready(2, "new")}, "delete s-2"},
		{"does not shrink while all are ill", 0, false, []*corev1.Pod{pending(0, "new"), pending(1, "new"), pending(2, "new")}, ""},
		{"shrinks what alone is ill", 2, false, []*corev1.Pod{ready(0, "new"), ready(1, "new"), pending(2, "new")}, "delete s-2"},
		{"replaces what broke during the rollout", 3, false, []*corev1.Pod{ready(0, "old"), ready(1, "old"), pending(2, "old")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := statefulSet(c.replicas)
			if c.parallel {
				set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			}
			p := &statefulPlan{set: set, now: time.Now(), current: statefulVersion{"old", &corev1.PodTemplateSpec{}}, update: statefulVersion{"new", &corev1.PodTemplateSpec{}}}
			p.sortPods(c.pods)
			got := ""
			for _, s := range p.steps() {
				if s.do == statefulCreate || s.do == statefulDelete {
					got += map[statefulDo]string{statefulCreate: " create ", statefulDelete: " delete "}[s.do] + s.pod.Name
				}
			}
			if got != c.want && got != " "+c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestStatefulSetRolls(t *testing.T) {
	set := fakeClients(statefulSet(3))
	ctx := context.Background()
	running(t, set, "statefulset-controller")
	check := func(image string) func() error {
		return func() error {
			playNode(t, set, "default")
			pods, _ := set.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			claims, _ := set.CoreV1().PersistentVolumeClaims("default").List(ctx, metav1.ListOptions{})
			s, _ := set.AppsV1().StatefulSets("default").Get(ctx, "s", metav1.GetOptions{})
			ok := len(pods.Items) == 3 && len(claims.Items) == 3 && s.Status.ReadyReplicas == 3 && s.Status.CurrentRevision == s.Status.UpdateRevision && s.Status.UpdatedReplicas == 3
			for _, pod := range pods.Items {
				ok = ok && pod.Spec.Containers[0].Image == image
			}
			if !ok {
				return fmt.Errorf("%d pods, %d claims, status %+v", len(pods.Items), len(claims.Items), s.Status)
			}
			return nil
		}
	}
	eventually(t, check("v1"))
	s, _ := set.AppsV1().StatefulSets("default").Get(ctx, "s", metav1.GetOptions{})
	s.Spec.Template.Spec.Containers[0].Image = "v2"
	if _, err := set.AppsV1().StatefulSets("default").Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, check("v2"))
}
