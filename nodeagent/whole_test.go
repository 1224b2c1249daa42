package nodeagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// newWholeLab is a lab whose agent makes volumes, runs probes and writes files as
// on a real node; only containers are simulated.
func newWholeLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("volumes in memory need root")
	}
	l := newLab(t)
	l.stop()
	l.config.Simulated = false
	l.config.RootDir, l.config.PodLogsDir = t.TempDir(), filepath.Join(t.TempDir(), "pods")
	k := &l.config.Kubelet
	k.CgroupsPerQOS, k.EnableServer, k.HealthzPort = ptr.To(false), ptr.To(false), ptr.To(int32(0))
	k.CPUCFSQuota = ptr.To(true)
	made := 0
	l.react("create", "podcertificaterequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made++
		r := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.PodCertificateRequest)
		r.Name = r.GenerateName + string(rune('a'+made))
		return false, nil, nil
	})
	l.start()
	t.Cleanup(func() {
		l.stop()
		_ = l.api.CoreV1().Pods("ns").Delete(context.Background(), "p", metav1.DeleteOptions{})
		l.start() // clears away volumes
		l.untilEmpty()
		until(t, "directories gone", func() (int, bool) {
			entries, _ := os.ReadDir(filepath.Join(l.config.RootDir, "pods"))
			return len(entries), len(entries) == 0
		})
		l.stop()
	})
	return l
}

func (l *lab) untilFile(path, want string) {
	l.Helper()
	until(l.TB, path, func() (string, bool) {
		data, _ := os.ReadFile(filepath.Join(l.config.RootDir, "pods", path))
		return string(data), string(data) == want
	})
}

func TestVolumesOfARunningPod(t *testing.T) {
	l := newWholeLab(t)
	ctx := context.Background()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Data: map[string]string{"key": "1"}}
	if _, err := l.api.CoreV1().ConfigMaps("ns").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := pod(corev1.RestartPolicyAlways, "a")
	p.Labels = map[string]string{"color": "red"}
	p.Spec.ServiceAccountName = "app"
	bundle := "roots"
	p.Spec.Volumes = []corev1.Volume{
		{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}},
		{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: &bundle, Path: "roots.pem"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
		}}}},
		{Name: "x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{PodCertificate: &corev1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519", CertificateChainPath: "chain.pem"}},
		}}}},
	}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/c"}, {Name: "t", MountPath: "/t"}, {Name: "x", MountPath: "/x"}}
	l.create(p)

	// It waits for the bundle and for its certificate, and for no longer.
	if _, err := l.api.CoreV1().ServiceAccounts("ns").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "sa"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.api.CertificatesV1().ClusterTrustBundles().Create(ctx, trustBundle(bundle, "", "", "one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sign(t, l.api, certificatesv1.PodCertificateRequestConditionTypeIssued, func(r *certificatesv1.PodCertificateRequest) {
		r.Status.CertificateChain = pemOf("leaf")
	})
	l.untilReady("p")
	const projected = "u/volumes/kubernetes.io~projected/"
	l.untilFile(projected+"x/chain.pem", pemOf("leaf"))
	l.untilFile(projected+"t/roots.pem", pemOf("one"))
	l.untilFile("u/volumes/kubernetes.io~configmap/c/key", "1")

	// What changes shows soon.
	cm.Data["key"] = "2"
	if _, err := l.api.CoreV1().ConfigMaps("ns").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.untilFile("u/volumes/kubernetes.io~configmap/c/key", "2")
	if _, err := l.api.CertificatesV1().ClusterTrustBundles().Update(ctx, trustBundle(bundle, "", "", "two"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.untilFile(projected+"t/roots.pem", pemOf("two"))
	changed := l.pod("p").DeepCopy()
	changed.Labels["color"] = "blue"
	if _, err := l.api.CoreV1().Pods("ns").Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.untilFile(projected+"t/labels", "color=\"blue\"\n")
}

// giveNode adds capacity to the node as somebody who knows of it would, and waits
// until the node offers it.
func (l *lab) giveNode(name corev1.ResourceName, amount string) {
	l.Helper()
	ctx := context.Background()
	nodes := l.api.CoreV1().Nodes()
	until(l.TB, "a node", func() (*corev1.Node, bool) {
		n, err := nodes.Get(ctx, "node-1", metav1.GetOptions{})
		return n, err == nil
	})
	patch := []byte(fmt.Sprintf(`{"status":{"capacity":{%q:%q}}}`, name, amount))
	until(l.TB, "the resource to be offered", func() (*corev1.Node, bool) {
		// Again and again, since a watch of the fake may begin late.
		n, err := nodes.Patch(ctx, "node-1", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			l.Fatal(err)
		}
		q := n.Status.Allocatable[name]
		return n, q.String() == amount
	})
}

// Extended resources count up to what the node's object says; those that it does
// not have are counted by others.
func TestExtendedResources(t *testing.T) {
	l := newWholeLab(t)
	l.giveNode("example.com/dongle", "3")
	ask := func(name string, amount corev1.ResourceList) *corev1.Pod {
		p := pod(corev1.RestartPolicyAlways, "a")
		p.Name, p.UID = name, types.UID(name)
		p.Spec.Containers[0].Resources.Requests = amount
		l.create(p)
		t.Cleanup(func() { _ = l.api.CoreV1().Pods("ns").Delete(context.Background(), name, metav1.DeleteOptions{}) })
		return p
	}
	ask("two", corev1.ResourceList{"example.com/dongle": quantity("2")})
	l.untilReady("two")
	ask("elsewhere", corev1.ResourceList{"example.com/elsewhere": quantity("2")})
	l.untilReady("elsewhere")
	ask("two-more", corev1.ResourceList{"example.com/dongle": quantity("2")})
	refused := until(t, "a refusal", func() (*corev1.Pod, bool) {
		p := l.pod("two-more")
		return p, p != nil && p.Status.Phase == corev1.PodFailed
	})
	if refused.Status.Reason != "OutOfexample.com/dongle" {
		t.Errorf("reason %q: %s", refused.Status.Reason, refused.Status.Message)
	}
}
