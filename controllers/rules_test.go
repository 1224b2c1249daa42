package controllers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

func TestTaintsFollowConditions(t *testing.T) {
	node := aNode("a", corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	node.Spec.Unschedulable = true
	taints, changed := mergeTaints(node.Spec.Taints, wantedTaints(node, time.Now()))
	got := ""
	for _, taint := range taints {
		got += taint.Key + ":" + string(taint.Effect) + " "
	}
	want := "mine:NoSchedule node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute node.kubernetes.io/unschedulable:NoSchedule "
	if !changed || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestToleratedFor(t *testing.T) {
	taints := []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	for _, c := range []struct {
		name        string
		tolerations []corev1.Toleration
		want        time.Duration
	}{
		{"not at all", nil, 0},
		{"for ever", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, forever},
		{"for a minute", []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr(int64(60))}}, time.Minute},
	} {
		if got := toleratedFor(taints, c.tolerations); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestNodeRanges(t *testing.T) {
	r := addressRange{netip.MustParsePrefix("10.0.0.0/22"), 24}
	var taken []netip.Prefix
	for _, want := range []string{"10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24"} {
		got, ok := r.free(append(taken, netip.MustParsePrefix("10.0.1.0/25")))
		if !ok || got.String() != want {
			t.Fatalf("got %v, want %s", got, want)
		}
		taken = append(taken, got)
	}
	if got, ok := r.free(append(taken, netip.MustParsePrefix("10.0.1.0/25"))); ok {
		t.Errorf("a full range gave %v", got)
	}
}

func TestKubeletRequestsAreSigned(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	now := time.Now()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	asked, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked}), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
	}}
	req, err := parseRequest(csr)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKubeletClient(req, csr.Spec.Usages); err != nil {
		t.Error(err)
	}
	if err := checkKubeletServing(req, csr.Spec.Usages); err == nil {
		t.Error("a client request passed as a serving request")
	}
	out, err := sign(tls.Certificate{PrivateKey: key, Leaf: leaf}, req, csr.Spec.Usages, 24*time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(out)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.Subject.CommonName != "system:node:a" || cert.NotAfter.After(leaf.NotAfter) {
		t.Errorf("%v: %v until %v", err, cert.Subject, cert.NotAfter)
	}
}

func TestClusterSizes(t *testing.T) {
	for _, tc := range []struct{ before, nodes, want int }{
		{0, 3, 0}, {0, 100, 0}, {0, 101, 1}, {1, 95, 1}, {1, 89, 0}, {0, 5000, 4}, {4, 1850, 4}, {4, 1, 0},
	} {
		if got := clusterSize(tc.before, tc.nodes); got != tc.want {
			t.Errorf("%d nodes after size %d: %d", tc.nodes, tc.before, got)
		}
	}
}

func TestOldPodCertificateRequestsGo(t *testing.T) {
	made := func(name string, age time.Duration) *certificatesv1.PodCertificateRequest {
		return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
		}}
	}
	set := fakeClients(made("old", podCertificateAge+time.Second), made("new", time.Minute))
	running(t, set, "podcertificaterequest-cleaner-controller")
	eventually(t, func() error {
		left, err := set.CertificatesV1().PodCertificateRequests("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != 1 || left.Items[0].Name != "new" {
			return fmt.Errorf("%v: left %v", err, left)
		}
		return nil
	})
}

func TestTokenFates(t *testing.T) {
	now := time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)
	old := now.AddDate(-3, 0, 0)
	for name, tc := range map[string]struct {
		made                  time.Time
		lastUsed, invalidFrom string
		want                  int
	}{
		"young":                  {now.AddDate(0, -1, 0), "", "", tokenKeep},
		"never used":             {old, "", "", tokenInvalidate},
		"used lately":            {old, "2026-05-01", "", tokenKeep},
		"used long ago":          {old, "2025-05-01", "", tokenInvalidate},
		"used who knows when":    {old, "yesterday", "", tokenKeep},
		"invalid for a while":    {old, "2025-05-01", "2026-01-01", tokenKeep},
		"invalid for a year":     {old, "", "2025-05-01", tokenDelete},
		"tried while invalid":    {old, "2026-05-01", "2025-05-01", tokenKeep},
		"invalid who knows when": {old, "", "long", tokenInvalidate},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(tc.made), Labels: map[string]string{}}}
		if tc.lastUsed != "" {
			secret.Labels[tokenLastUsed] = tc.lastUsed
		}
		if tc.invalidFrom != "" {
			secret.Labels[tokenInvalidSince] = tc.invalidFrom
		}
		if got := tokenFate(secret, now); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// Only tokens that an account lists, and that no pod mounts, are cleared away.
