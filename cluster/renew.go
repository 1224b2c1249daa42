package cluster

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// Renew replaces the certificates in dir that are in the last third of their
// life by new ones for the same names, with new keys. Programs that use them read
// them again by themselves. authorities is the directory with the authorities'
// keys. It returns the files (without ending) that it wrote.
func Renew(dir, authorities string, now time.Time) (written []string, err error) {
	for _, l := range leaves(Spec{}) {
		path := filepath.Join(dir, l.file)
		cert, err := readCertificate(path + ".crt")
		if errors.Is(err, fs.ErrNotExist) {
			continue // not every node has every one
		}
		if err != nil {
			return written, fmt.Errorf("certificate %s.crt: %w", path, err)
		}
		if !aging(cert, now) {
			continue
		}
		ca, _, err := ensureAuthority(authorities, l.by, now)
		if err != nil {
			return written, fmt.Errorf("certificate authority %s: %w", filepath.Join(authorities, l.by.file+".crt"), err)
		}
		if _, err := ensureLeaf(dir, same(cert, l), ca, now); err != nil {
			return written, fmt.Errorf("certificate %s.crt: %w", path, err)
		}
		written = append(written, l.file)
	}
	return written, nil
}

// same is the leaf that a certificate was made for.
func same(cert *x509.Certificate, l leaf) leaf {
	l.commonName, l.groups = cert.Subject.CommonName, cert.Subject.Organization
	l.names, l.ips = cert.DNSNames, cert.IPAddresses
	return l
}

// RenewKubeconfigs brings the kubeconfigs that exist up to date with the
// certificates in pki.
func RenewKubeconfigs(pki string, file func(name string) string) (written []string, err error) {
	for _, k := range Kubeconfigs(file, "") {
		config, err := clientcmd.LoadFromFile(k.File)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return written, fmt.Errorf("kubeconfig %s: %w", k.File, err)
		}
		for _, c := range config.Clusters {
			k.Server = c.Server
		}
		more, err := EnsureKubeconfigs(pki, k)
		written = append(written, more...)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
