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

	"orrery.dev/test/conformance/lab"
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

// setup are the programs and the state of one cluster, of which parts can be
// started and stopped.
type setup struct {
	t     *testing.T
	dir   string // data and logs
	pki   *lab.PKI
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
	s := &setup{t: t, dir: t.TempDir(), pki: lab.NewPKI(t), cache: cache, port: lab.FreePorts(t, 1)}
	s.etcd, _ = lab.Etcd(t, s.dir, *orrery)
	if s.admin, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig("admin")); err != nil {
		t.Fatal(err)
	}
	s.admin.QPS, s.admin.Burst = -1, -1
	s.admin.WarningHandler = rest.NoWarnings{}
	return s
}

func (s *setup) start(name string, argv ...string) *lab.Process {
	return lab.Start(s.t, s.dir, name, argv...)
}

func (s *setup) kubeconfig(user string) string {
	return s.pki.Kubeconfig(s.t, user, lab.Loopback("https", s.port))
}

// apiServer starts an API server and waits until it is ready.
func (s *setup) apiServer(by maker) *lab.Process {
	s.t.Helper()
	flags := lab.APIServerFlags(s.pki, s.etcd, s.port)
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
func (s *setup) untilReady(p *lab.Process) {
	s.t.Helper()
	client, err := rest.HTTPClientFor(s.admin)
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	err = lab.Eventually(ctx, func(context.Context) (string, error) {
		if p.HasEnded() {
			s.t.Fatalf("%s ended", p.Name)
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
		return fmt.Sprintf("%s not ready: %s", p.Name, body), err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *setup) scheduler(by maker) *lab.Process {
	flags := []string{"--kubeconfig=" + s.kubeconfig("scheduler"), "--leader-elect=true"}
	if by == upstreams {
		argv := append([]string{s.cache.Program("kube-scheduler"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", lab.FreePorts(s.t, 1))}, flags...)
		return s.start("kube-scheduler-upstream", argv...)
	}
	argv := append([]string{*orrery, "kube-scheduler", fmt.Sprintf("--health-address=127.0.0.1:%d", lab.FreePorts(s.t, 1))}, flags...)
	return s.start("kube-scheduler-orrery", argv...)
}

func (s *setup) controllerManager(by maker) *lab.Process {
	flags := []string{
		"--kubeconfig=" + s.kubeconfig("controller-manager"), "--leader-elect=true",
		"--root-ca-file=" + s.pki.File("ca.crt"), "--service-account-private-key-file=" + s.pki.File("sa.key"),
		"--cluster-signing-cert-file=" + s.pki.File("ca.crt"), "--cluster-signing-key-file=" + s.pki.File("ca.key"),
	}
	if by == upstreams {
		argv := append([]string{s.cache.Program("kube-controller-manager"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", lab.FreePorts(s.t, 1)),
			"--use-service-account-credentials=true"}, flags...)
		return s.start("kube-controller-manager-upstream", argv...)
	}
	argv := append([]string{*orrery, "kube-controller-manager", fmt.Sprintf("--health-address=127.0.0.1:%d", lab.FreePorts(s.t, 1))}, flags...)
	return s.start("kube-controller-manager-orrery", argv...)
}

// agents starts simulated nodes, which are always orrery's.
func (s *setup) agents() *lab.Process {
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
`, lab.FreePorts(s.t, nodes), s.pki.File("server.crt"), s.pki.File("server.key"), s.pki.File("ca.crt"))
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
