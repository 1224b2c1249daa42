package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Spec says what the certificates of a cluster are made for.
type Spec struct {
	NodeName string
	// IPs are the node's addresses; Names and more addresses by which clients
	// reach the API server may be added.
	IPs []net.IP
	// ClusterDomain and ServiceIP are how pods reach the API server;
	// "cluster.local" and 10.96.0.1 when empty.
	ClusterDomain string
	ServiceIP     net.IP
	// Now is the present time; zero: the clock's. Tests age certificates by it.
	Now time.Time
}

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour
	// backdate tolerates clocks that run behind ours.
	backdate = 5 * time.Minute
)

// authority is a CA: files name.crt and name.key.
type authority struct{ file, commonName string }

var (
	clusterCA    = authority{"ca", "kubernetes"}
	etcdCA       = authority{"etcd/ca", "etcd-ca"}
	frontProxyCA = authority{"front-proxy-ca", "front-proxy-ca"}
)

// leaf is a certificate that one of the authorities signs.
type leaf struct {
	file       string
	by         authority
	commonName string
	groups     []string
	server     bool
	client     bool
	names      []string
	ips        []net.IP
}

// leaves is every certificate of a node that runs the control plane, in
// kubeadm's layout. Files that kubeadm has only inside kubeconfigs (admin,
// scheduler, ...) are here under the component's name.
func leaves(s Spec) []leaf {
	local := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	onNode := append(slices.Clone(s.IPs), local...)
	api := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + s.ClusterDomain, "localhost", s.NodeName}
	etcd := []string{"localhost", s.NodeName}
	return append(nodeLeaves(s), []leaf{
		{file: "apiserver", by: clusterCA, commonName: "kube-apiserver", server: true, names: api, ips: append([]net.IP{s.ServiceIP}, onNode...)},
		{file: "apiserver-kubelet-client", by: clusterCA, commonName: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}, client: true},
		{file: "apiserver-etcd-client", by: etcdCA, commonName: "kube-apiserver-etcd-client", client: true},
		{file: "front-proxy-client", by: frontProxyCA, commonName: "front-proxy-client", client: true},
		{file: "etcd/server", by: etcdCA, commonName: s.NodeName, server: true, client: true, names: etcd, ips: onNode},
		{file: "etcd/peer", by: etcdCA, commonName: s.NodeName, server: true, client: true, names: etcd, ips: onNode},
		{file: "etcd/healthcheck-client", by: etcdCA, commonName: "kube-etcd-healthcheck-client", client: true},
		{file: "controller-manager", by: clusterCA, commonName: "system:kube-controller-manager", client: true},
		{file: "controller-manager-server", by: clusterCA, commonName: "kube-controller-manager", server: true, names: etcd, ips: onNode},
		{file: "scheduler", by: clusterCA, commonName: "system:kube-scheduler", client: true},
		{file: "scheduler-server", by: clusterCA, commonName: "kube-scheduler", server: true, names: etcd, ips: onNode},
		{file: "kube-proxy", by: clusterCA, commonName: "system:kube-proxy", client: true},
		{file: "console", by: clusterCA, commonName: consoleUser, client: true},
		{file: "admin", by: clusterCA, commonName: "kubernetes-admin", groups: []string{"system:masters"}, client: true},
	}...)
}

// nodeLeaves are the certificates of any node.
func nodeLeaves(s Spec) []leaf {
	name, group := "system:node:"+s.NodeName, []string{"system:nodes"}
	return []leaf{
		{file: "kubelet", by: clusterCA, commonName: name, groups: group, server: true, names: []string{s.NodeName, "localhost"},
			ips: append(slices.Clone(s.IPs), net.IPv4(127, 0, 0, 1), net.IPv6loopback)},
		{file: "kubelet-client", by: clusterCA, commonName: name, groups: group, client: true},
	}
}

// Ensure makes dir hold every key and certificate of a control plane node. It
// creates what is missing, renews what is in the last third of its life or no
// longer fits spec, and leaves everything else alone. It returns the files
// (without ending) that it wrote. CA keys are never replaced, only their
// certificates are renewed, so that what they signed stays good.
func Ensure(dir string, spec Spec) (written []string, err error) {
	spec = spec.withDefaults()
	cas := map[string]*signer{}
	for _, a := range []authority{clusterCA, etcdCA, frontProxyCA} {
		ca, wrote, err := ensureAuthority(dir, a, spec.Now)
		if err != nil {
			return written, fmt.Errorf("certificate authority %s: %w", filepath.Join(dir, a.file+".crt"), err)
		}
		if wrote {
			written = append(written, a.file)
		}
		cas[a.file] = ca
	}
	for _, l := range leaves(spec) {
		wrote, err := ensureLeaf(dir, l, cas[l.by.file], spec.Now)
		if err != nil {
			return written, fmt.Errorf("certificate %s: %w", filepath.Join(dir, l.file+".crt"), err)
		}
		if wrote {
			written = append(written, l.file)
		}
	}
	wrote, err := ensureServiceAccountKey(dir)
	if err != nil {
		return written, fmt.Errorf("service account key %s: %w", filepath.Join(dir, "sa.key"), err)
	}
	if wrote {
		written = append(written, "sa")
	}
	return written, nil
}

// EnsureNode makes dir hold what a node without control plane has: the cluster's
// authority, without its key, and the node agent's certificates. from is the
// directory of a control plane node, where the authority is.
func EnsureNode(dir, from string, spec Spec) error {
	spec = spec.withDefaults()
	ca, _, err := ensureAuthority(from, clusterCA, spec.Now)
	if err != nil {
		return fmt.Errorf("certificate authority %s: %w", filepath.Join(from, clusterCA.file+".crt"), err)
	}
	public, err := os.ReadFile(filepath.Join(from, clusterCA.file+".crt"))
	if err != nil {
		return err
	}
	if err := WriteIfChanged(filepath.Join(dir, clusterCA.file+".crt"), public, 0o644); err != nil {
		return err
	}
	for _, l := range nodeLeaves(spec) {
		if _, err := ensureLeaf(dir, l, ca, spec.Now); err != nil {
			return fmt.Errorf("certificate %s: %w", filepath.Join(dir, l.file+".crt"), err)
		}
	}
	return nil
}

