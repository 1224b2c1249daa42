package cmd

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUpWaitsForItsOwnPodsOnly(t *testing.T) {
	pod := func(key, value string, static, ready bool) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: value, Labels: map[string]string{key: value}}}
		if static {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "1"}
		}
		p.Status.Phase = corev1.PodRunning
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		return p
	}
	all := []corev1.Pod{pod("k8s-app", "kube-proxy", false, true), pod("k8s-app", "kube-dns", false, true)}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		all = append(all, pod("component", name, true, true))
	}
	for _, c := range []struct {
		name  string
		pods  []corev1.Pod
		nodes int
		want  string
	}{
		{"all", all, 1, ""},
		{"a user's pod", append(all[:6:6], pod("app", "broken", false, false)), 1, ""},
		{"one of its own", append(all[:6:6], pod("component", "console-server", true, false)), 1, "console-server: Running, not ready"},
		{"another node", all, 2, "kube-proxy runs on 1 of 2 nodes"},
		{"one less", all[:5], 1, "no pod with component=kube-scheduler yet"},
	} {
		if got := missingSystemPod(c.pods, c.nodes); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
