package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// PKI is a directory with the keys and certificates of one cluster. One authority
// signs all of them.
type PKI struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// NewPKI makes what the parts of a control plane need.
func NewPKI(t *testing.T) *PKI {
	t.Helper()
	p := &PKI{dir: t.TempDir()}
	p.key = p.writeKey(t, "ca")
	p.cert = p.sign(t, "ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, p.key.Public())
	p.Leaf(t, "server", "kube-apiserver")
	p.Leaf(t, "front-proxy", "front-proxy-client")
	p.Leaf(t, "admin", "kubernetes-admin", "system:masters")
	p.Leaf(t, "scheduler", "system:kube-scheduler")
	p.Leaf(t, "controller-manager", "system:kube-controller-manager")
	account := p.writeKey(t, "sa")
	public, err := x509.MarshalPKIXPublicKey(account.Public())
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "sa.pub", "PUBLIC KEY", public)
	return p
}

func (p *PKI) File(name string) string { return filepath.Join(p.dir, name) }

// Leaf makes name.crt and name.key, good for a server on loopback and for the
// client of that name and those groups.
func (p *PKI) Leaf(t *testing.T, name, commonName string, groups ...string) {
	t.Helper()
	p.sign(t, name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, p.writeKey(t, name).Public())
}

func (p *PKI) sign(t *testing.T, name string, template *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent := p.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, p.key)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, name+".crt", "CERTIFICATE", der)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (p *PKI) writeKey(t *testing.T, name string) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, name+".key", "EC PRIVATE KEY", der)
	return key
}

func (p *PKI) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(p.File(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TLS is how a user connects, or somebody whom nobody knows ("").
func (p *PKI) TLS(t *testing.T, user string) *tls.Config {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(p.cert)
	if user == "" {
		return config
	}
	cert, err := tls.LoadX509KeyPair(p.File(user+".crt"), p.File(user+".key"))
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{cert}
	return config
}

// Kubeconfig writes that of a user whose certificate there is, and returns its
// path.
func (p *PKI) Kubeconfig(t *testing.T, user, server string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: p.File("ca.crt")}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificate: p.File(user + ".crt"), ClientKey: p.File(user + ".key")}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := p.File(user + ".conf")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
