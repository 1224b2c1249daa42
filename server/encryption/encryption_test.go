package encryption

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

const (
	key1 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" // 32 bytes
	key2 = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
)

// file is a configuration of one rule.
func file(resources string, providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + rule(resources, providers...)
}

func rule(resources string, providers ...string) string {
	return "- resources: [" + resources + "]\n  providers:\n  - " + strings.Join(providers, "\n  - ") + "\n"
}

func keyed(kind string, keys ...string) string {
	var all []string
	for i := 0; i < len(keys); i += 2 {
		all = append(all, "{name: "+keys[i]+", secret: "+keys[i+1]+"}")
	}
	return kind + ": {keys: [" + strings.Join(all, ", ") + "]}"
}

func load(t testing.TB, text string) *Encryption {
	t.Helper()
	e, err := New(Config{File: write(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.now.Load().stop() })
	return e
}

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var secrets = schema.GroupResource{Resource: "secrets"}

var place = value.DefaultContext("/registry/secrets/a/x")

func seal(t testing.TB, e *Encryption, gr schema.GroupResource) string {
	t.Helper()
	sealed, err := e.TransformerForResource(gr).TransformToStorage(t.Context(), []byte("k8s\x00plain"), place)
	if err != nil {
		t.Fatal(err)
	}
	return string(sealed)
}

// unseal says what was read and whether it is outdated, or why not.
func unseal(t testing.TB, e *Encryption, sealed string) string {
	t.Helper()
	plain, outdated, err := e.TransformerForResource(secrets).TransformFromStorage(t.Context(), []byte(sealed), place)
	switch {
	case err != nil:
		return err.Error()
	case string(plain) != "k8s\x00plain":
		return "something else"
	case outdated:
		return "outdated"
	}
	return "good"
}

func TestProviders(t *testing.T) {
	for provider, prefix := range map[string]string{
		keyed("aescbc", "one", key1):    "k8s:enc:aescbc:v1:one:",
		keyed("aesgcm", "one", key1):    "k8s:enc:aesgcm:v1:one:",
		keyed("secretbox", "one", key1): "k8s:enc:secretbox:v1:one:",
		"identity: {}":                  "k8s\x00plain",
	} {
		e := load(t, file("secrets", provider))
		sealed := seal(t, e, secrets)
		if !strings.HasPrefix(sealed, prefix) {
			t.Errorf("%s: stored as %q", provider, sealed)
		}
		if got := unseal(t, e, sealed); got != "good" {
			t.Errorf("%s: %s", provider, got)
		}
	}
}

// TestRotation: the order of keys and providers says what writes; all of them
// read.
func TestRotation(t *testing.T) {
	first := load(t, file("secrets", keyed("aescbc", "one", key1)))
	old := seal(t, first, secrets)
	for _, c := range []struct{ name, providers, oldIs, plainIs string }{
		{"second key behind", keyed("aescbc", "one", key1, "two", key2), "good", "does not match"},
		{"second key in front", keyed("aescbc", "two", key2, "one", key1), "outdated", "does not match"},
		{"first key gone", keyed("aescbc", "two", key2), "no matching key was found for the provided AES transformer", "does not match"},
		{"other provider in front", keyed("secretbox", "box", key2) + "\n  - " + keyed("aescbc", "one", key1), "outdated", "does not match"},
		{"plain values too", keyed("aescbc", "one", key1) + "\n  - identity: {}", "good", "outdated"},
		{"back to plain", "identity: {}\n  - " + keyed("aescbc", "one", key1), "outdated", "good"},
		{"plain only", "identity: {}", "no matching prefix found", "good"},
	} {
		e := load(t, file("secrets", c.providers))
		if got := unseal(t, e, old); !strings.Contains(got, c.oldIs) {
			t.Errorf("%s: the old value is %s, want %s", c.name, got, c.oldIs)
		}
		want := c.plainIs
		if want == "does not match" {
			want = "no matching prefix found"
		}
		if got := unseal(t, e, "k8s\x00plain"); got != want {
			t.Errorf("%s: a plain value is %s, want %s", c.name, got, want)
		}
	}
	// What no rule names is stored plainly, and sealed values are refused there.
	elsewhere := load(t, file("configmaps", keyed("aescbc", "one", key1)))
	if got := unseal(t, elsewhere, old); got != "identity transformer tried to read encrypted data" {
		t.Errorf("without a rule: %s", got)
	}
}

func TestWildcards(t *testing.T) {
	e := load(t, file("secrets, widgets.example.com", keyed("aesgcm", "own", key1))+
		rule("'*.'", keyed("aesgcm", "core", key1))+rule("'*.apps'", keyed("aesgcm", "apps", key1))+rule("'*.*'", keyed("aesgcm", "all", key1)))
	for gr, key := range map[schema.GroupResource]string{
		secrets: "own",
		{Group: "example.com", Resource: "widgets"}: "own",
		{Resource: "pods"}:                          "core",
		{Group: "apps", Resource: "deployments"}:    "apps",
		{Group: "batch", Resource: "jobs"}:          "all",
	} {
		if got := seal(t, e, gr); !strings.HasPrefix(got, "k8s:enc:aesgcm:v1:"+key+":") {
			t.Errorf("%s: stored as %q, want key %s", gr, got, key)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":        "is empty",
		"kind: x": "Object 'apiVersion' is missing",
		file("secrets", "aescbc: {keys: [], keyz: []}"):                             `unknown field "resources[0].providers[0].aescbc.keyz"`,
		file("secrets", keyed("aescbc", "one", "c2hvcnQ=")):                         "secret is not of the expected length",
		file("secrets", "kms: {apiVersion: v2, name: a, endpoint: 'tcp://x'}"):      `unsupported scheme "tcp" for KMS provider`,
		file("secrets", "kms: {name: a, endpoint: 'unix:///x'}"):                    "KMSv1 is deprecated",
		file("'*.*'", "identity: {}") + rule("secrets", keyed("aescbc", "a", key1)): `resource "secrets" is masked by earlier rule "*.*"`,
		file("'*.'", "identity: {}") + rule("secrets", keyed("aescbc", "a", key1)):  `resource "secrets" is masked by earlier rule "*."`,
	} {
		_, err := New(Config{File: write(t, text)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := New(Config{File: "/nonexistent"}); err == nil {
		t.Error("a file that is not there is fine")
	}
}

// TestReload: a changed file counts within a minute, a bad one not at all.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, file("secrets", keyed("aescbc", "one", key1)))
		e, err := New(Config{File: path, Reload: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { e.Run(ctx) })
		old := seal(t, e, secrets)
		change := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookInterval + time.Second)
		}
		change(file("secrets", keyed("aescbc", "two", key2, "one", key1)))
		if got := seal(t, e, secrets); !strings.HasPrefix(got, "k8s:enc:aescbc:v1:two:") {
			t.Errorf("after a change: stored as %q", got)
		}
		if got := unseal(t, e, old); got != "outdated" {
			t.Errorf("after a change: the old value is %s", got)
		}
		change("nonsense")
		if got := seal(t, e, secrets); !strings.HasPrefix(got, "k8s:enc:aescbc:v1:two:") {
			t.Errorf("after a bad change: stored as %q", got)
		}
		change(file("secrets", "identity: {}"))
		if got := seal(t, e, secrets); got != "k8s\x00plain" {
			t.Errorf("after a good change: stored as %q", got)
		}
	})
}
