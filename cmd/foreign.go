package cmd

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

// foreign returns the program of that name which comes with a command line of
// its own, or nil. args[0] is its name.
func foreign(name string) func(args []string) int {
	switch name {
	case "kubectl":
		return runKubectl
	case "etcdctl":
		return runEtcdctl
	case "etcdutl":
		return runEtcdutl
	}
	return nil
}

// newForeignStub lists such a program in the help.
func newForeignStub(name, short string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return exitCode(foreign(name)(append([]string{name}, args...)))
		}}
}

// runKubectl is upstream's kubectl. With no kubeconfig named anywhere it talks
// to the cluster on this machine.
func runKubectl(args []string) int {
	home, _ := os.UserHomeDir()
	if os.Getenv("KUBECONFIG") == "" && !exists(home+"/.kube/config") {
		if path := localKubeconfig(); path != "" {
			os.Setenv("KUBECONFIG", path)
		}
	}
	os.Args = args
	return cli.Run(kubectl.NewDefaultKubectlCommand())
}

func runEtcdctl(args []string) int {
	os.Args = args
	if err := ctlv3.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "etcdctl:", err)
		return 1
	}
	return 0
}

func runEtcdutl(args []string) int {
	root := &cobra.Command{Use: "etcdutl", Short: "Work on etcd's files", SilenceUsage: true}
	root.AddCommand(etcdutl.NewSnapshotCommand(), etcdutl.NewDefragCommand(), etcdutl.NewHashKVCommand(), etcdutl.NewVersionCommand())
	root.SetArgs(args[1:])
	if err := root.Execute(); err != nil {
		return 1
	}
	return 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
