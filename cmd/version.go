package cmd

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
)

// kubernetesVersion is the release whose API and behaviour we implement; it is
// what /version answers and what the node agent reports.
const kubernetesVersion = "v1.37.2"

// orreryVersion is this program's own.
const orreryVersion = "v0.1.0"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "orrery %s, Kubernetes %s, %s %s/%s\n", orreryVersion, kubernetesVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

// versionInfo is the body of /version.
func versionInfo() version.Info {
	parts := strings.Split(strings.TrimPrefix(kubernetesVersion, "v"), ".")
	return version.Info{
		Major: parts[0], Minor: parts[1],
		GitVersion: kubernetesVersion, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
