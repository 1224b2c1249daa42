package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"time"
)

// certificates remembers which chains of client certificates were found good: to
// check a signature takes as long as all else that a small read needs. A chain
// stays good until one of its certificates expires or the authorities change.
type certificates struct {
	mu   sync.RWMutex // protects good
	good map[chainKey]time.Time
}

// chainKey names a chain, and whom it is believed for.
type chainKey struct {
	sum   [sha256.Size]byte
	roots *x509.CertPool
}

// mostChains bounds the memory. One more, and it starts anew.
const mostChains = 4096

// verify checks a chain that a client showed.
func (c *certificates) verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	key := chainKey{sumOf(chain), roots}
	c.mu.RLock()
	until, ok := c.good[key]
	c.mu.RUnlock()
	if ok && time.Now().Before(until) {
		return nil
	}
	until, err := verify(chain, roots)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.good == nil || len(c.good) >= mostChains {
		c.good = map[chainKey]time.Time{}
	}
	c.good[key] = until
	return nil
}

func sumOf(chain []*x509.Certificate) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, cert := range chain {
		hash.Write(cert.Raw)
	}
	hash.Sum(sum[:0])
	return sum
}

// verify returns how long the chain is good.
func verify(chain []*x509.Certificate, roots *x509.CertPool) (until time.Time, err error) {
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return time.Time{}, err
	}
	until = chain[0].NotAfter
	for _, cert := range chains[0] {
		if cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
	return until, nil
}
