package interchange

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/test/conformance/lab"
)

// Every combination of parts ends the stories the same way. The first is the
// control of ours, the last that of the stories.
func TestMixes(t *testing.T) {
	for _, mix := range []struct {
		name                                    string
		apiServer, scheduler, controllerManager maker
	}{
		{"all-orrery", ours, ours, ours},
		{"upstream-scheduler", ours, upstreams, ours},
		{"upstream-controllers", ours, ours, upstreams},
		{"orrery-apiserver", ours, upstreams, upstreams},
		{"upstream-apiserver", upstreams, ours, ours},
		{"orrery-controllers", upstreams, upstreams, ours},
		{"orrery-scheduler", upstreams, ours, upstreams},
		{"all-upstream", upstreams, upstreams, upstreams},
	} {
		t.Run(mix.name, func(t *testing.T) {
			s := newSetup(t)
			s.apiServer(mix.apiServer)
			s.controllerManager(mix.controllerManager)
			s.scheduler(mix.scheduler)
			s.agents()
			s.untilNodes()
			tell(t, s)
		})
	}
}

// tell plays all stories.
func tell(t *testing.T, s *setup) {
	t.Run("together", func(t *testing.T) {
		for _, story := range stories {
			if !story.alone {
				t.Run(story.name, func(t *testing.T) {
					t.Parallel()
					story.play(newStage(t, s, story.name))
				})
			}
		}
	})
	for _, story := range stories {
		if story.alone {
			t.Run(story.name, func(t *testing.T) { story.play(newStage(t, s, story.name)) })
		}
	}
}

// untilNodes waits until all nodes are ready, and free of the taint of those
// that are not.
func (s *setup) untilNodes() {
	s.t.Helper()
	client, _ := s.clients()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	err := lab.Eventually(ctx, func(ctx context.Context) (string, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for _, n := range list.Items {
			ready := false
			for _, c := range n.Status.Conditions {
				ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}
			if !ready || len(n.Spec.Taints) > 0 {
				return n.Name + " is not ready", nil
			}
		}
		return unless(len(list.Items) == nodes, "nodes are not there"), nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}
