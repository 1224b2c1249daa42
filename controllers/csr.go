package controllers

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	nodesGroup     = "system:nodes"
	nodeUserPrefix = "system:node:"
)

// newCSRApproving approves the certificates that node agents ask for: their
// client certificates if RBAC lets the requester have one, and their serving
// certificates if they are for the node itself and its own addresses. The latter
// needs a role that the bootstrap roles do not give: "approve" on the signer
// kubernetes.io/kubelet-serving.
func newCSRApproving(e *env) Controller {
	requests := e.csrs()
	return Controller{
		Name:    "certificatesigningrequest-approving-controller",
		Reads:   []Source{wakesSelf(requests), reads(e.nodes())},
		Writes:  []string{"certificates.k8s.io/certificatesigningrequests"},
		Workers: 2,
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			csr := cached[certificatesv1.CertificateSigningRequest](requests, key)
			if csr == nil || len(csr.Status.Certificate) > 0 || csrCondition(csr, certificatesv1.CertificateApproved) || csrCondition(csr, certificatesv1.CertificateDenied) {
				return 0, nil
			}
			message, err := e.approval(ctx, csr)
			if err != nil || message == "" {
				return 0, err
			}
			approved := csr.DeepCopy()
			approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message,
			})
			_, err = e.clients.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, approved, metav1.UpdateOptions{})
			if apierrors.IsForbidden(err) {
				return 0, nil // the cluster leaves this signer's requests to somebody else
			}
			return 0, ignoreNotFound(err)
		},
	}
}

func (e *env) csrs() cache.SharedIndexInformer {
	return e.factory.Certificates().V1().CertificateSigningRequests().Informer()
}

func csrCondition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
}

// parseRequest reads the X.509 request.
func parseRequest(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("the request holds no PEM block of type CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// approval returns why a request is approved; "" leaves it to others.
func (e *env) approval(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (string, error) {
	req, err := parseRequest(csr)
	if err != nil {
		return "", nil // not even wrong: somebody may deny it
	}
	self := csr.Spec.Username == req.Subject.CommonName
	switch csr.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		if checkKubeletClient(req, csr.Spec.Usages) != nil {
			return "", nil
		}
		if self {
			ok, err := e.mayCreate(ctx, csr, "selfnodeclient")
			if ok || err != nil {
				return "Auto approving self kubelet client certificate after SubjectAccessReview.", err
			}
		}
		if ok, err := e.mayCreate(ctx, csr, "nodeclient"); ok || err != nil {
			return "Auto approving kubelet client certificate after SubjectAccessReview.", err
		}
	case certificatesv1.KubeletServingSignerName:
		node := cached[corev1.Node](e.nodes(), strings.TrimPrefix(req.Subject.CommonName, nodeUserPrefix))
		if self && node != nil && checkKubeletServing(req, csr.Spec.Usages) == nil && namesNode(req, node) {
			return "Auto approving kubelet serving certificate for the node's own addresses.", nil
		}
	}
	return "", nil
}

// mayCreate asks the authorizer whether the requester may have such a request
// approved; that is how RBAC governs who may join.
func (e *env) mayCreate(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range csr.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review, err := e.clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Verb: "create", Subresource: subresource, Version: "*",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("access review of %s: %w", csr.Spec.Username, err)
	}
	return review.Status.Allowed, nil
}

// namesNode says whether all names in a request are the node's.
func namesNode(req *x509.CertificateRequest, node *corev1.Node) bool {
	own := func(text string) bool {
		return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == text })
	}
	for _, name := range req.DNSNames {
		if name != node.Name && !own(name) {
			return false
		}
	}
	return !slices.ContainsFunc(req.IPAddresses, func(ip net.IP) bool { return !own(ip.String()) })
}

// checkKubeletClient and the other checks say what a signer's requests have to
// look like.
func checkKubeletClient(req *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(req.Subject.Organization, []string{nodesGroup}):
		return errors.New("organization in the certificate subject must be [system:nodes]")
	case !strings.HasPrefix(req.Subject.CommonName, nodeUserPrefix):
		return errors.New("common name in the certificate subject must begin with system:node:")
	case len(req.DNSNames)+len(req.IPAddresses)+len(req.EmailAddresses)+len(req.URIs) > 0:
		return errors.New("subject alternative names are not allowed")
	}
	return onlyUsages(usages, certificatesv1.UsageClientAuth)
}

