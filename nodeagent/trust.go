package nodeagent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
)

// trustBundles has the cluster's ClusterTrustBundles at hand, from when the
// first pod wants one.
type trustBundles struct {
	a    *Agent
	seed [16]byte // of the order of the certificates in a file

	once     sync.Once
	informer cache.SharedIndexInformer
}

func newTrustBundles(a *Agent) *trustBundles {
	t := &trustBundles{a: a}
	rand.Read(t.seed[:])
	return t
}

// trustPatience is how long the first pod waits for the bundles to be read.
const trustPatience = 10 * time.Second

// lister begins to follow the bundles if that was not done yet.
func (t *trustBundles) lister(ctx context.Context) (certificateslisters.ClusterTrustBundleLister, error) {
	t.once.Do(func() {
		t.informer = certificatesinformers.NewClusterTrustBundleInformer(t.a.clients, 0, cache.Indexers{})
		wake := func() { t.a.pods.refreshWhere(usesTrustBundles) }
		_, _ = t.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { wake() }, UpdateFunc: func(_, _ any) { wake() }, DeleteFunc: func(any) { wake() },
		})
		t.a.background.start(t.informer.RunWithContext)
	})
	ctx, cancel := context.WithTimeout(ctx, trustPatience)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), t.informer.HasSynced) {
		return nil, errors.New("ClusterTrustBundle informer has not yet synced")
	}
	return certificateslisters.NewClusterTrustBundleLister(t.informer.GetIndexer()), nil
}

// anchors are the certificates that a projection asks for, as PEM.
func (t *trustBundles) anchors(ctx context.Context, p *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	lister, err := t.lister(ctx)
	if err != nil {
		return nil, err
	}
	optional := isTrue(p.Optional)
	switch {
	case p.Name != nil:
		bundle, err := lister.Get(*p.Name)
		if apierrors.IsNotFound(err) && optional {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", err)
		}
		return normalized([]*certificatesv1.ClusterTrustBundle{bundle}, t.seed), nil
	case p.SignerName != nil:
		// No selector selects nothing, an empty one everything.
		selector, err := metav1.LabelSelectorAsSelector(p.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("while parsing label selector: %w", err)
		}
		bundles, err := lister.List(selector)
		if err != nil {
			return nil, fmt.Errorf("while listing ClusterTrustBundles matching label selector %v: %w", p.LabelSelector, err)
		}
		bundles = slices.DeleteFunc(bundles, func(b *certificatesv1.ClusterTrustBundle) bool { return b.Spec.SignerName != *p.SignerName })
		if len(bundles) == 0 && !optional {
			return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
		}
		return normalized(bundles, t.seed), nil
	}
	return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
}

// normalized is each certificate of the bundles once, without headers and
// comments. Their order means nothing, and so that nobody comes to rely on it,
// it depends on a seed.
func normalized(bundles []*certificatesv1.ClusterTrustBundle, seed [16]byte) []byte {
	type anchor struct {
		rank [sha256.Size]byte
		der  []byte
	}
	var anchors []anchor
	for _, b := range bundles {
		rest := []byte(b.Spec.TrustBundle)
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			anchors = append(anchors, anchor{sha256.Sum256(append(seed[:], block.Bytes...)), block.Bytes})
		}
	}
	slices.SortFunc(anchors, func(x, y anchor) int { return cmp.Compare(string(x.rank[:]), string(y.rank[:])) })
	anchors = slices.CompactFunc(anchors, func(x, y anchor) bool { return x.rank == y.rank })
	var out []byte
	for _, a := range anchors {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})...)
	}
	return out
}

func usesTrustBundles(pod *corev1.Pod) bool {
	return hasProjection(pod, func(p *corev1.VolumeProjection) bool { return p.ClusterTrustBundle != nil })
}

// hasProjection says whether one of the pod's projected volumes has a source
// like that.
func hasProjection(pod *corev1.Pod, is func(*corev1.VolumeProjection) bool) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for i := range v.Projected.Sources {
			if is(&v.Projected.Sources[i]) {
				return true
			}
		}
	}
	return false
}
