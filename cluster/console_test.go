package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConsolesPodComesAndGoes(t *testing.T) {
	c := ControlPlane{Layout: Layout{Dir: t.TempDir()}, Console: Console{Address: "127.0.0.1:2222", Keys: "/etc/orrery/keys"}}
	path := filepath.Join(c.Layout.Manifests(), "console-server.yaml")
	if err := c.WriteManifests(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--listen=127.0.0.1:2222", "--keys=/etc/orrery/keys", "- ALL", "readOnlyRootFilesystem: true", "mountPath: /etc/orrery\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in\n%s", want, data)
		}
	}
	if strings.Contains(string(data), "Probe") || strings.Contains(string(data), c.Layout.PKI("")) {
		t.Errorf("it is asked whether it is well, or sees the authorities' keys:\n%s", data)
	}
	c.Console = Console{}
	if err := c.WriteManifests(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it stays: %v", err)
	}
}

func TestHostKeyIsMadeOnce(t *testing.T) {
	path := Layout{Dir: t.TempDir()}.ConsoleHostKey()
	first, err := EnsureHostKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := EnsureHostKey(path)
	if err != nil || !bytes.Equal(again.PublicKey().Marshal(), first.PublicKey().Marshal()) {
		t.Errorf("another key, %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureHostKey(path); err == nil {
		t.Error("a damaged key is replaced: clients would be told of another server")
	}
}
