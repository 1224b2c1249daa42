package registry

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
)

func certificatesKinds() []*Kind {
	gv := certificatesv1.SchemeGroupVersion
	return []*Kind{
		signingRequestKind(gv),
		kind[certificatesv1.ClusterTrustBundle, certificatesv1.ClusterTrustBundleList]{
			Plural: "clustertrustbundles", Cluster: true, NeedsRevision: true,
			Columns: trustBundleColumns(), Row: trustBundleRow,
			ValidName: validTrustBundleName,
			Fields: func(b *certificatesv1.ClusterTrustBundle) fields.Set {
				return fields.Set{"spec.signerName": b.Spec.SignerName}
			},
		}.erase(gv),
		podCertificateRequestKind(gv),
	}
}

type csr = certificatesv1.CertificateSigningRequest

func signingRequestKind(gv schema.GroupVersion) *Kind {
	parts := halves[csr, certificatesv1.CertificateSigningRequestSpec, certificatesv1.CertificateSigningRequestStatus]{
		spec:   func(r *csr) *certificatesv1.CertificateSigningRequestSpec { return &r.Spec },
		status: func(r *csr) *certificatesv1.CertificateSigningRequestStatus { return &r.Status },
	}
	return kind[csr, certificatesv1.CertificateSigningRequestList]{
		Plural: "certificatesigningrequests", Short: []string{"csr"}, Cluster: true,
		Validate: api.ValidateSigningRequest,
		Columns:  csrColumns(), Row: csrRow,
		Prepare: func(r, old *csr) {
			parts.prepare(r, old)
			if old != nil {
				r.Spec = old.Spec
				return
			}
			r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
		},
		Author: func(r *csr, u user.Info) {
			r.Spec.Username, r.Spec.UID, r.Spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
			for key, value := range u.GetExtra() {
				if r.Spec.Extra == nil {
					r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
				}
				r.Spec.Extra[key] = value
			}
		},
		Fields: func(r *csr) fields.Set { return fields.Set{"spec.signerName": r.Spec.SignerName} },
		Sub: Sub{
			// The signer writes the certificate, the approver the verdict.
			"status": parts.sub(func(r, old *csr) {
				r.Status.Conditions = keepVerdicts(r.Status.Conditions, old.Status.Conditions)
				stampConditions(r, old)
			}),
			"approval": parts.sub(func(r, old *csr) {
				conditions := r.Status.Conditions
				r.Status = old.Status
				r.Status.Conditions = conditions
				stampConditions(r, old)
			}),
		},
	}.erase(gv)
}

// keepVerdicts is the new conditions with approvals and denials as they were:
// those are given by /approval only.
func keepVerdicts(now, before []certificatesv1.CertificateSigningRequestCondition) []certificatesv1.CertificateSigningRequestCondition {
	var out []certificatesv1.CertificateSigningRequestCondition
	isVerdict := func(t certificatesv1.RequestConditionType) bool {
		return t == certificatesv1.CertificateApproved || t == certificatesv1.CertificateDenied
	}
	for _, c := range before {
		if isVerdict(c.Type) {
			out = append(out, c)
		}
	}
	for _, c := range now {
		if !isVerdict(c.Type) {
			out = append(out, c)
		}
	}
	return out
}

func stampConditions(r, old *csr) {
	now := metav1.Now()
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.Status == "" {
			c.Status = corev1.ConditionTrue
		}
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, before := range old.Status.Conditions {
			if before.Type == c.Type && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
}

func podCertificateRequestKind(gv schema.GroupVersion) *Kind {
	type request = certificatesv1.PodCertificateRequest
	parts := halves[request, certificatesv1.PodCertificateRequestSpec, certificatesv1.PodCertificateRequestStatus]{
		spec:   func(r *request) *certificatesv1.PodCertificateRequestSpec { return &r.Spec },
		status: func(r *request) *certificatesv1.PodCertificateRequestStatus { return &r.Status },
	}
	return kind[request, certificatesv1.PodCertificateRequestList]{
		Plural: "podcertificaterequests", NeedsRevision: true,
		Columns: podCertificateColumns(), Row: podCertificateRow,
		Default: api.DefaultPodCertificateRequest,
		Prepare: parts.prepare,
		Fields: func(r *request) fields.Set {
			return fields.Set{
				"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName),
			}
		},
		Sub: Sub{"status": parts.sub()},
	}.erase(gv)
}
