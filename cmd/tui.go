package cmd

import (
	"log/slog"
	"net/http"
	"os"

	"github.com/spf13/cobra"

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
			if o.REST, err = client.Load(path, "tui"); err != nil {
				return err
			}
			instead, err := remote.New(o.REST, kubeconfigNamespace(path), slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			o.Rows = http.HandlerFunc(instead.Rows)
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
	f.BoolVar(&o.ReadOnly, "readonly", false, "allow nothing that changes the cluster")
	return c
}
