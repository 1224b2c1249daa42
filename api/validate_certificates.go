package api

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type csr = certificatesv1.CertificateSigningRequest

// ValidateSigningRequest names the faults of a CertificateSigningRequest written
// as a whole.
func ValidateSigningRequest(r, old *csr) field.ErrorList {
	return signingRequest(r, old, csrDoor{})
}

// ValidateSigningStatus names the faults of a request with a new status.
func ValidateSigningStatus(r, old *csr) field.ErrorList {
	return signingRequest(r, old, csrDoor{certificate: true})
}

// ValidateSigningApproval names the faults of a request with a verdict.
func ValidateSigningApproval(r, old *csr) field.ErrorList {
	return signingRequest(r, old, csrDoor{verdict: true})
}

// csrDoor is what a write may change, by the subresource that it came through.
type csrDoor struct{ certificate, verdict bool }

var usages = []certificatesv1.KeyUsage{
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
	certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME,
	certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping,
	certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
}

// legacySigner is of a version of the API that is no longer served.
const legacySigner = "kubernetes.io/legacy-unknown"

func signingRequest(r, old *csr, door csrDoor) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if err := checkRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(at.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, need(len(r.Spec.Usages) == 0, at.Child("usages"), "")...)
	for i, u := range r.Spec.Usages {
		errs = append(errs, supported(u, at.Child("usages").Index(i), usages...)...)
		if slices.Contains(r.Spec.Usages[:i], u) {
			errs = append(errs, field.Duplicate(at.Child("usages").Index(i), u))
		}
	}
	if r.Spec.SignerName == legacySigner && (old == nil || old.Spec.SignerName != legacySigner) {
		errs = append(errs, field.Invalid(at.Child("signerName"), r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, validSignerName(r.Spec.SignerName, at.Child("signerName"))...)
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < 600 {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	errs = append(errs, csrConditions(r)...)
	if old == nil || !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		if err := checkCertificates(r.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
		}
	}
	if old == nil {
		return errs
	}
	return append(errs, csrChanges(r, old, door)...)
}

func checkRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// checkCertificates wants certificates and nothing else, or nothing at all.
func checkCertificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	found := false
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		found = true
	}
	if !found {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

func csrConditions(r *csr) field.ErrorList {
	at := field.NewPath("status", "conditions")
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range r.Status.Conditions {
		here := at.Index(i)
		errs = append(errs, required(string(c.Type), here.Child("type"))...)
		allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains([]certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed}, c.Type) {
			allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		errs = append(errs, oneOf(c.Status, here.Child("status"), allowed...)...)
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(here.Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	if seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied] {
		const approved, denied = `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`
		errs = append(errs, declared(field.Invalid(at, "{"+approved+", "+denied+"}", "must specify at most one of: `"+approved+"`, `"+denied+"`").WithOrigin("zeroOrOneOf"))...)
	}
	return errs
}

// csrChanges keeps verdicts and certificates from being changed but through their
// doors, and from being taken back at all.
func csrChanges(r, old *csr, door csrDoor) field.ErrorList {
	at := field.NewPath("status", "conditions")
	var errs field.ErrorList
	of := func(r *csr, t certificatesv1.RequestConditionType) (all []certificatesv1.CertificateSigningRequestCondition) {
		for _, c := range r.Status.Conditions {
			if c.Type == t {
				all = append(all, c)
			}
		}
		return all
	}
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		now, before := of(r, t), of(old, t)
		switch {
		case len(now) < len(before):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		case door.verdict || t == certificatesv1.CertificateFailed:
		case len(now) > len(before):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not add a condition of type %q", t)))
		case !equality.Semantic.DeepEqual(now, before):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not modify a condition of type %q", t)))
		}
	}
	at = field.NewPath("status", "certificate")
	switch {
	case bytes.Equal(r.Status.Certificate, old.Status.Certificate):
	case !door.certificate:
		errs = append(errs, field.Forbidden(at, "updates may not set certificate content"))
	case len(old.Status.Certificate) > 0:
		errs = append(errs, field.Forbidden(at, "updates may not modify existing certificate content"))
	}
	return errs
}

// validSignerName wants "domain/name".
func validSignerName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(rest, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	const most = validation.DNS1123SubdomainMaxLength
	var errs field.ErrorList
	if len(domain) > most {
		errs = append(errs, field.TooLong(at, "", most))
	}
	labels := strings.Split(domain, ".")
	errs = append(errs, firstBad(at, domain, labels, validation.IsDNS1123Label)...)
	errs = append(errs, refuse(len(labels) < 2, at, domain, "should be a domain with at least two segments separated by dots")...)
	errs = append(errs, firstBad(at, rest, strings.Split(rest, "."), validation.IsDNS1123Subdomain)...)
	// A path may be the namespace and the name of an object.
	if whole := most + 1 + most + validation.DNS1123LabelMaxLength + 1; len(name) > whole {
		errs = append(errs, field.TooLong(at, "", whole))
	}
	return errs
}

// firstBad names the first bad part of a name: the others are likely to be bad in
// the same way.
func firstBad(at *field.Path, name string, parts []string, check func(string) []string) field.ErrorList {
	for _, part := range parts {
		if complaints := check(part); len(complaints) > 0 {
			var errs field.ErrorList
			for _, c := range complaints {
				errs = append(errs, field.Invalid(at, name, fmt.Sprintf("validating label %q: %s", part, c)))
			}
			return errs
		}
	}
	return nil
}

// TrustBundleName checks the name of a ClusterTrustBundle.
func TrustBundleName(b *certificatesv1.ClusterTrustBundle) func(name string, prefix bool) []string {
	return trustBundleName(b.Spec.SignerName)
}

// ValidateTrustBundle names the faults of a ClusterTrustBundle.
func ValidateTrustBundle(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	at := specPath()
	errs := renamed(b, old, TrustBundleName)
	if b.Spec.SignerName != "" {
		errs = append(errs, validSignerName(b.Spec.SignerName, at.Child("signerName"))...)
	}
	if old == nil || b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = append(errs, trustAnchors(b.Spec.TrustBundle, at.Child("trustBundle"))...)
	}
	if old != nil {
		errs = append(errs, unchanged(b.Spec.SignerName, old.Spec.SignerName, at.Child("signerName"))...)
	}
	return errs
}

