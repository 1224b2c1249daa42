package cmd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestContextsAreChangedInTheirFiles renames and forgets those of a list of files,
// as $KUBECONFIG may be; each stays in its own.
func TestContextsAreChangedInTheirFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name, current string) string {
		cfg := clientcmdapi.NewConfig()
		cfg.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + ".example"}
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "t"}
		cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "in-" + name}
		cfg.CurrentContext = current
		path := filepath.Join(folder, name)
		if err := clientcmd.WriteToFile(*cfg, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	east, west := file("east", "west"), file("west", "")
	both := strings.Join([]string{east, west}, string(os.PathListSeparator))
	names := func(path string) (out []string, current string) {
		cfg, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range cfg.Contexts {
			out = append(out, name+" "+c.Namespace)
		}
		slices.Sort(out)
		return out, cfg.CurrentContext
	}
	if err := renameContext(both, "west", "sunset"); err != nil {
		t.Fatal(err)
	}
	if in, current := names(east); !slices.Equal(in, []string{"east in-east"}) || current != "sunset" {
		t.Errorf("east has %v, and %s is the current one", in, current)
	}
	if in, _ := names(west); !slices.Equal(in, []string{"sunset in-west"}) {
		t.Errorf("west has %v", in)
	}
	for _, name := range []string{"east", ""} {
		if err := renameContext(both, "sunset", name); err == nil {
			t.Errorf("renamed to %q", name)
		}
	}
	if err := forgetContext(both, "gone"); err == nil {
		t.Error("forgot what is not there")
	}
	if err := forgetContext(both, "sunset"); err != nil {
		t.Fatal(err)
	}
	if in, _ := names(west); len(in) > 0 {
		t.Errorf("west still has %v", in)
	}
	if cfg, err := clientcmd.LoadFromFile(west); err != nil || cfg.Clusters["west"] == nil || cfg.AuthInfos["west"] == nil {
		t.Errorf("the cluster and its user went too: %v", err)
	}
	if _, current := names(east); current != "" {
		t.Errorf("%s is the current one", current)
	}
}
