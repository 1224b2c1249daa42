package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/server/encryption"
	"orrery.dev/server/storage"
)

// encrypted makes a server encrypt secrets with aescbc keys, the first of which
// writes.
func encrypted(t *testing.T, backend storage.Backend, keys ...string) func(*Config) {
	var all []string
	for _, k := range keys {
		all = append(all, "{name: "+k+", secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}")
	}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	text := "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources: [{resources: [secrets], providers: [{aescbc: {keys: [" +
		strings.Join(all, ", ") + "]}}, {identity: {}}]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := encryption.New(encryption.Config{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) {
		c.Store = storage.New(backend, storage.Options{Transformers: e, Log: slog.New(slog.DiscardHandler)})
		c.Bootstrap = nil
		c.Metrics = e.Collectors()
	}
}

// TestEncryption: secrets are unreadable in etcd, and get the present key when
// they are written again unchanged, as the instructions for a rotation say.
func TestEncryption(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd")
	}
	backend := overEtcd(t)
	ctx := t.Context()
	stored := func(name string) string {
		kv, _, err := backend.Get(ctx, "/registry/secrets/default/"+name)
		if err != nil || kv == nil {
			t.Fatal(kv, err)
		}
		return string(kv.Value)
	}
	plain := startOver(t, backend)
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"word": "open sesame"}}
	}
	if _, err := plain.client.CoreV1().Secrets("default").Create(ctx, secret("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := startOver(t, backend, encrypted(t, backend, "one"))
	if _, err := first.client.CoreV1().Secrets("default").Create(ctx, secret("after"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := stored("after"); !strings.HasPrefix(got, "k8s:enc:aescbc:v1:one:") || strings.Contains(got, "sesame") {
		t.Errorf("stored as %q", got)
	}
	if code, body := plain.do("GET", "/api/v1/namespaces/default/secrets/after", "", nil); code != 500 || !strings.Contains(body, "identity transformer tried to read encrypted data") {
		t.Errorf("a server without the key: %d %s", code, body)
	}
	second := startOver(t, backend, encrypted(t, backend, "two", "one"))
	rewriteSecrets(t, ctx, second)
	for _, name := range []string{"before", "after"} {
		if got := stored(name); !strings.HasPrefix(got, "k8s:enc:aescbc:v1:two:") {
			t.Errorf("%s is stored as %q", name, got)
		}
	}
	_, body := second.do("GET", "/metrics", "", nil)
	for _, want := range []string{
		`apiserver_storage_transformation_operations_total{resource="",status="OK",transformation_type="to_storage",transformer_prefix="k8s:enc:aescbc:v1:"} `,
		"apiserver_encryption_config_controller_last_config_info{",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

func rewriteSecrets(t *testing.T, ctx context.Context, c *cluster) {
	t.Helper()
	all, err := c.client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(all.Items) != 2 {
		t.Fatalf("%d secrets, %v", len(all.Items), err)
	}
	for _, s := range all.Items {
		if string(s.Data["word"]) != "open sesame" {
			t.Errorf("read back: %q", s.Data)
		}
		if _, err := c.client.CoreV1().Secrets("default").Update(ctx, &s, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	}
}
