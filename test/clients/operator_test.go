package clients

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

// Stall is the operator's custom resource: a Deployment and a ConfigMap.
type Stall struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              StallSpec   `json:"spec,omitempty"`
	Status            StallStatus `json:"status,omitempty"`
}

// StallSpec is what is wanted.
type StallSpec struct {
	Keepers int32  `json:"keepers,omitempty"`
	Sign    string `json:"sign,omitempty"`
}

// StallStatus is what there is.
type StallStatus struct {
	Open               int32 `json:"open"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// StallList is many.
type StallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Stall `json:"items"`
}

// DeepCopyObject implements runtime.Object; a Stall shares nothing but metadata.
func (s *Stall) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *StallList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for n := range l.Items {
		out.Items = append(out.Items, *l.Items[n].DeepCopyObject().(*Stall))
	}
	return &out
}

var stallVersion = schema.GroupVersion{Group: "market.example.org", Version: "v1"}

const stalls = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: stalls.market.example.org}
spec:
  group: market.example.org
  scope: Namespaced
  names: {plural: stalls, kind: Stall}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {keepers: {type: integer}, sign: {type: string}}}
          status: {type: object, properties: {open: {type: integer}, observedGeneration: {type: integer}}}
`

const cleanUp = "market.example.org/clean-up"

// stallKeeper is the operator: reconciler, defaulter and validator.
type stallKeeper struct {
	client.Client
	cleaned chan string // names of Stalls whose finalizer has run
}

// Reconcile brings the Deployment and ConfigMap of a Stall in line.
func (k *stallKeeper) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	stall := &Stall{}
	if err := k.Get(ctx, r.NamespacedName, stall); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !stall.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(stall, cleanUp) {
			k.cleaned <- stall.Name
			return ctrl.Result{}, k.Update(ctx, stall)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(stall, cleanUp) {
		return ctrl.Result{}, k.Update(ctx, stall)
	}
	sign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: stall.Namespace, Name: stall.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, k.Client, sign, func() error {
		sign.Data = map[string]string{"sign": stall.Spec.Sign}
		return controllerutil.SetControllerReference(stall, sign, k.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: stall.Namespace, Name: stall.Name}}
	if _, err := controllerutil.CreateOrPatch(ctx, k.Client, deployment, func() error {
		labels := map[string]string{"stall": stall.Name}
		deployment.Spec.Replicas = &stall.Spec.Keepers
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause"}}
		}
		return controllerutil.SetControllerReference(stall, deployment, k.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	before := stall.DeepCopyObject().(*Stall)
	stall.Status = StallStatus{Open: deployment.Status.AvailableReplicas, ObservedGeneration: stall.Generation}
	return ctrl.Result{}, k.Status().Patch(ctx, stall, client.MergeFrom(before))
}

// Default is the mutating webhook.
func (k *stallKeeper) Default(_ context.Context, s *Stall) error {
	if s.Spec.Sign == "" {
		s.Spec.Sign = "open"
	}
	return nil
}

// ValidateCreate is the validating webhook.
func (k *stallKeeper) ValidateCreate(_ context.Context, s *Stall) (admission.Warnings, error) {
	if s.Spec.Keepers > 5 {
		return nil, fmt.Errorf("%d keepers do not fit", s.Spec.Keepers)
	}
	return nil, nil
}

// ValidateUpdate checks as for a new one.
func (k *stallKeeper) ValidateUpdate(ctx context.Context, _, s *Stall) (admission.Warnings, error) {
	return k.ValidateCreate(ctx, s)
}

// ValidateDelete allows it.
func (k *stallKeeper) ValidateDelete(context.Context, *Stall) (admission.Warnings, error) {
	return nil, nil
}

// TestOperator runs two replicas of an operator, of which one leads, through the
// life of a custom resource.
func TestOperator(t *testing.T) {
	c := theCluster(t)
	ctx := t.Context()
	ctrl.SetLogger(logr.Discard())
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	types.AddKnownTypes(stallVersion, &Stall{}, &StallList{})
	metav1.AddToGroupVersion(types, stallVersion)
	admin, err := client.New(c.config, client.Options{Scheme: types})
	if err != nil {
		t.Fatal(err)
	}
	c = &cluster{config: c.config, client: admin}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(stalls), definition); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(ctx, definition); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, func(ctx context.Context) string { return listable(ctx, admin) })

	first := c.startOperator(t, types)
	await(ctx, t, func(ctx context.Context) string {
		return get(ctx, c, "default", "stall-keeper", &coordinationv1.Lease{}, func(l *coordinationv1.Lease) bool { return l.Spec.HolderIdentity != nil })
	})
	second := c.startOperator(t, types)
	first.registerWebhooks(t, c)

	stall := &Stall{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fish"}, Spec: StallSpec{Keepers: 2}}
	await(ctx, t, func(ctx context.Context) string { return problemOf(admin.Create(ctx, stall.DeepCopyObject().(*Stall))) })
	await(ctx, t, func(ctx context.Context) string {
		return get(ctx, c, "default", "fish", stall, func(s *Stall) bool { return s.Status.Open == 2 && s.Spec.Sign == "open" })
	})
	err = admin.Create(ctx, &Stall{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crowd"}, Spec: StallSpec{Keepers: 6}})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "6 keepers do not fit") {
		t.Errorf("six keepers: %v", err)
	}
	// What others take away comes back.
	if err := admin.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fish"}}); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, func(ctx context.Context) string {
		return get(ctx, c, "default", "fish", &corev1.ConfigMap{}, func(m *corev1.ConfigMap) bool { return m.Data["sign"] == "open" })
	})
	// The other replica takes over when the leader steps down.
	first.stop()
	before := stall.DeepCopyObject().(*Stall)
	stall.Spec.Keepers = 3
	if err := admin.Patch(ctx, stall, client.MergeFrom(before)); err == nil {
		t.Error("a webhook that is away let something through")
	}
	second.registerWebhooks(t, c)
	await(ctx, t, func(ctx context.Context) string { return problemOf(admin.Patch(ctx, stall, client.MergeFrom(before))) })
	await(ctx, t, func(ctx context.Context) string {
		return get(ctx, c, "default", "fish", stall, func(s *Stall) bool {
			return s.Status.Open == 3 && s.Status.ObservedGeneration == s.Generation
		})
	})
	// The finalizer runs, and the garbage collector takes what the Stall owned.
	if err := admin.Delete(ctx, stall); err != nil {
		t.Fatal(err)
	}
	if name := <-second.keeper.cleaned; name != "fish" {
		t.Errorf("cleaned up after %q", name)
	}
	for _, obj := range []client.Object{&Stall{}, &appsv1.Deployment{}, &corev1.ConfigMap{}} {
		await(ctx, t, func(ctx context.Context) string { return gone(ctx, c, "default", "fish", obj) })
	}
}

func problemOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func listable(ctx context.Context, c client.Client) string {
	return problemOf(c.List(ctx, &StallList{}))
}

// operator is one replica.
type operator struct {
	keeper    *stallKeeper
	port      int
	authority []byte // of its certificate
	stop      func() // and wait
}

func (c *cluster) startOperator(t *testing.T, types *runtime.Scheme) *operator {
	t.Helper()
	o := &operator{}
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	o.port, _ = strconv.Atoi(port)
	certificates := t.TempDir()
	o.authority = selfSigned(t, certificates)
	skipNames := true // two of them in one process
	options := ctrl.Options{
		Scheme: types, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "stall-keeper", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: o.port, CertDir: certificates}),
	}
	options.Controller.SkipNameValidation = &skipNames
	manager, err := ctrl.NewManager(c.config, options)
	if err != nil {
		t.Fatal(err)
	}
	o.keeper = &stallKeeper{Client: manager.GetClient(), cleaned: make(chan string, 10)}
	if err := ctrl.NewControllerManagedBy(manager).For(&Stall{}).Owns(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).Complete(o.keeper); err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewWebhookManagedBy(manager, &Stall{}).WithDefaulter(o.keeper).WithValidator(o.keeper).Complete(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	stopped := false
	o.stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-ended; err != nil {
				t.Errorf("operator: %v", err)
			}
		}
	}
	t.Cleanup(o.stop)
	return o
}

