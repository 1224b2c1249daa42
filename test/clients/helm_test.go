package clients

import (
	"context"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	release   = "corner"
	namespace = "shops"
	patience  = 2 * time.Minute
)

// TestHelm goes through the life of a release: its chart has a definition and a
// resource of it, a Deployment to wait for, and Jobs as hooks.
func TestHelm(t *testing.T) {
	for name, serverSide := range map[string]bool{"apply": true, "three-way merge": false} {
		t.Run(name, func(t *testing.T) { helmRelease(t, serverSide) })
	}
}

func helmRelease(t *testing.T, serverSide bool) {
	c := theCluster(t)
	ctx := t.Context()
	settings := cli.New()
	settings.KubeConfig = c.kubeconfig
	settings.SetNamespace(namespace)
	config := action.NewConfiguration()
	if err := config.Init(settings.RESTClientGetter(), namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.LoadDir("testdata/chart")
	if err != nil {
		t.Fatal(err)
	}

	install := action.NewInstall(config)
	install.ReleaseName, install.Namespace, install.CreateNamespace = release, namespace, true
	install.ServerSideApply, install.WaitStrategy, install.Timeout = serverSide, kube.StatusWatcherStrategy, patience
	if _, err := install.RunWithContext(ctx, chart, nil); err != nil {
		t.Fatalf("install: %v", err)
	}
	c.expectRelease(ctx, t, 2, "hello")
	c.expectJob(ctx, t, "pre-install")
	seen := &corev1.ConfigMap{}
	if problem := get(ctx, c, namespace, release+"-seen", seen, func(m *corev1.ConfigMap) bool { return m.Data["namespace"] == "kube-system" }); problem != "" {
		t.Error(problem)
	}

	upgrade := action.NewUpgrade(config)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = namespace, kube.StatusWatcherStrategy, patience
	if _, err := upgrade.RunWithContext(ctx, release, chart, map[string]any{"replicas": 3, "greeting": "salut"}); err != nil {
		t.Fatalf("upgrade: %v", err)
	}
	c.expectRelease(ctx, t, 3, "salut")
	c.expectJob(ctx, t, "pre-upgrade")
	if _, err := upgrade.RunWithContext(ctx, release, chart, map[string]any{"replicas": -1}); err == nil {
		t.Error("an upgrade to -1 replicas went well")
	}

	rollback := action.NewRollback(config)
	rollback.Version, rollback.WaitStrategy, rollback.Timeout = 1, kube.StatusWatcherStrategy, patience
	if err := rollback.Run(release); err != nil {
		t.Fatalf("rollback: %v", err)
	}
	c.expectRelease(ctx, t, 2, "hello")
	c.expectJob(ctx, t, "post-rollback")

	uninstall := action.NewUninstall(config)
	uninstall.WaitStrategy, uninstall.Timeout, uninstall.DeletionPropagation = kube.StatusWatcherStrategy, patience, "foreground"
	if _, err := uninstall.Run(release); err != nil {
		t.Fatalf("uninstall: %v", err)
	}
	for _, obj := range []client.Object{&appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.ServiceAccount{}} {
		await(ctx, t, func(ctx context.Context) string { return gone(ctx, c, namespace, release, obj) })
	}
	c.expectJob(ctx, t, "pre-delete")
	if err := c.client.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Error(err)
	}
}

// expectRelease checks that helm has waited for what it says it has.
func (c *cluster) expectRelease(ctx context.Context, t *testing.T, replicas int32, greeting string) {
	t.Helper()
	for _, problem := range []string{
		get(ctx, c, namespace, release, &appsv1.Deployment{}, func(d *appsv1.Deployment) bool {
			return *d.Spec.Replicas == replicas && d.Status.AvailableReplicas == replicas && d.Spec.Template.Annotations["greeting"] == greeting
		}),
		get(ctx, c, namespace, release, &corev1.ConfigMap{}, func(m *corev1.ConfigMap) bool { return m.Data["greeting"] == greeting }),
	} {
		if problem != "" {
			t.Error(problem)
		}
	}
	gauge := &metav1.PartialObjectMetadata{}
	gauge.APIVersion, gauge.Kind = "shop.example.org/v1", "Gauge"
	if problem := get(ctx, c, namespace, release, gauge, func(m *metav1.PartialObjectMetadata) bool {
		return m.Labels["app.kubernetes.io/managed-by"] == "Helm" && m.Annotations["meta.helm.sh/release-name"] == release
	}); problem != "" {
		t.Error(problem)
	}
}

// expectJob checks that a hook has run to its end.
func (c *cluster) expectJob(ctx context.Context, t *testing.T, hook string) {
	t.Helper()
	if problem := get(ctx, c, namespace, release+"-"+hook, &batchv1.Job{}, func(j *batchv1.Job) bool { return j.Status.Succeeded == 1 }); problem != "" {
		t.Error(problem)
	}
}
