package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// Main runs the command that args name and returns the exit code. A program
// name that is a subcommand's ("kube-scheduler") selects that subcommand, so
// that pods and people can call the parts as they know them.
func Main(args []string) int {
	name := filepath.Base(args[0])
	rest := args[1:]
	// Programs that come with their own command line parse os.Args themselves.
	if run := foreign(name); run != nil {
		return run(args)
	}
	if len(rest) > 0 {
		if run := foreign(rest[0]); run != nil {
			return run(rest)
		}
	}
	root := newRoot()
	for _, c := range root.Commands() {
		if c.Name() == name {
			rest = append([]string{name}, rest...)
		}
	}
	root.SetArgs(rest)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root.ExecuteContext(ctx); err != nil {
		var code exitCode
		if errors.As(err, &code) {
			return int(code)
		}
		fmt.Fprintln(os.Stderr, "orrery:", err)
		return 1
	}
	return 0
}

// exitCode ends the program with a status and no message: the command has said
// what there is to say.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// newRoot is the command tree, in the order of `orrery --help`.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "orrery",
		Short:         "A Kubernetes cluster in one binary, with a window onto every moving part",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(
		&cobra.Group{ID: "cluster", Title: "The cluster on this machine:"},
		&cobra.Group{ID: "look", Title: "Looking at a cluster:"},
		&cobra.Group{ID: "part", Title: "The parts, each as a program of its own:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("cluster", newUpCommand(), newStatusCommand(), newDownCommand(), newKubeconfigCommand(), newImageCommand())
	add("look", newDashboardCommand(), newTUICommand(), newForeignStub("kubectl", "The Kubernetes command line, as everywhere else"),
		newForeignStub("etcdctl", "Look into etcd"), newForeignStub("etcdutl", "Work on etcd's files: snapshots, restore, defragmentation"))
	add("part", newEtcdCommand(), newAPIServerCommand(), newControllerManagerCommand(), newSchedulerCommand(),
		newKubeletCommand(), newNodeCommand(), newProxyCommand(), newDNSCommand(), newContainerdCommand(), newConsoleServerCommand())
	root.AddCommand(newVersionCommand())
	return root
}

// logTo sends our log, and that of the libraries, to standard error.
func logTo(component string) *slog.Logger { return logInto(os.Stderr, component) }

func logInto(w io.Writer, component string) *slog.Logger {
	handler := slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})
	logger := slog.New(handler).With("component", component)
	slog.SetDefault(logger)
	klog.SetLogger(logr.FromSlogHandler(handler))
	return logger
}

// nopZap keeps etcd's libraries quiet: their errors come back to us anyway.
func nopZap() *zap.Logger { return zap.NewNop() }
