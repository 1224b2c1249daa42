package interchange

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"orrery.dev/test/conformance/lab"
)

// patience bounds every wait of a story.
const patience = time.Minute

// stage is where a story plays: a cluster, and a namespace of its own.
type stage struct {
	t       *testing.T
	ctx     context.Context
	c       kubernetes.Interface
	dynamic dynamic.Interface
	ns      string
}

// newStage makes the namespace and waits until pods can be made in it.
func newStage(t *testing.T, s *setup, name string) *stage {
	t.Helper()
	typed, untyped := s.clients()
	g := &stage{t: t, ctx: t.Context(), c: typed, dynamic: untyped}
	g.ns = g.namespace(name)
	return g
}

func (g *stage) namespace(name string) string {
	g.t.Helper()
	must(g.c.CoreV1().Namespaces().Create(g.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(g.t)
	g.until("service account and root certificate of "+name, func(ctx context.Context) (string, error) {
		if _, err := g.c.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return "", err
		}
		root, err := g.c.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return unless(err == nil && strings.Contains(root.Data["ca.crt"], "CERTIFICATE"), "no certificate in it"), err
	})
	return name
}

// until waits, and fails the test with what is missing.
func (g *stage) until(what string, look func(context.Context) (string, error)) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	if err := lab.Eventually(ctx, look); err != nil {
		g.t.Fatalf("%s: %v", what, err)
	}
}

// untilGone waits until get answers that there is no such thing.
func (g *stage) untilGone(what string, get func(context.Context) error) {
	g.t.Helper()
	g.until(what+" to be gone", func(ctx context.Context) (string, error) {
		err := get(ctx)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "still there", err
	})
}

// pods lists those that have the label app=app and are not on their way out.
func (g *stage) pods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := g.c.CoreV1().Pods(g.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	var all []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// untilPods waits until exactly n pods of an app are ready.
func (g *stage) untilPods(app string, n int) []corev1.Pod {
	g.t.Helper()
	var found []corev1.Pod
	g.until(fmt.Sprintf("%d ready pods of %s", n, app), func(ctx context.Context) (string, error) {
		var err error
		if found, err = g.pods(ctx, app); err != nil {
			return "", err
		}
		for _, p := range found {
			if !condition(p.Status.Conditions, corev1.PodReady) {
				return fmt.Sprintf("%s is %s on %q: %s", p.Name, p.Status.Phase, p.Spec.NodeName, p.Status.Message), nil
			}
		}
		return unless(len(found) == n, fmt.Sprintf("%d pods", len(found))), nil
	})
	return found
}

func condition(all []corev1.PodCondition, kind corev1.PodConditionType) bool {
	for _, c := range all {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unless is missing, if it is not ok.
func unless(ok bool, missing string) string {
	if ok {
		return ""
	}
	return missing
}

// must takes a result and fails the test for an error.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// template is that of pods of an app.
func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "example.org/app:1",
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}, TerminationGracePeriodSeconds: new(int64(1))},
	}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
