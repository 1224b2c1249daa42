package cmd

import (
	"os"

	"github.com/spf13/cobra"

	"orrery.dev/client"
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
			o.FromEnvironment(os.Getenv)
			return tui.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the cluster on this machine)")
	f.StringVarP(&o.Namespace, "namespace", "n", "", "begin in this namespace (default: all)")
	f.StringVarP(&o.Command, "command", "c", "", "begin with this view, as after a colon: pods, deploy, nodes")
	f.BoolVar(&o.ReadOnly, "readonly", false, "allow nothing that changes the cluster")
	return c
}
