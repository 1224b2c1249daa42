package cmd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"orrery.dev/client"
	"orrery.dev/server/remote"
	"orrery.dev/tui"
)

func newTUICommand() *cobra.Command {
	var kubeconfig string
	o := tui.Config{}
	c := &cobra.Command{
		Use: "tui", Short: "Look at a cluster in the terminal", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path, err := chooseKubeconfig(kubeconfig)
			if err != nil {
				return err
			}
			first, err := connect(path, "")
			if err != nil {
				return err
			}
			o.Context, o.REST, o.Instead = first.Context, first.REST, first.Instead
			o.Contexts = func() ([]tui.Context, error) { return contextsOf(path) }
			o.Connect = func(context string) (tui.Connection, error) { return connect(path, context) }
			o.Rename = func(context, name string) error { return renameContext(path, context, name) }
			o.Forget = func(context string) error { return forgetContext(path, context) }
			if helm, err := exec.LookPath("helm"); err == nil {
				o.Helm = func(ctx context.Context, context string, args ...string) error {
					return runHelm(ctx, helm, path, context, args)
				}
			}
			o.FromEnvironment(os.Getenv)
			return tui.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the cluster on this machine)")
	f.StringVarP(&o.Namespace, "namespace", "n", "", "begin in this namespace (default: all)")
	f.StringVarP(&o.Command, "command", "c", "", "begin with this view, as after a colon: pods, deploy, nodes")
	f.StringVar(&o.Theme, "theme", "auto", "dark, light, high-contrast, deuteranopia, or auto: by the terminal's background")
	f.BoolVar(&o.ASCII, "ascii", false, "draw with ASCII alone (default: where the terminal has no more)")
	f.StringVar(&o.NodeShellImage, "node-shell-image", "", "image for a shell on a node (default: busybox)")
	f.BoolVar(&o.ReadOnly, "readonly", false, "allow nothing that changes the cluster")
	return c
}

// runHelm runs the user's helm against a context of a kubeconfig; what it complains of is
// the error.
func runHelm(ctx context.Context, helm, kubeconfig, context string, args []string) error {
	c := exec.CommandContext(ctx, helm, append(args, "--kube-context", context)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	output, err := c.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("helm %s: %w: %s", args[0], err, lines[len(lines)-1])
	}
	return nil
}

// contextsOf are the clusters that a kubeconfig knows.
func contextsOf(path string) ([]tui.Context, error) {
	file, err := kubeconfigRules(path).Load()
	if err != nil {
		return nil, err
	}
	var out []tui.Context
	for name, c := range file.Contexts {
		known := tui.Context{Name: name, Cluster: c.Cluster, User: c.AuthInfo, Namespace: c.Namespace}
		if cluster := file.Clusters[c.Cluster]; cluster != nil {
			known.Server = cluster.Server
		}
		out = append(out, known)
	}
	return out, nil
}

// renameContext and forgetContext change the kubeconfig that has the context.
func renameContext(path, context, name string) error {
	return changeContexts(path, context, func(file *clientcmdapi.Config) error {
		if name == "" || file.Contexts[name] != nil {
			return fmt.Errorf("the name %q is taken, or none", name)
		}
		file.Contexts[name] = file.Contexts[context]
		if file.CurrentContext == context {
			file.CurrentContext = name
		}
		return nil
	})
}

func forgetContext(path, context string) error {
	return changeContexts(path, context, func(file *clientcmdapi.Config) error {
		if file.CurrentContext == context {
			file.CurrentContext = ""
		}
		return nil
	})
}

func changeContexts(path, context string, change func(*clientcmdapi.Config) error) error {
	rules := kubeconfigRules(path)
	file, err := rules.GetStartingConfig()
	if err != nil {
		return err
	}
	if file.Contexts[context] == nil {
		return fmt.Errorf("the kubeconfig has no context %q", context)
	}
	if err := change(file); err != nil {
		return err
	}
	delete(file.Contexts, context)
	return clientcmd.ModifyConfig(rules, *file, false)
}

// connect reads the way to a context's cluster; "" is the current one.
func connect(path, context string) (tui.Connection, error) {
	file, err := kubeconfigRules(path).Load()
	if err != nil {
		return tui.Connection{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	chosen := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{CurrentContext: context})
	cfg, err := chosen.ClientConfig()
	if err != nil {
		return tui.Connection{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	home, _, err := chosen.Namespace()
	if err != nil {
		return tui.Connection{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	cfg = client.ForComponent(cfg, "tui")
	instead, err := remote.New(cfg, home, slog.New(slog.DiscardHandler))
	return tui.Connection{Context: cmp.Or(context, file.CurrentContext), REST: cfg, Instead: instead}, err
}
