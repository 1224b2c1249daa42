package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func testSpec() Spec {
	return Spec{NodeName: "node-1", IPs: []net.IP{net.IPv4(192, 0, 2, 7)}}
}

func ensure(t *testing.T, dir string, spec Spec) []string {
	t.Helper()
	written, err := Ensure(dir, spec)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

func TestEnsureMakesACompleteSet(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, testSpec())

	pool, err := ReadPool(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	api, err := readCertificate(filepath.Join(dir, "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubernetes", "kubernetes.default.svc.cluster.local", "localhost", "node-1", "127.0.0.1", "10.96.0.1", "192.0.2.7"} {
		if _, err := api.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Errorf("apiserver as %s: %v", name, err)
		}
	}
	node, err := readCertificate(filepath.Join(dir, "kubelet-client.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if node.Subject.CommonName != "system:node:node-1" || !slices.Equal(node.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("kubelet client is %s", node.Subject)
	}
	if _, err := node.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("kubelet client: %v", err)
	}
	for _, key := range []string{"ca.key", "admin.key", "sa.key", "etcd/server.key"} {
		info, err := os.Stat(filepath.Join(dir, key))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", key, info, err)
		}
	}
	if again := ensure(t, dir, testSpec()); len(again) != 0 {
		t.Errorf("a second run wrote %v", again)
	}
}

func TestEnsureRenews(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, testSpec())
	before, _ := os.ReadFile(filepath.Join(dir, "ca.crt"))

	moved := testSpec()
	moved.IPs = append(moved.IPs, net.IPv4(192, 0, 2, 8))
	want := []string{"kubelet", "apiserver", "etcd/server", "etcd/peer", "controller-manager-server", "scheduler-server"}
	if got := ensure(t, dir, moved); !slices.Equal(got, want) {
		t.Errorf("after a new address: wrote %v, want %v", got, want)
	}

	late := moved
	late.Now = time.Now().Add(leafLife * 3 / 4)
	got := ensure(t, dir, late)
	if len(got) != len(leaves(late.withDefaults())) {
		t.Errorf("in the last third: wrote %v, want all leaves", got)
	}
	after, _ := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if string(before) != string(after) {
		t.Error("the CA was renewed with its leaves")
	}

	if err := os.Remove(filepath.Join(dir, "scheduler.key")); err != nil {
		t.Fatal(err)
	}
	if got := ensure(t, dir, late); !slices.Equal(got, []string{"scheduler"}) {
		t.Errorf("after a lost key: wrote %v", got)
	}
}

func TestRenewedAuthorityKeepsItsLeaves(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, testSpec())
	admin, _ := readCertificate(filepath.Join(dir, "admin.crt"))
	late := testSpec()
	late.Now = time.Now().Add(caLife * 3 / 4)
	if got := ensure(t, dir, late); !slices.Contains(got, "ca") {
		t.Fatalf("wrote %v, want the CA among them", got)
	}
	pool, _ := ReadPool(filepath.Join(dir, "ca.crt"))
	_, err := admin.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: late.Now.Add(-caLife * 3 / 4).Add(time.Hour), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	// The renewed CA is not valid yet at that time; only that may be wrong.
	if invalid, ok := err.(x509.CertificateInvalidError); err != nil && (!ok || invalid.Reason != x509.Expired) {
		t.Errorf("old leaf under the new CA: %v", err)
	}
}

func TestEnsureRefusesALostCAKey(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, testSpec())
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(dir, testSpec()); err == nil {
		t.Error("a new CA was made over the old one")
	}
}

func TestReloadingCertificate(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, testSpec())
	file := filepath.Join(dir, "apiserver")
	r, err := NewReloadingCertificate(file+".crt", file+".key")
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		cert, err := r.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf.SerialNumber.String()
	}
	first := serial()
	moved := testSpec()
	moved.IPs = append(moved.IPs, net.IPv4(192, 0, 2, 99))
	ensure(t, dir, moved)
	if serial() != first {
		t.Error("the files were looked at again within the recheck time")
	}
	r.checked = time.Time{}
	if serial() == first {
		t.Error("the renewed certificate is not served")
	}
}

func TestKubeconfigs(t *testing.T) {
	pki, dir := t.TempDir(), t.TempDir()
	ensure(t, pki, testSpec())
	files := Kubeconfigs(func(name string) string { return filepath.Join(dir, name+".conf") }, "https://127.0.0.1:6443")
	written, err := EnsureKubeconfigs(pki, files...)
	if err != nil || len(written) != len(files) {
		t.Fatalf("wrote %v: %v", written, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" {
		t.Errorf("server %s", config.Host)
	}
	if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		t.Errorf("embedded certificate: %v", err)
	}
	if again, err := EnsureKubeconfigs(pki, files...); err != nil || len(again) != 0 {
		t.Errorf("a second run wrote %v: %v", again, err)
	}
}
