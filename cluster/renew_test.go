package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// TestRenew lets a cluster grow old: nothing happens at first, then every
// certificate is replaced by one for the same names, and every kubeconfig holds or
// names the new one.
func TestRenew(t *testing.T) {
	pki, dir := t.TempDir(), t.TempDir()
	ensure(t, pki, testSpec())
	file := func(name string) string { return filepath.Join(dir, name, name+".conf") }
	if _, err := EnsureKubeconfigs(pki, Kubeconfigs(file, "https://127.0.0.1:6443")...); err != nil {
		t.Fatal(err)
	}
	before, err := readCertificate(filepath.Join(pki, "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if written, err := Renew(pki, pki, time.Now().Add(leafLife/2)); err != nil || len(written) > 0 {
		t.Fatalf("in the middle of their life: wrote %v: %v", written, err)
	}
	written, err := Renew(pki, pki, time.Now().Add(leafLife*3/4))
	if err != nil || len(written) != len(leaves(testSpec())) {
		t.Fatalf("in the last third: wrote %v: %v", written, err)
	}
	after, err := readCertificate(filepath.Join(pki, "apiserver.crt"))
	if err != nil || !after.NotAfter.After(before.NotAfter) {
		t.Errorf("renewed certificate ends %v, the old one %v: %v", after.NotAfter, before.NotAfter, err)
	}
	if !slices.Equal(after.DNSNames, before.DNSNames) || len(after.IPAddresses) != len(before.IPAddresses) || after.Subject.CommonName != before.Subject.CommonName {
		t.Errorf("renewed for %v %v %v", after.Subject, after.DNSNames, after.IPAddresses)
	}
	if _, err := RenewKubeconfigs(pki, file); err != nil {
		t.Fatal(err)
	}
	for name, cert := range map[string]string{"admin": "admin", "scheduler": "scheduler", "kubelet": "kubelet-client"} {
		config, err := clientcmd.BuildConfigFromFlags("", file(name))
		if err != nil {
			t.Fatal(err)
		}
		have := config.CertData
		if name != "admin" { // a file, which client-go watches
			if have, err = os.ReadFile(config.CertFile); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(filepath.Join(pki, cert+".crt"))
		if err != nil || string(have) != string(want) || config.Host != "https://127.0.0.1:6443" {
			t.Errorf("kubeconfig of %s is not up to date (server %s): %v", name, config.Host, err)
		}
	}
}

// TestEnsureNode makes what a node without control plane may have, and no more.
func TestEnsureNode(t *testing.T) {
	pki, node := t.TempDir(), t.TempDir()
	ensure(t, pki, testSpec())
	if err := EnsureNode(node, pki, Spec{NodeName: "two"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(node)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"ca.crt", "kubelet-client.crt", "kubelet-client.key", "kubelet.crt", "kubelet.key"}; !slices.Equal(names, want) {
		t.Errorf("the node has %v, want %v", names, want)
	}
	cert, err := readCertificate(filepath.Join(node, "kubelet-client.crt"))
	if err != nil || cert.Subject.CommonName != "system:node:two" {
		t.Errorf("the node agent is %v: %v", cert.Subject, err)
	}
	if written, err := Renew(node, pki, time.Now().Add(leafLife*3/4)); err != nil || len(written) != 2 {
		t.Errorf("renewed %v: %v", written, err)
	}
}
