package nodeagent

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
)

// podCertificates gets certificates for pods: it makes a key, asks a signer
// through a PodCertificateRequest, waits for the verdict, and asks again when
// the certificate grows old. Keys are in memory only: after a restart of the
// agent there are new ones.
//
//	(nothing) --> asked --> issued --> issued, asked again --+
//	                |          ^------------------------------+
//	                +--> refused, for good
type podCertificates struct {
	a        *Agent
	once     sync.Once
	informer cache.SharedIndexInformer

	mu   sync.Mutex // protects held; what is in it belongs to the pod's worker
	held map[certificateKey]*certificate
}

// certificateKey is one source of one projected volume of a pod.
type certificateKey struct {
	pod    types.UID
	volume string
	index  int
}

// certificate is what there is for one source.
type certificate struct {
	key, chain []byte // PEM
	refresh    time.Time
	expires    time.Time
	refused    error

	asked  string // name of the request that is under way
	askeds []byte // its key
	lost   time.Time

	toldOverdue, toldExpired bool
}

const (
	// certificateLost is how long after its creation a request that is nowhere
	// to be seen counts as deleted.
	certificateLost = 10 * time.Minute
	// certificateOverdue is how long after the time for renewal that is told.
	certificateOverdue = 10 * time.Minute
	// certificatePatience is how long a pod's start waits for a signer before
	// it is put off.
	certificatePatience = 2 * time.Second
)

func newPodCertificates(a *Agent) *podCertificates {
	return &podCertificates{a: a, held: map[certificateKey]*certificate{}}
}

