package cmd

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"orrery.dev/nodeagent/runtime"
)

func newImageCommand() *cobra.Command {
	c := &cobra.Command{Use: "image", Short: "Bring images in without a registry, and list them"}
	var dataDir string
	load := &cobra.Command{
		Use:     "import FILE.tar...",
		Short:   "Import image files (OCI layout or docker-archive, plain or gzipped) on every node",
		Example: "  docker save my/app:1 -o app.tar && sudo orrery image import app.tar",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			runtimes, err := ownRuntimes(dataDir)
			if err != nil {
				return err
			}
			for i, address := range runtimes {
				names, err := runtime.Import(c.Context(), address, files...)
				if err != nil {
					return err
				}
				if i > 0 {
					continue // the same again
				}
				for _, name := range names {
					fmt.Fprintln(c.OutOrStdout(), name)
				}
			}
			return nil
		},
	}
	list := &cobra.Command{
		Use: "ls", Short: "List the images that pods on the first node can use", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			runtimes, err := ownRuntimes(dataDir)
			if err != nil {
				return err
			}
			images, err := runtime.List(c.Context(), runtimes[0])
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NAME\tSIZE\tAGE")
			for _, image := range images {
				fmt.Fprintf(w, "%s\t%s\t%s\n", image.Name, resource.NewQuantity(image.Size>>10<<10, resource.BinarySI), duration.HumanDuration(time.Since(image.Created)))
			}
			return w.Flush()
		},
	}
	for _, sub := range []*cobra.Command{load, list} {
		dataDirFlag(sub, &dataDir)
		c.AddCommand(sub)
	}
	return c
}

// ownRuntimes are the addresses of the containerds that came along, one a node,
// the first node's first.
func ownRuntimes(dataDir string) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the container runtime belongs to root: run it with sudo")
	}
	n, err := existing(dataDir)
	if err != nil {
		return nil, err
	}
	if n.runtimeEndpoint != "" {
		return nil, fmt.Errorf("this cluster uses the runtime at %s: import images with its own tools", n.runtimeEndpoint)
	}
	if !n.runtime().running() {
		return nil, errors.New("the container runtime does not run: start the cluster with `orrery up`")
	}
	return n.runtimes(), nil
}
