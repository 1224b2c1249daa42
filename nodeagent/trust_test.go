package nodeagent

import (
	"context"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

// referring is an agent that only reads what pods refer to.
func referring(t *testing.T, objects ...runtime.Object) (*Agent, *fake.Clientset) {
	t.Helper()
	api := fake.NewClientset(objects...)
	made := 0
	api.PrependReactor("create", "podcertificaterequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made++
		r := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.PodCertificateRequest)
		r.Name = fmt.Sprint(r.GenerateName, made)
		return false, nil, nil
	})
	a := &Agent{cfg: Config{NodeName: "n1"}, clients: api, background: newBackground(), events: &record.FakeRecorder{}}
	setDefaults(&a.cfg)
	a.log = a.cfg.Log
	a.pods = newPodSet(a)
	a.statuses = newStatusWriter(a)
	a.follower, a.trust, a.certificates = newFollower(a), newTrustBundles(a), newPodCertificates(a)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.background.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return a, api
}

func pemOf(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func trustBundle(name, signer, labels string, certificates ...string) *certificatesv1.ClusterTrustBundle {
	b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"l": labels}}}
	b.Spec.SignerName = signer
	for _, c := range certificates {
		b.Spec.TrustBundle += "# " + c + "\n" + pemOf(c)
	}
	return b
}

