package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// certificateApproval asks whether the user may approve for a signer.
func certificateApproval(authz authorizer.UnconditionalAuthorizer) Plugin {
	return Plugin{
		Name: "CertificateApproval",
		On:   on(certificatesv1.GroupName, "certificatesigningrequests/approval", Update),
		Validate: func(ctx context.Context, r *Request) error {
			csr, ok := r.Old.(*certificatesv1.CertificateSigningRequest)
			if ok && !maySign(ctx, authz, r, "approve", csr.Spec.SignerName) {
				return r.forbid("user not permitted to approve requests with signerName %q", csr.Spec.SignerName)
			}
			return nil
		},
	}
}

// certificateSigning asks whether the user may issue for a signer.
func certificateSigning(authz authorizer.UnconditionalAuthorizer) Plugin {
	return Plugin{
		Name: "CertificateSigning",
		On:   on(certificatesv1.GroupName, "certificatesigningrequests/status", Update),
		Validate: func(ctx context.Context, r *Request) error {
			csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
			old, hadOld := r.Old.(*certificatesv1.CertificateSigningRequest)
			if !ok || !hadOld {
				return nil
			}
			if slices.Equal(csr.Status.Certificate, old.Status.Certificate) && equality.Semantic.DeepEqual(csr.Status.Conditions, old.Status.Conditions) {
				return nil
			}
			if !maySign(ctx, authz, r, "sign", old.Spec.SignerName) {
				return r.forbid("user not permitted to sign requests with signerName %q", old.Spec.SignerName)
			}
			return nil
		},
	}
}

// clusterTrustBundleAttest asks whether the user may vouch for a signer's roots.
func clusterTrustBundleAttest(authz authorizer.UnconditionalAuthorizer) Plugin {
	return Plugin{
		Name: "ClusterTrustBundleAttest",
		On:   on(certificatesv1.GroupName, "clustertrustbundles", Create, Update),
		Validate: func(ctx context.Context, r *Request) error {
			signer := bundleSigner(r)
			if signer != "" && !maySign(ctx, authz, r, "attest", signer) {
				return r.forbid("user not permitted to attest for signerName %q", signer)
			}
			return nil
		},
	}
}

// bundleSigner reads the signer out of the object's name, "signer:name:rest",
// as the kind's validation wants it, whatever its version.
func bundleSigner(r *Request) string {
	m, ok := r.Object.(metav1.Object)
	if !ok {
		return ""
	}
	parts := strings.Split(m.GetName(), ":")
	if len(parts) < 3 {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// certificateSubjectRestriction: no certificate may be asked for that makes its
// bearer one of system:masters.
func certificateSubjectRestriction() Plugin {
	return Plugin{
		Name: "CertificateSubjectRestriction",
		On:   on(certificatesv1.GroupName, "certificatesigningrequests", Create),
		Validate: func(_ context.Context, r *Request) error {
			csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
				return nil
			}
			block, _ := pem.Decode(csr.Spec.Request)
			if block == nil {
				return r.forbid("unable to parse CSR: PEM block type must be CERTIFICATE REQUEST")
			}
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				return r.forbid("unable to parse CSR: %w", err)
			}
			if slices.Contains(request.Subject.Organization, "system:masters") {
				return r.forbid("use of %s signer with system:masters group is not allowed", csr.Spec.SignerName)
			}
			return nil
		},
	}
}

// maySign asks for a verb on a signer, by name or by its whole domain.
func maySign(ctx context.Context, authz authorizer.UnconditionalAuthorizer, r *Request, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := authz.Authorize(ctx, authorizer.AttributesRecord{
			User: r.User, Verb: verb, Name: name, ResourceRequest: true,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers",
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}
