package registry

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
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
			Validate: api.ValidateTrustBundle,
			NamedBy:  api.TrustBundleName,
			Fields: func(b *certificatesv1.ClusterTrustBundle) fields.Set {
				return fields.Set{"spec.signerName": b.Spec.SignerName}
			},
		}.erase(gv),
		podCertificateRequestKind(gv),
	}
}

type csr = certificatesv1.CertificateSigningRequest

func signingRequestKind(gv schema.GroupVersion) *Kind {
	parts := halves[csr]{}
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
		Fixed:     []string{"spec"},
		Fields:    func(r *csr) fields.Set { return fields.Set{"spec.signerName": r.Spec.SignerName} },
		ValidName: path.ValidatePathSegmentName,
		Sub: Sub{
			// The signer writes the certificate, the approver the verdict.
			"status": view(readWrite, func(r, old *csr) {
				parts.keepSpec(r, old)
				keepVerdicts(r.Status.Conditions, old.Status.Conditions)
				stampConditions(r, old)
			}, api.ValidateSigningStatus),
			"approval": view(readWrite, func(r, old *csr) {
				parts.keepSpec(r, old)
				conditions := r.Status.Conditions
				r.Status = old.Status
				r.Status.Conditions = conditions
				stampConditions(r, old)
			}, api.ValidateSigningApproval).resetting("spec", "status.certificate"),
		},
	}.erase(gv)
}

// keepVerdicts puts approvals and denials back as they were: those are given by
// /approval only. Where there are more or fewer of them than before, validation
// will say so.
func keepVerdicts(now, before []certificatesv1.CertificateSigningRequestCondition) {
	of := func(conditions []certificatesv1.CertificateSigningRequestCondition, t certificatesv1.RequestConditionType) (at []int) {
		for i, c := range conditions {
			if c.Type == t {
				at = append(at, i)
			}
		}
		return at
	}
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		ours, theirs := of(now, t), of(before, t)
		if len(ours) != len(theirs) {
			continue
		}
		for i := range ours {
			now[ours[i]] = before[theirs[i]]
		}
	}
}

func stampConditions(r, old *csr) {
	now := metav1.Now()
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
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
	parts := halves[request]{}
	return kind[request, certificatesv1.PodCertificateRequestList]{
		Plural: "podcertificaterequests", NeedsRevision: true,
		Columns: podCertificateColumns(), Row: podCertificateRow,
		Default:  api.DefaultPodCertificateRequest,
		Validate: api.ValidatePodCertificateRequest,
		Prepare:  parts.prepare,
		Fields: func(r *request) fields.Set {
			return fields.Set{
				"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName),
			}
		},
		Sub: Sub{"status": parts.pure(api.ValidatePodCertificateStatus)},
	}.erase(gv)
}