func TestTrustAnchors(t *testing.T) {
	a, _ := referring(t,
		trustBundle("free", "", "x", "one"),
		trustBundle("a.b:c:1", "a.b/c", "x", "one", "two"),
		trustBundle("a.b:c:2", "a.b/c", "y", "two", "three"),
		trustBundle("a.b:d:1", "a.b/d", "x", "four"),
	)
	by := func(selector *metav1.LabelSelector, optional bool) corev1.ClusterTrustBundleProjection {
		return corev1.ClusterTrustBundleProjection{SignerName: ptr.To("a.b/c"), LabelSelector: selector, Optional: &optional}
	}
	for name, c := range map[string]struct {
		projection corev1.ClusterTrustBundleProjection
		want       []string
		err        string
	}{
		"by name":          {corev1.ClusterTrustBundleProjection{Name: ptr.To("free")}, []string{"one"}, ""},
		"missing":          {corev1.ClusterTrustBundleProjection{Name: ptr.To("nope")}, nil, `while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "nope" not found`},
		"optional":         {corev1.ClusterTrustBundleProjection{Name: ptr.To("nope"), Optional: ptr.To(true)}, nil, ""},
		"all of a signer":  {by(&metav1.LabelSelector{}, false), []string{"one", "two", "three"}, ""},
		"by label":         {by(&metav1.LabelSelector{MatchLabels: map[string]string{"l": "y"}}, false), []string{"two", "three"}, ""},
		"no selector":      {by(nil, false), nil, "combination of signerName and labelSelector matched zero ClusterTrustBundles"},
		"nothing, allowed": {by(nil, true), nil, ""},
	} {
		got, err := a.trust.anchors(t.Context(), &c.projection)
		if errText(err) != c.err {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		for _, want := range c.want {
			if !strings.Contains(string(got), pemOf(want)) {
				t.Errorf("%s: %s is missing", name, want)
			}
		}
		if n := strings.Count(string(got), "BEGIN"); n != len(c.want) || strings.Contains(string(got), "#") {
			t.Errorf("%s: %d certificates, want %d:\n%s", name, n, len(c.want), got)
		}
		if again, _ := a.trust.anchors(t.Context(), &c.projection); string(again) != string(got) {
			t.Errorf("%s: the order changed", name)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func certificatePod() (*corev1.Pod, *corev1.PodCertificateProjection) {
	s := &corev1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ECDSAP256", UserAnnotations: map[string]string{"a.b/x": "y"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	pod.Spec.ServiceAccountName = "app"
	return pod, s
}

// sign gives a verdict on the one request that there is and is not judged yet.
func sign(t *testing.T, api *fake.Clientset, verdict string, fill func(*certificatesv1.PodCertificateRequest)) *certificatesv1.PodCertificateRequest {
	t.Helper()
	requests := api.CertificatesV1().PodCertificateRequests("ns")
	r := until(t, "request", func() (*certificatesv1.PodCertificateRequest, bool) {
		list, _ := requests.List(context.Background(), metav1.ListOptions{})
		for i := range list.Items {
			if len(list.Items[i].Status.Conditions) == 0 {
				return &list.Items[i], true
			}
		}
		return nil, false
	})
	r.Status.Conditions = []metav1.Condition{{Type: verdict, Status: metav1.ConditionTrue, Reason: "Because", Message: "so"}}
	if fill != nil {
		fill(r)
	}
	if _, err := requests.UpdateStatus(context.Background(), r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPodCertificate(t *testing.T) {
	a, api := referring(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "sa"}})
	a.node.Store(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node"}})
	pod, s := certificatePod()
	if _, _, err := a.certificates.bundle(t.Context(), pod, "v", 0, s); errText(err) != "credential bundle is not issued yet" {
		t.Fatalf("before: %v", err)
	}
	r := sign(t, api, certificatesv1.PodCertificateRequestConditionTypeIssued, func(r *certificatesv1.PodCertificateRequest) {
		r.Status.CertificateChain = "noise\n" + pemOf("leaf") + pemOf("root")
		r.Status.BeginRefreshAt, r.Status.NotAfter = ptr.To(metav1.NewTime(time.Now().Add(time.Hour))), ptr.To(metav1.NewTime(time.Now().Add(2*time.Hour)))
	})
	if s := r.Spec; s.PodUID != "u" || s.NodeUID != "node" || s.ServiceAccountUID != "sa" || s.UnverifiedUserAnnotations["a.b/x"] != "y" || len(s.StubPKCS10Request) == 0 {
		t.Errorf("request %+v", s)
	}
	key, chain, err := a.certificates.bundle(t.Context(), pod, "v", 0, s)
	if err != nil || string(chain) != pemOf("leaf")+pemOf("root") || !strings.HasPrefix(string(key), "-----BEGIN PRIVATE KEY-----") {
		t.Fatalf("issued: %v\n%s%s", err, key, chain)
	}

	// In time it is renewed; until then the old one is good.
	a.certificates.held[certificateKey{"u", "v", 0}].refresh = time.Now().Add(-time.Second)
	if _, old, err := a.certificates.bundle(t.Context(), pod, "v", 0, s); err != nil || string(old) != string(chain) {
		t.Errorf("while it is renewed: %v", err)
	}
	sign(t, api, certificatesv1.PodCertificateRequestConditionTypeIssued, func(r *certificatesv1.PodCertificateRequest) {
		r.Status.CertificateChain = pemOf("newer")
	})
	until(t, "renewed certificate", func() (string, bool) {
		newKey, chain, err := a.certificates.bundle(t.Context(), pod, "v", 0, s)
		return string(chain), err == nil && string(chain) == pemOf("newer") && string(newKey) != string(key)
	})
	a.certificates.forget("u")
	if len(a.certificates.held) > 0 {
		t.Error("the key is kept after the pod has gone")
	}
}

func TestPodCertificateDenied(t *testing.T) {
	a, api := referring(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "sa"}})
	a.node.Store(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node"}})
	pod, s := certificatePod()
	done := make(chan error, 1)
	go func() {
		_, _, err := a.certificates.bundle(t.Context(), pod, "v", 0, s)
		done <- err
	}()
	sign(t, api, certificatesv1.PodCertificateRequestConditionTypeDenied, nil)
	if err := <-done; errText(err) != `PodCertificateRequest was permanently denied: reason="Because" message="so"` {
		t.Errorf("%v", err)
	}
}

func TestNewKey(t *testing.T) {
	for _, kind := range []string{"ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		if _, proof, err := newKey(kind); err != nil || len(proof) == 0 {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, _, err := newKey("ROT13"); errText(err) != `unknown key type "ROT13"` {
		t.Errorf("%v", err)
	}
}

func TestFollowerWakesPods(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Data: map[string]string{"a": "1"}}
	a, api := referring(t, cm)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	w := newWorker(a, pod)
	w.shut = true // it is only looked at
	a.pods.workers["u"] = w
	get := &volumeObjects{objects{a: a}}
	if _, err := get.ConfigMap(t.Context(), "ns", "c"); err != nil {
		t.Fatal(err)
	}
	if _, err := get.Secret(t.Context(), "ns", "s"); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	sources := []source{{resourceConfigMaps, "ns", "c"}, {resourceSecrets, "ns", "s"}}
	a.follower.set("u", sources)
	stale := func() (bool, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		was := w.stale
		w.stale = false
		return was, was
	}
	watches := func(resource string) (int, bool) {
		n := 0
		for _, action := range api.Actions() {
			if action.GetVerb() == "watch" && action.GetResource().Resource == resource {
				n++
			}
		}
		return n, n == 1
	}
	until(t, "watch", func() (int, bool) { return watches(resourceConfigMaps) })
	until(t, "watch", func() (int, bool) { return watches(resourceSecrets) })
	cm.Data = map[string]string{"a": "2"}
	if _, err := api.CoreV1().ConfigMaps("ns").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "pod is told of the change", stale)
	if _, err := api.CoreV1().Secrets("ns").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "pod is told of what was made", stale)
	a.follower.set("u", nil)
	if len(a.follower.all)+len(a.follower.pods)+len(a.follower.read) > 0 {
		t.Error("something is followed for nobody")
	}
}

func TestImmutableSourcesAreNotFollowed(t *testing.T) {
	a, _ := referring(t)
	s := source{resourceConfigMaps, "ns", "c"}
	a.follower.note(s, version{"1", true})
	a.follower.set("u", []source{s})
	if len(a.follower.all) > 0 {
		t.Error("an immutable object is watched")
	}
}
