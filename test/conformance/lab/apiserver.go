package lab

import (
	"fmt"
	"path/filepath"
	"testing"
)

// Addresses that nothing here connects to.
const (
	ServiceRange = "10.96.0.0/16"
	Advertised   = "192.0.2.1"
)

// Etcd starts orrery's etcd and returns its URL.
func Etcd(t *testing.T, dir, orrery string) string {
	t.Helper()
	ports := FreePorts(t, 2)
	url := Loopback("http", ports)
	Start(t, dir, "etcd", orrery, "etcd", "--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-urls="+url, "--listen-peer-urls="+Loopback("http", ports+1), "--client-cert-auth=false", "--peer-client-cert-auth=false")
	return url
}

// Loopback is the URL of a port.
func Loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

// APIServerFlags are those that upstream's API server and ours are started with.
func APIServerFlags(p *PKI, etcd string, port int) []string {
	file := p.File
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--advertise-address=" + Advertised,
		"--tls-cert-file=" + file("server.crt"), "--tls-private-key-file=" + file("server.key"),
		"--client-ca-file=" + file("ca.crt"), "--authorization-mode=Node,RBAC",
		"--kubelet-client-certificate=" + file("admin.crt"), "--kubelet-client-key=" + file("admin.key"), "--kubelet-certificate-authority=" + file("ca.crt"),
		"--proxy-client-cert-file=" + file("front-proxy.crt"), "--proxy-client-key-file=" + file("front-proxy.key"),
		"--requestheader-client-ca-file=" + file("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + file("sa.pub"), "--service-account-signing-key-file=" + file("sa.key"),
		"--service-cluster-ip-range=" + ServiceRange, "--enable-bootstrap-token-auth=true", "--allow-privileged=true",
	}
}
