package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// recheck is how often the files are looked at, at most.
const recheck = 5 * time.Second

// reloading is what is read from files that may be replaced while it is in use.
type reloading[T any] struct {
	files []string
	read  func() (T, error)

	mu      sync.Mutex // protects the fields below
	value   T
	stamp   string    // of the files that value was read from
	checked time.Time // when they were last looked at
}

// newReloading reads the files once, so that a missing or broken one is found at
// start.
func newReloading[T any](read func() (T, error), files ...string) (*reloading[T], error) {
	r := &reloading[T]{files: files, read: read, stamp: stampOf(files...), checked: time.Now()}
	var err error
	r.value, err = read()
	return r, err
}

// current re-reads the files if they changed. Files that cannot be read (one of
// a pair is just being replaced) leave the old value in use.
func (r *reloading[T]) current() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.checked) >= recheck {
		r.checked = now
		if stamp := stampOf(r.files...); stamp != "" && stamp != r.stamp {
			if value, err := r.read(); err == nil {
				r.value, r.stamp = value, stamp
			}
		}
	}
	return r.value
}

// ReloadingCertificate is a certificate and key on disk that may be renewed
// while it is in use. Its methods fit tls.Config's callbacks.
type ReloadingCertificate struct{ *reloading[*tls.Certificate] }

// NewReloadingCertificate reads a pair of files.
func NewReloadingCertificate(certFile, keyFile string) (ReloadingCertificate, error) {
	r, err := newReloading(func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", certFile, err)
		}
		return &cert, nil
	}, certFile, keyFile)
	return ReloadingCertificate{r}, err
}

// GetCertificate is for tls.Config.GetCertificate, of servers.
func (r ReloadingCertificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return r.current(), nil
}

// GetClientCertificate is for tls.Config.GetClientCertificate.
func (r ReloadingCertificate) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return r.current(), nil
}

// ReloadingPool is a file of CA certificates that may be replaced while it is in
// use.
type ReloadingPool struct{ *reloading[*x509.CertPool] }

// NewReloadingPool reads a file.
func NewReloadingPool(file string) (ReloadingPool, error) {
	r, err := newReloading(func() (*x509.CertPool, error) { return ReadPool(file) }, file)
	return ReloadingPool{r}, err
}

// Pool are the certificates of now.
func (r ReloadingPool) Pool() *x509.CertPool { return r.current() }

// stampOf changes when a file does; "" if one cannot be looked at.
func stampOf(files ...string) string {
	stamp := ""
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return ""
		}
		stamp += fmt.Sprintf("%d %d;", info.ModTime().UnixNano(), info.Size())
	}
	return stamp
}

// ReadPool reads a file of CA certificates.
func ReadPool(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("read %s: no certificate in it", file)
	}
	return pool, nil
}
