package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"orrery.dev/cluster"
	"orrery.dev/cluster/machine"
)

func newNodeCommand() *cobra.Command {
	o := upOptions{foreground: true}
	var dir string
	c := &cobra.Command{
		Use:   "node",
		Short: "Run a node without control plane: container runtime and node agent",
		Long: `Run a node without control plane: the container runtime and the node agent, which
are started again when they end. The certificates and the node agent's kubeconfig
are in --data-dir already. ` + "`orrery up --nodes N`" + ` starts one for each node but the first.

When it is told to end (SIGTERM, Ctrl-C), it stops the node's pods first.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runNode(c.Context(), c.OutOrStdout(), o, dir)
		},
	}
	f := c.Flags()
	dataDirFlag(c, &o.dataDir)
	f.StringVar(&o.nodeName, "node-name", "", "name of this node (default: the host name)")
	f.StringVar(&o.nodeIP, "node-ip", "", "address of this node (default: that of the default route)")
	f.StringVar(&dir, "machine", "", "be the first process of a machine within this one; its files are here")
	f.StringVar(&o.cgroupRoot, "cgroup-root", "/", "control group below which those of pods are made")
	networkFlags(f, &o)
	return c
}

// runNode brings a node up and stays with it.
func runNode(ctx context.Context, out io.Writer, o upOptions, dir string) error {
	if dir != "" {
		m := machine.Machine{Name: o.nodeName, Dir: dir, DataDir: o.dataDir, Volatile: volatile(cluster.Layout{Dir: o.dataDir})}
		if err := m.Enter(); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := machine.AwaitNetwork(waiting); err != nil {
			return err
		}
	}
	if err := o.complete(); err != nil {
		return err
	}
	n := &node{upOptions: o, layout: cluster.Layout{Dir: o.dataDir}, worker: true}
	for _, start := range []func(context.Context) error{n.startRuntime, n.loadImages, n.startAgent} {
		if err := start(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	n.keep(ctx, out)
	fmt.Fprintf(out, "node %s stops\n", n.nodeName)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), machineStop)
	defer cancel()
	return errors.Join(n.agent().stop(20*time.Second), n.stopPods(ending), n.stopRuntime(ending))
}
