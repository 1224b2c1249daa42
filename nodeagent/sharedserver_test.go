package nodeagent

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"orrery.dev/cluster"
)

// One server answers for every node, and lets in whom the API server lets in.
func TestSharedServer(t *testing.T) {
	dir := t.TempDir()
	if _, err := cluster.Ensure(dir, cluster.Spec{NodeName: "simulated", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, ServiceIP: net.IPv4(10, 96, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	kubelet := kubeletconfig.KubeletConfiguration{TLSCertFile: filepath.Join(dir, "kubelet.crt"), TLSPrivateKeyFile: filepath.Join(dir, "kubelet.key")}
	kubelet.Authentication.X509.ClientCAFile = filepath.Join(dir, "ca.crt")
	server := NewSharedServer(kubelet)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	l := newLab(t)
	l.stop()
	l.config.Server = server
	l.react("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = review.Spec.User == "kube-apiserver-kubelet-client" && review.Spec.ResourceAttributes.Name == "node-1"
		return true, review, nil
	})
	l.start()
	l.create(pod(corev1.RestartPolicyAlways, "main"))
	l.untilReady("p")

	pool, err := cluster.ReadPool(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	get := func(host, path, as string) string {
		t.Helper()
		config := &tls.Config{RootCAs: pool, ServerName: "localhost"}
		if as != "" {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, as+".crt"), filepath.Join(dir, as+".key"))
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		via := &http.Transport{DialContext: server.Dial, TLSClientConfig: config}
		defer via.CloseIdleConnections()
		answer, err := (&http.Client{Transport: via}).Get("https://" + host + ":10250" + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.StatusCode, " ", string(body))
	}
	for _, c := range []struct{ host, path, as, want string }{
		{"172.16.0.1", "/containerLogs/ns/p/main", "apiserver-kubelet-client", "200 simulated container main"},
		{"172.16.0.1", "/containerLogs/ns/nobody/main", "apiserver-kubelet-client", "404 pod"},
		{"172.16.0.1", "/logs/", "apiserver-kubelet-client", "404"},
		{"172.16.0.1", "/pods", "", "401"},
		{"172.16.0.1", "/pods", "scheduler", "403"},
		{"172.16.0.9", "/pods", "apiserver-kubelet-client", "503 no node agent"},
	} {
		if got := get(c.host, c.path, c.as); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s of %s as %q: got %q, want %q", c.path, c.host, c.as, got, c.want)
		}
	}
}
