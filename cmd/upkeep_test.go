package cmd

import (
	"os"
	"path/filepath"
	"testing"
)

// TestShorten appends to a log before and after it is shortened, through one open
// file, as a daemon does.
func TestShorten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write := func(text string) {
		if _, err := log.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("old\n")
	if err := shorten(path); err != nil {
		t.Fatal(err)
	}
	write("new\n")
	for file, want := range map[string]string{path: "new\n", path + ".1": "old\n"} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s holds %q: %v", filepath.Base(file), got, err)
		}
	}
}