// bundle is the key and the certificates for a source, as PEM.
func (p *podCertificates) bundle(ctx context.Context, pod *corev1.Pod, volume string, index int, s *corev1.PodCertificateProjection) (key, chain []byte, err error) {
	lister, err := p.lister(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	at := certificateKey{pod.UID, volume, index}
	c := p.held[at]
	if c == nil {
		c = &certificate{}
		p.held[at] = c
	}
	p.mu.Unlock()
	// From here on no lock is needed: only the pod's worker comes for c.
	until := time.Now().Add(certificatePatience)
	for {
		if err := p.advance(ctx, pod, c, s, lister); err != nil {
			return nil, nil, err
		}
		if c.refused != nil {
			return nil, nil, c.refused
		}
		if c.chain != nil {
			return c.key, c.chain, nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return nil, nil, errors.New("credential bundle is not issued yet")
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// advance asks for a certificate if one is due, and takes over the verdict on
// the request that is under way.
func (p *podCertificates) advance(ctx context.Context, pod *corev1.Pod, c *certificate, s *corev1.PodCertificateProjection, lister certificateslisters.PodCertificateRequestLister) error {
	now := time.Now()
	if c.refused != nil || c.chain != nil && now.Before(c.refresh) {
		return nil
	}
	p.complain(pod, c, now)
	if c.asked == "" {
		key, made, err := p.ask(ctx, pod, s)
		if err != nil {
			return err
		}
		c.asked, c.askeds, c.lost = made.Name, key, now.Add(certificateLost+certificateJitter())
		return nil
	}
	request, err := lister.PodCertificateRequests(pod.Namespace).Get(c.asked)
	if apierrors.IsNotFound(err) {
		if now.After(c.lost) {
			c.asked, c.askeds = "", nil
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("while getting PodCertificateRequest %q: %w", pod.Namespace+"/"+c.asked, err)
	}
	if verdict := c.judge(request); verdict != nil && c.refused != nil {
		p.a.events.Eventf(podRef(pod, ""), corev1.EventTypeWarning, verdict.Type, "PodCertificateRequest %s/%s was refused: reason=%q, message=%q",
			request.Namespace, request.Name, verdict.Reason, verdict.Message)
	}
	return nil
}

// judge takes over the verdict on a request, and returns it if there is one.
func (c *certificate) judge(r *certificatesv1.PodCertificateRequest) *metav1.Condition {
	for i := range r.Status.Conditions {
		cond := &r.Status.Conditions[i]
		switch cond.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			c.refused = fmt.Errorf("PodCertificateRequest was permanently denied: reason=%q message=%q", cond.Reason, cond.Message)
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			c.refused = fmt.Errorf("PodCertificateRequest was permanently failed: reason=%q message=%q", cond.Reason, cond.Message)
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			*c = certificate{key: c.askeds, chain: bareChain(r.Status.CertificateChain)}
			if t := r.Status.NotAfter; t != nil {
				c.expires = t.Time
			}
			if t := r.Status.BeginRefreshAt; t != nil {
				c.refresh = t.Add(certificateJitter())
			}
		default:
			continue
		}
		return cond
	}
	return nil
}

// complain tells, once each, that a renewal is late or comes too late.
func (p *podCertificates) complain(pod *corev1.Pod, c *certificate, now time.Time) {
	if c.chain == nil {
		return
	}
	if now.After(c.refresh.Add(certificateOverdue)) && !c.toldOverdue {
		c.toldOverdue = true
		p.a.events.Event(podRef(pod, ""), corev1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if now.After(c.expires) && !c.toldExpired {
		c.toldExpired = true
		p.a.events.Event(podRef(pod, ""), corev1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}

// ask makes a key and a request for a certificate for it.
func (p *podCertificates) ask(ctx context.Context, pod *corev1.Pod, s *corev1.PodCertificateProjection) ([]byte, *certificatesv1.PodCertificateRequest, error) {
	account, err := p.a.clients.CoreV1().ServiceAccounts(pod.Namespace).Get(ctx, pod.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("while fetching service account: %w", err)
	}
	node := p.a.node.Load()
	if node == nil {
		return nil, nil, errors.New("the node is not registered yet")
	}
	key, proof, err := newKey(s.KeyType)
	if err != nil {
		return nil, nil, err
	}
	made, err := p.a.clients.CertificatesV1().PodCertificateRequests(pod.Namespace).Create(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: s.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: s.MaxExpirationSeconds, StubPKCS10Request: proof, UnverifiedUserAnnotations: s.UserAnnotations,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("while creating PodCertificateRequest: %w", err)
	}
	return key, made, nil
}

// lister begins to follow the node's requests if that was not done yet.
func (p *podCertificates) lister(ctx context.Context) (certificateslisters.PodCertificateRequestLister, error) {
	p.once.Do(func() {
		p.informer = certificatesinformers.NewFilteredPodCertificateRequestInformer(p.a.clients, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", p.a.cfg.NodeName).String()
			})
		_, _ = p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, obj any) { p.a.pods.refresh(obj.(*certificatesv1.PodCertificateRequest).Spec.PodUID) },
		})
		p.a.background.start(p.informer.RunWithContext)
	})
	ctx, cancel := context.WithTimeout(ctx, trustPatience)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), p.informer.HasSynced) {
		return nil, errors.New("PodCertificateRequest informer has not yet synced")
	}
	return certificateslisters.NewPodCertificateRequestLister(p.informer.GetIndexer()), nil
}

// forget drops the keys of a pod that has gone.
func (p *podCertificates) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.held {
		if k.pod == uid {
			delete(p.held, k)
		}
	}
}

// certificateJitter keeps pods that came up together from asking together.
func certificateJitter() time.Duration {
	return time.Duration(mathrand.Int64N(int64(5 * time.Minute)))
}

// newKey makes a private key, as PEM, and a proof that we have it: an otherwise
// empty PKCS#10 request.
func newKey(kind string) (keyPEM, proof []byte, err error) {
	var key crypto.Signer
	switch kind {
	case "RSA3072":
		key, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		key, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, nil, fmt.Errorf("unknown key type %q", kind)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make %s key: %w", kind, err)
	}
	if proof, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
		return nil, nil, fmt.Errorf("prove possession of %s key: %w", kind, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %s key: %w", kind, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), proof, nil
}

// bareChain is a chain of certificates without headers and what is between.
func bareChain(chain string) []byte {
	var out []byte
	for rest := []byte(chain); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return out
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Bytes})...)
	}
}