func checkKubeletServing(req *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(req.Subject.Organization, []string{nodesGroup}):
		return errors.New("organization in the certificate subject must be [system:nodes]")
	case !strings.HasPrefix(req.Subject.CommonName, nodeUserPrefix):
		return errors.New("common name in the certificate subject must begin with system:node:")
	case len(req.DNSNames)+len(req.IPAddresses) == 0:
		return errors.New("at least one DNS name or IP address is required")
	case len(req.EmailAddresses)+len(req.URIs) > 0:
		return errors.New("email and URI names are not allowed")
	}
	return onlyUsages(usages, certificatesv1.UsageServerAuth)
}

func checkAPIServerClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	return onlyUsages(usages, certificatesv1.UsageClientAuth)
}

// onlyUsages requires one usage and allows what goes with any key exchange.
func onlyUsages(have []certificatesv1.KeyUsage, required certificatesv1.KeyUsage) error {
	if !slices.Contains(have, required) {
		return fmt.Errorf("usage %q is required", required)
	}
	for _, u := range have {
		if u != required && u != certificatesv1.UsageDigitalSignature && u != certificatesv1.UsageKeyEncipherment {
			return fmt.Errorf("usage %q is not allowed", u)
		}
	}
	return nil
}

// Ages at which requests are cleaned away.
const (
	pendingCSRAge = 24 * time.Hour
	settledCSRAge = time.Hour
)

// newCSRCleaner deletes requests that nobody will look at any more.
func newCSRCleaner(e *env) Controller {
	requests := e.csrs()
	return Controller{
		Name:   "certificatesigningrequest-cleaner-controller",
		Reads:  []Source{wakesSelf(requests)},
		Writes: []string{"certificates.k8s.io/certificatesigningrequests"},
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			csr := cached[certificatesv1.CertificateSigningRequest](requests, key)
			if csr == nil {
				return 0, nil
			}
			if left := csrTimeLeft(csr, time.Now()); left > 0 {
				return left, nil
			}
			err := e.clients.CertificatesV1().CertificateSigningRequests().Delete(ctx, key, metav1.DeleteOptions{Preconditions: sameObject(csr)})
			return 0, ignoreGone(err)
		},
	}
}

// csrTimeLeft is how long a request stays.
func csrTimeLeft(csr *certificatesv1.CertificateSigningRequest, now time.Time) time.Duration {
	if len(csr.Status.Certificate) > 0 { // an expired certificate is of no use
		if block, _ := pem.Decode(csr.Status.Certificate); block != nil {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil && now.After(cert.NotAfter) {
				return 0
			}
		}
	}
	age, since := pendingCSRAge, csr.CreationTimestamp.Time
	for _, c := range csr.Status.Conditions {
		age = settledCSRAge
		if c.LastUpdateTime.After(since) {
			since = c.LastUpdateTime.Time
		}
	}
	return max(since.Add(age).Sub(now), 0)
}

// podCertificateAge is how old a pod's request for a certificate gets: whoever
// asked has the answer by then, or has asked again.
const podCertificateAge = 15 * time.Minute

// newPodCertificateCleaner deletes them.
func newPodCertificateCleaner(e *env) Controller {
	requests := e.factory.Certificates().V1().PodCertificateRequests().Informer()
	return Controller{
		Name:   "podcertificaterequest-cleaner-controller",
		Reads:  []Source{wakesSelf(requests)},
		Writes: []string{"certificates.k8s.io/podcertificaterequests"},
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			r := cached[certificatesv1.PodCertificateRequest](requests, key)
			if r == nil || r.DeletionTimestamp != nil {
				return 0, nil
			}
			if left := time.Until(r.CreationTimestamp.Add(podCertificateAge)); left > 0 {
				return left, nil
			}
			err := e.clients.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: sameObject(r)})
			return 0, ignoreGone(err)
		},
	}
}
