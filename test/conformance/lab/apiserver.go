package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// Addresses that nothing here connects to.
const (
	ServiceRange = "10.96.0.0/16"
	Advertised   = "192.0.2.1"
)

// Etcd starts orrery's etcd and returns its URL.
func Etcd(t *testing.T, dir, orrery string) (url string, p *Process) {
	t.Helper()
	ports := FreePorts(t, 2)
	url = Loopback("http", ports)
	p = Start(t, dir, "etcd", orrery, "etcd", "--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-urls="+url, "--listen-peer-urls="+Loopback("http", ports+1), "--client-cert-auth=false", "--peer-client-cert-auth=false")
	return url, p
}

// APIServer is a running API server with an etcd of its own.
type APIServer struct {
	*Process
	Etcd *Process
	URL  string
}

// startPatience is how long an API server may take to become ready.
const startPatience = 4 * time.Minute

// StartAPIServer starts the program that argv names and waits until it is ready.
func StartAPIServer(t *testing.T, pki *PKI, orrery, name string, argv ...string) *APIServer {
	t.Helper()
	dir, port := t.TempDir(), FreePorts(t, 1)
	s := &APIServer{URL: Loopback("https", port)}
	var etcd string
	etcd, s.Etcd = Etcd(t, dir, orrery)
	s.Process = Start(t, dir, "kube-apiserver-"+name, append(argv, APIServerFlags(pki, etcd, port)...)...)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.TLS(t, "admin")}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	if err := Eventually(ctx, func(context.Context) (string, error) { return s.unready(client) }); err != nil {
		t.Fatal(err)
	}
	return s
}

// unready is what the server says that it waits for.
func (s *APIServer) unready(client *http.Client) (string, error) {
	if s.HasEnded() {
		s.t.Fatalf("%s ended", s.Name)
	}
	answer, err := client.Get(s.URL + "/readyz")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusOK {
		return "", nil
	}
	return string(body), err
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
