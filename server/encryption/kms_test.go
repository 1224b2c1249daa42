package encryption

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
)

// fakePlugin is a KMS plugin whose encryption is to put the name of its key in
// front.
type fakePlugin struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	endpoint string

	mu     sync.Mutex // protects the fields below
	key    string
	health string
	asked  int // for seeds
}

func startPlugin(t testing.TB) *fakePlugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kms.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePlugin{endpoint: "unix://" + path, key: "key1", health: "ok"}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return p
}

func (p *fakePlugin) set(key, health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.health = key, health
}

func (p *fakePlugin) Status(context.Context, *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsapi.StatusResponse{Version: "v2", Healthz: p.health, KeyId: p.key}, nil
}

func (p *fakePlugin) Encrypt(_ context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return &kmsapi.EncryptResponse{Ciphertext: append([]byte(p.key+"|"), r.Plaintext...), KeyId: p.key}, nil
}

func (p *fakePlugin) Decrypt(_ context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	seed, ok := strings.CutPrefix(string(r.Ciphertext), r.KeyId+"|")
	if !ok {
		return nil, errors.New("not mine")
	}
	return &kmsapi.DecryptResponse{Plaintext: []byte(seed)}, nil
}

func (p *fakePlugin) file() string {
	return file("secrets", "kms: {apiVersion: v2, name: vault, timeout: 1s, endpoint: '"+p.endpoint+"'}")
}

// askAgain makes the next check ask the plugin.
func askAgain(e *Encryption) {
	for _, p := range e.now.Load().plugins {
		p.mu.Lock()
		p.asked = time.Time{}
		p.mu.Unlock()
	}
}

func TestKMS(t *testing.T) {
	p := startPlugin(t)
	e := load(t, p.file())
	if err := e.Check(t.Context()); err != nil || !e.Watched() {
		t.Fatal(err)
	}
	old := seal(t, e, secrets)
	if !strings.HasPrefix(old, "k8s:enc:kms:v2:vault:") || strings.Contains(old, "plain") {
		t.Fatalf("stored as %q", old)
	}
	if got := unseal(t, e, old); got != "good" {
		t.Error(got)
	}
	if p.asked != 1 {
		t.Errorf("%d seeds for one server", p.asked)
	}
	// Another server, and this one after a restart, read it as well.
	if got := unseal(t, load(t, p.file()), old); got != "good" {
		t.Errorf("elsewhere: %s", got)
	}
	p.set("key2", "ok")
	askAgain(e)
	if err := e.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := unseal(t, e, old); got != "outdated" {
		t.Errorf("after a change of the key: %s", got)
	}
	if got := unseal(t, e, seal(t, e, secrets)); got != "good" {
		t.Errorf("with the new key: %s", got)
	}
	// An ill plugin is told of; what the server has, it can still use.
	p.set("key2", "on fire")
	askAgain(e)
	const want = "kms-provider-0: kmsv2 Provider vault is not healthy, error: got unexpected healthz status: on fire"
	if err := e.Check(t.Context()); err == nil || err.Error() != want {
		t.Errorf("health: %v", err)
	}
	if got := unseal(t, e, seal(t, e, secrets)); got != "good" {
		t.Errorf("with an ill plugin: %s", got)
	}
}

// TestNoPlugin: the server starts without, and gives no wrong answers.
func TestNoPlugin(t *testing.T) {
	e := load(t, file("secrets", "kms: {apiVersion: v2, name: vault, timeout: 100ms, endpoint: 'unix:///nonexistent'}"))
	if err := e.Check(t.Context()); err == nil {
		t.Error("it is said to be well")
	}
	if _, err := e.TransformerForResource(secrets).TransformToStorage(t.Context(), []byte("x"), place); err == nil {
		t.Error("something was encrypted")
	}
}