// registerWebhooks points the cluster to this replica.
func (o *operator) registerWebhooks(t *testing.T, c *cluster) {
	t.Helper()
	ctx := t.Context()
	at := func(path string) admissionv1.WebhookClientConfig {
		url := fmt.Sprintf("https://127.0.0.1:%d/%s-market-example-org-v1-stall", o.port, path)
		return admissionv1.WebhookClientConfig{URL: &url, CABundle: o.authority}
	}
	none := admissionv1.SideEffectClassNone
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{stallVersion.Group}, APIVersions: []string{"v1"}, Resources: []string{"stalls"}},
	}}
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "stalls"}}
	validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "stalls"}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.client, mutating, func() error {
		mutating.Webhooks = []admissionv1.MutatingWebhook{{
			Name: "default.stalls.example.org", ClientConfig: at("mutate"), Rules: rules, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = controllerutil.CreateOrUpdate(ctx, c.client, validating, func() error {
		validating.Webhooks = []admissionv1.ValidatingWebhook{{
			Name: "check.stalls.example.org", ClientConfig: at("validate"), Rules: rules, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.client.Delete(context.Background(), mutating) // the second replica's clean-up finds them gone
		_ = c.client.Delete(context.Background(), validating)
	})
}

// selfSigned writes a certificate for 127.0.0.1 where the webhook server looks
// for it, and returns it.
func selfSigned(t *testing.T, dir string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate
}