func TestUnusedTokensGo(t *testing.T) {
	secret := func(name string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().AddDate(-3, 0, 0)),
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "a"},
		}}
	}
	invalid := map[string]string{tokenInvalidSince: "2019-01-01"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: podTemplate(nil, "image:1").Spec}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mounted"}}}}
	set := fakeClients(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: tokenTracking}, Data: map[string]string{"since": "2020-01-01"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Secrets: []corev1.ObjectReference{{Name: "unused"}, {Name: "invalid"}, {Name: "mounted"}}},
		secret("unused", nil), secret("invalid", invalid), secret("mounted", invalid), secret("asked-for", invalid), pod,
	)
	running(t, set, "legacy-serviceaccount-token-cleaner-controller")
	eventually(t, func() error {
		left, err := set.CoreV1().Secrets("ns").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		marks := map[string]string{}
		for _, s := range left.Items {
			marks[s.Name] = s.Labels[tokenInvalidSince]
		}
		if len(marks) != 3 || marks["unused"] != time.Now().UTC().Format(time.DateOnly) || marks["mounted"] != "2019-01-01" || marks["asked-for"] != "2019-01-01" {
			return fmt.Errorf("left: %v", marks)
		}
		return nil
	})
}

func TestNamesOfClaimsKeepSomethingOfBoth(t *testing.T) {
	for _, tc := range []struct{ pod, claim, want string }{
		{"web", "gpu", "web-gpu-"},
		{strings.Repeat("p", 60), strings.Repeat("c", 30), strings.Repeat("p", 37) + "-" + strings.Repeat("c", 18)},
	} {
		if got := claimNamePrefix(tc.pod, tc.claim); got != tc.want {
			t.Errorf("%s %s: %s", tc.pod, tc.claim, got)
		}
	}
}

func TestServiceRangesThatCanGo(t *testing.T) {
	makeRange := func(name string, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	held := func(ips ...string) (out []*networkingv1.IPAddress) {
		for _, ip := range ips {
			out = append(out, &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{networkingv1.LabelManagedBy: ipAllocator}}})
		}
		return out
	}
	foreign := held("10.0.0.9")
	foreign[0].Labels = nil
	for name, tc := range map[string]struct {
		others    []*networkingv1.ServiceCIDR
		addresses []*networkingv1.IPAddress
		want      bool
	}{
		"unused":                          {nil, held("10.1.0.9"), true},
		"used":                            {nil, held("10.0.0.9"), false},
		"used by nobody's address":        {nil, foreign, true},
		"network and broadcast are not":   {nil, held("10.0.0.0", "10.0.0.255"), true},
		"inside another":                  {[]*networkingv1.ServiceCIDR{makeRange("all", "10.0.0.0/8", "fd00::/8")}, held("10.0.0.9", "fd00::9"), true},
		"half inside another":             {[]*networkingv1.ServiceCIDR{makeRange("v4", "10.0.0.0/8")}, held("10.0.0.9", "fd00::9"), false},
		"the used part is inside another": {[]*networkingv1.ServiceCIDR{makeRange("half", "10.0.0.0/25")}, held("10.0.0.9"), true},
		"the used part is not":            {[]*networkingv1.ServiceCIDR{makeRange("half", "10.0.0.0/25")}, held("10.0.0.200"), false},
	} {
		r := makeRange("r", "10.0.0.0/24", "fd00::/112")
		if got := dispensable(r, append(tc.others, r), tc.addresses); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestClusterInfoSignatures(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, Type: tokenSecretType, Data: map[string][]byte{
		"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-signing": []byte("true"),
	}}
	data := map[string]string{"kubeconfig": "x", "jws-kubeconfig-gone00": "old"}
	out := signedClusterInfo(data, []*corev1.Secret{secret}, time.Now())
	if sig := out["jws-kubeconfig-abcdef"]; len(out) != 2 || len(strings.Split(sig, ".")) != 3 {
		t.Errorf("got %v", out)
	}
	if again := signedClusterInfo(out, []*corev1.Secret{secret}, time.Now()); again != nil {
		t.Errorf("signed anew: %v", again)
	}
}

