package interchange

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"orrery.dev/test/conformance/programs"
)

var orrery = flag.String("orrery", "", "our program; make interchange builds and names it")

// maker is whose program a part is.
type maker bool

const (
	ours      maker = false
	upstreams maker = true
)

func (m maker) String() string {
	if m == upstreams {
		return "upstream"
	}
	return "orrery"
}

// nodes is how many simulated nodes a cluster has.
const nodes = 3

// serviceRange and advertised are addresses that nothing here connects to.
const (
	serviceRange = "10.96.0.0/16"
	advertised   = "192.0.2.1"
)

// setup are the programs and the state of one cluster, of which parts can be
// started and stopped.
type setup struct {
	t     *testing.T
	dir   string // data and logs
	pki   *pki
	etcd  string // URL
	port  int    // the API server's
	admin *rest.Config

	cache programs.Cache
}

// newSetup starts etcd, which is orrery's.
func newSetup(t *testing.T) *setup {
	t.Helper()
	if *orrery == "" {
		t.Skip("no binary: run make interchange")
	}
	cache, err := programs.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if _, err := os.Stat(cache.Program(name)); err != nil {
			t.Skipf("upstream's %s is not built: run make interchange", name)
		}
	}
	s := &setup{t: t, dir: t.TempDir(), pki: newPKI(t), cache: cache, port: freePorts(t, 1)}
	ports := freePorts(t, 2)
	s.etcd = loopback("http", ports)
	s.start("etcd", *orrery, "etcd", "--data-dir="+filepath.Join(s.dir, "etcd"),
		"--listen-client-urls="+s.etcd, "--listen-peer-urls="+loopback("http", ports+1), "--client-cert-auth=false", "--peer-client-cert-auth=false")
	if s.admin, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig("admin")); err != nil {
		t.Fatal(err)
	}
	s.admin.QPS, s.admin.Burst = -1, -1
	return s
}

func loopback(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func (s *setup) start(name string, argv ...string) *process { return start(s.t, s.dir, name, argv...) }

func (s *setup) kubeconfig(user string) string {
	return s.pki.kubeconfig(s.t, user, loopback("https", s.port))
}

// apiServer starts an API server and waits until it is ready.
func (s *setup) apiServer(by maker) *process {
	s.t.Helper()
	file := s.pki.file
	flags := []string{
		"--etcd-servers=" + s.etcd,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port), "--advertise-address=" + advertised,
		"--tls-cert-file=" + file("server.crt"), "--tls-private-key-file=" + file("server.key"),
		"--client-ca-file=" + file("ca.crt"), "--authorization-mode=Node,RBAC",
		"--kubelet-client-certificate=" + file("admin.crt"), "--kubelet-client-key=" + file("admin.key"), "--kubelet-certificate-authority=" + file("ca.crt"),
		"--proxy-client-cert-file=" + file("front-proxy.crt"), "--proxy-client-key-file=" + file("front-proxy.key"),
		"--requestheader-client-ca-file=" + file("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + file("sa.pub"), "--service-account-signing-key-file=" + file("sa.key"),
		"--service-cluster-ip-range=" + serviceRange, "--enable-bootstrap-token-auth=true", "--allow-privileged=true",
	}
	argv := []string{*orrery, "kube-apiserver"}
	if by == upstreams {
		argv = []string{s.cache.Program("kube-apiserver")}
		// Nodes are asked at their addresses, as kubeadm has it.
		flags = append(flags, "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname")
	}
	p := s.start("kube-apiserver-"+by.String(), append(argv, flags...)...)
	s.untilReady(p)
	return p
}

// untilReady waits for /readyz.
func (s *setup) untilReady(p *process) {
	s.t.Helper()
	client, err := rest.HTTPClientFor(s.admin)
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	err = eventually(ctx, func(context.Context) (string, error) {
		if p.hasEnded() {
			s.t.Fatalf("%s ended", p.name)
		}
		answer, err := client.Get(s.admin.Host + "/readyz")
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return "", nil
		}
		body, err := io.ReadAll(answer.Body)
		return fmt.Sprintf("%s not ready: %s", p.name, body), err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *setup) scheduler(by maker) *process {
	flags := []string{"--kubeconfig=" + s.kubeconfig("scheduler"), "--leader-elect=true"}
	if by == upstreams {
		argv := append([]string{s.cache.Program("kube-scheduler"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", freePorts(s.t, 1))}, flags...)
		return s.start("kube-scheduler-upstream", argv...)
	}
	argv := append([]string{*orrery, "kube-scheduler", fmt.Sprintf("--health-address=127.0.0.1:%d", freePorts(s.t, 1))}, flags...)
	return s.start("kube-scheduler-orrery", argv...)
}

func (s *setup) controllerManager(by maker) *process {
	flags := []string{
		"--kubeconfig=" + s.kubeconfig("controller-manager"), "--leader-elect=true",
		"--root-ca-file=" + s.pki.file("ca.crt"), "--service-account-private-key-file=" + s.pki.file("sa.key"),
		"--cluster-signing-cert-file=" + s.pki.file("ca.crt"), "--cluster-signing-key-file=" + s.pki.file("ca.key"),
	}
	if by == upstreams {
		argv := append([]string{s.cache.Program("kube-controller-manager"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", freePorts(s.t, 1)),
			"--use-service-account-credentials=true"}, flags...)
		return s.start("kube-controller-manager-upstream", argv...)
	}
	argv := append([]string{*orrery, "kube-controller-manager", fmt.Sprintf("--health-address=127.0.0.1:%d", freePorts(s.t, 1))}, flags...)
	return s.start("kube-controller-manager-orrery", argv...)
}

// agents starts simulated nodes, which are always orrery's.
func (s *setup) agents() *process {
	config := filepath.Join(s.dir, "kubelet.yaml")
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %d
tlsCertFile: %s
tlsPrivateKeyFile: %s
authentication:
  x509:
    clientCAFile: %s
`, freePorts(s.t, nodes), s.pki.file("server.crt"), s.pki.file("server.key"), s.pki.file("ca.crt"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return s.start("kubelet-orrery", *orrery, "kubelet", fmt.Sprintf("--simulate=%d", nodes), "--node-ip=127.0.0.1",
		"--config="+config, "--kubeconfig="+s.kubeconfig("admin"))
}

// clients are those of an administrator.
func (s *setup) clients() (kubernetes.Interface, dynamic.Interface) {
	s.t.Helper()
	typed, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		s.t.Fatal(err)
	}
	untyped, err := dynamic.NewForConfig(s.admin)
	if err != nil {
		s.t.Fatal(err)
	}
	return typed, untyped
}
