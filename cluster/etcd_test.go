package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// runEtcd runs a member and returns its client and how to stop it.
func runEtcd(t *testing.T, c EtcdConfig) (*clientv3.Client, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan *clientv3.Client, 1), make(chan error, 1)
	c.Ready = func(client *clientv3.Client) { ready <- client }
	go func() { done <- RunEtcd(ctx, c) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("RunEtcd: %v", err)
		}
	}
	select {
	case client := <-ready:
		return client, stop
	case err := <-done:
		cancel()
		t.Fatalf("RunEtcd: %v", err)
	case <-time.After(time.Minute):
		cancel()
		t.Fatal("etcd did not become ready")
	}
	return nil, nil
}

func TestEtcdKeepsData(t *testing.T) {
	dir := t.TempDir()
	c := EtcdConfig{
		Name: "one", DataDir: filepath.Join(dir, "etcd"), UnsafeNoFsync: true, LogLevel: "panic",
		ListenClientURLs: []string{"http://" + freeAddress(t)}, ListenPeerURLs: []string{"http://" + freeAddress(t)},
	}
	client, stop := runEtcd(t, c)
	if _, err := client.Put(t.Context(), "/registry/kept", "1"); err != nil {
		t.Fatal(err)
	}

	other := c
	other.DataDir = filepath.Join(dir, "other")
	address := strings.TrimPrefix(c.ListenPeerURLs[0], "http://")
	if err := RunEtcd(t.Context(), other); err == nil || !strings.Contains(err.Error(), address+" is taken") {
		t.Errorf("second member on the same port: %v", err)
	}

	stop()
	client, stop = runEtcd(t, c)
	defer stop()
	got, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Key) != "/registry/kept" {
		t.Errorf("kept: %v %v", got, err)
	}
}

func TestEtcdErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "text")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	urls := []string{"http://127.0.0.1:0"}
	for name, tc := range map[string]struct {
		c    EtcdConfig
		want string
	}{
		"no address":   {EtcdConfig{DataDir: dir}, "--listen-client-urls"},
		"bad address":  {EtcdConfig{DataDir: dir, ListenClientURLs: []string{"127.0.0.1:2379"}, ListenPeerURLs: urls}, "--listen-client-urls"},
		"no directory": {EtcdConfig{DataDir: filepath.Join(file, "x"), ListenClientURLs: urls, ListenPeerURLs: urls}, "data directory"},
		"no certificates": {EtcdConfig{
			DataDir: filepath.Join(dir, "etcd"), ListenClientURLs: []string{"https://" + freeAddress(t)}, ListenPeerURLs: []string{"http://" + freeAddress(t)},
			Client: EtcdTLS{CertFile: filepath.Join(dir, "none.crt"), KeyFile: filepath.Join(dir, "none.key")}, LogLevel: "panic",
		}, "certificates"},
	} {
		if err := RunEtcd(t.Context(), tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want something about %s", name, err, tc.want)
		}
	}
}
