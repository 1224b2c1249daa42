package cmd

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"orrery.dev/cluster"
)

func newKubeconfigCommand() *cobra.Command {
	var dataDir string
	c := &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print an administrator's kubeconfig of the cluster on this machine",
		Example: "  orrery kubeconfig > ~/.kube/config",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path := cluster.Layout{Dir: dataDir}.Kubeconfig("admin")
			data, err := os.ReadFile(path)
			if os.IsNotExist(err) {
				return fmt.Errorf("no cluster at %s: start one with `orrery up`, or name its place with --data-dir", dataDir)
			}
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(data)
			return err
		},
	}
	dataDirFlag(c, &dataDir)
	return c
}

func dataDirFlag(c *cobra.Command, dataDir *string) {
	c.Flags().StringVar(dataDir, "data-dir", cluster.DefaultDataDir, "where the cluster keeps everything on this machine")
}

// localKubeconfig is the administrator's kubeconfig of the cluster on this
// machine, real or simulated; "" when there is none that we may read.
func localKubeconfig() string {
	for _, dir := range []string{cluster.DefaultDataDir, simulateDir()} {
		path := cluster.Layout{Dir: dir}.Kubeconfig("admin")
		if f, err := os.Open(path); err == nil {
			f.Close()
			return path
		}
	}
	return ""
}

// chooseKubeconfig follows kubectl: the flag, then $KUBECONFIG, then
// ~/.kube/config; and last the cluster on this machine.
func chooseKubeconfig(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if path := os.Getenv("KUBECONFIG"); path != "" {
		return path, nil
	}
	if home, err := os.UserHomeDir(); err == nil && exists(home+"/.kube/config") {
		return home + "/.kube/config", nil
	}
	if path := localKubeconfig(); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("no cluster found: start one with `orrery up`, or name one with --kubeconfig")
}

// kubeconfigNamespace is where commands with that file act if nothing else is said.
func kubeconfigNamespace(path string) string {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(kubeconfigRules(path), &clientcmd.ConfigOverrides{}).Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return namespace
}

// kubeconfigRules read one file, or the several of a list as $KUBECONFIG may be.
func kubeconfigRules(path string) *clientcmd.ClientConfigLoadingRules {
	if files := filepath.SplitList(path); len(files) > 1 {
		return &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	return &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
}
