package cluster

import (
	"crypto/x509"
	"sync"
	"time"
)

// ReloadingPool is a file of CA certificates that may be replaced while it is in
// use.
type ReloadingPool struct {
	file string

	mu      sync.Mutex // protects the fields below
	pool    *x509.CertPool
	stamp   string    // of the file that pool was read from
	checked time.Time // when it was last looked at
}

// NewReloadingPool reads the file once, so that a missing or broken one is found
// at start.
func NewReloadingPool(file string) (*ReloadingPool, error) {
	pool, err := ReadPool(file)
	if err != nil {
		return nil, err
	}
	return &ReloadingPool{file: file, pool: pool, stamp: stampOf(file), checked: time.Now()}, nil
}

// Pool re-reads the file if it changed. One that cannot be read leaves the old
// pool in use.
func (r *ReloadingPool) Pool() *x509.CertPool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.checked) >= recheck {
		r.checked = now
		if stamp := stampOf(r.file); stamp != "" && stamp != r.stamp {
			if pool, err := ReadPool(r.file); err == nil {
				r.pool, r.stamp = pool, stamp
			}
		}
	}
	return r.pool
}