// trustAnchors wants certificates of authorities, at least one, each once.
func trustAnchors(text string, at *field.Path) field.ErrorList {
	const most = 1 << 20
	if len(text) > most {
		return field.ErrorList{field.TooLong(at, "", most)}
	}
	var errs field.ErrorList
	bad := func(format string, args ...any) {
		errs = append(errs, field.Invalid(at, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	var order []string
	entries := map[string][]int{}
	i := 0
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE":
			bad("entry %d has bad block type: %v", i, block.Type)
		case len(block.Headers) > 0:
			bad("entry %d has PEM block headers", i)
		case err != nil:
			bad("entry %d does not parse as X.509", i)
		case !certificate.IsCA:
			bad("entry %d does not have the CA bit set", i)
		case !certificate.BasicConstraintsValid:
			bad("entry %d has invalid basic constraints", i)
		default:
			key := string(block.Bytes)
			if entries[key] == nil {
				order = append(order, key)
			}
			entries[key] = append(entries[key], i)
		}
		i++
	}
	if len(errs) > 0 {
		return errs
	}
	if len(entries) == 0 {
		bad("at least one trust anchor must be provided")
	}
	for _, key := range order {
		if len(entries[key]) > 1 {
			bad("duplicate trust anchor (indices %v)", entries[key])
		}
	}
	return errs
}

// longestCertificateLife is how long a signer's certificates for pods may last, in
// seconds.
func longestCertificateLife(signer string) int32 {
	host, _, _ := strings.Cut(signer, "/")
	if host == "kubernetes.io" || strings.HasSuffix(host, ".kubernetes.io") {
		return certificateLifeMaxKubernetes
	}
	return certificateLifeMax
}

func validUserAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key := range annotations {
		errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

type podCertificate = certificatesv1.PodCertificateRequest

// ValidatePodCertificateRequest names the faults of a PodCertificateRequest,
// which is not changed once it is made.
func ValidatePodCertificateRequest(r, old *podCertificate) field.ErrorList {
	at := specPath()
	if old != nil {
		return unchanged(olderPodCertificate(r), olderPodCertificate(old), at)
	}
	s := &r.Spec
	errs := validSignerName(s.SignerName, at.Child("signerName"))
	errs = append(errs, validUserAnnotations(s.UnverifiedUserAnnotations, at.Child("unverifiedUserAnnotations"))...)
	for _, of := range []struct {
		what, name string
		uid        types.UID
	}{{"pod", s.PodName, s.PodUID}, {"serviceAccount", s.ServiceAccountName, s.ServiceAccountUID}, {"node", string(s.NodeName), s.NodeUID}} {
		errs = append(errs, invalid(at.Child(of.what+"Name"), of.name, apivalidation.NameIsDNSSubdomain(of.name, false))...)
		const most = 128
		switch uid := at.Child(of.what + "UID"); {
		case of.uid == "":
			errs = append(errs, field.Invalid(uid, of.uid, "must not be empty"))
		case len(of.uid) > most:
			errs = append(errs, field.TooLong(uid, of.uid, most))
		}
	}
	if s.MaxExpirationSeconds == nil {
		return append(errs, field.Required(at.Child("maxExpirationSeconds"), "must be set"))
	}
	if most := longestCertificateLife(s.SignerName); *s.MaxExpirationSeconds < certificateLifeMin || *s.MaxExpirationSeconds > most {
		errs = append(errs, field.Invalid(at.Child("maxExpirationSeconds"), s.MaxExpirationSeconds, fmt.Sprintf("must be in the range [%d, %d]", certificateLifeMin, most)))
	}
	return append(errs, validPodKey(r)...)
}

// olderPodCertificate is what a request asks for in the older form, which has all
// the fields that upstream works with.
func olderPodCertificate(r *podCertificate) certificatesv1beta1.PodCertificateRequestSpec {
	s := &r.Spec
	return certificatesv1beta1.PodCertificateRequestSpec{
		SignerName: s.SignerName, PodName: s.PodName, PodUID: s.PodUID, ServiceAccountName: s.ServiceAccountName, ServiceAccountUID: s.ServiceAccountUID,
		NodeName: s.NodeName, NodeUID: s.NodeUID, MaxExpirationSeconds: s.MaxExpirationSeconds,
		StubPKCS10Request: s.StubPKCS10Request, UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
	}
}

// validPodKey wants the public key in an otherwise empty request, whose signature
// proves that who asks has the private one.
func validPodKey(r *podCertificate) field.ErrorList {
	at := specPath()
	if len(r.Spec.StubPKCS10Request) == 0 {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")}
	}
	return validStub(r.Spec.StubPKCS10Request, at.Child("stubPKCS10Request"))
}

const mostKeyBytes = 10 << 10

func validStub(data []byte, at *field.Path) field.ErrorList {
	if len(data) > mostKeyBytes {
		return field.ErrorList{field.TooLong(at, data, mostKeyBytes)}
	}
	request, err := x509.ParseCertificateRequest(data)
	if err != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	if errs := validKeyKind(request.PublicKey, at); len(errs) > 0 {
		return errs
	}
	if request.CheckSignature() != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "invalid signature")}
	}
	return nil
}

