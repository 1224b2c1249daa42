package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// complaint compares errors with a part of the one that is wanted; "" is none.
func complaint(t *testing.T, errs field.ErrorList, want string) {
	t.Helper()
	text := ""
	if len(errs) > 0 {
		text = errs.ToAggregate().Error()
	}
	if (want == "") != (text == "") || !strings.Contains(text, want) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issued is a certificate for a key by itself.
func issued(t *testing.T, key *ecdsa.PrivateKey, isCA bool, from time.Time, life time.Duration) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(from.UnixNano()), Subject: pkix.Name{CommonName: "x"}, NotBefore: from, NotAfter: from.Add(life), IsCA: isCA, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestValidateTrustBundle(t *testing.T) {
	now := time.Now()
	root, leaf := issued(t, newKey(t), true, now, time.Hour), issued(t, newKey(t), false, now, time.Hour)
	for _, c := range []struct{ name, signer, bundle, want string }{
		{"plain", "", root, ""},
		{"example.com:foo:live", "example.com/foo", root, ""},
		{"live", "example.com/foo", root, "metadata.name: Invalid value: \"live\": ClusterTrustBundle for signerName example.com/foo must be named with prefix example.com:foo:"},
		{"a:b", "", root, `ClusterTrustBundle without signer name must not have ":" in its name`},
		{"plain", "", "", "spec.trustBundle: Invalid value: \"<value omitted>\": at least one trust anchor must be provided"},
		{"plain", "", leaf, "entry 0 does not have the CA bit set"},
		{"plain", "", root + root, "duplicate trust anchor (indices [0 1])"},
		{"plain", "", strings.ReplaceAll(root, "CERTIFICATE", "KEY"), "entry 0 has bad block type: KEY"},
	} {
		b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: c.signer, TrustBundle: c.bundle}}
		named := invalid(field.NewPath("metadata", "name"), b.Name, TrustBundleName(b)(b.Name, false))
		complaint(t, append(named, ValidateTrustBundle(b, nil)...), c.want)
	}
}

func newPodCertificateRequest(t *testing.T, key *ecdsa.PrivateKey) *certificatesv1.PodCertificateRequest {
	t.Helper()
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.PodCertificateRequest{Spec: certificatesv1.PodCertificateRequestSpec{
		SignerName: "example.com/foo", PodName: "p", PodUID: "1", ServiceAccountName: "s", ServiceAccountUID: "2", NodeName: "n", NodeUID: "3",
		MaxExpirationSeconds: ptr.To[int32](86400), StubPKCS10Request: stub,
	}}
}

func TestValidatePodCertificateRequest(t *testing.T) {
	for _, c := range []struct {
		name string
		spec func(*certificatesv1.PodCertificateRequestSpec)
		want string
	}{
		{"fine", func(*certificatesv1.PodCertificateRequestSpec) {}, ""},
		{"too short", func(s *certificatesv1.PodCertificateRequestSpec) { s.MaxExpirationSeconds = ptr.To[int32](60) }, "must be in the range [3600, 7862400]"},
		{"too long for ours", func(s *certificatesv1.PodCertificateRequestSpec) {
			s.SignerName, s.MaxExpirationSeconds = "kubernetes.io/x", ptr.To[int32](86401)
		}, "must be in the range [3600, 86400]"},
		{"no pod", func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "" }, "spec.podUID: Invalid value: \"\": must not be empty"},
		{"no key", func(s *certificatesv1.PodCertificateRequestSpec) { s.StubPKCS10Request = nil }, "exactly one of (stubPKCS10Request)"},
		{"bad signature", func(s *certificatesv1.PodCertificateRequestSpec) {
			s.StubPKCS10Request[len(s.StubPKCS10Request)-1] ^= 1
		}, "spec.stubPKCS10Request: Invalid value: invalid signature"},
		{"annotation", func(s *certificatesv1.PodCertificateRequestSpec) {
			s.UnverifiedUserAnnotations = map[string]string{"plain": "x"}
		}, "spec.unverifiedUserAnnotations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newPodCertificateRequest(t, newKey(t))
			old := r.DeepCopy()
			c.spec(&r.Spec)
			complaint(t, ValidatePodCertificateRequest(r, nil), c.want)
			if c.want != "" {
				complaint(t, ValidatePodCertificateRequest(r, old), "field is immutable")
			}
		})
	}
}

