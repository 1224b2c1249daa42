package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
)

// checkCertificateRequest holds what a kubelet says of a pod that wants a
// certificate against what is known of it: a signer believes every word.
// Where the kubelet may merely be ahead of us, the refusal is no 403, so that it
// tries again.
func (n restriction) checkCertificateRequest(ctx context.Context, r *Request, node string) error {
	if r.Operation != Create {
		return r.forbid("unexpected operation %v", r.Operation)
	}
	req, ok := r.Object.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return nil
	}
	s := &req.Spec
	if string(s.NodeName) != node {
		return r.forbid("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", s.NodeName, node)
	}
	object, err := get[*corev1.Node](ctx, n.reader, core("nodes"), "", node)
	if err != nil {
		return fmt.Errorf("while retrieving node %q named in the PodCertificateRequest: %w", node, err)
	}
	podName := r.Namespace + "/" + s.PodName
	if object.UID != s.NodeUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", podName, s.NodeUID, object.UID)
	}
	pod, err := get[*corev1.Pod](ctx, n.reader, core("pods"), r.Namespace, s.PodName)
	switch {
	case err != nil:
		return fmt.Errorf("while retrieving pod %q named in the PodCertificateRequest: %w", podName, err)
	case pod.UID != s.PodUID:
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", podName, s.PodUID, pod.UID)
	case pod.Spec.NodeName != node:
		return r.forbid("pod %q is not running on node %q named in the PodCertificateRequest", podName, node)
	case api.IsMirror(pod):
		return r.forbid("pod %q is a mirror pod", podName)
	case pod.Spec.ServiceAccountName != s.ServiceAccountName:
		return r.forbid("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", podName, s.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	account, err := get[*corev1.ServiceAccount](ctx, n.reader, core("serviceaccounts"), r.Namespace, s.ServiceAccountName)
	if err != nil {
		return fmt.Errorf("while retrieving service account %q named in the PodCertificateRequest: %w", r.Namespace+"/"+s.ServiceAccountName, err)
	}
	if account.UID != s.ServiceAccountUID {
		return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)", podName, s.ServiceAccountUID, account.UID)
	}
	return n.checkSigner(ctx, r, pod, s)
}

// checkSigner lets a kubelet ask the signers that the pod's own volumes name,
// and those that it was given leave to ask for the pod's account.
func (n restriction) checkSigner(ctx context.Context, r *Request, pod *corev1.Pod, s *certificatesv1.PodCertificateRequestSpec) error {
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.PodCertificate != nil && p.PodCertificate.SignerName == s.SignerName
		}) {
			return nil
		}
	}
	decision, _, err := n.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: r.User, Verb: "request-serviceaccounts-podcertificate-signer", ResourceRequest: true,
		APIGroup: r.Resource.Group, APIVersion: r.Resource.Version, Resource: strings.ReplaceAll(s.SignerName, "/", ":"),
		Namespace: r.Namespace, Name: s.ServiceAccountName,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return r.forbid("error authorizing %s to request podcertificaterequests for signer %q: %w", r.User.GetName(), s.SignerName, err)
	}
	return r.forbid("pod %q does not mount a podCertificate projected volume for signer %q", r.Namespace+"/"+s.PodName, s.SignerName)
}

// checkSigningRequest lets a kubelet ask for certificates of its own only.
func checkSigningRequest(r *Request, node string) error {
	csr, ok := r.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || r.Operation != Create {
		return nil
	}
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName && csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return r.forbid("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return r.forbid("unable to parse csr: %w", err)
	}
	if request.Subject.CommonName != "system:node:"+node {
		return r.forbid("can only create a node CSR with CN=system:node:%s", node)
	}
	return nil
}