func validKeyKind(key crypto.PublicKey, at *field.Path) field.ErrorList {
	switch k := key.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() && k.Curve != elliptic.P521() {
			return field.ErrorList{field.Invalid(at, "curve "+k.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")}
		}
	case *rsa.PublicKey:
		if bits := k.Size() * 8; bits != 3072 && bits != 4096 {
			return field.ErrorList{field.Invalid(at, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")}
		}
	default:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")}
	}
	return nil
}

// pcrEnds are the conditions in which a request ends.
var pcrEnds = []string{certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed}

// pcrEnd is the condition in which a request has ended; "" if it has not.
func pcrEnd(r *podCertificate) string {
	for _, c := range r.Status.Conditions {
		if slices.Contains(pcrEnds, c.Type) && c.Status == metav1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// ValidatePodCertificateStatus names the faults of a PodCertificateRequest with a
// new status: it goes from nothing to one of three ends, once.
func ValidatePodCertificateStatus(r, old *podCertificate) field.ErrorList {
	return podCertificateStatus(r, old, time.Now())
}

func podCertificateStatus(r, old *podCertificate, now time.Time) field.ErrorList {
	at := field.NewPath("status")
	if errs := pcrConditions(r.Status.Conditions, at.Child("conditions")); len(errs) > 0 {
		return errs
	}
	same := func(a, b certificatesv1.PodCertificateRequestStatus, text string) field.ErrorList {
		if equality.Semantic.DeepEqual(a, b) {
			return nil
		}
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, text)}
	}
	switch {
	case pcrEnd(old) != "":
		return same(r.Status, old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case pcrEnd(r) == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return validIssue(r, old, now)
	case pcrEnd(r) != "":
		return same(r.Status, certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	return same(r.Status, old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
}

func pcrConditions(conditions []metav1.Condition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := 0
	for i, c := range conditions {
		here := at.Child(fmt.Sprintf("[%d]", i))
		if !slices.Contains(pcrEnds, c.Type) {
			errs = append(errs, field.NotSupported(here.Child("type"), c.Type, []string{pcrEnds[0], pcrEnds[1], pcrEnds[2]}))
			continue
		}
		if known++; known > 1 {
			errs = append(errs, field.Invalid(here.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(here.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metavalidation.ValidateConditions(conditions, at)...)
}

// validIssue checks what was issued against what was asked for.
func validIssue(r, old *podCertificate, now time.Time) field.ErrorList {
	at := field.NewPath("status", "certificateChain")
	chain := r.Status.CertificateChain
	const most = 100 << 10
	if len(chain) > most {
		return field.ErrorList{field.TooLong(at, chain, most)}
	}
	block, rest := pem.Decode([]byte(chain))
	switch {
	case block == nil:
		return field.ErrorList{field.Invalid(at, chain, "issued certificate chain must contain at least one certificate")}
	case block.Type != "CERTIFICATE":
		return field.ErrorList{field.Invalid(at, chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return field.ErrorList{field.Invalid(at, chain, "leaf certificate does not parse as valid X.509")}
	}
	errs := validLeafNames(leaf, at)
	if !sameKey(leaf.PublicKey, old) {
		return append(errs, field.Invalid(at, chain, "leaf certificate was not issued to the requested public key"))
	}
	if errs = append(errs, validTimes(r, leaf, now)...); len(errs) > 0 {
		return errs
	}
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return field.ErrorList{field.Invalid(at, chain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")}
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return field.ErrorList{field.Invalid(at, chain, "intermediate certificate does not parse as valid X.509")}
		}
	}
	return nil
}

func validLeafNames(leaf *x509.Certificate, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		errs = append(errs, refuse(name == "", at, name, "leaf certificate should not contain empty DNSName")...)
		errs = append(errs, refuse(strings.Contains(name, ".."), at, name, "leaf certificate's DNSName should not contain '..'")...)
		errs = append(errs, refuse(strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."), at, name, "leaf certificate's DNSName should not start or end with '.'")...)
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(at, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

// sameKey reports whether a key is the one that a request was made for.
func sameKey(key crypto.PublicKey, r *podCertificate) bool {
	request, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return false
	}
	want, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && want.Equal(key)
}

// validTimes checks the times in the status against the certificate's.
func validTimes(r *podCertificate, leaf *x509.Certificate, now time.Time) field.ErrorList {
	at := field.NewPath("status")
	s := &r.Status
	var errs field.ErrorList
	for _, t := range []struct {
		name, want string
		value      *metav1.Time
	}{
		{"notBefore", "must be present and consistent with the issued certificate", s.NotBefore},
		{"notAfter", "must be present and consistent with the issued certificate", s.NotAfter},
		{"beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]", s.BeginRefreshAt},
	} {
		if t.value == nil {
			errs = append(errs, field.Required(at.Child(t.name), t.want))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	const skew, margin = 5 * time.Minute, 10 * time.Minute
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	one := func(name string, value any, text string) field.ErrorList {
		return field.ErrorList{field.Invalid(at.Child(name), value, text)}
	}
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return one("notBefore", s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case now.Sub(s.NotBefore.Time).Abs() >= skew:
		return one("notBefore", s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return one("notAfter", s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case life < time.Hour:
		return one("certificateChain", life, "leaf certificate lifetime must be >= 1 hour")
	case life > time.Duration(*r.Spec.MaxExpirationSeconds)*time.Second:
		return one("certificateChain", life, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", *r.Spec.MaxExpirationSeconds))
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(margin)):
		return one("beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-margin)):
		return one("beginRefreshAt", s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}