func TestValidatePodCertificateStatus(t *testing.T) {
	key := newKey(t)
	now := time.Now().Truncate(time.Second)
	end := func(kind string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "R", Message: "m", LastTransitionTime: metav1.NewTime(now)}}
	}
	type status = certificatesv1.PodCertificateRequestStatus
	for _, c := range []struct {
		name   string
		change func(*status)
		want   string
	}{
		{"issued", func(*status) {}, ""},
		{"denied", func(s *status) { *s = status{Conditions: end("Denied")} }, ""},
		{"denied with a certificate", func(s *status) { s.Conditions = end("Denied") }, "non-condition status fields must be empty"},
		{"of another kind", func(s *status) { s.Conditions = end("Odd") }, `Unsupported value: "Odd"`},
		{"not at an end", func(s *status) { s.Conditions = nil }, "status is immutable unless transitioning"},
		{"for another key", func(s *status) { s.CertificateChain = issued(t, newKey(t), false, now, time.Hour) }, "leaf certificate was not issued to the requested public key"},
		{"at another time", func(s *status) { s.NotAfter = ptr.To(metav1.NewTime(now)) }, "must be set to the NotAfter time encoded in the leaf certificate"},
		{"refreshed too late", func(s *status) { s.BeginRefreshAt = s.NotAfter }, "must be at least 10 minutes before status.notAfter"},
		{"without a time", func(s *status) { s.BeginRefreshAt = nil }, "status.beginRefreshAt: Required value"},
		{"rubbish", func(s *status) { s.CertificateChain = "x" }, "issued certificate chain must contain at least one certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := newPodCertificateRequest(t, key)
			r := old.DeepCopy()
			r.Status = status{
				Conditions: end("Issued"), CertificateChain: issued(t, key, false, now, 2*time.Hour),
				NotBefore: ptr.To(metav1.NewTime(now)), NotAfter: ptr.To(metav1.NewTime(now.Add(2 * time.Hour))), BeginRefreshAt: ptr.To(metav1.NewTime(now.Add(time.Hour))),
			}
			c.change(&r.Status)
			complaint(t, podCertificateStatus(r, old, now), c.want)
			if c.want == "" {
				after := r.DeepCopy()
				after.Status.Conditions = nil
				complaint(t, podCertificateStatus(after, r, now), "immutable after PodCertificateRequest is issued, denied, or failed")
			}
		})
	}
}

func TestValidateSigningRequest(t *testing.T) {
	key := newKey(t)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	old := &csr{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: "example.com/foo", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
	complaint(t, ValidateSigningRequest(old, nil), "")
	verdict := func(kinds ...certificatesv1.RequestConditionType) *csr {
		r := old.DeepCopy()
		for _, k := range kinds {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: k, Status: corev1.ConditionTrue})
		}
		return r
	}
	approved := verdict(certificatesv1.CertificateApproved)
	complaint(t, ValidateSigningApproval(approved, old), "")
	complaint(t, ValidateSigningStatus(approved, old), `updates may not add a condition of type "Approved"`)
	complaint(t, ValidateSigningApproval(old, approved), `updates may not remove a condition of type "Approved"`)
	complaint(t, ValidateSigningApproval(verdict(certificatesv1.CertificateApproved, certificatesv1.CertificateDenied), old), "must specify at most one of")
	signed := old.DeepCopy()
	signed.Status.Certificate = []byte(issued(t, key, false, time.Now(), time.Hour))
	complaint(t, ValidateSigningStatus(signed, old), "")
	complaint(t, ValidateSigningApproval(signed, old), "updates may not set certificate content")
	again := signed.DeepCopy()
	again.Status.Certificate = []byte(issued(t, key, false, time.Now(), time.Hour))
	complaint(t, ValidateSigningStatus(again, signed), "updates may not modify existing certificate content")
	bad := old.DeepCopy()
	bad.Spec.Usages = append(bad.Spec.Usages, "any thing")
	complaint(t, ValidateSigningRequest(bad, nil), `spec.usages[1]: Unsupported value: "any thing"`)
}

func TestProjectedCertificates(t *testing.T) {
	for _, c := range []struct {
		source corev1.VolumeProjection
		want   string
	}{
		{corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/foo", KeyType: "ED25519", CredentialBundlePath: "b"}}, ""},
		{corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/foo", KeyType: "RSA", CredentialBundlePath: "b"}}, `podCertificate.keyType: Unsupported value: "RSA"`},
		{corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/foo", KeyType: "ED25519"}}, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"},
		{corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/foo", KeyType: "ED25519", KeyPath: "k", MaxExpirationSeconds: ptr.To[int32](91*24*60*60 + 1)}}, "if provided, maxExpirationSeconds must be <= 7862400"},
		{corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/foo", KeyType: "ED25519", KeyPath: "k", MaxExpirationSeconds: ptr.To[int32](3599)}}, "if provided, maxExpirationSeconds must be >= 3600"},
		{corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr.To("a"), Path: "b"}}, ""},
		{corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr.To("example.com:foo:a"), Path: "b"}}, ""},
		{corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "b"}}, "either name or signerName must be specified"},
		{corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr.To("a"), SignerName: ptr.To("example.com/foo"), Path: "b"}}, "only one of name and signerName may be used"},
		{corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr.To("a"), Path: "../b"}}, "clusterTrustBundle.path"},
	} {
		errs := new(podCheck).validProjected(&corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{c.source}}, field.NewPath("projected"))
		complaint(t, errs, c.want)
	}
}
