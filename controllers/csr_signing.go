package controllers

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// signingBackdate allows for clocks that are behind.
const signingBackdate = 5 * time.Minute

// signers are the built-in signers and what their requests have to look like.
func signers() map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error {
	return map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
		certificatesv1.KubeAPIServerClientSignerName:        checkAPIServerClient,
		certificatesv1.KubeAPIServerClientKubeletSignerName: checkKubeletClient,
		certificatesv1.KubeletServingSignerName:             checkKubeletServing,
		"kubernetes.io/legacy-unknown":                      func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error { return nil },
	}
}

// newCSRSigning signs approved requests with the cluster's authority, which is
// read anew for each: it may be renewed in place.
func newCSRSigning(e *env) Controller {
	requests := e.csrs()
	checks := signers()
	return Controller{
		Name:    "certificatesigningrequest-signing-controller",
		Reads:   []Source{wakesSelf(requests)},
		Writes:  []string{"certificates.k8s.io/certificatesigningrequests"},
		Workers: 2,
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			csr := cached[certificatesv1.CertificateSigningRequest](requests, key)
			if csr == nil || len(csr.Status.Certificate) > 0 || !csrCondition(csr, certificatesv1.CertificateApproved) ||
				csrCondition(csr, certificatesv1.CertificateDenied) || csrCondition(csr, certificatesv1.CertificateFailed) {
				return 0, nil
			}
			check := checks[csr.Spec.SignerName]
			if check == nil {
				return 0, nil // another program's signer
			}
			signed := csr.DeepCopy()
			req, err := parseRequest(csr)
			if err == nil {
				err = check(req, csr.Spec.Usages)
			}
			if err != nil {
				signed.Status.Conditions = append(signed.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
					Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(), LastUpdateTime: metav1.Now(),
				})
			} else {
				authority, err := tls.LoadX509KeyPair(e.cfg.SigningCert, e.cfg.SigningKey)
				if err != nil {
					return 0, fmt.Errorf("signing authority: %w", err)
				}
				if signed.Status.Certificate, err = sign(authority, req, csr.Spec.Usages, validity(csr, e.cfg.SigningDuration), time.Now()); err != nil {
					return 0, fmt.Errorf("sign: %w", err)
				}
			}
			_, err = e.clients.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, signed, metav1.UpdateOptions{})
			return 0, ignoreNotFound(err)
		},
	}
}

// validity is what the requester asked for, within bounds.
func validity(csr *certificatesv1.CertificateSigningRequest, most time.Duration) time.Duration {
	if csr.Spec.ExpirationSeconds == nil {
		return most
	}
	const least = 10 * time.Minute
	return min(max(time.Duration(*csr.Spec.ExpirationSeconds)*time.Second, least), most)
}

// sign makes the certificate of a request, as PEM.
func sign(authority tls.Certificate, req *x509.CertificateRequest, usages []certificatesv1.KeyUsage, valid time.Duration, now time.Time) ([]byte, error) {
	if err := req.CheckSignature(); err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	basic, extended, err := keyUsages(usages)
	if err != nil {
		return nil, err
	}
	key, ok := authority.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the authority's key cannot sign")
	}
	expires := now.Add(valid)
	if expires.After(authority.Leaf.NotAfter) {
		expires = authority.Leaf.NotAfter
	}
	cert := &x509.Certificate{
		SerialNumber: serial, Subject: req.Subject, NotBefore: now.Add(-signingBackdate), NotAfter: expires,
		DNSNames: req.DNSNames, IPAddresses: req.IPAddresses, EmailAddresses: req.EmailAddresses, URIs: req.URIs,
		KeyUsage: basic, ExtKeyUsage: extended, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, authority.Leaf, req.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func keyUsages(usages []certificatesv1.KeyUsage) (basic x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	bits := map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning: x509.KeyUsageDigitalSignature, certificatesv1.UsageDigitalSignature: x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment, certificatesv1.UsageKeyEncipherment: x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement: x509.KeyUsageKeyAgreement, certificatesv1.UsageDataEncipherment: x509.KeyUsageDataEncipherment,
		certificatesv1.UsageCertSign: x509.KeyUsageCertSign, certificatesv1.UsageCRLSign: x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly: x509.KeyUsageEncipherOnly, certificatesv1.UsageDecipherOnly: x509.KeyUsageDecipherOnly,
	}
	purposes := map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny: x509.ExtKeyUsageAny, certificatesv1.UsageServerAuth: x509.ExtKeyUsageServerAuth, certificatesv1.UsageClientAuth: x509.ExtKeyUsageClientAuth,
		certificatesv1.UsageCodeSigning: x509.ExtKeyUsageCodeSigning, certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection, certificatesv1.UsageSMIME: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem: x509.ExtKeyUsageIPSECEndSystem, certificatesv1.UsageIPsecTunnel: x509.ExtKeyUsageIPSECTunnel, certificatesv1.UsageIPsecUser: x509.ExtKeyUsageIPSECUser,
		certificatesv1.UsageTimestamping: x509.ExtKeyUsageTimeStamping, certificatesv1.UsageOCSPSigning: x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC: x509.ExtKeyUsageMicrosoftServerGatedCrypto, certificatesv1.UsageNetscapeSGC: x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
	for _, u := range usages {
		if bit, ok := bits[u]; ok {
			basic |= bit
		} else if purpose, ok := purposes[u]; ok {
			extended = append(extended, purpose)
		} else {
			return 0, nil, fmt.Errorf("unrecognized usage %q", u)
		}
	}
	return basic, extended, nil
}