func (s Spec) withDefaults() Spec {
	if s.ClusterDomain == "" {
		s.ClusterDomain = "cluster.local"
	}
	if s.ServiceIP == nil {
		s.ServiceIP = net.IPv4(10, 96, 0, 1)
	}
	if s.Now.IsZero() {
		s.Now = time.Now()
	}
	return s
}

// signer is a CA that is ready to sign.
type signer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func ensureAuthority(dir string, a authority, now time.Time) (*signer, bool, error) {
	path := filepath.Join(dir, a.file)
	cert, certErr := readCertificate(path + ".crt")
	key, keyErr := readKey(path + ".key")
	if err := damaged(certErr, keyErr); err != nil {
		return nil, false, err
	}
	if cert != nil && key == nil {
		return nil, false, errors.New("the certificate is there but its key is not; restore the key, or remove the directory to start a new cluster")
	}
	if cert != nil && !matches(cert, key) {
		return nil, false, errors.New("the certificate is not of the key beside it")
	}
	if cert != nil && !aging(cert, now) {
		return &signer{cert, key}, false, nil
	}
	if key == nil {
		var err error
		if key, err = newKey(path + ".key"); err != nil {
			return nil, false, err
		}
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: a.commonName},
		DNSNames:              []string{a.commonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		SubjectKeyId:          keyID(key.Public()),
	}
	cert, err := sign(path+".crt", template, template, key.Public(), key)
	if err != nil {
		return nil, false, err
	}
	return &signer{cert, key}, true, nil
}

func ensureLeaf(dir string, l leaf, ca *signer, now time.Time) (bool, error) {
	path := filepath.Join(dir, l.file)
	cert, certErr := readCertificate(path + ".crt")
	key, keyErr := readKey(path + ".key")
	// A leaf that cannot be read is only replaced: nothing hangs on it.
	if certErr == nil && keyErr == nil && matches(cert, key) && !aging(cert, now) && fits(cert, l, ca) {
		return false, nil
	}
	key, err := newKey(path + ".key")
	if err != nil {
		return false, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.commonName, Organization: l.groups},
		DNSNames:    uniqueNames(l.names),
		IPAddresses: uniqueIPs(l.ips),
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: l.usages(),
		// The authority's key ID lets a renewed CA certificate vouch for it.
		AuthorityKeyId: ca.cert.SubjectKeyId,
	}
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	_, err = sign(path+".crt", template, ca.cert, key.Public(), ca.key)
	return err == nil, err
}

func (l leaf) usages() []x509.ExtKeyUsage {
	var all []x509.ExtKeyUsage
	if l.server {
		all = append(all, x509.ExtKeyUsageServerAuth)
	}
	if l.client {
		all = append(all, x509.ExtKeyUsageClientAuth)
	}
	return all
}

// fits reports whether a certificate is what the leaf asks for. Names beyond
// those asked for do not hurt.
func fits(cert *x509.Certificate, l leaf, ca *signer) bool {
	if cert.CheckSignatureFrom(ca.cert) != nil || cert.Subject.CommonName != l.commonName || !slices.Equal(cert.Subject.Organization, l.groups) {
		return false
	}
	for _, name := range uniqueNames(l.names) {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range uniqueIPs(l.ips) {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return slices.Equal(cert.ExtKeyUsage, l.usages())
}

// aging reports whether a certificate is in the last third of its life.
func aging(cert *x509.Certificate, now time.Time) bool {
	return now.Before(cert.NotBefore) || cert.NotAfter.Sub(now) < cert.NotAfter.Sub(cert.NotBefore)/3
}

func matches(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// sign makes a certificate and writes it.
func sign(path string, template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, err
	}
	if err := writePEM(path, 0o644, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newKey(path string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, 0o600, "EC PRIVATE KEY", der)
}

// ensureServiceAccountKey makes the key that signs service account tokens. It
// is RSA, so that tokens are RS256 as everywhere.
func ensureServiceAccountKey(dir string) (bool, error) {
	path := filepath.Join(dir, "sa")
	key, err := readKey(path + ".key")
	wrote := false
	if errors.Is(err, fs.ErrNotExist) {
		made, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return false, err
		}
		if err := writePEM(path+".key", 0o600, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(made)); err != nil {
			return false, err
		}
		key, wrote = made, true
	} else if err != nil {
		return false, err
	}
	if _, err := os.Stat(path + ".pub"); err == nil && !wrote {
		return false, nil
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return false, err
	}
	return true, writePEM(path+".pub", 0o644, "PUBLIC KEY", der)
}

func keyID(public crypto.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		panic(fmt.Sprintf("marshal a key just made: %v", err))
	}
	sum := sha1.Sum(der) // an identifier (RFC 5280), not a protection
	return sum[:]
}

// damaged is the first error that is not "does not exist".
func damaged(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func uniqueNames(names []string) []string {
	var unique []string
	for _, n := range names {
		if n != "" && !slices.Contains(unique, n) {
			unique = append(unique, n)
		}
	}
	return unique
}

func uniqueIPs(ips []net.IP) []net.IP {
	var unique []net.IP
	for _, ip := range ips {
		if ip != nil && !slices.ContainsFunc(unique, ip.Equal) {
			unique = append(unique, ip)
		}
	}
	return unique
}
