package cmd

import (
	"github.com/spf13/cobra"

	"orrery.dev/nodeagent/runtime"
)

func newContainerdCommand() *cobra.Command {
	return &cobra.Command{
		Use: "containerd", Short: "The container runtime that comes along", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error { return runtime.ServeContainerd(c.Context(), args) },
	}
}