func TestQuotaCountsPods(t *testing.T) {
	pod := &corev1.Pod{Spec: podTemplate(nil, "i").Spec}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	sum := func(scopes ...corev1.ResourceQuotaScope) corev1.ResourceList {
		return quotaSum(&corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: scopes}}, []runtime.Object{pod}, time.Now())
	}
	if cpu := sum()["requests.cpu"]; cpu.MilliValue() != 250 {
		t.Errorf("cpu: %v", cpu.String())
	}
	if _, in := sum(corev1.ResourceQuotaScopeBestEffort)[corev1.ResourcePods]; in {
		t.Error("a pod with requests is best effort")
	}
	pod.Status.Phase = corev1.PodSucceeded
	if _, counts := sum()[corev1.ResourcePods]; counts {
		t.Error("a finished pod counts")
	}
	if n := sum()["count/pods"]; n.Value() != 1 {
		t.Error("a finished pod is still an object")
	}
}

// What the API server has just counted may not be in the caches yet.
func TestQuotaIsNotRecountedForWhatIsNew(t *testing.T) {
	cfg := Config{Clients: fakeClients(), Metadata: metadatafake.NewSimpleMetadataClient(scheme.Scheme)}
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	e, err := newEnv(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := newResourceQuota(e)
	l := &loop{Controller: c, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	defer l.queue.ShutDown()
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns", ResourceVersion: "1"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard}}
	if err := e.factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(quota); err != nil {
		t.Fatal(err)
	}
	counted := quota.DeepCopy()
	counted.ResourceVersion, counted.Status.Used = "2", corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	raised := counted.DeepCopy()
	raised.ResourceVersion, raised.Spec.Hard = "3", corev1.ResourceList{corev1.ResourcePods: resource.MustParse("6")}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", ResourceVersion: "4"}}
	bound, done := pod.DeepCopy(), pod.DeepCopy()
	bound.ResourceVersion, bound.Spec.NodeName = "5", "node"
	done.ResourceVersion, done.Status.Phase = "6", corev1.PodSucceeded
	for _, step := range []struct {
		name  string
		event func(cache.ResourceEventHandler)
		of    cache.SharedIndexInformer
		wakes int
	}{
		{"quota made", func(h cache.ResourceEventHandler) { h.OnAdd(quota, false) }, c.Reads[0].Informer, 1},
		{"counted by the server", func(h cache.ResourceEventHandler) { h.OnUpdate(quota, counted) }, c.Reads[0].Informer, 0},
		{"raised", func(h cache.ResourceEventHandler) { h.OnUpdate(counted, raised) }, c.Reads[0].Informer, 1},
		{"pod made", func(h cache.ResourceEventHandler) { h.OnAdd(pod, false) }, e.pods(), 0},
		{"pod bound", func(h cache.ResourceEventHandler) { h.OnUpdate(pod, bound) }, e.pods(), 0},
		{"pod done", func(h cache.ResourceEventHandler) { h.OnUpdate(bound, done) }, e.pods(), 1},
		{"pod gone", func(h cache.ResourceEventHandler) { h.OnDelete(done) }, e.pods(), 1},
	} {
		for _, s := range c.Reads {
			if s.Informer.GetIndexer() == step.of.GetIndexer() {
				step.event(l.handler(s))
			}
		}
		if got := l.queue.Len(); got != step.wakes {
			t.Errorf("%s: %d quotas to count, want %d", step.name, got, step.wakes)
		}
		for l.queue.Len() > 0 {
			key, _ := l.queue.Get()
			l.queue.Done(key)
		}
	}
}

func TestAutoscalerHoldsBack(t *testing.T) {
	now := time.Now()
	hpa := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 20}}
	p := &hpaPast{}
	if got := p.limit(hpa, 3, 15, 1, now); got != 7 {
		t.Errorf("growing from 3 to 15: got %d, want 7 (four more)", got)
	}
	if got := p.limit(hpa, 7, 2, 1, now.Add(time.Minute)); got != 7 {
		t.Errorf("a minute later: got %d, want 7", got)
	}
	if got := p.limit(hpa, 7, 2, 1, now.Add(7*time.Minute)); got != 2 {
		t.Errorf("seven minutes later: got %d, want 2", got)
	}
}

func TestAutoscalerSizes(t *testing.T) {
	g := &podGroups{used: map[string]int64{"a": 200, "b": 200}}
	if n, _, _ := g.replicas(2, 100); n != 4 {
		t.Errorf("twice the target: got %d", n)
	}
	g.missing = []string{"c"}
	if n, _, _ := g.replicas(3, 100); n != 4 {
		t.Errorf("one unknown counts as idle: got %d", n)
	}
	g = &podGroups{used: map[string]int64{"a": 95, "b": 100}}
	if n, _, _ := g.replicas(2, 100); n != 2 {
		t.Errorf("within tolerance: got %d", n)
	}
}
