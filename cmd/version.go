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

// release is the version without the number of the patch: "1.37".
func release() string {
	parts := strings.Split(strings.TrimPrefix(kubernetesVersion, "v"), ".")
	return parts[0] + "." + parts[1]
}

// oldestCompatible is the minor release whose clients and components we get along
// with, too.
const oldestCompatible = "36"

// versionInfo is the body of /version.
func versionInfo() version.Info {
	major, minor, _ := strings.Cut(release(), ".")
	return version.Info{
		Major: major, Minor: minor, EmulationMajor: major, EmulationMinor: minor,
		MinCompatibilityMajor: major, MinCompatibilityMinor: oldestCompatible,
		GitVersion: kubernetesVersion, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
