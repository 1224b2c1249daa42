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

// ReloadingCertificate is a certificate and key on disk that may be renewed
// while it is in use. Its methods fit tls.Config's callbacks.
type ReloadingCertificate struct {
	certFile, keyFile string

	mu      sync.Mutex // protects the fields below
	cert    *tls.Certificate
	stamp   string    // of the files that cert was read from
	checked time.Time // when they were last looked at
}

// NewReloadingCertificate reads the files once, so that a missing or broken
// file is found at start.
func NewReloadingCertificate(certFile, keyFile string) (*ReloadingCertificate, error) {
	r := &ReloadingCertificate{certFile: certFile, keyFile: keyFile}
	if err := r.read(); err != nil {
		return nil, err
	}
	return r, nil
}

// GetCertificate is for tls.Config.GetCertificate, of servers.
func (r *ReloadingCertificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return r.current(), nil
}

// GetClientCertificate is for tls.Config.GetClientCertificate.
func (r *ReloadingCertificate) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return r.current(), nil
}

// current re-reads the files if they changed. Files that cannot be read (one of
// the pair is just being replaced) leave the old certificate in use.
func (r *ReloadingCertificate) current() *tls.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.checked) >= recheck {
		r.checked = now
		if stamp := stampOf(r.certFile, r.keyFile); stamp != "" && stamp != r.stamp {
			_ = r.readLocked(stamp)
		}
	}
	return r.cert
}

func (r *ReloadingCertificate) read() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = time.Now()
	return r.readLocked(stampOf(r.certFile, r.keyFile))
}

func (r *ReloadingCertificate) readLocked(stamp string) error {
	cert, err := tls.LoadX509KeyPair(r.certFile, r.keyFile)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.certFile, err)
	}
	r.cert, r.stamp = &cert, stamp
	return nil
}

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
